"""Static images of explanations: one layout of boxes, drawn as PNG or written as SVG; photos keep their size."""

from collections.abc import Iterator, Sequence
from html import escape
from operator import attrgetter, itemgetter

from PIL import Image, ImageDraw

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views import answer_image, heatmap, joint_image, photo_image
from clearhead.views.captions import format_label, format_probability, format_source
from clearhead.views.color import LIGHT, Rgb, background_color, format_hex, underline_color
from clearhead.views.fonts import SCALE, draw_text, has_all_glyphs, replace_missing_glyphs
from clearhead.views.heads import HeadGrid
from clearhead.views.joint_image import find_joint
from clearhead.views.notes import format_notes
from clearhead.views.scale import make_scale
from clearhead.views.text_layout import BASELINE, MARGIN, SMALL_SIZE, WIDTH, Box, GridCell, Layout, Spell
from clearhead.views.text_spans import (
    escape_hidden,
    is_image,
    require_explanations,
    special_tokens,
    split_segments,
    text_segments,
)

GAP = 14
TITLE_SIZE = 22
DASH_LENGTH = 10.0
DASH_GAP = 6
MISSING_GLYPHS = "⟨…⟩ names what no font on this machine can write: install one, or use .html."


def draw(explanations: Sequence[Explanation]) -> Image.Image:
    """Draw one explanation, or several of the same input below or next to each other.

    A character that no font here has is replaced by its name, and a line below says so.
    """
    joint = find_joint(explanations)
    if joint is not None:
        return draw_joint(joint)
    # A photo next to a text is drawn as a text, whose words are its patches.
    if draws_photos(explanations):
        return photo_image.draw(explanations)
    boxes, height = lay_out(explanations, replace_missing_glyphs)
    return _draw_boxes(boxes, height)


def draw_joint(joint: JointExplanation) -> Image.Image:
    """Draw all inputs of a joint explanation."""
    boxes, height = joint_image.lay_out(joint)
    return joint_image.join_pictures(joint, _draw_boxes(boxes, height))


def svg(explanations: Sequence[Explanation]) -> str:
    """Write the same as scalable text that can be searched and copied; photos are embedded."""
    joint = find_joint(explanations)
    if joint is not None:
        return _write_joint(joint)
    if draws_photos(explanations):
        body, size = photo_image.write(explanations)
        return _write_svg(*size, body, " ".join(map(heatmap.describe, explanations)))
    boxes, height = lay_out(explanations, escape_hidden)
    body = "".join(map(_write_box, boxes))
    return _write_svg(WIDTH, height, body, _describe(explanations))


def _write_joint(joint: JointExplanation) -> str:
    # Drawn, because a layout of text has no place for a picture beside it.
    image = draw_joint(joint)
    picture = f'<image width="{image.width}" height="{image.height}" href="{heatmap.encode_data_url(image, "PNG")}"/>'
    return _write_svg(*image.size, picture, escape_hidden(f"{joint.label} explained by {joint.method}"))


def png(image: Image.Image) -> bytes:
    """Encode an image as PNG."""
    return heatmap.encode(image, "PNG")


def draws_photos(explanations: Sequence[Explanation]) -> bool:
    """Return whether these are explanations of photos alone; raise BadInput if there are none."""
    require_explanations(explanations)
    return all(map(is_image, explanations))


def lay_out(explanations: Sequence[Explanation], spell: Spell) -> tuple[list[Box], float]:
    """Return the boxes of all explanations and the height they need."""
    layout = Layout(spell)
    for index, explanation in enumerate(explanations):
        if index:
            layout.y += GAP * 1.5
        _lay_out_explanation(layout, explanation)
    if _has_missing_glyphs(explanations, spell):
        layout.y += GAP
        _add_note(layout, MISSING_GLYPHS)
    return layout.boxes, layout.y + MARGIN


