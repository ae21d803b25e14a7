"""Cases for metrics: examples explained by all methods for all targets that are needed, one trace per batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.attribution.assemble import explain_trace
from clearhead.attribution.batch import BATCH, share_gradients
from clearhead.attribution.method import MethodSpec
from clearhead.data.task import Example
from clearhead.engine.streams import prefetch
from clearhead.engine.trace import Trace, capture
from clearhead.errors import Argument, BadInput, BadOption, UnsupportedModel, UnsupportedOperation
from clearhead.evaluation.examples import label_index
from clearhead.evaluation.metric import ExplainedExample, MetricSpec
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded, collate, encode
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.validation import require_integer

REFUSALS = (UnsupportedModel, UnsupportedOperation)


@dataclass(frozen=True)
class ExplainedExamples:
    """Cases by the method as spelled, in the order of the examples; methods that refused; examples left out, by id."""

    cases: dict[str, list[ExplainedExample]]
    refused: dict[str, str]
    skipped: list[tuple[str, str]]


def required_targets(measures: Sequence[MetricSpec]) -> list[str]:
    """The kinds of explanation that some of these metrics need."""
    return list(dict.fromkeys(target for measure in measures for target in measure.targets))


def wants_labels(measure: MetricSpec) -> bool:
    """Whether the metric compares with, or explains, the examples' labels."""
    return "label" in (*measure.targets, measure.all_options.get("against"))


def check_labels(model: Model, examples: Sequence[Example], needs: Sequence[str]) -> None:
    """Finds a missing or unknown label before anything is computed."""
    if "label" in needs:
        for example in examples:
            label_index(model, example)


def explain_examples(
    model: Model,
    examples: Sequence[Example],
    spellings: Sequence[MethodSpec],
    needs: Sequence[str],
    *,
    batch_size: int | None = None,
    long: str = "truncate",
) -> ExplainedExamples:
    """Explains examples by all methods for all needed targets, one trace per batch.

    An example that cannot be read is skipped, a method that refuses the model is left out; both with the reason.
    """
    if long not in ("error", "truncate"):
        raise BadOption(Argument("long", long), " is not a choice when measuring. Use 'truncate' or 'error'.")
    if batch_size is not None:
        require_integer("batch_size", batch_size, is_flag=True)
    check_needs(model, needs)
    encoded, skipped = _encoded(model, examples, long)
    found: dict[str, dict[int, ExplainedExample]] = {one.text: {} for one in spellings}
    refused: dict[str, str] = {}
    places = sorted(encoded, key=lambda place: encoded[place].length)
    size = (batch_size or BATCH) if model.can_pad else 1
    chunks = (places[start : start + size] for start in range(0, len(places), size))
    batches = ((batch, collate(model, [encoded[place] for place in batch])) for batch in chunks)
    for batch, inputs in prefetch(batches, model.device, "inputs"):
        trace = capture(model, inputs)
        rows = _rows(trace, [examples[place] for place in batch], spellings, needs, refused)
        for text, several in rows.items():
            for place, row in zip(batch, several, strict=True):
                found[text][place] = ExplainedExample(examples[place], row, encoded[place])
    cases = {text: [by[place] for place in sorted(by)] for text, by in found.items() if text not in refused}
    return ExplainedExamples(cases, refused, skipped)


def _encoded(model: Model, examples: Sequence[Example], long: str) -> tuple[dict[int, Encoded], list[tuple[str, str]]]:
    encoded, skipped = {}, []
    for place, example in enumerate(examples):
        try:
            encoded[place] = encode(model, example.raw, long=long)
        except BadInput as error:
            skipped.append((example.id, str(error)))
    if not encoded and examples:
        name, reason = skipped[0]
        raise BadInput(f"No example can be read by {model.name}. Example '{name}': {reason}")
    return encoded, skipped


Rows = dict[str, list[dict[str, Explanation]]]


def _rows(
    trace: Trace,
    examples: Sequence[Example],
    spellings: Sequence[MethodSpec],
    needs: Sequence[str],
    refused: dict[str, str],
) -> Rows:
    """By method, for each example of a batch its explanations by key; who refuses is added to `refused`.

    Targets come one after the other and methods within, so that only one target's gradients are held at a time.
    """
    rows: Rows = {one.text: [{} for _ in examples] for one in spellings if one.text not in refused}
    for targets, keys in _wanted(trace, examples, needs).items():
        seen = trace if targets == trace.targets else trace.with_target(targets)
        if share_gradients(spellings):
            seen.keep_gradients()
        for spelling in (one for one in spellings if one.text not in refused):
            try:
                found = explain_trace(seen, spelling)
            except REFUSALS as error:
                refused[spelling.text] = str(error)
                continue
            for row, explanation in zip(rows[spelling.text], found, strict=True):
                row.update(dict.fromkeys(keys, explanation))
    _share(rows, trace, examples, needs)
    return {text: several for text, several in rows.items() if text not in refused}


def _share(rows: Rows, trace: Trace, examples: Sequence[Example], needs: Sequence[str]) -> None:
    """Where every class is explained, the prediction's and the label's explanations are among them."""
    if "every-class" not in needs:
        return
    for several in rows.values():
        for row, target, example in zip(several, trace.targets, examples, strict=True):
            if row:
                row["prediction"] = row[str(target.number)]
                row |= {"label": row[str(label_index(trace.model, example))]} if "label" in needs else {}


def _wanted(trace: Trace, examples: Sequence[Example], needs: Sequence[str]) -> dict[tuple[Target, ...], list[str]]:
    """The targets of a batch that have to be explained, each with the keys it answers."""
    model, predicted = trace.model, trace.targets
    if "every-class" in needs:
        return {(Target(number),) * len(predicted): [str(number)] for number in range(len(model.labels))}
    found: dict[tuple[Target, ...], list[str]] = {}
    for need in needs:
        if need == "prediction":
            targets = predicted
        elif need == "label":
            targets = tuple(Target(label_index(model, example)) for example in examples)
        else:
            targets = tuple(_side(target, need) for target in predicted)
        found.setdefault(targets, []).append(need)
    return found


def _side(target: Target, side: str) -> Target:
    """The start or the end of a predicted answer alone."""
    assert target.span is not None
    return Target(span=(target.span[0], None) if side == "start" else (None, target.span[1]))


def check_needs(model: Model, needs: Sequence[str]) -> None:
    """Refuses kinds of explanation that this model cannot have."""
    spans = model.problem == "span"
    for need in needs:
        if need in ("start", "end") and not spans:
            raise UnsupportedModel(f"{model.name} does not answer with a span, whose start and end could be explained.")
        if need in ("label", "every-class") and (spans or len(model.labels) < 2):
            raise UnsupportedModel(
                f"{model.name} has no classes to tell apart, so none but its own answer is explained."
            )
