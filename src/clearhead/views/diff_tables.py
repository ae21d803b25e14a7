"""What changed between two models as tables of text, which the HTML, Markdown and terminal views share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clearhead.model_diff import ExampleDiff, ModelDiff, NoiseDraw, Reasons, WordShift
from clearhead.views.numbers import format_percent, format_share

MAX_WORDS = 20
MAX_TOP_WORDS = 3
SMALLEST_P = 0.0001


@dataclass(frozen=True)
class TextTable:
    """A table with a title; the first column is left-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def make_title(diff: ModelDiff) -> str:
    """Return a title for a page or a document."""
    return f"What changed from {diff.first.model} to {diff.second.model}?"


def list_tables(diff: ModelDiff) -> Iterator[TextTable]:
    """Yield all tables but that of the examples; those without rows are left out."""
    for table in (_tabulate_facts(diff), _tabulate_words(diff), _tabulate_classes(diff), _tabulate_noise(diff)):
        if table.rows:
            yield table


def _tabulate_facts(diff: ModelDiff) -> TextTable:
    verdict = diff.verdict
    same = verdict.examples - len(diff.changed)
    rows = (
        ("same answers", f"{same} of {verdict.examples}"),
        ("reasons that moved, mean", f"{format_percent(verdict.shift)} (noise: up to {format_percent(verdict.bound)})"),
        ("examples that moved beyond noise", f"{verdict.beyond} of {verdict.examples}"),
        ("more than noise, paired test", f"p {_format_p(verdict.p)}"),
        ("rank correlation of reasons, mean", f"{diff.correlation:.3f}"),
        ("overlap of the strongest, mean", f"{diff.overlap:.3f}"),
        ("method", diff.first.method),
        ("task", f"{diff.first.task}, {len(diff.first)} examples"),
    )
    return TextTable("In numbers", ("", "value"), rows)


def _format_p(p: float) -> str:
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"{p:.4f}"


def _tabulate_words(diff: ModelDiff) -> TextTable:
    columns = ("word", "examples", "share before", "share after", "change", "95 % interval", "p", "")
    rows = []
    for shift in diff.words[:MAX_WORDS]:
        shares = (_signed(shift.first), _signed(shift.second), _signed(shift.difference))
        mark = "beyond noise" if shift.is_beyond_noise else ""
        rows.append((shift.word, str(shift.examples), *shares, *_format_test(shift), mark))
    return TextTable("Words whose weight rose or fell", columns, tuple(rows))


def _format_test(shift: WordShift) -> tuple[str, str]:
    """Return interval and p-value; of a rare word the interval would be wider than what it is of."""
    if shift.p_corrected is None:
        return "", "too rare"
    return _format_bounds(shift.low, shift.high), _format_p(shift.p_corrected)


def _signed(share: float) -> str:
    return format_share(share, signed=True)


def _format_bounds(low: float, high: float) -> str:
    return f"{_signed(low)} … {_signed(high)}"


def _tabulate_classes(diff: ModelDiff) -> TextTable:
    columns = ("class", "answers before", "answers after", "change", "95 % interval", "p", "reasons moved")
    rows = []
    for entry in diff.classes:
        moved = "" if entry.shift is None else format_percent(entry.shift)
        bounds = _format_bounds(entry.low, entry.high)
        counts = (str(entry.first), str(entry.second), _signed(entry.difference))
        rows.append((entry.label, *counts, bounds, _format_p(entry.p_corrected), moved))
    return TextTable("Classes", columns, tuple(rows))


def _tabulate_noise(diff: ModelDiff) -> TextTable:
    columns = ("source", "reasons moved", "rank correlation", "other answers")
    rows: list[tuple[str, ...]] = []
    if diff.noise is not None:
        rows += [_noise_row(draw, draw.name) for draw in diff.noise.sources]
        rows += [_noise_row(draw, f"{draw.name}, another method") for draw in diff.noise.methods]
    return TextTable("What moves reasons though the model is the same", columns, tuple(rows))


def _noise_row(draw: NoiseDraw, name: str) -> tuple[str, ...]:
    return name, format_percent(float(draw.shift_N.mean())), f"{draw.agreement_N.mean():.3f}", str(draw.changed)


def tabulate_examples(rows: Sequence[ExampleDiff]) -> TextTable:
    """Return a table of examples, a row each."""
    columns = ("example", "before", "after", "moved", "rank correlation", "overlap", "")
    return TextTable("Examples, same answer for other reasons first", columns, tuple(map(_example_row, rows)))


def _example_row(row: ExampleDiff) -> tuple[str, ...]:
    agreement = row.agreement
    return (
        row.first.id,
        describe_reasons(row.first),
        describe_reasons(row.second),
        format_percent(agreement.shift),
        f"{agreement.correlation:.2f}",
        f"{agreement.overlap:.2f}",
        describe_row(row),
    )


def describe_reasons(reasons: Reasons) -> str:
    """Return the answer with its probability, and the words that speak most for it."""
    words = ", ".join(f"{word} {_signed(share)}" for word, share in reasons.top(MAX_TOP_WORDS))
    return ": ".join(filter(None, [describe_answer(reasons), words]))


def describe_answer(reasons: Reasons) -> str:
    """Return the answer with its probability."""
    if reasons.probability is None:
        return reasons.prediction
    return f"{reasons.prediction} {reasons.probability:.2f}"


def describe_shift(row: ExampleDiff) -> str:
    """Say how much of the reasons for an answer moved."""
    return f"{format_percent(row.agreement.shift)} of the reasons moved, {describe_row(row)}"


def describe_row(row: ExampleDiff) -> str:
    """Say in a few words what happened to an example."""
    if not row.has_same_answer:
        return "another answer"
    return "beyond noise" if row.is_beyond_noise else "within noise"
