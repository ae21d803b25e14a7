"""Static images of photos: heat maps side by side at their own size, with captions, and checks below them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from PIL import Image

from clearhead.explanation import Explanation
from clearhead.views import heatmap
from clearhead.views.captions import format_method
from clearhead.views.color import LIGHT, format_hex
from clearhead.views.fonts import SCALE, draw_text, measure_text, replace_missing_glyphs
from clearhead.views.scale import make_scale, scale_pixels
from clearhead.views.text_spans import escape_hidden
from clearhead.views.trust import describe_hidden, describe_shown, describe_verdict

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
    photos = _place_photos(explanations)
    return "".join(map(_write_photo, photos)), _measure_canvas(photos, CAPTION_HEIGHT)


def _place_photos(explanations: Sequence[Explanation]) -> list[_Photo]:
    photos = []
    x = 0
    for explanation in explanations:
        small = heatmap.shrink(explanation, MAX_PHOTO_SIDE)
        size = heatmap.original_image(small).size
        photo = _Photo(small, size, tuple(_list_lines(explanation, max(size[0], MIN_NOTE_WIDTH))), x)
        photos.append(photo)
        x += photo.width + GAP
    return photos


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
    # Numbers stay with their per cent signs.
    for word in replace_missing_glyphs(text).replace(" %", "\u00a0%").split(" "):
        longer = f"{line} {word}".strip()
        if line and INDENT + measure_text(longer, NOTE_SIZE) > width:
            yield line
            longer = word
        line = longer
    yield line


def _draw_texts(canvas: Image.Image, photo: _Photo, top: int) -> None:
    """Draw the caption above a photo, if there is space for it, and the lines below."""
    if top:
        caption = replace_missing_glyphs(_format_caption(photo.explanation))
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
    caption = _write_text(_format_caption(explanation), (photo.x + INDENT, 24), CAPTION_SIZE)
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
