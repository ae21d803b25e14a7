"""Word clouds; the only module that imports the wordcloud library."""

from collections.abc import Sequence
from typing import Any

from PIL import Image

from clearhead.errors import BadInput, BadOption
from clearhead.views.color import LIGHT, format_hex

# Words in a smaller font are drawn in the colour of text, which is easier to read.
MIN_COLORED_FONT_SIZE = 31


def cloud(words: Sequence[tuple[str, float]], *, width: int = 480, height: int = 300, seed: int = 0) -> Image.Image:
    """Draw the words in sizes by their weights; the same words and seed give the same image."""
    weights = {word: weight for word, weight in words if weight > 0}
    if not weights:
        raise BadInput("A word cloud needs at least one word with a positive weight.")
    layout = _make_layout(width, height, seed)
    image: Image.Image = layout.generate_from_frequencies(weights).to_image()
    return image


def _make_layout(width: int, height: int, seed: int) -> Any:
    return import_wordcloud().WordCloud(
        width=width,
        height=height,
        background_color="white",
        color_func=_choose_color,
        random_state=seed,
        # Upright words are hard to read.
        prefer_horizontal=1.0,
        relative_scaling=0.5,
    )


def _choose_color(*_: Any, font_size: int = 10, **__: Any) -> str:
    if font_size >= MIN_COLORED_FONT_SIZE:
        return format_hex(LIGHT.above)
    return format_hex(LIGHT.ink)


def import_wordcloud() -> Any:
    """Import the wordcloud library, or raise BadOption with the command that installs it."""
    try:
        import wordcloud
    except ImportError as error:
        raise BadOption("Word clouds need the wordcloud library: pip install 'clearhead[clouds]'.") from error
    return wordcloud
