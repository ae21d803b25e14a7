"""Static images of explanations: one layout of boxes, drawn as PNG or written as SVG; photos keep their size."""

import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import groupby

from PIL import Image, ImageDraw

from clearhead.explanation import Explanation
from clearhead.views import heatmap
from clearhead.views.captions import (
    format_diagnostics,
    format_method,
    format_probability,
    format_relevance,
    format_source,
    format_tokens,
)
from clearhead.views.color import LIGHT, STEPS, Rgb, background_color, color_step, format_hex, underline_color
from clearhead.views.fonts import SCALE, draw_text, has_all_glyphs, measure_text, replace_missing_glyphs
from clearhead.views.text_spans import (
    TextSpan,
    escape_hidden,
    has_negative,
    max_relevance,
    require_explanations,
    select_scored,
    special_tokens,
    split_segments,
    text_segments,
)

WIDTH = 760
MARGIN = 24
GAP = 14
TEXT_SIZE = 19
SMALL_SIZE = 14
TITLE_SIZE = 22
CAPTION_SIZE = 16
CAPTION_HEIGHT = 40
SWATCH_WIDTH = 16.0
DASH_LENGTH = 10.0
DASH_GAP = 6
LINE_HEIGHT = 1.75
# Share of the font size from the top of a box to the baseline of its text.
BASELINE = 1.12
# Longer runs without a space are broken, so that a line can hold them.
MAX_RUN_LENGTH = 40
MAX_SPECIAL_TOKENS = 8
MAX_PHOTO_SIDE = 2048
MISSING_GLYPHS = "⟨…⟩ names what no font on this machine can write: install one, or use .html."
# Turns text of the user into text that can be drawn: `replace_missing_glyphs` for PNG, `escape_hidden` for SVG.
Spell = Callable[[str], str]


@dataclass(frozen=True)
class Box:
    """A word on its colour: position, size, step of the colour scale behind it, and ink."""

    text: str
    x: float
    y: float
    width: float
    size: int
    step: int = 0
    ink: Rgb = LIGHT.ink

    @property
    def height(self) -> float:
        return self.size * 1.5

    @property
    def baseline(self) -> float:
        return self.y + self.size * BASELINE


@dataclass
class _Layout:
    """Boxes placed so far, from top to bottom, and the vertical position of the next one."""

    spell: Spell
    boxes: list[Box] = field(default_factory=list)
    y: float = float(MARGIN)

    def add_line(self, text: str, size: int, ink: Rgb = LIGHT.ink) -> None:
        """Add text without relevance, wrapped at spaces."""
        words = [TextSpan(word) for word in _split_at_spaces(text)]
        self.boxes += [replace(box, ink=ink) for box in self._wrap(words, 0.0, size)]

    def add_text(self, spans: Sequence[TextSpan], full: float) -> None:
        """Add words on their colours, wrapped."""
        self.boxes += self._wrap(spans, full, TEXT_SIZE)

    def add_legend(self, label: str, full: float, signed: bool) -> None:
        """Add the colour scale on one line."""
        x = float(MARGIN)
        for text, step in _legend_entries(self.spell(label), full, signed):
            width = SWATCH_WIDTH if step else measure_text(text, SMALL_SIZE)
            self.boxes.append(Box(text, x, self.y, width, SMALL_SIZE, step, LIGHT.faint))
            x += width
        self.y += SMALL_SIZE * LINE_HEIGHT

    def _wrap(self, spans: Sequence[TextSpan], full: float, size: int) -> list[Box]:
        """Break spans into lines, then order each line by the direction of its words."""
        from_right = bool(_reads_from_right("".join(span.text for span in spans)))
        # Lines are broken in logical order, as the text is read, and only then ordered for display.
        boxes = self._break_lines(_split_runs(spans, full, self.spell), size)
        ordered: list[Box] = []
        for _, line in groupby(boxes, key=lambda box: box.y):
            ordered += _order_line(list(line), from_right)
        return ordered

    def _break_lines(self, runs: Iterable[tuple[str, int]], size: int) -> list[Box]:
        """Place runs from left to right; a run that does not fit begins a new line, where spaces are dropped."""
        boxes: list[Box] = []
        x = 0.0
        for text, step in runs:
            is_break = text == "\n"
            width = 0.0 if is_break else measure_text(text, size)
            is_too_wide = x + width > WIDTH - 2 * MARGIN and not text.isspace()
            if is_break or is_too_wide:
                x = 0.0
                self.y += size * LINE_HEIGHT
            if is_break or (x == 0 and text.isspace()):
                continue
            boxes.append(Box(text, x + MARGIN, self.y, width, size, step))
            x += width
        self.y += size * LINE_HEIGHT
        return boxes


