"""What commands print in a terminal of 80 columns is broken between words, and whole for programs."""

import io
import sys

import pytest

from clearhead.cli import main, outputs

LONG = "a sentence that has many more letters than the eighty columns of a terminal, and is broken between its words"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def open_screen(monkeypatch):
    """Make standard output a terminal of 80 columns; not in a fixture, because pytest changes the stream after it."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    return screen


def list_lines(screen):
    return screen.getvalue().splitlines()


def test_a_line_is_broken_between_words(monkeypatch):
    screen = open_screen(monkeypatch)
    outputs.print_wrapped(LONG, "[bold]no markup[/bold]")
    lines = list_lines(screen)
    assert max(map(len, lines)) <= 80
    assert " ".join(line.strip() for line in lines[:2]) == LONG
    assert lines[2].strip() == "[bold]no markup[/bold]"


def test_a_program_gets_whole_lines(capsys):
    outputs.print_wrapped(LONG, LONG)
    assert capsys.readouterr().out == f"{LONG}\n{LONG}\n"


@pytest.mark.parametrize("command", ["choose --no-keep", "sanity"])
def test_sentences_fit_the_terminal(monkeypatch, model, tmp_path, command):
    texts = tmp_path / "texts.txt"
    texts.write_text("a joyless film\nthe best of all\nnot my cup of tea\na good heart\n" * 5)
    arguments = [*command.split(), "--model", model, "--task", str(texts), "--methods", "att-cat,gae"]
    screen = open_screen(monkeypatch)
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert not left.value.code
    lines = list_lines(screen)
    assert len(lines) > 4
    assert max(map(len, lines)) <= 80
