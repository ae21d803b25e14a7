"""One diverging scale for every view: orange speaks for the class, blue against it, in light and in dark.

The pair stays apart for the common kinds of colour blindness, and the ink keeps WCAG AA contrast on every step.
"""

from dataclasses import dataclass

Rgb = tuple[int, int, int]
STEPS = 9


@dataclass(frozen=True)
class Theme:
    """Paper, ink and the two ends of the scale.

    `faint` is ink for what matters less, `line` for borders; `above` and `below` underline words for and against the
    class, so that the sign survives without colour.
    """

    paper: Rgb
    ink: Rgb
    faint: Rgb
    line: Rgb
    positive: Rgb
    negative: Rgb
    above: Rgb
    below: Rgb


LIGHT = Theme(
    paper=(255, 255, 255),
    ink=(24, 26, 31),
    faint=(88, 92, 102),
    line=(208, 211, 218),
    positive=(240, 138, 46),
    negative=(104, 164, 246),
    above=(140, 66, 0),
    below=(20, 78, 168),
)
DARK = Theme(
    paper=(24, 26, 31),
    ink=(240, 241, 244),
    faint=(172, 176, 186),
    line=(70, 74, 84),
    positive=(168, 78, 6),
    negative=(34, 98, 190),
    above=(255, 178, 104),
    below=(150, 196, 255),
)

TINTS = ("#c50", "#26e")


def translucent(number: int) -> str:
    """The colour behind a word where paper and ink are somebody else's: as many fifteenths opaque as its step."""
    return f"{TINTS[number < 0]}{abs(number):x}"


def step(relevance: float, largest: float) -> int:
    """The step of the scale, −9 … 9; 0 where there is nothing to show."""
    if not largest > 0 or relevance != relevance:
        return 0
    share = min(1.0, abs(relevance) / largest)
    size = round(share * STEPS)
    return size if relevance > 0 else -size


def background(number: int, theme: Theme) -> Rgb:
    """The colour behind a word at a step of the scale."""
    end = theme.positive if number > 0 else theme.negative
    return mix(theme.paper, end, abs(number) / STEPS)


def mix(first: Rgb, second: Rgb, share: float) -> Rgb:
    red, green, blue = (round(one + (two - one) * share) for one, two in zip(first, second, strict=True))
    return red, green, blue


def hexadecimal(color: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def contrast(first: Rgb, second: Rgb) -> float:
    """The contrast ratio of WCAG 2, from 1 to 21; AA asks 4.5 of text."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: Rgb) -> float:
    red, green, blue = (_linear(channel / 255) for channel in color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)
