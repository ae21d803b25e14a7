"""What a metric is: a function from explained examples to one record each, and a summary of the records.

A record is plain data (numbers, lists of numbers, short texts), so that it can be kept in a file; values, curves,
intervals and tests all follow from records alone.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

from clearhead.arrays import Array
from clearhead.data.task import Example, Task
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded
from clearhead.model.model import Model
from clearhead.registry import Registry
from clearhead.spec import option_defaults, parse_spec, validate_options
from clearhead.validation import require_choice

Result = TypeVar("Result")
Record = dict[str, Any]
Curve = tuple[list[float], list[float]]
Curves = tuple[list[float], Array]
"""Positions on the horizontal axis (K), and heights (R, K) for R reweightings of the records."""
WordLists = dict[str, list[tuple[str, float]]]
"""By class its strongest words, each with its weight."""
SENTENCE_END = re.compile(r"(?<=\.) ")
Measure = Callable[..., list[Record]]
TARGETS = ("prediction", "label", "every-class", "start", "end", "answer", "steps", "step-logits", "contrast")
TARGET_CHOICES = ("prediction", "label")
ANSWER_TARGETS = ("answer", "steps", "step-logits", "contrast")
"""Targets of language models: the whole answer, each of its steps, their logits, the answer rather than a foil."""
ANSWER_CHOICES = ("answer", "contrast")


@dataclass(frozen=True, eq=False)
class ExplainedExample:
    """An example with its explanations, by what they explain.

    Keys: "prediction", "label", "start" and "end" of a predicted answer, or a class number as text; for language models
    "answer", "steps" and "step-logits" (with the matrix of steps) and "contrast". `removals` keeps what removal.py has
    computed, for further metrics.
    """

    example: Example
    explanations: Mapping[str, Explanation]
    encoded: Encoded | None = field(default=None, repr=False)
    removals: dict[Any, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Metric:
    """A registered metric.

    `values` name its results; they are means of the records' entries of that name unless `summary_of` computes them.
    `targets` are the explanations an example needs, `prepare` makes the examples to be explained out of a task's,
    `words_of` reads the words of each class from the records, `aliases` map former option names to current ones.
    The values of a metric that `is_share` lie between 0 and 1, and so do their intervals.
    """

    name: str
    measure: Measure
    paper: str
    better: str
    values: tuple[str, ...]
    targets: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    summary_of: Callable[..., dict[str, Array]] | None = None
    curve_of: Callable[..., Curves] | None = None
    words_of: Callable[[Sequence[Record]], WordLists] | None = None
    prepare: Callable[..., list[Example]] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    is_share: bool = False

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring."""
        return _join_lines(self._docstring.partition("\n\n")[0])

    @property
    def _docstring(self) -> str:
        return inspect.getdoc(self.measure) or ""

    def explain_options(self, names: Iterable[str]) -> list[str]:
        """Return the sentences of the docstring that say what these options do."""
        details = _join_lines(self._docstring.partition("\n\n")[2])
        return [sentence for sentence in SENTENCE_END.split(details) if _names_any(sentence, names)]

    @property
    def is_mean(self) -> bool:
        """Whether the values are means over records, so that two methods may be compared record by record."""
        return self.summary_of is None


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _names_any(sentence: str, options: Iterable[str]) -> bool:
    # Docstrings write `order="index"` as well as `order`.
    return any(re.search(rf"`{option}\b", sentence) for option in options)


METRICS: Registry[Metric] = Registry(
    "metric",
    modules=(
        "clearhead.evaluation.confidence",
        "clearhead.evaluation.top_words",
        "clearhead.evaluation.faithfulness",
        "clearhead.evaluation.localisation",
        "clearhead.evaluation.plausibility",
        "clearhead.evaluation.sanity",
        "clearhead.evaluation.planted",
        "clearhead.evaluation.answer_faithfulness",
        "clearhead.evaluation.step_faithfulness",
        "clearhead.evaluation.soft_faithfulness",
        "clearhead.evaluation.answer_evidence",
        "clearhead.evaluation.alignment",
    ),
)