def draw(explanations: Sequence[Explanation]) -> Image.Image:
    """Draw one explanation, or several of the same input below or next to each other.

    A character that no font here has is replaced by its name, and a line below says so.
    """
    require_explanations(explanations)
    if _are_images(explanations):
        return _draw_photos(explanations)
    boxes, height = _lay_out(explanations, replace_missing_glyphs)
    return _draw_boxes(boxes, height)


def svg(explanations: Sequence[Explanation]) -> str:
    """Write the same as scalable text that can be searched and copied; photos are embedded."""
    require_explanations(explanations)
    if _are_images(explanations):
        return _write_photos(explanations)
    boxes, height = _lay_out(explanations, escape_hidden)
    body = "".join(map(_write_box, boxes))
    return _write_svg(WIDTH, height, body, _describe(explanations))


def png(image: Image.Image) -> bytes:
    """Encode an image as PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _are_images(explanations: Sequence[Explanation]) -> bool:
    return all(explanation.grid is not None for explanation in explanations)


def _lay_out(explanations: Sequence[Explanation], spell: Spell) -> tuple[list[Box], float]:
    """Return the boxes of all explanations and the height they need."""
    layout = _Layout(spell)
    for index, explanation in enumerate(explanations):
        if index:
            layout.y += GAP * 1.5
        _lay_out_explanation(layout, explanation)
    # An SVG keeps the characters: its reader's fonts may have them.
    if spell is replace_missing_glyphs and not all(map(_is_drawable, explanations)):
        layout.y += GAP
        layout.add_line(MISSING_GLYPHS, SMALL_SIZE, LIGHT.faint)
    return layout.boxes, layout.y + MARGIN


def _is_drawable(explanation: Explanation) -> bool:
    """Return whether the fonts here have every character that comes from the input or the model."""
    texts = [*text_segments(explanation), explanation.label, explanation.model]
    texts += [token for token, _ in special_tokens(explanation)]
    return all(map(has_all_glyphs, texts))


def _lay_out_explanation(layout: _Layout, explanation: Explanation) -> None:
    """Add heading, text, legend, special tokens and diagnostics of one explanation."""
    segments = split_segments(explanation)
    scored = select_scored(segments)
    full = max_relevance(scored)
    layout.add_line(f"{explanation.label}{format_probability(explanation)}", TITLE_SIZE)
    layout.add_line(format_source(explanation), SMALL_SIZE, LIGHT.faint)
    for segment in segments:
        layout.y += GAP / 2
        layout.add_text(segment, full)
    layout.y += GAP
    layout.add_legend(explanation.label, full, has_negative(scored))
    for note in _list_notes(explanation):
        layout.add_line(note, SMALL_SIZE, LIGHT.faint)


def _list_notes(explanation: Explanation) -> list[str]:
    notes = []
    tokens = special_tokens(explanation)[:MAX_SPECIAL_TOKENS]
    if tokens:
        notes.append(f"special tokens: {'   '.join(format_tokens(tokens))}")
    diagnostics = format_diagnostics(explanation)
    if diagnostics:
        notes.append(diagnostics)
    return notes


def _split_at_spaces(text: str) -> list[str]:
    """Split text into words and the single spaces between them."""
    return re.findall(r" |[^ ]+", text)


def _split_runs(spans: Sequence[TextSpan], full: float, spell: Spell) -> Iterator[tuple[str, int]]:
    """Iterate over runs of text that fit a line, with their colour steps; line breaks are runs of their own."""
    for span in spans:
        step = color_step(span.relevance, full)
        text = spell(span.text).replace("\r", "").replace("\t", "    ")
        for index, line in enumerate(text.split("\n")):
            if index:
                yield "\n", 0
            for start in range(0, len(line), MAX_RUN_LENGTH):
                yield line[start : start + MAX_RUN_LENGTH], step


def _order_line(line: list[Box], from_right: bool) -> list[Box]:
    """Reorder a line for display: a simple form of the Unicode bidirectional algorithm for whole words.

    Runs against the direction of the text are mirrored in themselves, a line from right to left as a whole.
    """
    directions = _resolve_directions(line, from_right)
    ordered: list[Box] = []
    for direction, run in groupby(zip(line, directions, strict=True), key=lambda entry: entry[1]):
        boxes = [box for box, _ in run]
        ordered += boxes if direction == from_right else _mirror_run(boxes)
    if from_right:
        return [replace(box, x=WIDTH - box.x - box.width) for box in ordered]
    return ordered


def _mirror_run(boxes: list[Box]) -> list[Box]:
    # The sum of the left and right ends of the run; mirroring maps x to ends - x.
    ends = boxes[0].x + boxes[-1].x + boxes[-1].width
    return [replace(box, x=ends - box.x - box.width) for box in boxes]


def _resolve_directions(line: list[Box], from_right: bool) -> list[bool]:
    """Return whether each box reads from right to left.

    A box without direction, such as a space or a number, takes that of its neighbours if they agree, else the text's.
    """
    known = [_reads_from_right(box.text) for box in line]
    directions = []
    for index, direction in enumerate(known):
        if direction is None:
            before = _first_known(reversed(known[:index]), from_right)
            after = _first_known(known[index + 1 :], from_right)
            direction = before if before == after else from_right
        directions.append(direction)
    return directions


def _first_known(directions: Iterable[bool | None], default: bool) -> bool:
    for direction in directions:
        if direction is not None:
            return direction
    return default


def _reads_from_right(text: str) -> bool | None:
    """Return the direction of the first character that has one; None if no character has."""
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in ("L", "R", "AL"):
            return direction != "L"
    return None


def _legend_entries(label: str, full: float, signed: bool) -> list[tuple[str, int]]:
    """Return texts and swatches of the legend from left to right; a swatch has a step."""
    entries: list[tuple[str, int]] = []
    if signed:
        entries.append((f"against {format_relevance(-full)} ", 0))
        entries += _list_swatches(range(-STEPS, 0, 2))
    entries.append((" 0 ", 0))
    entries += _list_swatches(range(1, STEPS + 1, 2))
    entries.append((f" {format_relevance(full)} for {label}", 0))
    return entries


def _list_swatches(steps: Iterable[int]) -> list[tuple[str, int]]:
    return [(" ", step) for step in steps]


def _draw_boxes(boxes: Sequence[Box], height: float) -> Image.Image:
    image = Image.new("RGB", (WIDTH * SCALE, round(height * SCALE)), LIGHT.paper)
    draw = ImageDraw.Draw(image)
    # All backgrounds first: letters may reach beyond their box.
    for box in boxes:
        if box.step:
            _draw_background(draw, box)
    for box in boxes:
        draw_text(image, (box.x, box.baseline), box.text, box.size, box.ink)
    return image


def _draw_background(draw: ImageDraw.ImageDraw, box: Box) -> None:
    """Draw the colour, and below it a line: solid for the class, dashed against it."""
    left = SCALE * box.x
    right = SCALE * (box.x + box.width)
    bottom = SCALE * (box.y + box.height)
    draw.rectangle((left, SCALE * box.y, right, bottom), fill=background_color(box.step, LIGHT))
    color = underline_color(box.step, LIGHT)
    for start, end in _split_underline(left, right, dashed=box.step < 0):
        draw.line((start, bottom, end, bottom), fill=color, width=2 * SCALE)


def _split_underline(left: float, right: float, *, dashed: bool) -> Iterator[tuple[float, float]]:
    """Iterate over the dashes of a line; Pillow draws only solid ones."""
    length = DASH_LENGTH if dashed else right - left
    while left < right:
        yield left, min(left + length, right)
        left += length + DASH_GAP


def _draw_photos(explanations: Sequence[Explanation]) -> Image.Image:
    """Draw one photo, or several side by side with captions; large ones are shrunk, which is faster."""
    explanations = [heatmap.shrink(explanation, MAX_PHOTO_SIDE) for explanation in explanations]
    overlays = list(map(heatmap.overlay, explanations))
    if len(overlays) == 1:
        return overlays[0]
    canvas = Image.new("RGB", _photo_canvas_size(overlays), LIGHT.paper)
    x = 0
    for explanation, overlay in zip(explanations, overlays, strict=True):
        canvas.paste(overlay, (x, CAPTION_HEIGHT))
        _draw_caption(canvas, x, explanation)
        x += overlay.width + GAP
    return canvas


def _draw_caption(canvas: Image.Image, x: int, explanation: Explanation) -> None:
    caption = replace_missing_glyphs(_format_caption(explanation))
    # `draw_text` scales layouts of text; photos keep their size, so position and font size are divided by the scale.
    draw_text(canvas, ((x + 4) / SCALE, 26 / SCALE), caption, CAPTION_SIZE // SCALE)


def _photo_canvas_size(overlays: Sequence[Image.Image]) -> tuple[int, int]:
    width = sum(overlay.width for overlay in overlays) + GAP * (len(overlays) - 1)
    height = max(overlay.height for overlay in overlays) + CAPTION_HEIGHT
    return width, height


def _format_caption(explanation: Explanation) -> str:
    return escape_hidden(f"{explanation.label} · {format_method(explanation)}")


def _write_svg(width: float, height: float, body: str, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" font-family="DejaVu Sans, Noto Sans, Arial, sans-serif">'
        f"<title>{escape(title)}</title>"
        f'<rect width="100%" height="100%" fill="{format_hex(LIGHT.paper)}"/>{body}</svg>\n'
    )


def _write_box(box: Box) -> str:
    background = _write_background(box) if box.step else ""
    if not box.text.strip():
        return background
    # A fixed textLength makes colour and word agree whatever font the reader has.
    return (
        f'{background}<text x="{box.x:.1f}" y="{box.baseline:.1f}" font-size="{box.size}" '
        f'fill="{format_hex(box.ink)}" textLength="{box.width:.1f}" lengthAdjust="spacingAndGlyphs" '
        f'xml:space="preserve">{escape(box.text)}</text>'
    )


def _write_background(box: Box) -> str:
    dash = "" if box.step > 0 else ' stroke-dasharray="5 3"'
    bottom = box.y + box.height
    return (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'fill="{format_hex(background_color(box.step, LIGHT))}"/>'
        f'<path d="M{box.x:.1f} {bottom:.1f}h{box.width:.1f}" '
        f'stroke="{format_hex(underline_color(box.step, LIGHT))}" stroke-width="2"{dash}/>'
    )


def _write_photos(explanations: Sequence[Explanation]) -> str:
    body = ""
    x = 0.0
    height = 0.0
    for explanation in explanations:
        small = heatmap.shrink(explanation, MAX_PHOTO_SIDE)
        body += _write_photo(small, x)
        image = heatmap.original_image(small)
        x += image.width + GAP
        height = max(height, float(image.height + CAPTION_HEIGHT))
    descriptions = " ".join(map(heatmap.describe, explanations))
    return _write_svg(x - GAP, height, body, descriptions)


def _write_photo(explanation: Explanation, x: float) -> str:
    photo = _write_image(heatmap.desaturate(explanation), "JPEG", x, 1.0)
    colors = _write_image(heatmap.render_colors(explanation), "PNG", x, heatmap.DEFAULT_OPACITY)
    caption = escape(_format_caption(explanation))
    return f'{photo}{colors}<text x="{x + 4:g}" y="24" font-size="{CAPTION_SIZE}">{caption}</text>'


def _write_image(image: Image.Image, image_format: str, x: float, opacity: float) -> str:
    return (
        f'<image x="{x:g}" y="{CAPTION_HEIGHT}" width="{image.width}" height="{image.height}" '
        f'opacity="{opacity:g}" href="{heatmap.encode_data_url(image, image_format)}"/>'
    )


def _describe(explanations: Sequence[Explanation]) -> str:
    """Return the text alternative of an image of texts."""
    return "; ".join(
        escape_hidden(f"{explanation.label} explained by {explanation.method}") for explanation in explanations
    )
