"""The diverging colour scale of every view: orange for the class, blue against it, in a light and a dark theme.

The two ends stay distinct under the common kinds of colour blindness, and text keeps WCAG AA contrast on every step.
"""

from dataclasses import dataclass
from typing import TypeGuard

Rgb = tuple[int, int, int]
# Steps on each side of 0.
STEPS = 9
# Legends show every other step, which is enough to see the direction.
LEGEND_STEPS = range(1, STEPS + 1, 2)
NEGATIVE_LEGEND_STEPS = range(-STEPS, 0, 2)


@dataclass(frozen=True)
class Theme:
    """Background, text colours and the two ends of the scale.

    `faint` is for secondary text, `line` for borders. `above` and `below` underline words for and against the class,
    so that the sign can be read without colour. `prompt`, `pictures` and `own` are the shares of an answer's
    relevance on the prompt, on its pictures, and on its own earlier words.
    """

    paper: Rgb
    ink: Rgb
    faint: Rgb
    line: Rgb
    positive: Rgb
    negative: Rgb
    above: Rgb
    below: Rgb
    prompt: Rgb
    own: Rgb
    pictures: Rgb


LIGHT = Theme(
    paper=(255, 255, 255),
    ink=(24, 26, 31),
    faint=(88, 92, 102),
    line=(208, 211, 218),
    positive=(240, 138, 46),
    negative=(104, 164, 246),
    above=(140, 66, 0),
    below=(20, 78, 168),
    prompt=(122, 91, 184),
    own=(31, 138, 112),
    pictures=(176, 58, 112),
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
    prompt=(169, 139, 232),
    own=(79, 195, 161),
    pictures=(238, 138, 182),
)

# Text that the model did not read, on light paper.
UNREAD_INK = (140, 144, 154)
# Strong colours: mixed with any paper at little opacity they stay distinct.
POSITIVE_TINT = "#c50"
NEGATIVE_TINT = "#26e"


def translucent_tint(step: int) -> str:
    """Return the CSS background of a word in a notebook, whose paper and ink are not ours.

    The fourth hexadecimal digit is the opacity: `step` fifteenths, so that text stays legible in any theme.
    """
    tint = NEGATIVE_TINT if step < 0 else POSITIVE_TINT
    return f"{tint}{abs(step):x}"


def color_step(relevance: float | None, full: float) -> int:
    """Return the step of the scale, −9 … 9, where `full` is the relevance of the last step."""
    if not _has_color(relevance, full):
        return 0
    share = min(1.0, abs(relevance) / full)
    step = round(share * STEPS)
    if relevance < 0:
        return -step
    return step


def _has_color(relevance: float | None, full: float) -> TypeGuard[float]:
    # None is the text between words. `not full > 0` and the comparison with itself also catch NaN.
    return relevance is not None and full > 0 and relevance == relevance


def background_color(step: int, theme: Theme) -> Rgb:
    """Return the colour behind a word at a step of the scale."""
    return mix(theme.paper, _scale_end(step, theme), abs(step) / STEPS)


def _scale_end(step: int, theme: Theme) -> Rgb:
    return theme.positive if step > 0 else theme.negative


def underline_color(step: int, theme: Theme) -> Rgb:
    """Return the colour of the line below a word at a step of the scale."""
    return theme.above if step > 0 else theme.below


def mix(first: Rgb, second: Rgb, share: float) -> Rgb:
    """Interpolate between two colours: `share` 0 gives the first, 1 the second."""
    red, green, blue = (_mix_channel(start, end, share) for start, end in zip(first, second, strict=True))
    return red, green, blue


def _mix_channel(start: int, end: int, share: float) -> int:
    return round(start + (end - start) * share)


def format_hex(color: Rgb) -> str:
    """Format a colour as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*color)


def contrast_ratio(first: Rgb, second: Rgb) -> float:
    """Return the contrast ratio of WCAG 2, from 1 to 21; AA requires 4.5 for text."""
    # The formula of WCAG; 0.05 stands for the light that a screen reflects.
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: Rgb) -> float:
    red, green, blue = (_linearize(channel / 255) for channel in color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linearize(channel: float) -> float:
    """Undo the sRGB gamma of one channel, 0 … 1."""
    if channel <= 0.04045:
        return channel / 12.92
    return float(((channel + 0.055) / 1.055) ** 2.4)
