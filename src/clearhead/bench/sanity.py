"""check_sanity(): do explanations depend on the weights, and do they find evidence that was planted?"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clearhead.attribution.names import ONE_TRACE_METHODS
from clearhead.bench.choose import CONTROL, sample_task
from clearhead.bench.controls import is_control
from clearhead.bench.format import format_number, join_names
from clearhead.bench.sections import Cell, Grid, Section, section_html, section_markdown
from clearhead.evaluation.evaluate import Table, evaluate
from clearhead.evaluation.statistics import band
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.validation import require_integer
from clearhead.views import html, markdown_parts

RANDOMISATION = "randomisation"
PLANTED = "planted"
FIRST = "planted-first"
TEXTS = 40
IMAGES = 16
# An explanation that keeps more than half of its order on a random network mostly shows something else than the model.
# Likewise one that misses evidence which decides, more often than not.
HALF = 0.5
PASSES = "passes"
FAILS = "fails"
UNCLEAR = "unclear"
NOTES = (
    "Randomised weights: rank correlation of the explanation with that of the same network after all its weights were "
    "drawn at random, from the head down. Near 0 it depends on what the model learned; near 1 it does not.",
    "Planted evidence: share of inputs in which the token (or patch) that decides by construction comes first. Chance "
    "is what random relevance reaches.",
    "In brackets: 95 % interval over inputs. A test is passed, or failed, only if the whole interval lies on one side "
    "of one half; otherwise more inputs are needed.",
)


@dataclass(frozen=True)
class SanityRow:
    """One method: what it did in the two tests, with intervals; NaN for a test that could not be made."""

    method: str
    correlation: float
    correlation_low: float
    correlation_high: float
    first: float
    first_low: float
    first_high: float
    planted: int

    @property
    def randomisation(self) -> str:
        """Whether the explanation depends on the weights."""
        return _judge(-self.correlation_high, -self.correlation_low, -HALF)

    @property
    def evidence(self) -> str:
        """Whether the explanation finds what was planted."""
        return _judge(self.first_low, self.first_high, HALF)

    @property
    def verdict(self) -> str:
        """Fails if a test is failed, passes if both are passed."""
        verdicts = {self.randomisation, self.evidence}
        if FAILS in verdicts:
            return FAILS
        return PASSES if verdicts == {PASSES} else UNCLEAR

    def as_record(self) -> dict[str, Any]:
        """Return the row as JSON has it: None where a number is missing."""
        numbers = {name: _finite_or_none(value) for name, value in asdict(self).items()}
        return {**numbers, "randomisation": self.randomisation, "evidence": self.evidence, "verdict": self.verdict}


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _judge(low: float, high: float, threshold: float) -> str:
    """Return on which side of the threshold an interval lies; above is good."""
    if low > threshold:
        return PASSES
    if high < threshold:
        return FAILS
    return UNCLEAR


@dataclass(frozen=True)
class SanityReport:
    """The result of `check_sanity`: a row per method, the verdict in sentences, and the table behind them."""

    title: str
    rows: tuple[SanityRow, ...]
    sentences: tuple[str, ...]
    table: Table

    def __repr__(self) -> str:
        return "\n".join(self.sentences)

    @property
    def sections(self) -> list[Section]:
        return [Section("Verdict", self.sentences), Section("Tests", NOTES, (_make_grid(self.rows),))]

    def to_html(self) -> str:
        """Return the report as one HTML page."""
        return html.page(list(map(section_html, self.sections)), self.title)

    def to_markdown(self) -> str:
        """Return the report as Markdown."""
        blocks = map(section_markdown, self.sections)
        return "\n\n".join([f"# {markdown_parts.escape(self.title)}", *blocks]) + "\n"


def check_sanity(
    model: Any,
    inputs: Any,
    methods: Sequence[Any] | None = None,
    *,
    limit: int | None = None,
    seed: int = 0,
    **reading: Any,
) -> SanityReport:
    """Test methods on a model: against random weights, and by planted evidence that decides.

    `inputs` are texts or images, a Task, or a file, read with the options in `reading`; labels are not used. At most
    `limit` of them (40 texts or 16 images) are explained.

    >>> clearhead.check_sanity(model, texts)     # doctest: +SKIP
    """
    model = as_model(model)
    require_integer("seed", seed, 0, is_flag=True)
    task = sample_task(inputs, limit or _default_limit(model), reading)
    names = [*(methods or ONE_TRACE_METHODS), CONTROL]
    metrics = [f"{RANDOMISATION}:seed={seed}", f"{PLANTED}:seed={seed}"]
    table = evaluate(model, task, names, metrics, seed=seed)
    rows = tuple(_make_rows(table, metrics[0], seed))
    return SanityReport(f"Sanity of explanations: {model.name} on {task.name}", rows, _describe(rows, len(task)), table)


def _default_limit(model: Model) -> int:
    return IMAGES if model.takes_images else TEXTS


def _make_rows(table: Table, randomisation: str, seed: int) -> Iterator[SanityRow]:
    shares = {row["method"]: row for row in table.rows if row["part"] == FIRST}
    for method in dict.fromkeys(method for method, _ in table.records):
        share = shares.get(method, {})
        yield SanityRow(
            method,
            *_last_correlation(table, method, randomisation, seed),
            *(share.get(name, math.nan) for name in ("value", "low", "high")),
            planted=share.get("n", 0),
        )


def _last_correlation(table: Table, method: str, metric: str, seed: int) -> tuple[float, float, float]:
    """Return the correlation once all weights are random, and its interval."""
    repeats = table.records.get((method, metric))
    curve = band(table.metrics[metric], repeats, seed=seed) if repeats else None
    if curve is None:
        return math.nan, math.nan, math.nan
    return curve.y[-1], curve.low[-1], curve.high[-1]


def _describe(rows: Sequence[SanityRow], count: int) -> tuple[str, ...]:
    sentences = []
    candidates = [row for row in rows if not is_control(row.method)]
    templates: Mapping[str, str] = {
        PASSES: "{} depend on the weights and find planted evidence: nothing here speaks against trusting them.",
        FAILS: "Do not trust {} on this model: {reasons}.",
        UNCLEAR: "Of {} nothing can be said yet: measure more inputs.",
    }
    for verdict, template in templates.items():
        names = [row.method for row in candidates if row.verdict == verdict]
        if names:
            sentences.append(template.format(join_names(names), reasons=_list_reasons(candidates)))
    sentences.append(_describe_chance(rows, count))
    return tuple(sentences)


def _list_reasons(rows: Sequence[SanityRow]) -> str:
    """Return which methods failed which test."""
    reasons = []
    keep = [row.method for row in rows if row.randomisation == FAILS]
    miss = [row.method for row in rows if row.evidence == FAILS]
    if keep:
        reasons.append(f"random weights leave more than half of the order of {join_names(keep)} as it was")
    if miss:
        reasons.append(f"evidence that decides comes first in less than half of the inputs with {join_names(miss)}")
    return "; ".join(reasons)


def _describe_chance(rows: Sequence[SanityRow], count: int) -> str:
    planted = max(row.planted for row in rows)
    chance = [format_number(row.first) for row in rows if is_control(row.method) and math.isfinite(row.first)]
    tail = f"; by chance it comes first in a share of {chance[0]}" if chance else ""
    return f"The planted evidence decides {planted} of {count} inputs, which are counted{tail}."


def _make_grid(rows: Sequence[SanityRow]) -> Grid:
    columns = ("method", "random weights ↓", "", "planted first ↑", "", "verdict")
    return Grid(columns, tuple(map(_make_cells, rows)))


def _make_cells(row: SanityRow) -> tuple[Cell, ...]:
    return (
        Cell(row.method),
        Cell(format_interval(row.correlation, row.correlation_low, row.correlation_high)),
        Cell(row.randomisation),
        Cell(format_interval(row.first, row.first_low, row.first_high)),
        Cell(row.evidence),
        Cell("control" if is_control(row.method) else row.verdict, strong=row.verdict == PASSES),
    )


def format_interval(value: float, low: float, high: float) -> str:
    """Return a value with its interval; a dash if it was not measured."""
    if not math.isfinite(value):
        return "–"
    return f"{format_number(value)} [{format_number(low)}, {format_number(high)}]"
