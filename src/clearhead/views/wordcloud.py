"""Word clouds, the only place that imports the wordcloud library."""

from collections.abc import Sequence
from typing import Any

from PIL import Image

from clearhead.errors import BadInput, BadOption
from clearhead.views.color import LIGHT, hexadecimal


def cloud(words: Sequence[tuple[str, float]], *, width: int = 480, height: int = 300, seed: int = 0) -> Image.Image:
    """The words, each as large as its weight; the same words give the same picture."""
    weights = {word: weight for word, weight in words if weight > 0}
    if not weights:
        raise BadInput("A word cloud needs at least one word with a positive weight.")
    drawn = library().WordCloud(
        width=width,
        height=height,
        background_color="white",
        color_func=_ink,
        random_state=seed,
        prefer_horizontal=1.0,
        relative_scaling=0.5,
    )
    image: Image.Image = drawn.generate_from_frequencies(weights).to_image()
    return image


def _ink(*_: Any, font_size: int = 10, **__: Any) -> str:
    return hexadecimal(LIGHT.above if font_size > 30 else LIGHT.ink)


def library() -> Any:
    """The wordcloud library, or how to get it."""
    try:
        import wordcloud
    except ImportError as error:
        raise BadOption("Word clouds need the wordcloud library: pip install 'clearhead[clouds]'.") from error
    return wordcloud
