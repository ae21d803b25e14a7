"""What became of the rows of a shard."""

from clearhead.check import FAILS, HOLDS
from clearhead.tables.counts import Counts, count_records


def make_record(row, *, error=None, gold=None, wrong=None, check=None):
    return {"row": row, "error": error, "gold": gold, "wrong": wrong, "check": check}


def test_records_are_counted_by_what_became_of_them():
    records = [
        make_record(0, gold="good", wrong=False, check=HOLDS),
        make_record(1, gold="bad", wrong=True, check=FAILS),
        make_record(2, gold="fair"),
        make_record(3),
        make_record(4, error="The text is empty.", gold="good"),
        make_record(5, error="The text is too long."),
    ]
    counts = count_records(records)
    first_error = "row 4: The text is empty."
    assert counts == Counts(rows=6, errors=2, gold=2, wrong=1, unknown=1, first_error=first_error, holds=1, fails=1)


def test_no_record_is_no_row():
    assert count_records([]) == Counts()
