"""The table of a bench at any width of the terminal."""

import pytest
from rich.console import Console

from clearhead.cli.bench_table import make_tables, print_table

METHODS = ["balanced-cat", "integrated-gradients"]
VALUES = {f"metric-{number}": "higher" for number in range(12)}
SUMMARY = {
    "methods": METHODS,
    "values": VALUES,
    "rows": [{"method": method, "name": name, "value": 0.12345} for method in METHODS for name in VALUES],
}


def render(width):
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        for table in make_tables(SUMMARY, width):
            console.print(table)
    return captured.get()


@pytest.mark.parametrize("width", [40, 80, 120, 400])
def test_every_value_is_whole_at_every_width(width):
    text = render(width)
    assert "…" not in text
    assert text.count("0.123") == len(METHODS) * len(VALUES)
    for name in VALUES:
        assert name in text
    assert max(map(len, text.splitlines())) <= width


def test_a_wide_terminal_has_one_table():
    assert len(make_tables(SUMMARY, 400)) == 1
    assert len(make_tables(SUMMARY, 80)) > 1


def test_a_file_gets_one_table(capsys):
    print_table(SUMMARY)
    assert capsys.readouterr().out.count("integrated-gradients") == 1
