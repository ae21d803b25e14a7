"""What a metric is: a function from explained examples to one record each, and a summary of the records.

A record is plain data (numbers, lists of numbers, short texts), so that it can be kept in a file; values, curves,
intervals and tests all follow from records alone.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from clearhead.arrays import Array
from clearhead.data.task import Example, Task
from clearhead.errors import Argument, BadInput, BadOption, ClearheadError
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded, Inputs, collate, encode
from clearhead.model.model import Model
from clearhead.model.target import class_index
from clearhead.registry import Registry
from clearhead.spec import option_defaults, parse_spec, validate_options

Record = dict[str, Any]
Curve = tuple[list[float], list[float]]
Curves = tuple[list[float], Array]
"""Places on the horizontal axis (K), and heights (R, K) for R reweightings of the records."""
TARGETS = ("prediction", "label", "every-class", "start", "end")


@dataclass(frozen=True, eq=False)
class ExplainedExample:
    """An example with its explanations, by what they explain.

    Keys: "prediction", "label", "start" and "end" of a predicted answer, or a class number as text.
    """

    example: Example
    explanations: Mapping[str, Explanation]
    encoded: Encoded | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Metric:
    """A registered metric.

    `values` name what it answers; they are means of the records' entries of that name unless `summary` says otherwise.
    `targets` are the explanations a case needs, `prepare` makes the examples to be explained out of a task's.
    """

    name: str
    measure: Callable[..., list[Record]]
    paper: str
    better: str
    values: tuple[str, ...]
    targets: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    summary_of: Callable[..., dict[str, Array]] | None = None
    curve_of: Callable[..., Curves] | None = None
    prepare: Callable[..., list[Example]] | None = None

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.measure) or "").split("\n\n")[0].replace("\n", " ")

    @property
    def is_mean(self) -> bool:
        """Whether the values are means over records, so that two methods may be compared record by record."""
        return self.summary_of is None


METRICS: Registry[Metric] = Registry(
    "metric",
    modules=(
        "clearhead.evaluation.confidence",
        "clearhead.evaluation.top_words",
        "clearhead.evaluation.faithfulness",
        "clearhead.evaluation.localisation",
        "clearhead.evaluation.plausibility",
        "clearhead.evaluation.sanity",
    ),
)


def metrics() -> Registry[Metric]:
    """Every metric by name, with its paper."""
    return METRICS


def metric(
    *,
    paper: str,
    better: str,
    values: Sequence[str] = (),
    targets: Sequence[str] = ("prediction",),
    summary: Callable[..., dict[str, Array]] | None = None,
    curve: Callable[..., Curves] | None = None,
    prepare: Callable[..., list[Example]] | None = None,
) -> Callable[[Callable[..., list[Record]]], Callable[..., list[Record]]]:
    """Registers a function (model, cases, *, options) → records under the kebab-case of its name.

    `summary` is a function (records, weights_RN, *, options) → {value: array R} for any number R of reweightings;
    `curve` one (records, weights_RN, *, options) → (xs, heights R × xs).
    """

    def register(measure: Callable[..., list[Record]]) -> Callable[..., list[Record]]:
        name = measure.__name__.replace("_", "-")
        found = Metric(
            name,
            measure,
            paper,
            better,
            tuple(values) or (name,),
            tuple(targets),
            option_defaults(measure),
            summary,
            curve,
            prepare,
        )
        METRICS.add(name, found)
        return measure

    return register


@dataclass(frozen=True)
class MetricSpec:
    """A metric with the options it was asked for, and the way that was written."""

    text: str
    metric: Metric
    options: Mapping[str, Any]

    @property
    def all_options(self) -> dict[str, Any]:
        return {**self.metric.options, **self.options}

    @property
    def targets(self) -> tuple[str, ...]:
        """Which explanations a case needs; the option `target` chooses where a metric has it."""
        chosen = self.all_options.get("target")
        if chosen is None:
            return self.metric.targets
        if chosen not in TARGETS[:2]:
            raise BadOption(f"target={chosen!r} is not a choice of '{self.metric.name}'. Use 'prediction' or 'label'.")
        return (chosen,)

    def prepare(self, task: Task) -> list[Example]:
        """The examples to explain: the task's own, or what the metric makes of them."""
        if self.metric.prepare is None:
            return list(task.examples)
        return self.metric.prepare(list(task.examples), **self._for(self.metric.prepare))

    def measure(self, model: Model, cases: Sequence[ExplainedExample]) -> list[Record]:
        """One record per case, in order."""
        with torch.inference_mode(False):
            return self.metric.measure(model, list(cases), **self.options) if cases else []

    def summarise(self, records: Sequence[Record]) -> dict[str, float]:
        """The metric's values over these records."""
        found = self.resampled(records, np.ones((1, len(records))))
        return {name: float(values[0]) for name, values in found.items()}

    def resampled(self, records: Sequence[Record], weights_RN: Array) -> dict[str, Array]:
        """The values (R) when each record counts as often as each row of weights says."""
        if not records:
            return {name: np.full(len(weights_RN), np.nan) for name in self.metric.values}
        if self.metric.summary_of is None:
            return means(records, weights_RN, self.metric.values)
        return self.metric.summary_of(records, weights_RN, **self._for(self.metric.summary_of))

    def curve(self, records: Sequence[Record]) -> Curve | None:
        """What the metric draws, as xs and ys; None where it draws nothing, or no record has anything to draw."""
        found = self.curves(records, np.ones((1, len(records))))
        return None if found is None else (found[0], [float(height) for height in found[1][0]])

    def curves(self, records: Sequence[Record], weights_RN: Array) -> Curves | None:
        """As `curve`, when each record counts as often as each row of weights says."""
        if self.metric.curve_of is None or not records:
            return None
        xs, heights_RK = self.metric.curve_of(records, weights_RN, **self._for(self.metric.curve_of))
        return (xs, heights_RK) if heights_RK.shape[1] else None

    def _for(self, function: Callable[..., Any]) -> dict[str, Any]:
        wanted = inspect.signature(function).parameters
        return {name: value for name, value in self.all_options.items() if name in wanted}


