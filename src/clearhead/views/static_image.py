"""Pictures of explanations: one layout of boxes, drawn as PNG or written as SVG; photos keep their original size."""

import io
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby

from PIL import Image, ImageDraw

from clearhead.explanation import Explanation
from clearhead.views import heatmap
from clearhead.views.captions import diagnostics_caption, number, percent, spelling
from clearhead.views.color import LIGHT, STEPS, Rgb, background, hexadecimal, step
from clearhead.views.fonts import SCALE, is_whole, measure, spelled, write
from clearhead.views.text_spans import Piece, aside, largest, pieces, require_explanations, segments, visible

WIDTH, MARGIN, GAP = 760, 24, 14
BODY, SMALL, TITLE, CAPTION = 19, 14, 22, 16
LINE = 1.75
LARGEST = 2048
Spell = Callable[[str], str]
UNWRITTEN = "⟨…⟩ names what no font on this machine can write: install one, or use .html."


@dataclass(frozen=True)
class Box:
    """A word on its colour: where it stands, how it is written, which step of the scale is behind it."""

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


def drawn(explanations: Sequence[Explanation]) -> Image.Image:
    """One explanation as a picture, or several of the same input below or beside each other.

    A character that no font here can write is named, and a line below the picture says so.
    """
    require_explanations(explanations)
    if all(one.grid is not None for one in explanations):
        return _photos(explanations)
    boxes, height = _layout(explanations, spelled)
    return _painted(boxes, height)


def svg(explanations: Sequence[Explanation]) -> str:
    """The same as scalable text that can be searched and copied; photos are embedded."""
    require_explanations(explanations)
    if all(one.grid is not None for one in explanations):
        return _photo_svg(explanations)
    boxes, height = _layout(explanations, visible)
    return _svg(WIDTH, height, "".join(_svg_box(box) for box in boxes), _spoken(explanations))


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


# --- layout ----------------------------------------------------------------------------------------------------


def _layout(explanations: Sequence[Explanation], spell: Spell) -> tuple[list[Box], float]:
    """Boxes and the height they need; `spell` says how text is written."""
    boxes: list[Box] = []
    y = float(MARGIN)
    for place, explanation in enumerate(explanations):
        y += GAP * 1.5 if place else 0
        part, y = _block(explanation, y, spell)
        boxes += part
    if spell is spelled and not all(is_whole(text) for one in explanations for text in _texts(one)):
        more, y = _line(UNWRITTEN, y + GAP, SMALL, spell, LIGHT.faint)
        boxes += more
    return boxes, y + MARGIN


def _texts(explanation: Explanation) -> Iterator[str]:
    """Everything that is not ours to choose."""
    yield from (
        *segments(explanation),
        explanation.label,
        explanation.model,
        *(token for token, _ in aside(explanation)),
    )


def _block(explanation: Explanation, y: float, spell: Spell) -> tuple[list[Box], float]:
    """Heading, text, legend, special tokens and diagnostics of one explanation, from y down."""
    probability = "" if explanation.probability is None else f" · {percent(explanation.probability)}"
    parts = pieces(explanation)
    full = largest(piece for part in parts for piece in part)
    boxes, y = _line(f"{explanation.label}{probability}", y, TITLE, spell)
    said = " · ".join(filter(None, [spelling(explanation), explanation.model]))
    more, y = _line(said, y, SMALL, spell, LIGHT.faint)
    boxes += more
    for part in parts:
        more, y = _flow(part, full, y + GAP / 2, spell)
        boxes += more
    signed = any((one.relevance or 0) < 0 for part in parts for one in part)
    more, y = _legend(spell(explanation.label), full, signed=signed, y=y + GAP)
    boxes += more
    others = "   ".join(f"{token} {number(value)}" for token, value in aside(explanation)[:8])
    for line in filter(None, [others and f"special tokens: {others}", diagnostics_caption(explanation)]):
        more, y = _line(line, y, SMALL, spell, LIGHT.faint)
        boxes += more
    return boxes, y


def _line(text: str, y: float, size: int, spell: Spell, ink: Rgb = LIGHT.ink) -> tuple[list[Box], float]:
    """Plain words, wrapped."""
    boxes, y = _flow([Piece(word) for word in _split(text)], 0.0, y, spell, size=size)
    return [replace(box, ink=ink) for box in boxes], y


