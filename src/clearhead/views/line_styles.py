"""Colours and dashes of the lines of charts, in files and on the page."""

from collections.abc import Iterator

# Colours that stay distinct for the colour-blind; (light, dark) pairs with a contrast of 3 to their background.
STROKES = (
    ("#b35900", "#ff9d42"),
    ("#1f5fbf", "#7fb4ff"),
    ("#00785a", "#3fc79f"),
    ("#a0367a", "#ec8fc9"),
    ("#6b5b00", "#d9c24a"),
    ("#4d4d4d", "#c9c9c9"),
)
DASHES = ("", "7 4", "2 3", "9 3 2 3", "5 5", "1 4")
# Rules of the page, which compares 13 explanations at most, with random orders beside them.
STYLED_LINES = 14


def stroke_color(index: int) -> str:
    """Return the colour of a line in both themes."""
    # A seventh curve has the first colour again, but other dashes.
    return "light-dark({},{})".format(*STROKES[index % len(STROKES)])


def choose_dash(index: int) -> str:
    """Return the dashes of a line; "" for a solid one."""
    # The dashes shift by one after each round of colours, so that no two of 36 lines look the same.
    return DASHES[(index + index // len(STROKES)) % len(DASHES)]


def style_rules() -> Iterator[str]:
    """Yield the rules of a style sheet for lines of the classes line-0, line-1 …"""
    for index in range(STYLED_LINES):
        dash = choose_dash(index) or "none"
        yield f".clearhead .line-{index}{{stroke:{stroke_color(index)};stroke-dasharray:{dash}}}"
