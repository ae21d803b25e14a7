"""What changed between two models as tables of text, which the HTML, Markdown and terminal views share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap

from clearhead.model_diff import ClassShift, ExampleDiff, ModelDiff, Noise, NoiseDraw, Reasons, Verdict, WordShift
from clearhead.views.numbers import MINUS, format_percent, format_share

MAX_WORDS = 20
MAX_TOP_WORDS = 3
SMALLEST_P = 0.0001
WORD_COLUMNS = ("word", "examples", "share before", "share after", "change", "95 % interval", "p", "")
CLASS_COLUMNS = ("class", "answers before", "answers after", "change", "95 % interval", "p", "reasons moved")
NOISE_COLUMNS = ("source", "reasons moved", "rank correlation", "other answers")
EXAMPLE_COLUMNS = ("example", "before", "after", "moved", "rank correlation", "overlap", "")


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
    for tabulate in (_tabulate_facts, _tabulate_words, _tabulate_classes, _tabulate_noise):
        table = tabulate(diff)
        if table.rows:
            yield table


def _tabulate_facts(diff: ModelDiff) -> TextTable:
    facts = {
        **_list_evidence(diff.verdict),
        "rank correlation of reasons, mean": _format_correlation(diff.correlation),
        "overlap of the strongest, mean": f"{diff.overlap:.3f}",
        "method": diff.first.method,
        "task": f"{diff.first.task}, {len(diff.first)} examples",
    }
    return TextTable("In numbers", ("", "value"), tuple(facts.items()))


def _format_correlation(value: float) -> str:
    return f"{value:.3f}".replace("-", MINUS)


def _list_evidence(verdict: Verdict) -> dict[str, str]:
    return {
        "same answers": f"{verdict.same} of {verdict.examples}",
        "reasons that moved, mean": format_percent(verdict.shift),
        "by noise no more than": format_percent(verdict.bound),
        "examples that moved beyond noise": f"{verdict.beyond} of {verdict.examples}",
        "more than noise, paired test": f"p {format_p(verdict.p)}",
    }


def format_p(p: float) -> str:
    """Format a p-value; very small ones as a bound."""
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"{p:.3g}"


def _tabulate_words(diff: ModelDiff) -> TextTable:
    rows = tuple(map(_word_row, diff.words[:MAX_WORDS]))
    return TextTable("Words whose weight rose or fell", WORD_COLUMNS, rows)


def _word_row(shift: WordShift) -> tuple[str, ...]:
    shares = map(format_signed, (shift.first, shift.second, shift.difference))
    mark = "beyond noise" if shift.is_beyond_noise else ""
    return shift.word, str(shift.examples), *shares, *_format_test(shift), mark


def _format_test(shift: WordShift) -> tuple[str, str]:
    """Return interval and p-value; of a rare word the interval would be wider than what it is of."""
    if shift.p_corrected is None:
        return "", "too rare"
    return format_bounds(shift.low, shift.high), format_p(shift.p_corrected)


def format_signed(share: float) -> str:
    """Format a share, or a change of one, with its sign."""
    return format_share(share, signed=True)


def format_bounds(low: float, high: float) -> str:
    """Format the bounds of an interval of shares."""
    return f"{format_signed(low)} … {format_signed(high)}"


def _tabulate_classes(diff: ModelDiff) -> TextTable:
    return TextTable("Classes", CLASS_COLUMNS, tuple(map(_class_row, diff.classes)))


def _class_row(entry: ClassShift) -> tuple[str, ...]:
    counts = (str(entry.first), str(entry.second), format_signed(entry.difference))
    test = (format_bounds(entry.low, entry.high), format_p(entry.p_corrected))
    return entry.label, *counts, *test, _format_moved(entry.shift)


def _format_moved(shift: float | None) -> str:
    # A class that the first model never answers with has no reasons that could have moved.
    return "" if shift is None else format_percent(shift)


def _tabulate_noise(diff: ModelDiff) -> TextTable:
    rows = tuple(_noise_rows(diff.noise)) if diff.noise else ()
    return TextTable("What moves reasons though the model is the same", NOISE_COLUMNS, rows)


def _noise_rows(noise: Noise) -> Iterator[tuple[str, ...]]:
    for source in noise.sources:
        yield _noise_row(source, source.name)
    for method in noise.methods:
        yield _noise_row(method, f"{method.name}, another method")


def _noise_row(draw: NoiseDraw, name: str) -> tuple[str, ...]:
    return name, format_percent(draw.mean_shift), _format_correlation(draw.mean_agreement), str(draw.changed)


def tabulate_examples(rows: Sequence[ExampleDiff]) -> TextTable:
    """Return a table of examples, a row each."""
    return TextTable("Examples, same answer for other reasons first", EXAMPLE_COLUMNS, tuple(map(_example_row, rows)))


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
    words = ", ".join(starmap(_describe_word, reasons.top(MAX_TOP_WORDS)))
    return ": ".join(filter(None, [describe_answer(reasons), words]))


def _describe_word(word: str, share: float) -> str:
    return f"{word} {format_signed(share)}"


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
