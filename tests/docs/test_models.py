"""docs/models.md says what a run of every family finds."""

import pytest
from helpers.model_table import PAGE, ROWS, format_head, format_row

CASES = [(name, family) for name, (_, families) in ROWS.items() for family in families]


@pytest.mark.parametrize(("name", "family"), CASES)
def test_the_table_says_what_works(name, family):
    make, _ = ROWS[name]
    assert format_row(name, family, make(family)) in PAGE.read_text("utf-8").splitlines()


def test_the_table_has_no_other_rows():
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert rows[0] == format_head()[0]
    assert len(rows) == len(CASES) + 1
