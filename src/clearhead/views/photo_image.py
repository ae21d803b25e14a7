"""Static images of photos: heat maps side by side at their own size, with captions, and checks below them.

Where several models explain a photo, each method has a row of its own, with the models side by side.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from PIL import Image

from clearhead.explanation import Explanation
from clearhead.views import heatmap
from clearhead.views.captions import format_headline, format_method
from clearhead.views.color import LIGHT, format_hex
from clearhead.views.fonts import SCALE, draw_text, measure_text, replace_missing_glyphs
from clearhead.views.scale import make_scale, scale_pixels
from clearhead.views.text_spans import escape_hidden
from clearhead.views.trust import describe_hidden, describe_shown, describe_verdict, format_error

GAP = 14
CAPTION_SIZE = 16
CAPTION_HEIGHT = 40
NOTE_SIZE = 14
NOTE_LINE = 20
INDENT = 4
# Photos may be narrower than any sentence.
MIN_NOTE_WIDTH = 300
# Larger photos take long to draw and make large files.
MAX_PHOTO_SIDE = 2048


@dataclass(frozen=True)
class _Photo:
    """An explanation of a photo at position `x`, with the lines below it."""

    explanation: Explanation
    size: tuple[int, int]
    lines: tuple[str, ...]
    caption: str
    x: int

    @property
    def width(self) -> int:
        """The width of photo and lines."""
        if not self.lines:
            return self.size[0]
        return max(self.size[0], MIN_NOTE_WIDTH)

    def find_bottom(self, top: int) -> int:
        """Return where photo and lines end if the photo begins at `top`."""
        bottom = top + self.size[1]
        if self.lines:
            bottom += GAP + len(self.lines) * NOTE_LINE
        return bottom


def draw(explanations: Sequence[Explanation]) -> Image.Image:
    """Draw one photo, or several side by side with captions; large ones are shrunk, which is faster."""
    rows = list(map(_draw_row, split_rows(explanations)))
    canvas = Image.new("RGB", _measure_stack([row.size for row in rows]), LIGHT.paper)
    y = 0
    for row in rows:
        canvas.paste(row, (0, y))
        y += row.height + GAP
    return canvas


def split_rows(explanations: Sequence[Explanation]) -> list[list[Explanation]]:
    """Return the explanations of each method, if there are several models; else all of them as one row."""
    if not has_models(explanations):
        return [list(explanations)]
    rows: dict[str, list[Explanation]] = {}
    for explanation in explanations:
        rows.setdefault(format_method(explanation), []).append(explanation)
    return list(rows.values())


def has_models(explanations: Sequence[Explanation]) -> bool:
    """Return whether these are explanations of several models."""
    return len({explanation.model for explanation in explanations}) > 1


def _measure_stack(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the size of rows below each other."""
    widths, heights = zip(*sizes, strict=True)
    return max(widths), sum(heights) + GAP * (len(heights) - 1)


def _draw_row(explanations: Sequence[Explanation]) -> Image.Image:
    photos = _place_photos(explanations)
    # A single photo has no caption: without a check it keeps its size.
    top = CAPTION_HEIGHT if len(photos) > 1 else 0
    canvas = Image.new("RGB", _measure_canvas(photos, top), LIGHT.paper)
    for photo in photos:
        canvas.paste(heatmap.overlay(photo.explanation), (photo.x, top))
        _draw_texts(canvas, photo, top)
    return canvas


def write(explanations: Sequence[Explanation]) -> tuple[str, tuple[int, int]]:
    """Return the elements of an SVG with the photos embedded, and its size."""
    elements: list[str] = []
    sizes: list[tuple[int, int]] = []
    for row in split_rows(explanations):
        photos = _place_photos(row)
        y = sum(height + GAP for _, height in sizes)
        elements.append(f'<g transform="translate(0 {y})">{"".join(map(_write_photo, photos))}</g>')
        sizes.append(_measure_canvas(photos, CAPTION_HEIGHT))
    return "".join(elements), _measure_stack(sizes)


def _place_photos(explanations: Sequence[Explanation]) -> list[_Photo]:
    format_caption = _format_caption
    list_lines = _list_lines
    if has_models(explanations):
        format_caption = format_headline
        list_lines = _list_model_lines
    photos = []
    x = 0
    for explanation in explanations:
        small = heatmap.shrink(explanation, MAX_PHOTO_SIDE)
        size = heatmap.original_image(small).size
        lines = tuple(list_lines(explanation, max(size[0], MIN_NOTE_WIDTH)))
        photo = _Photo(small, size, lines, format_caption(explanation), x)
        photos.append(photo)
        x += photo.width + GAP
    return photos