def _has_missing_glyphs(explanations: Sequence[Explanation], spell: Spell) -> bool:
    # An SVG keeps the characters: its reader's fonts may have them.
    if spell is not replace_missing_glyphs:
        return False
    return not all(map(_is_drawable, explanations))


def _is_drawable(explanation: Explanation) -> bool:
    """Return whether the fonts here have every character that comes from the input or the model."""
    texts = [*text_segments(explanation), explanation.label, explanation.model]
    texts += map(itemgetter(0), special_tokens(explanation))
    return all(map(has_all_glyphs, texts))


def _lay_out_explanation(layout: Layout, explanation: Explanation) -> None:
    """Add heading, text, legend, check and notes of one explanation."""
    _lay_out_heading(layout, explanation)
    if isinstance(explanation, AnswerExplanation):
        answer_image.lay_out(layout, explanation)
    else:
        _lay_out_text(layout, explanation)
        layout.add_check(explanation)
        _lay_out_notes(layout, explanation)
    if explanation.heads is not None:
        layout.y += GAP
        _lay_out_heads(layout, explanation)


def _lay_out_notes(layout: Layout, explanation: Explanation) -> None:
    for note in format_notes(explanation):
        _add_note(layout, note)


def _lay_out_text(layout: Layout, explanation: Explanation) -> None:
    scale = make_scale(explanation)
    for segment in split_segments(explanation):
        layout.y += GAP / 2
        layout.add_text(segment, scale)
    layout.y += GAP
    layout.add_legend(explanation.label, scale)


def _lay_out_heads(layout: Layout, explanation: Explanation) -> None:
    """Add the relevance of attention heads as a grid, last block on top, with its own scale."""
    grid = HeadGrid(explanation)
    layout.add_grid_head("head", list(map(str, grid.columns)))
    for name, heads in grid.rows():
        existing = [head for head in heads if head.exists]
        cells = [GridCell(grid.scale.find_step(head.relevance), grid.describe(head)) for head in existing]
        layout.add_grid_row(name, cells, len(grid.columns))
    layout.y += GAP / 2
    layout.add_legend(explanation.label, grid.scale)


def _lay_out_heading(layout: Layout, explanation: Explanation) -> None:
    layout.add_line(f"{format_label(explanation)}{format_probability(explanation)}", TITLE_SIZE)
    _add_note(layout, format_source(explanation))


def _add_note(layout: Layout, text: str) -> None:
    layout.add_line(text, SMALL_SIZE, LIGHT.faint)


def _draw_boxes(boxes: Sequence[Box], height: float) -> Image.Image:
    image = Image.new("RGB", (WIDTH * SCALE, round(height * SCALE)), LIGHT.paper)
    # All backgrounds first: letters may reach beyond their box.
    _draw_backgrounds(image, boxes)
    for box in boxes:
        _draw_content(image, box)
    return image


def _draw_content(canvas: Image.Image, box: Box) -> None:
    if box.image is None:
        _draw_label(canvas, box)
        return
    size = (round(SCALE * box.width), round(SCALE * box.height))
    canvas.paste(box.image.resize(size), (round(SCALE * box.x), round(SCALE * box.y)))


def _draw_label(image: Image.Image, box: Box) -> None:
    if not box.is_rotated:
        draw_text(image, (box.x, box.baseline), box.text, box.size, box.ink)
        return
    label = Image.new("RGB", (round(SCALE * box.width), round(SCALE * box.height)), LIGHT.paper)
    draw_text(label, (0, box.size * BASELINE), box.text, box.size, box.ink)
    image.paste(label.rotate(90, expand=True), (round(SCALE * box.x), round(SCALE * box.y)))


def _draw_backgrounds(image: Image.Image, boxes: Sequence[Box]) -> None:
    canvas = ImageDraw.Draw(image)
    for box in filter(attrgetter("fill"), boxes):
        canvas.rectangle(_box_corners(box), fill=box.fill)
    # A step of 0 has no colour.
    for box in filter(attrgetter("step"), boxes):
        _draw_background(canvas, box)
        _draw_underline(canvas, box)