def _split(text: str) -> list[str]:
    found = [part for word in text.split(" ") for part in (" ", word)]
    return [part for part in found[1:] if part]


def _flow(part: Sequence[Piece], full: float, y: float, spell: Spell, *, size: int = BODY) -> tuple[list[Box], float]:
    """Pieces set in lines, every direction of reading where it belongs."""
    from_right = bool(_direction("".join(piece.text for piece in part)))
    boxes: list[Box] = []
    x, right = 0.0, WIDTH - 2 * MARGIN
    for text, place in _runs(part, full, spell):
        width = 0.0 if text == "\n" else measure(text, size)
        if text == "\n" or (x + width > right and not text.isspace()):
            x, y = 0.0, y + size * LINE
        if text == "\n" or (x == 0 and text.isspace()):
            continue
        boxes.append(Box(text, x + MARGIN, y, width, size, place))
        x += width
    lines = [list(line) for _, line in groupby(boxes, key=lambda box: box.y)]
    return [box for line in lines for box in _ordered(line, from_right)], y + size * LINE


def _ordered(line: list[Box], from_right: bool) -> list[Box]:
    """Words of the other direction change places among themselves; a line from the right is mirrored as a whole."""
    runs = [list(run) for _, run in groupby(_directed(line, from_right), key=lambda entry: entry[1])]
    placed = []
    for run in runs:
        boxes = [box for box, _ in run]
        ends = boxes[0].x + boxes[-1].x + boxes[-1].width
        placed += boxes if run[0][1] == from_right else [replace(box, x=ends - box.x - box.width) for box in boxes]
    return [replace(box, x=WIDTH - box.x - box.width) for box in placed] if from_right else placed


def _directed(line: list[Box], from_right: bool) -> list[tuple[Box, bool]]:
    """Each box with whether it reads from the right; what has no direction joins equal neighbours, else the text."""
    known = [_direction(box.text) for box in line]
    found = []
    for place, (box, own) in enumerate(zip(line, known, strict=True)):
        before = next((one for one in reversed(known[:place]) if one is not None), from_right)
        after = next((one for one in known[place + 1 :] if one is not None), from_right)
        found.append((box, own if own is not None else before if before == after else from_right))
    return found


def _direction(text: str) -> bool | None:
    kinds = (unicodedata.bidirectional(character) for character in text)
    first = next((kind for kind in kinds if kind in ("L", "R", "AL")), None)
    return None if first is None else first != "L"


def _runs(part: Sequence[Piece], full: float, spell: Spell) -> Iterator[tuple[str, int]]:
    """Pieces as text that fits a line, with line breaks by themselves."""
    for piece in part:
        place = 0 if piece.relevance is None else step(piece.relevance, full)
        for number_of, line in enumerate(spell(piece.text).replace("\r", "").replace("\t", "    ").split("\n")):
            if number_of:
                yield "\n", 0
            for start in range(0, len(line), 40):
                yield line[start : start + 40], place


def _legend(label: str, full: float, *, signed: bool, y: float) -> tuple[list[Box], float]:
    boxes: list[Box] = []
    x = float(MARGIN)
    words = [(f"against {number(-full)} ", 0), *((" ", one) for one in range(-STEPS, 0, 2))] if signed else []
    words += [(" 0 ", 0), *((" ", one) for one in range(1, STEPS + 1, 2))]
    words += [(f" {number(full)} for {label}", 0)]
    for text, place in words:
        width = 16.0 if place else measure(text, SMALL)
        boxes.append(Box(text, x, y, width, SMALL, place, LIGHT.faint))
        x += width
    return boxes, y + SMALL * LINE


# --- drawing ---------------------------------------------------------------------------------------------------


def _painted(boxes: Sequence[Box], height: float) -> Image.Image:
    image = Image.new("RGB", (WIDTH * SCALE, round(height * SCALE)), LIGHT.paper)
    draw = ImageDraw.Draw(image)
    for box in boxes:
        if box.step:
            _paint_background(draw, box)
    for box in boxes:
        write(image, (box.x, box.y + box.size * 1.12), box.text, box.size, box.ink)
    return image