def _list_model_lines(explanation: Explanation, width: int) -> Iterator[str]:
    """Iterate over the model's name, how far it agrees with the others, and the lines of the check."""
    yield from _wrap(escape_hidden(explanation.model), width)
    yield from _list_lines(explanation, width)
    if explanation.diagnostics.get("model_agreement"):
        yield from _wrap(f"{format_error(explanation)}.", width)


def _measure_canvas(photos: Sequence[_Photo], top: int) -> tuple[int, int]:
    last = photos[-1]
    return last.x + last.width, max(photo.find_bottom(top) for photo in photos)


def _list_lines(explanation: Explanation, width: int) -> Iterator[str]:
    """Iterate over the lines of the check, and of what the colours mean; none without a check."""
    check = explanation.check
    if check is None:
        return
    yield from _wrap(f"Check {check.verdict}: {describe_verdict(check)}.", width)
    yield from _wrap(describe_hidden(explanation, check), width)
    yield from _wrap(describe_shown(explanation, check), width)
    yield from _wrap(_describe_colors(explanation), width)


def _describe_colors(explanation: Explanation) -> str:
    scale = scale_pixels(explanation, make_scale(explanation))
    return f"{scale.caption} Full colour: {scale.format(scale.full)} or more."


def _wrap(text: str, width: int) -> Iterator[str]:
    """Iterate over the lines of a text, broken at blanks."""
    line = ""
    # Numbers stay with their per cent signs, and with what they are the values of.
    for word in re.sub(r" (?=[%=])|(?<==) ", "\u00a0", replace_missing_glyphs(text)).split(" "):
        longer = f"{line} {word}".strip()
        if line and INDENT + measure_text(longer, NOTE_SIZE) > width:
            yield line
            longer = word
        line = longer
    yield line


def _draw_texts(canvas: Image.Image, photo: _Photo, top: int) -> None:
    """Draw the caption above a photo, if there is space for it, and the lines below."""
    if top:
        caption = replace_missing_glyphs(photo.caption)
        _draw_line(canvas, caption, (photo.x + INDENT, 26), CAPTION_SIZE)
    for x, y, line in _place_lines(photo, top):
        _draw_line(canvas, line, (x, y), NOTE_SIZE)


def _place_lines(photo: _Photo, top: int) -> Iterator[tuple[int, int, str]]:
    """Iterate over the lines below a photo with the positions of their baselines."""
    y = top + photo.size[1]
    for line in photo.lines:
        y += NOTE_LINE
        yield photo.x + INDENT, y, line


def _draw_line(canvas: Image.Image, text: str, position: tuple[int, int], size: int) -> None:
    x, y = position
    # `draw_text` scales layouts of text; photos keep their size, so position and font size are divided by the scale.
    draw_text(canvas, (x / SCALE, y / SCALE), text, size // SCALE)


def _format_caption(explanation: Explanation) -> str:
    return escape_hidden(f"{explanation.label} · {format_method(explanation)}")


def _write_photo(photo: _Photo) -> str:
    explanation = photo.explanation
    image = _write_image(heatmap.desaturate(explanation), "JPEG", photo.x, 1.0)
    colors = _write_image(heatmap.render_colors(explanation), "PNG", photo.x, heatmap.DEFAULT_OPACITY)
    caption = _write_text(photo.caption, (photo.x + INDENT, 24), CAPTION_SIZE)
    return f"{image}{colors}{caption}{_write_lines(photo)}"


def _write_lines(photo: _Photo) -> str:
    return "".join(_write_text(line, (x, y), NOTE_SIZE) for x, y, line in _place_lines(photo, CAPTION_HEIGHT))


def _write_text(text: str, position: tuple[int, int], size: int) -> str:
    x, y = position
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{format_hex(LIGHT.ink)}">{escape(text)}</text>'


def _write_image(image: Image.Image, image_format: str, x: float, opacity: float) -> str:
    return (
        f'<image x="{x:g}" y="{CAPTION_HEIGHT}" width="{image.width}" height="{image.height}" '
        f'opacity="{opacity:g}" href="{heatmap.encode_data_url(image, image_format)}"/>'
    )