def _draw_background(canvas: ImageDraw.ImageDraw, box: Box) -> None:
    canvas.rectangle(_box_corners(box), fill=background_color(box.step, LIGHT))


def _box_corners(box: Box) -> tuple[float, float, float, float]:
    return (SCALE * box.x, SCALE * box.y, SCALE * box.right, SCALE * box.bottom)


def _draw_underline(canvas: ImageDraw.ImageDraw, box: Box) -> None:
    """Draw a line below a word: solid for the class, dashed against it."""
    color = underline_color(box.step, LIGHT)
    y = SCALE * box.bottom
    for start, end in _split_underline(box):
        canvas.line((start, y, end, y), fill=color, width=2 * SCALE)


def _split_underline(box: Box) -> Iterator[tuple[float, float]]:
    """Iterate over the dashes of a line; Pillow draws only solid ones."""
    left = SCALE * box.x
    right = SCALE * box.right
    length = right - left
    if box.step < 0:
        length = DASH_LENGTH
    while left < right:
        yield left, min(left + length, right)
        left += length + DASH_GAP


def _write_svg(width: float, height: float, body: str, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" font-family="DejaVu Sans, Noto Sans, Arial, sans-serif">'
        f"<title>{escape(title)}</title>"
        f'<rect width="100%" height="100%" fill="{format_hex(LIGHT.paper)}"/>{body}</svg>\n'
    )


def _write_box(box: Box) -> str:
    elements = []
    if box.fill is not None:
        elements.append(_write_rectangle(box, box.fill))
    if box.step:
        elements += [_write_background(box), _write_underline(box)]
    if box.text.strip():
        elements.append(_write_text(box))
    if box.image is not None:
        elements.append(_write_image(box, box.image))
    return "".join(elements)


def _write_text(box: Box) -> str:
    # A fixed textLength makes colour and word agree whatever font the reader has.
    return (
        f'<text {_write_position(box)} font-size="{box.size}" '
        f'fill="{format_hex(box.ink)}" textLength="{box.width:.1f}" lengthAdjust="spacingAndGlyphs" '
        f'xml:space="preserve">{escape(box.text)}</text>'
    )


def _write_image(box: Box, image: Image.Image) -> str:
    url = heatmap.encode_data_url(image, "JPEG")
    return f'<image x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" href="{url}"/>'


def _write_position(box: Box) -> str:
    if box.is_rotated:
        return f'transform="translate({box.x + box.size * BASELINE:.1f} {box.y + box.width:.1f}) rotate(-90)"'
    return f'x="{box.x:.1f}" y="{box.baseline:.1f}"'


def _write_background(box: Box) -> str:
    return _write_rectangle(box, background_color(box.step, LIGHT))


def _write_rectangle(box: Box, fill: Rgb) -> str:
    color = format_hex(fill)
    return (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" fill="{color}">'
        f"{_write_tooltip(box)}</rect>"
    )


def _write_tooltip(box: Box) -> str:
    if not box.tooltip:
        return ""
    return f"<title>{escape(box.tooltip)}</title>"


def _write_underline(box: Box) -> str:
    color = format_hex(underline_color(box.step, LIGHT))
    path = f"M{box.x:.1f} {box.bottom:.1f}h{box.width:.1f}"
    return f'<path d="{path}" stroke="{color}" stroke-width="2"{_dash_attribute(box.step)}/>'


def _dash_attribute(step: int) -> str:
    # Dashes show the sign to those who do not see the colours.
    if step > 0:
        return ""
    return ' stroke-dasharray="5 3"'


def _describe(explanations: Sequence[Explanation]) -> str:
    """Return the text alternative of an image of texts."""
    return "; ".join(
        escape_hidden(f"{explanation.label} explained by {explanation.method}") for explanation in explanations
    )