def _paint_background(draw: ImageDraw.ImageDraw, box: Box) -> None:
    """Colour, and below it a line: solid for the class, dashed against it."""
    left, right, top, bottom = (SCALE * one for one in (box.x, box.x + box.width, box.y, box.y + box.height))
    draw.rectangle((left, top, right, bottom), fill=background(box.step, LIGHT))
    end = LIGHT.above if box.step > 0 else LIGHT.below
    dash = right - left if box.step > 0 else 10.0
    while left < right:
        draw.line((left, bottom, min(left + dash, right), bottom), fill=end, width=2 * SCALE)
        left += dash + 6


def _photos(explanations: Sequence[Explanation]) -> Image.Image:
    """One photo; several side by side, each with its caption. Large ones are drawn smaller, which is quick."""
    explanations = [heatmap.fitted(one, LARGEST) for one in explanations]
    if len(explanations) == 1:
        return heatmap.overlay(explanations[0])
    overlays = [heatmap.overlay(one) for one in explanations]
    height = max(one.height for one in overlays) + 40
    canvas = Image.new("RGB", (sum(one.width for one in overlays) + GAP * (len(overlays) - 1), height), LIGHT.paper)
    x = 0
    for explanation, picture in zip(explanations, overlays, strict=True):
        canvas.paste(picture, (x, 40))
        write(canvas, ((x + 4) / SCALE, 26 / SCALE), spelled(_caption(explanation)), CAPTION // SCALE)
        x += picture.width + GAP
    return canvas


def _caption(explanation: Explanation) -> str:
    return visible(f"{explanation.label} · {spelling(explanation)}")


# --- SVG -------------------------------------------------------------------------------------------------------


def _svg(width: float, height: float, body: str, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" font-family="DejaVu Sans, Noto Sans, Arial, sans-serif">'
        f"<title>{escape(title)}</title>"
        f'<rect width="100%" height="100%" fill="{hexadecimal(LIGHT.paper)}"/>{body}</svg>\n'
    )


def _svg_box(box: Box) -> str:
    """The written width is fixed, so that colour and word agree in any font."""
    behind = _svg_background(box) if box.step else ""
    if not box.text.strip():
        return behind
    return (
        f'{behind}<text x="{box.x:.1f}" y="{box.y + box.size * 1.12:.1f}" font-size="{box.size}" '
        f'fill="{hexadecimal(box.ink)}" textLength="{box.width:.1f}" lengthAdjust="spacingAndGlyphs" '
        f'xml:space="preserve">{escape(box.text)}</text>'
    )


def _svg_background(box: Box) -> str:
    end = hexadecimal(LIGHT.above if box.step > 0 else LIGHT.below)
    dash = "" if box.step > 0 else ' stroke-dasharray="5 3"'
    bottom = box.y + box.height
    return (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'fill="{hexadecimal(background(box.step, LIGHT))}"/>'
        f'<path d="M{box.x:.1f} {bottom:.1f}h{box.width:.1f}" stroke="{end}" stroke-width="2"{dash}/>'
    )


def _photo_svg(explanations: Sequence[Explanation]) -> str:
    body, x, height = "", 0.0, 0.0
    for explanation in (heatmap.fitted(one, LARGEST) for one in explanations):
        picture = heatmap.photograph(explanation)
        body += _svg_image(heatmap.greyed(explanation), "JPEG", x, 1.0) + _svg_image(
            heatmap.veil(explanation), "PNG", x, heatmap.OPACITY
        )
        body += f'<text x="{x + 4:g}" y="24" font-size="{CAPTION}">{escape(_caption(explanation))}</text>'
        x, height = x + picture.width + GAP, max(height, picture.height + 40.0)
    return _svg(x - GAP, height, body, " ".join(heatmap.description(one) for one in explanations))


def _svg_image(picture: Image.Image, kind: str, x: float, opacity: float) -> str:
    return (
        f'<image x="{x:g}" y="40" width="{picture.width}" height="{picture.height}" opacity="{opacity:g}" '
        f'href="{heatmap.data_url(picture, kind)}"/>'
    )


def _spoken(explanations: Sequence[Explanation]) -> str:
    return "; ".join(visible(f"{one.label} explained by {one.method}") for one in explanations)
