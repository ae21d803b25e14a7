"""Which targets of a language model's answers are explained for metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clearhead.attribution.answers import explain_steps
from clearhead.attribution.batch import AttributionRequest, InputResult, TargetSets
from clearhead.data.task import Example, Writing
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput
from clearhead.evaluation.metric import ExplainedExample
from clearhead.explanation import Explanation
from clearhead.model.answer_inputs import add_answer, encode_prompt, generate_answer, tokenise_answer
from clearhead.model.inputs import Encoded
from clearhead.model.model import Model
from clearhead.model.target import AnswerTarget, Target

ANSWER = "answer"
CONTRAST = "contrast"
STEPS = "steps"


@dataclass(frozen=True)
class AnswerPlanner:
    """The targets of each example: its whole answer, every step of it, and its contrast with a foil."""

    model: Model
    examples: Sequence[Example]
    needs: Sequence[str]
    targets: dict[str, list[AnswerTarget | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for need in (ANSWER, CONTRAST):
            self.targets[need] = [None] * len(self.examples)

    @property
    def captured_targets(self) -> list[AnswerTarget | None]:
        """What traces are captured for: one target per example."""
        return self.targets[ANSWER]

    def encode(self, index: int, overflow: str) -> Encoded:
        """Return a prompt with its answer; raise BadInput if one of them does not suit the model or the metrics."""
        example = self.examples[index]
        writing = example.writing or Writing()
        prompt = encode_prompt(self.model, example.raw)
        ids = _find_answer(self.model, prompt, writing.answer)
        encoded = add_answer(self.model, prompt, ids)
        if CONTRAST in self.needs:
            self.targets[CONTRAST][index] = _make_contrast(self.model, prompt, ids, writing.foil)
        self.targets[ANSWER][index] = AnswerTarget(steps=tuple(range(len(ids))), tokens=tuple(ids))
        return encoded

    def expand(self, trace: Trace, indices: Sequence[int]) -> TargetSets:
        """Return the targets to explain from a trace that was captured for whole answers."""
        names: dict[tuple[Target, ...], list[str]] = {}
        for need in self._batched_needs():
            names.setdefault(self._choose_targets(need, indices), []).append(need)
        return names

    def _batched_needs(self) -> list[str]:
        # The explanations of steps contain those of whole answers.
        computed = {STEPS, ANSWER} if STEPS in self.needs else set()
        return [need for need in self.needs if need not in computed]

    def _choose_targets(self, need: str, indices: Sequence[int]) -> tuple[Target, ...]:
        targets: list[Target] = []
        for index in indices:
            target = self.targets[need][index]
            assert target is not None
            targets.append(target)
        return tuple(targets)

    def add_steps(
        self, request: AttributionRequest, encoded: Mapping[int, Encoded], results: Mapping[int, InputResult]
    ) -> None:
        """Add the explanations of every step, if a metric needs them, to the results of the batches."""
        if STEPS not in self.needs:
            return
        # One answer at a time: the rows of a batch are the steps of this answer.
        for index, row in encoded.items():
            for number, explanation in explain_steps(request, index, row).items():
                results[index][number].update(dict.fromkeys((STEPS, ANSWER), explanation))

    def make_case(self, index: int, encoded: Encoded, explanations: dict[str, Explanation]) -> ExplainedExample:
        """Return an example with its explanations by one method."""
        return ExplainedExample(self.examples[index], explanations, encoded)


def _find_answer(model: Model, prompt: Encoded, answer: str | None) -> list[int]:
    if answer is None:
        return generate_answer(model, prompt, {})
    return tokenise_answer(model, prompt, answer)


def _make_contrast(model: Model, prompt: Encoded, ids: Sequence[int], foil: str | None) -> AnswerTarget:
    """Return the contrast at the first token where answer and foil differ.

    After it they continue different texts, so that their logits cannot be compared step by step.
    """
    if foil is None:
        raise BadInput("There is no foil to contrast the answer with: add one, or measure with target=answer.")
    foil_ids = tokenise_answer(model, prompt, foil, name="foil")
    for step, (token, other) in enumerate(zip(ids, foil_ids, strict=False)):
        if token != other:
            return AnswerTarget(steps=(step,), tokens=(token,), foil=(other,))
    raise BadInput(f"The foil {foil!r} begins like the answer, or is the same: no token tells them apart.")
