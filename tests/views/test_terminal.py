"""Explanations in a terminal."""

from helpers.explanations import HOSTILE, explained, pictured, review

from clearhead.views import color, terminal


def test_terminal_keeps_the_text_and_colours_by_sign():
    plain = terminal.render(review(), color=False)
    assert "\x1b" not in plain
    assert "A joyless ,  tedious film that Never finds its heart" in plain
    assert "negative  98.2 %" in plain
    colored = terminal.render(review(), color=True)
    red, green, blue = color.background_color(9, color.LIGHT)
    assert f"48;2;{red};{green};{blue}mtedious" in colored


def test_terminal_never_prints_what_a_text_commands():
    names = {"label": "\x1b[2J[bold]x[/bold]", "model": "\x1b]0;owned\x07", "method": "\x1b[31mx"}
    for explanation in (explained(HOSTILE), review(**names)):
        assert "\x1b" not in terminal.render(explanation)
        assert "\u202e" not in terminal.render(explanation)
    assert "[bold]x[/bold]" in terminal.render(review(label="[bold]x[/bold]"))


def test_terminal_shows_patches_and_methods():
    assert "██" in terminal.render(pictured())
    stacked = terminal.capture(terminal.methods({"att-cat": review(), "b:layer=3": review()}))
    assert stacked.count("tedious film") == 2
    assert "b:layer=3" in stacked