def metrics() -> Registry[Metric]:
    """Return every metric by name, with its paper."""
    return METRICS


def metric(  # noqa: PLR0913 - the signature shows every field of a metric
    *,
    paper: str,
    better: str,
    values: Sequence[str] = (),
    targets: Sequence[str] = ("prediction",),
    summary: Callable[..., dict[str, Array]] | None = None,
    curve: Callable[..., Curves] | None = None,
    words: Callable[[Sequence[Record]], WordLists] | None = None,
    prepare: Callable[..., list[Example]] | None = None,
    aliases: Mapping[str, str] | None = None,
    is_share: bool = False,
) -> Callable[[Measure], Measure]:
    """Register a function (model, cases, *, options) → records under the kebab-case of its name.

    `summary` is a function (records, weights_RN, *, options) → {value: array R} for any number R of reweightings;
    `curve` one (records, weights_RN, *, options) → (xs, heights R × xs); `words` one records → words of each class.
    """

    def register(measure: Measure) -> Measure:
        name = measure.__name__.replace("_", "-")
        registered = Metric(
            name=name,
            measure=measure,
            paper=paper,
            better=better,
            values=tuple(values) or (name,),
            targets=tuple(targets),
            options=option_defaults(measure),
            summary_of=summary,
            curve_of=curve,
            words_of=words,
            prepare=prepare,
            aliases=dict(aliases or {}),
            is_share=is_share,
        )
        METRICS.add(name, registered, measure.__module__)
        return measure

    return register


@dataclass(frozen=True)
class MetricSpec:
    """A metric, its options, and the original spec string."""

    text: str
    metric: Metric
    options: Mapping[str, Any]

    @property
    def all_options(self) -> dict[str, Any]:
        """Defaults included."""
        return {**self.metric.options, **self.options}

    @property
    def summary(self) -> str:
        """What is measured, and what the chosen options change."""
        changed = [name for name, value in self.options.items() if value != self.metric.options[name]]
        return " ".join([self.metric.summary, *self.metric.explain_options(changed)])

    @property
    def targets(self) -> tuple[str, ...]:
        """The explanations an example needs; the option `target` chooses where a metric has it."""
        target = self.all_options.get("target")
        if target is None:
            return self.metric.targets
        require_choice("target", target, self._target_choices, f" for '{self.metric.name}'")
        return (target,)

    @property
    def _target_choices(self) -> tuple[str, ...]:
        if set(self.metric.targets) <= set(ANSWER_TARGETS):
            return ANSWER_CHOICES
        return TARGET_CHOICES

    def prepare(self, task: Task) -> list[Example]:
        """Return the examples to explain: the task's own, or those that the metric makes of them."""
        examples = list(task.examples)
        if self.metric.prepare is None:
            return examples
        return self._call(self.metric.prepare, examples)

    def measure(self, model: Model, cases: Sequence[ExplainedExample]) -> list[Record]:
        """Return one record per explained example, in order."""
        if not cases:
            return []
        # Some metrics explain again, which needs gradients even when the caller is in inference mode.
        with torch.inference_mode(False):
            return self.metric.measure(model, list(cases), **self.options)

    def summarise(self, records: Sequence[Record]) -> dict[str, float]:
        """Return the metric's values over these records."""
        return first_row(self.resampled(records, count_once(records)))

    def resampled(self, records: Sequence[Record], weights_RN: Array) -> dict[str, Array]:
        """Return the values (R) when each record counts as often as each row of weights says."""
        if not records:
            return self._without_values(len(weights_RN))
        if self.metric.summary_of is None:
            return means(records, weights_RN, self.metric.values)
        return self._call(self.metric.summary_of, records, weights_RN)

    def _without_values(self, rows: int) -> dict[str, Array]:
        return {name: np.full(rows, np.nan) for name in self.metric.values}

    def curve(self, records: Sequence[Record]) -> Curve | None:
        """Return the metric's curve as xs and ys, None if it has none or no record has anything to draw."""
        curves = self.curves(records, count_once(records))
        if curves is None:
            return None
        return _first_curve(curves)

    def curves(self, records: Sequence[Record], weights_RN: Array) -> Curves | None:
        """Return the curves when each record counts as often as each row of weights says; None as for `curve`."""
        if self.metric.curve_of is None or not records:
            return None
        xs, heights_RK = self._call(self.metric.curve_of, records, weights_RN)
        # No point: no record had a list of numbers.
        if not heights_RK.shape[1]:
            return None
        return xs, heights_RK

    def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function of the metric with the options that it takes."""
        return function(*arguments, **self._options_of(function))

    def _options_of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return the options that a function of the metric takes."""
        # A summary or curve takes only the options that change it.
        parameters = inspect.signature(function).parameters
        return {name: value for name, value in self.all_options.items() if name in parameters}