def parse_metric(name: Any, **options: Any) -> MetricSpec:
    """'aopc', 'aopc:absent=pad,steps=9' or (name, {options}), as for methods."""
    if isinstance(name, MetricSpec):
        return name
    text, plain, given = parse_spec(name)
    found = METRICS[plain]
    return MetricSpec(text, found, validate_options(found.name, found.measure, {**given, **options}))


def means(records: Sequence[Record], weights_RN: Array, values: Sequence[str]) -> dict[str, Array]:
    """Weighted means of the records' entries; an entry that is not a number (nothing to measure) takes no part."""
    return {name: _mean(column(records, name), weights_RN) for name in values}


def _mean(values: Array, weights_RN: Array) -> Array:
    """Of one number (N), or several (N, K), per record."""
    real = np.isfinite(values)
    total = weights_RN @ real
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Array = weights_RN @ np.where(real, values, 0.0) / total
    return found


def column(records: Sequence[Record], name: str) -> Array:
    """One entry of every record, NaN where it has none."""
    return np.array([np.nan if record.get(name) is None else record[name] for record in records], dtype=np.float64)


def mean_curve(records: Sequence[Record], weights_RN: Array, name: str) -> Array:
    """The weighted mean (R, K) of a list of numbers; a record without it, or with a number missing, takes no part."""
    lists = [record.get(name) for record in records]
    length = next((len(one) for one in lists if one is not None), 0)
    rows_NK = np.array([[np.nan] * length if one is None else one for one in lists], dtype=np.float64)
    return _mean(rows_NK, weights_RN)


# --- what metrics need of a case ----------------------------------------------------------------------------------


def explanation_for(case: ExplainedExample, key: str) -> Explanation:
    if key not in case.explanations:
        raise BadInput(f"Example '{case.example.id}' has no explanation of its {key}: {', '.join(case.explanations)}.")
    return case.explanations[key]


def label_index(model: Model, example: Example) -> int:
    """The class number of an example's label; an unknown or missing one is an error that names the example."""
    if example.label is None:
        found = f"Example '{example.id}' has no label, which this metric needs: name it with "
        raise BadInput(found, Argument("label_column"), ".")
    try:
        return class_index(example.label, model.labels)
    except ClearheadError as error:
        raise BadInput(f"Example '{example.id}' is labelled {example.label!r}. {error}") from error


def collate_examples(model: Model, cases: Sequence[ExplainedExample]) -> Inputs:
    """The cases' inputs as one batch, cut to what the model takes."""
    seen: dict[int, Encoded] = {}
    return collate(model, [_encoded(model, case, seen) for case in cases])


def _encoded(model: Model, case: ExplainedExample, seen: dict[int, Encoded]) -> Encoded:
    if case.encoded is not None:
        return case.encoded
    key = id(case.example)
    if key not in seen:
        seen[key] = encode(model, case.example.raw, long="truncate")
    return seen[key]
