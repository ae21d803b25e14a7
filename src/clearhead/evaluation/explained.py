"""Examples explained for metrics: by all methods, for all targets that the metrics need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from clearhead.attribution import assemble
from clearhead.attribution.batch import AttributionRequest, TargetSets, attribute_batches
from clearhead.attribution.batch_result import InputResult
from clearhead.attribution.batch_sizes import Batch, make_batches
from clearhead.attribution.method import MethodSpec
from clearhead.data.task import Example
from clearhead.engine.trace import Trace
from clearhead.errors import Argument, BadInput, BadOption, UnsupportedModel
from clearhead.evaluation.answer_planner import ANSWER, AnswerPlanner
from clearhead.evaluation.examples import focused_input, label_index
from clearhead.evaluation.metric import ANSWER_TARGETS, ExplainedExample, MetricSpec
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded, EncodedList, EncodedRows, encode, encode_all
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.progress import Advance, ignore_progress
from clearhead.validation import require_integer

REFUSALS = assemble.REFUSALS
"""Errors by which a method or metric refuses a model."""


@dataclass(frozen=True)
class ExplainedExamples:
    """Explained examples by method as written, methods that refused the model, and (id, reason) of skipped examples."""

    cases: dict[str, list[ExplainedExample]]
    refused: dict[str, str]
    skipped: list[tuple[str, str]]


def required_targets(measures: Sequence[MetricSpec]) -> list[str]:
    """Return the targets that some of these metrics need, each once."""
    # A dict, not a set: it keeps the order, so that runs do not differ.
    return list(dict.fromkeys(chain.from_iterable(measure.targets for measure in measures)))


def wants_labels(measure: MetricSpec) -> bool:
    """Return whether the metric compares with, or explains, the examples' labels."""
    return "label" in measure.targets or measure.all_options.get("against") == "label"


def check_labels(model: Model, examples: Sequence[Example], needs: Sequence[str]) -> None:
    """Raise BadInput for a missing or unknown label, before anything is computed."""
    if "label" in needs:
        for example in examples:
            label_index(model, example)


def explain_examples(
    model: Model,
    examples: Sequence[Example],
    specs: Sequence[MethodSpec],
    needs: Sequence[str],
    *,
    batch_size: int | None = None,
    long: str = "truncate",
    advance: Advance = ignore_progress,
) -> ExplainedExamples:
    """Explain examples by all methods for all needed targets, with one trace per batch.

    An example that cannot be read is skipped, a method that refuses the model is left out; both with the reason.
    `advance` is called with the number of examples that have been explained since the last time.
    """
    _validate_options(batch_size, long)
    check_needs(model, needs)
    planner = _make_planner(model, examples, needs)
    encoded, skipped = _encode_examples(planner, long)
    # Filled by the loop, and read by it: a method that refused one batch is not run on the next.
    refused: dict[str, str] = {}
    request = AttributionRequest(model, specs, planner.captured_targets, expand_targets=planner.expand, refused=refused)
    results = {}
    for index, result in attribute_batches(request, _make_batches(model, encoded, batch_size)):
        results[index] = result
        advance(1)
    planner.add_steps(request, encoded, results)
    cases = {}
    for number, spec in enumerate(specs):
        # A method may refuse only after some batches: then the examples before are left out as well.
        if spec.text not in refused:
            cases[spec.text] = _make_cases(planner, encoded, results, number)
    return ExplainedExamples(cases, refused, skipped)


def _make_batches(model: Model, encoded: Mapping[int, Encoded], batch_size: int | None) -> Iterator[Batch]:
    """Yield batches of the examples that can be read, with their own indices."""
    indices = list(encoded)
    for batch in make_batches(model, EncodedList(list(encoded.values())), batch_size):
        yield Batch([indices[row] for row in batch.indices], batch.inputs)


def _validate_options(batch_size: int | None, long: str) -> None:
    """Raise BadOption unless the options fit evaluation, which has no windows."""
    _validate_long(long)
    if batch_size is not None:
        require_integer("batch_size", batch_size, is_flag=True)


def _validate_long(long: str) -> None:
    if long not in ("error", "truncate"):
        raise BadOption(Argument("long", long), " is not a choice when measuring. Use 'truncate' or 'error'.")


def _make_planner(model: Model, examples: Sequence[Example], needs: Sequence[str]) -> "TargetPlanner | AnswerPlanner":
    if model.writes:
        return AnswerPlanner(model, examples, needs)
    return TargetPlanner(model, examples, needs)


def _make_cases(
    planner: "TargetPlanner | AnswerPlanner",
    encoded: Mapping[int, Encoded],
    results: Mapping[int, InputResult],
    method: int,
) -> list[ExplainedExample]:
    """Pair the examples with their explanations by one method, in the order of the examples."""
    # Sorted, because batches come by length.
    return [planner.make_case(index, encoded[index], results[index][method]) for index in sorted(results)]


def _encode_examples(
    planner: "TargetPlanner | AnswerPlanner", long: str
) -> tuple[dict[int, Encoded], list[tuple[str, str]]]:
    """Return encoded examples by index, and (id, reason) of those that cannot be read."""
    rows = planner.encode_together(long)
    if rows is not None:
        return dict(enumerate(rows)), []
    encoded = {}
    skipped = []
    for index, example in enumerate(planner.examples):
        try:
            encoded[index] = planner.encode(index, long)
        except BadInput as error:
            skipped.append((example.id, str(error)))
    _check_readable(planner.model, encoded, skipped)
    return encoded, skipped


