"""Which targets of a language model's answers are explained for metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from clearhead.attribution.answers import explain_steps
from clearhead.attribution.batch import AttributionRequest, TargetSets
from clearhead.attribution.batch_result import InputResult
from clearhead.data.task import Example, Writing
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput
from clearhead.evaluation.metric import ExplainedExample
from clearhead.explanation import Explanation
from clearhead.model.answer_inputs import answer_prompt, encode_prompt, tokenise_answer
from clearhead.model.inputs import Encoded
from clearhead.model.model import Model
from clearhead.model.target import LOGIT, AnswerTarget, Target
from clearhead.perturbation.answers import require_answer

ANSWER = "answer"
CONTRAST = "contrast"
STEPS = "steps"
STEP_LOGITS = "step-logits"


@dataclass(frozen=True)
class AnswerPlanner:
    """The targets of each example: its whole answer, every step of it, and its contrast with a foil.

    `answers` and `contrasts` are filled as examples are encoded; None for those that were not.
    """

    model: Model
    examples: Sequence[Example]
    needs: Sequence[str]
    answers: dict[int, AnswerTarget] = field(default_factory=dict)
    contrasts: dict[int, AnswerTarget] = field(default_factory=dict)

    @property
    def captured_targets(self) -> list[Target | None]:
        """What traces are captured for, the whole answer; None for examples that were skipped."""
        return list(map(self.answers.get, range(len(self.examples))))

    def encode_together(self, overflow: str) -> None:
        """Return None: prompts get their answers one by one."""

    def encode(self, index: int, overflow: str) -> Encoded:
        """Return a prompt with its answer; raise BadInput if one of them does not suit the model or the metrics."""
        writing = self.examples[index].writing or Writing()
        prompt = encode_prompt(self.model, self.examples[index].raw)
        encoded = answer_prompt(self.model, prompt, writing.answer, {})
        ids = require_answer(encoded).ids
        # First, because without a foil an example is skipped, and must not count as encoded.
        if CONTRAST in self.needs:
            self.contrasts[index] = contrast_answers(ids, _tokenise_foil(self.model, prompt, writing.foil))
        self.answers[index] = _whole_answer(ids)
        return encoded

    def expand(self, trace: Trace, indices: Sequence[int]) -> TargetSets:
        """Return the targets to explain from a trace that was captured for whole answers."""
        names: dict[tuple[Target, ...], list[str]] = {}
        # The explanations of steps contain those of whole answers.
        if ANSWER in self.needs and STEPS not in self.needs:
            names[trace.targets] = [ANSWER]
        if CONTRAST in self.needs:
            names[tuple(map(self.contrasts.__getitem__, indices))] = [CONTRAST]
        return names

    def add_steps(
        self, request: AttributionRequest, encoded: Mapping[int, Encoded], results: Mapping[int, InputResult]
    ) -> None:
        """Add the explanations of every step, if a metric needs them, to the results of the batches."""
        # One answer at a time: the rows of a batch are the steps of this answer.
        for index, row in encoded.items():
            if STEPS in self.needs:
                _add_explanations(results[index], explain_steps(request, index, row), STEPS, ANSWER)
            if STEP_LOGITS in self.needs:
                _add_explanations(results[index], explain_steps(self._of_logits(request), index, row), STEP_LOGITS)

    def _of_logits(self, request: AttributionRequest) -> AttributionRequest:
        """Return a request that explains logits in place of log-probabilities."""
        targets = []
        for index in range(len(self.examples)):
            target = self.answers.get(index)
            targets.append(target and replace(target, scale=LOGIT))
        return replace(request, targets=targets)

    def make_case(self, index: int, encoded: Encoded, explanations: dict[str, Explanation]) -> ExplainedExample:
        """Return an example with its explanations by one method."""
        return ExplainedExample(self.examples[index], explanations, encoded)


def _add_explanations(result: InputResult, explanations: Mapping[int, Explanation], *names: str) -> None:
    """Add the explanation by each method, under some names, to the result of an input."""
    for number, explanation in explanations.items():
        result[number].update(dict.fromkeys(names, explanation))


def _whole_answer(ids: Sequence[int]) -> AnswerTarget:
    return AnswerTarget(steps=tuple(range(len(ids))), tokens=tuple(ids))


def _tokenise_foil(model: Model, prompt: Encoded, foil: str | None) -> list[int]:
    if foil is None:
        raise BadInput("There is no foil to contrast the answer with: add one, or measure with target=answer.")
    return tokenise_answer(model, prompt, foil, name="foil")


def contrast_answers(ids: Sequence[int], foil: Sequence[int]) -> AnswerTarget:
    """Return the contrast at the first token where answer and foil differ.

    After it they continue different texts, so that their logits cannot be compared step by step.
    """
    for step, (token, other) in enumerate(zip(ids, foil, strict=False)):
        if token != other:
            return AnswerTarget(steps=(step,), tokens=(token,), foil=(other,))
    raise BadInput("No token tells answer and foil apart: one begins with the other, or they are the same.")
