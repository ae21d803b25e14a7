"""What became of the rows of a table: how many were explained, predicted wrongly, or refused."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.check import FAILS, HOLDS, WEAK, summarise_verdicts
from clearhead.tables.records import Record


@dataclass(frozen=True)
class Counts:
    """How many rows there are, could not be explained, have a gold label, and are predicted wrongly.

    `unknown` gold labels are no classes of the model; `first_error` is the message of the first row with an error.
    `holds`, `weak` and `fails` count the verdicts of checks.
    """

    rows: int = 0
    errors: int = 0
    gold: int = 0
    wrong: int = 0
    unknown: int = 0
    first_error: str | None = None
    holds: int = 0
    weak: int = 0
    fails: int = 0

    @property
    def verdicts(self) -> dict[str, int]:
        """How many explanations have each verdict."""
        return {HOLDS: self.holds, WEAK: self.weak, FAILS: self.fails}

    def add(self, other: "Counts") -> "Counts":
        return Counts(
            self.rows + other.rows,
            self.errors + other.errors,
            self.gold + other.gold,
            self.wrong + other.wrong,
            self.unknown + other.unknown,
            # One is enough to show what is wrong; a table may have millions.
            self.first_error or other.first_error,
            self.holds + other.holds,
            self.weak + other.weak,
            self.fails + other.fails,
        )


def sum_counts(counts: Iterable[Counts]) -> Counts:
    """Add counts of shards, in their order."""
    total = Counts()
    for shard_counts in counts:
        total = total.add(shard_counts)
    return total


def count_records(records: Sequence[Record]) -> Counts:
    """Count what became of the rows of a shard."""
    errors = [record for record in records if record["error"] is not None]
    explained = [record for record in records if record["error"] is None]
    compared = [record["wrong"] for record in explained if record["wrong"] is not None]
    verdicts = Counter(record["check"] for record in explained)
    return Counts(
        rows=len(records),
        errors=len(errors),
        gold=len(compared),
        wrong=sum(compared),
        unknown=sum(map(_has_unknown_label, explained)),
        first_error=_name_first(errors),
        holds=verdicts[HOLDS],
        weak=verdicts[WEAK],
        fails=verdicts[FAILS],
    )


def _has_unknown_label(record: Record) -> bool:
    # Not known to be right or wrong, a label that is there is none of the model's.
    return record["wrong"] is None and record["gold"] is not None


def _name_first(errors: Sequence[Record]) -> str | None:
    for record in errors:
        return f"row {record['row']}: {record['error']}"
    return None


@dataclass(frozen=True)
class TableSummary:
    """What `explain_table` wrote, and what became of the rows; labels may not be comparable with predictions."""

    out: Path
    counts: Counts
    label_column: str | None = None
    compares_gold: bool = True

    def __str__(self) -> str:
        return " ".join(self._describe())

    def _describe(self) -> Iterator[str]:
        counts = self.counts
        yield "1 row." if counts.rows == 1 else f"{counts.rows:,} rows."
        if counts.gold:
            yield f"{counts.wrong:,} of {counts.gold:,} predictions are wrong by column '{self.label_column}'."
        if counts.unknown and not self.compares_gold:
            yield (
                f"Column '{self.label_column}' is not compared with predictions: the model labels words or regions, "
                "and only --focus says which of them the label of a row is about."
            )
        elif counts.unknown:
            yield f"{_name_labels(counts.unknown, self.label_column)} of the model."
        yield from filter(None, [summarise_verdicts(counts.verdicts)])
        if counts.errors:
            first = counts.first_error
            yield f"Rows that could not be explained: {counts.errors:,} (column error); the first is {first}"


def _name_labels(count: int, column: str | None) -> str:
    if count == 1:
        return f"1 label of column '{column}' is no class"
    return f"{count:,} labels of column '{column}' are no classes"