def _check_readable(model: Model, encoded: Mapping[int, Encoded], skipped: Sequence[tuple[str, str]]) -> None:
    # A few damaged examples are skipped; where all are, the data do not fit the model.
    if skipped and not encoded:
        raise _nothing_readable(model, *skipped[0])


def _nothing_readable(model: Model, example_id: str, reason: str) -> BadInput:
    return BadInput(f"No example can be read by {model.name}. Example '{example_id}': {reason}")


@dataclass(frozen=True)
class TargetPlanner:
    """Which targets of each example are explained; remembers the predictions of the traces it has seen."""

    model: Model
    examples: Sequence[Example]
    needs: Sequence[str]
    predicted: dict[int, Target] = field(default_factory=dict)
    captured_targets = None
    """Traces are captured for the predictions."""

    def encode_together(self, overflow: str) -> EncodedRows | None:
        """Return all examples ready to be put into batches; None if the model cannot read one of them."""
        try:
            return encode_all(self.model, list(map(focused_input, self.examples)), overflow=overflow)
        except BadInput:
            return None

    def encode(self, index: int, overflow: str) -> Encoded:
        """Return an example ready to be put into a batch; raise BadInput if the model cannot read it."""
        return encode(self.model, focused_input(self.examples[index]), overflow=overflow)

    def add_steps(
        self, request: AttributionRequest, encoded: Mapping[int, Encoded], results: Mapping[int, InputResult]
    ) -> None:
        """Add nothing: only the answers of language models have steps."""

    def expand(self, trace: Trace, indices: Sequence[int]) -> TargetSets:
        """Return the targets to explain from a trace that was captured for the predictions."""
        self.predicted.update(zip(indices, trace.targets, strict=True))
        if "every-class" in self.needs:
            return self._every_class(len(indices))
        return self._needed_targets(indices)

    def _needed_targets(self, indices: Sequence[int]) -> TargetSets:
        # Needs with equal targets share one explanation: often the label is what the model predicts.
        names: dict[tuple[Target, ...], list[str]] = {}
        for need in self.needs:
            names.setdefault(self._choose_targets(need, indices), []).append(need)
        return names

    def _choose_targets(self, need: str, indices: Sequence[int]) -> tuple[Target, ...]:
        return tuple(self._choose_target(need, index) for index in indices)

    def _every_class(self, rows: int) -> TargetSets:
        # A set of targets per class: all rows of a batch are explained for the same one.
        targets = {}
        for number in range(len(self.model.labels)):
            targets[(Target(number),) * rows] = [str(number)]
        return targets

    def _choose_target(self, need: str, index: int) -> Target:
        if need == "label":
            return Target(self._label(index))
        if need == "prediction":
            return self.predicted[index]
        return _one_side(self.predicted[index], need)

    def _label(self, index: int) -> int:
        return label_index(self.model, self.examples[index])

    def make_case(self, index: int, encoded: Encoded, explanations: dict[str, Explanation]) -> ExplainedExample:
        """Return an example with its explanations by one method."""
        return ExplainedExample(self.examples[index], self.add_chosen_classes(index, explanations), encoded)

    def add_chosen_classes(self, index: int, explanations: dict[str, Explanation]) -> dict[str, Explanation]:
        """Where every class is explained, add prediction and label, which are among the classes."""
        if "every-class" not in self.needs:
            return explanations
        added = {"prediction": explanations[str(self.predicted[index].number)]}
        if "label" in self.needs:
            added["label"] = explanations[str(self._label(index))]
        return {**explanations, **added}


def _one_side(predicted: Target, need: str) -> Target:
    """Return the start or the end of a predicted answer as a target."""
    assert predicted.span is not None
    start, end = predicted.span
    if need == "start":
        return Target(span=(start, None))
    return Target(span=(None, end))


def check_needs(model: Model, needs: Sequence[str]) -> None:
    """Raise UnsupportedModel for targets that this model does not have."""
    for need in needs:
        _check_need(model, need)


def default_need(model: Model) -> str:
    """Return what any method explains of this model: its prediction, or its whole answer."""
    if model.writes:
        return ANSWER
    return "prediction"


def _check_need(model: Model, need: str) -> None:
    if model.writes or need in ANSWER_TARGETS:
        _require_same_output(model, need)
    if need in ("start", "end"):
        _require_spans(model)
    if need in ("label", "every-class"):
        _require_classes(model)


def _require_same_output(model: Model, need: str) -> None:
    """Raise UnsupportedModel if only one of model and metric is about written answers."""
    _require_answer_metric(model, need)
    if not model.writes:
        raise UnsupportedModel(f"{model.name} does not write text, so it has no answers to measure: use aopc, say.")


def _require_answer_metric(model: Model, need: str) -> None:
    if need not in ANSWER_TARGETS:
        raise UnsupportedModel(
            f"{model.name} writes text, so metrics of classes do not apply: use those of answers, such as "
            "log-prob-drop, lds or evidence-rank."
        )


def _require_spans(model: Model) -> None:
    if model.problem != "span":
        raise UnsupportedModel(f"{model.name} does not answer with a span, whose start and end could be explained.")


def _require_classes(model: Model) -> None:
    if not _has_classes(model):
        raise UnsupportedModel(f"{model.name} has no classes to tell apart, so none but its own answer is explained.")


def _has_classes(model: Model) -> bool:
    # A regression has a single output, and positions of an answer are no classes.
    return model.problem != "span" and len(model.labels) > 1