def _first_curve(curves: Curves) -> Curve:
    # A single row of weights gives a single curve.
    xs, heights_RK = curves
    return xs, heights_RK[0].tolist()


def parse_metric(name: Any, **options: Any) -> MetricSpec:
    """Parse 'aopc', 'aopc:replacement=pad,steps=9' or (name, {options}), as for methods."""
    if isinstance(name, MetricSpec):
        return name
    text, plain_name, spec_options = parse_spec(name)
    registered = METRICS[plain_name]
    return MetricSpec(text, registered, _validate_options(registered, {**spec_options, **options}))


def _validate_options(registered: Metric, options: Mapping[str, Any]) -> dict[str, Any]:
    return validate_options(registered.name, registered.measure, options, aliases=registered.aliases)


def count_once(records: Sequence[Record]) -> Array:
    """Return weights (1, N) by which each record counts once: the estimate without resampling."""
    return np.ones((1, len(records)))


def first_row(values: Mapping[str, Array]) -> dict[str, float]:
    """Return the values (R) of the first reweighting as numbers."""
    return {name: float(value_R[0]) for name, value_R in values.items()}


def means(records: Sequence[Record], weights_RN: Array, values: Sequence[str]) -> dict[str, Array]:
    """Return weighted means of the records' entries; missing and NaN entries are ignored."""
    return {name: _weighted_mean(column(records, name), weights_RN) for name in values}


def _weighted_mean(values: Array, weights_RN: Array) -> Array:
    """Return the mean over records of one number (N), or several (N, K), per record; NaN entries are ignored."""
    is_finite = np.isfinite(values)
    # NaN times a weight of 0 would still be NaN.
    finite_values = np.where(is_finite, values, 0.0)
    return divide_or_nan(weights_RN @ finite_values, weights_RN @ is_finite)


def divide_or_nan(numerator: Array, denominator: Array) -> Array:
    """Return the quotient, without a warning where it is 0 / 0, which is NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        quotient: Array = numerator / denominator
    return quotient


def column(records: Sequence[Record], name: str) -> Array:
    """Return one entry of every record, NaN where it has none."""
    # As floats None becomes NaN.
    return np.array(_entries(records, name), dtype=np.float64)


def _entries(records: Sequence[Record], name: str) -> list[Any]:
    return [record.get(name) for record in records]


def mean_curve(records: Sequence[Record], weights_RN: Array, name: str) -> Array:
    """Return the weighted mean (R, K) of a list of numbers; records without it, and NaN in it, are ignored."""
    return _weighted_mean(_stack_lists(_entries(records, name)), weights_RN)


def _stack_lists(lists: Sequence[list[float] | None]) -> Array:
    """Return the lists as rows (N, K)."""
    rows_NK = np.full((len(lists), _first_length(lists)), np.nan)
    for row_K, values in zip(rows_NK, lists, strict=True):
        # Records without the list keep their row of NaN.
        if values is not None:
            row_K[:] = values
    return rows_NK


def _first_length(lists: Sequence[list[float] | None]) -> int:
    """Return the length that all lists have, 0 if there is none."""
    for values in lists:
        if values is not None:
            return len(values)
    return 0
