"""check_sanity(): do explanations depend on the weights, and do they find evidence that was planted?"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clearhead.attribution.names import ONE_TRACE_METHODS
from clearhead.bench.choose import CONTROL, sample_task
from clearhead.bench.controls import is_control
from clearhead.bench.format import format_number, join_names
from clearhead.bench.sections import Cell, Grid, Section, section_html, section_markdown
from clearhead.evaluation.evaluate import Table, evaluate
from clearhead.evaluation.planted import FIRST
from clearhead.evaluation.planting import WORD
from clearhead.evaluation.statistics import band
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.validation import require_integer
from clearhead.views import html, markdown_parts

TEXTS = 40
IMAGES = 16
# An explanation that keeps more than half of its order on a random network mostly shows something else than the model.
# Likewise one that misses evidence which decides, more often than not.
HALF = 0.5
SHOWN_WORDS = 8
PASSES = "passes"
FAILS = "fails"
UNCLEAR = "unclear"
NOTES = (
    "Randomised weights: rank correlation of the explanation with that of the same network after all its weights were "
    "drawn at random, from the head down. Near 0 it depends on what the model learned; near 1 it does not.",
    "Planted evidence: share of inputs in which the word (or patch) that decides by construction comes first. A word "
    "of the text is replaced by one of the vocabulary that turns the prediction; if none does, half or a quarter of "
    "the text is used. Images get a square of trained pixels. The model is not changed. Counted are inputs that are "
    "turned, and in which no other single word takes as much from the class. Chance is what random relevance reaches.",
    "In brackets: 95 % interval over inputs. A test is passed, or failed, only if the whole interval lies on one side "
    "of one half; otherwise more inputs are needed.",
)
COLUMNS = ("method", "random weights ↓", "", "planted first ↑", "", "verdict")


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval; NaN if it could not be measured."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        if not math.isfinite(self.value):
            return "–"
        return f"{format_number(self.value)} [{format_number(self.low)}, {format_number(self.high)}]"

    @property
    def is_high(self) -> bool:
        return self.low > HALF

    @property
    def is_low(self) -> bool:
        return self.high < HALF

    def as_record(self) -> dict[str, float | None]:
        """Return the numbers as JSON has them: None for NaN."""
        return {name: number if math.isfinite(number) else None for name, number in asdict(self).items()}


@dataclass(frozen=True)
class SanityRow:
    """One method: the correlation that random weights leave, and in which share of `count` inputs evidence leads."""

    method: str
    correlation: Estimate
    first: Estimate
    count: int

    @property
    def randomisation(self) -> str:
        """Whether the explanation depends on the weights."""
        return _judge(self.correlation.is_low, self.correlation.is_high)

    @property
    def evidence(self) -> str:
        """Whether the explanation finds what was planted."""
        return _judge(self.first.is_high, self.first.is_low)

    @property
    def verdict(self) -> str:
        """Fails if a test is failed, passes if both are passed."""
        verdicts = {self.randomisation, self.evidence}
        return _judge(verdicts == {PASSES}, FAILS in verdicts)

    def as_record(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        return {
            "method": self.method,
            "correlation": self.correlation.as_record(),
            "first": self.first.as_record(),
            "count": self.count,
            "randomisation": self.randomisation,
            "evidence": self.evidence,
            "verdict": self.verdict,
        }

    def as_cells(self) -> tuple[Cell, ...]:
        """Return the row as cells of a table."""
        verdict = "control" if is_control(self.method) else self.verdict
        texts = (str(self.correlation), self.randomisation, str(self.first), self.evidence)
        return Cell(self.method), *map(Cell, texts), Cell(verdict, strong=verdict == PASSES)


def _judge(is_passed: bool, is_failed: bool) -> str:
    if is_failed:
        return FAILS
    return PASSES if is_passed else UNCLEAR


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
    def grid(self) -> Grid:
        """The rows as a table."""
        return Grid(COLUMNS, tuple(row.as_cells() for row in self.rows))

    @property
    def sections(self) -> list[Section]:
        return [Section("Verdict", self.sentences), Section("Tests", NOTES, (self.grid,))]

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
    table = evaluate(model, task, names, [f"randomisation:seed={seed}", f"planted:seed={seed}"], seed=seed)
    rows = tuple(_make_rows(table, seed))
    units = "patches" if model.takes_images else "words"
    sentences = (*_describe_verdicts(rows, units), _describe_chance(rows, len(task)), *_describe_words(table))
    return SanityReport(f"Sanity of explanations: {model.name} on {task.name}", rows, sentences, table)


def _default_limit(model: Model) -> int:
    return IMAGES if model.takes_images else TEXTS


def _make_rows(table: Table, seed: int) -> Iterator[SanityRow]:
    shares = {row["method"]: row for row in table.rows if row["part"] == FIRST}
    for method in dict.fromkeys(method for method, _ in table.records):
        share = shares.get(method, {})
        yield SanityRow(method, _last_correlation(table, method, seed), _read_estimate(share), share.get("n", 0))


def _read_estimate(row: Mapping[str, float]) -> Estimate:
    return Estimate(**{name: row[name] for name in ("value", "low", "high") if name in row})


def _last_correlation(table: Table, method: str, seed: int) -> Estimate:
    """Return the correlation once all weights are random."""
    # The metric that has a curve, over the stages of randomisation.
    metric = next(iter(table.metrics))
    repeats = table.records.get((method, metric))
    curve = band(table.metrics[metric], repeats, seed=seed) if repeats else None
    if curve is None:
        return Estimate()
    return Estimate(curve.y[-1], curve.low[-1], curve.high[-1])


def _describe_verdicts(rows: Sequence[SanityRow], units: str) -> Iterator[str]:
    candidates = [row for row in rows if not is_control(row.method)]
    passed = _select(candidates, "verdict", PASSES)
    if passed:
        yield f"Nothing here speaks against {join_names(passed)}: both tests are passed."
    yield from _describe_failures(candidates, units)
    unclear = _select(candidates, "verdict", UNCLEAR)
    if unclear:
        yield f"Of {join_names(unclear)} nothing can be said yet: measure more inputs."


def _describe_failures(rows: Sequence[SanityRow], units: str) -> Iterator[str]:
    unchanged = _select(rows, "randomisation", FAILS)
    if unchanged:
        yield f"Do not trust {join_names(unchanged)} on this model: random weights leave more than half of the order."
    blind = _select(rows, "evidence", FAILS)
    if blind:
        yield (
            f"Do not rely on {join_names(blind)} for single {units} of this model: the planted evidence rarely comes "
            "first, although it decides."
        )


def _select(rows: Sequence[SanityRow], test: str, verdict: str) -> list[str]:
    """Return the methods with a verdict in a test."""
    return [row.method for row in rows if getattr(row, test) == verdict]


def _describe_words(table: Table) -> Iterator[str]:
    """Yield which words were planted, the most frequent first; nothing for images."""
    # All methods look for the same evidence.
    counts = Counter(_list_planted(table, next(iter(table.records))[0]))
    words = [word for word, _ in counts.most_common(SHOWN_WORDS)]
    if words:
        more = " and others" if len(counts) > len(words) else ""
        yield f"Planted were words that the model itself takes for evidence: {', '.join(words)}{more}."


def _list_planted(table: Table, method: str) -> Iterator[str]:
    *_, metric = table.metrics
    for repeat in table.records.get((method, metric), ()):
        for record in repeat:
            yield from filter(None, [record.get(WORD)])


def _describe_chance(rows: Sequence[SanityRow], count: int) -> str:
    planted = max(row.count for row in rows)
    chance = next(row.first for row in rows if is_control(row.method))
    return (
        f"The planted evidence decides {planted} of {count} inputs, which are counted; by chance it leads in {chance}."
    )
