"""Answers as static images: each word above its probability, prompt, shares, sources, and a grid."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from PIL import Image

from clearhead.answer_explanation import AnswerExplanation
from clearhead.views.answer_grid import TITLE, Grid, make_grid
from clearhead.views.answer_pictures import describe_pictures, draw_picture, format_full, scale_pictures
from clearhead.views.answers import (
    ColoredWord,
    Share,
    color_answer,
    describe_source,
    format_probabilities,
    list_notes,
    list_shares,
    list_sources,
    name_share,
    name_start,
)
from clearhead.views.captions import clip
from clearhead.views.color import LIGHT, Rgb
from clearhead.views.fonts import measure_text
from clearhead.views.scale import Scale, make_scale
from clearhead.views.sink import Segments
from clearhead.views.text_layout import (
    MARGIN,
    SMALL_SIZE,
    TEXT_SIZE,
    TEXT_WIDTH,
    WIDTH,
    Box,
    Layout,
    Spell,
    is_right_to_left,
    mirror,
)
from clearhead.views.text_spans import TextSpan, split_segments

GAP = 14
CAPTION_SIZE = 12
WORD_GAP = 6.0
# From the top of a word to that of its probability, and to the next line.
PROBABILITY_TOP = TEXT_SIZE * 1.5 + 2
ANSWER_LINE = PROBABILITY_TOP + CAPTION_SIZE * 2
# Longer words are cut, so that a line can hold them.
MAX_WORD = 40
SHARE_INDENT = CAPTION_SIZE + 6
CELL = 22.0
CELL_GAP = 2
MAX_GRID_COLUMNS = 24
PICTURE_SIDE = 320.0
# Twice as many pixels, because drawings have two for each point.
MAX_PICTURE_SIDE = 640
SHARE_COLORS: dict[str, Rgb] = {
    "first": LIGHT.line,
    "prompt": LIGHT.prompt,
    "own": LIGHT.own,
    "pictures": LIGHT.pictures,
    "special": LIGHT.faint,
}


@dataclass(frozen=True)
class _Cell:
    """A word of the answer on its colour, its probability below, and whether it begins a line."""

    word: Box
    below: Box
    begins_line: bool

    @property
    def width(self) -> float:
        return max(self.word.width, self.below.width)

    def place(self, x: float, y: float) -> list[Box]:
        """Return the boxes at a position."""
        return [replace(self.word, x=x, y=y), replace(self.below, x=x, y=y + PROBABILITY_TOP)]


def lay_out(layout: Layout, explanation: AnswerExplanation) -> None:
    """Add answer, prompt, legend, shares, sources, grid and notes below a heading."""
    segments = split_segments(explanation)
    _add_answer(layout, _make_cells(layout.spell, explanation, segments))
    _add_prompt(layout, segments[0], make_scale(explanation))
    _add_pictures(layout, explanation)
    _add_legend(layout, explanation)
    _add_shares(layout, list_shares(explanation))
    _add_sources(layout, explanation)
    _add_grid(layout, make_grid(explanation, MAX_GRID_COLUMNS))
    layout.add_check(explanation)
    for note in list_notes(explanation):
        _add_note(layout, note)


def _add_note(layout: Layout, text: str) -> None:
    layout.add_line(text, SMALL_SIZE, LIGHT.faint)


def _add_caption(layout: Layout, text: str) -> None:
    layout.y += GAP / 2
    _add_note(layout, text)


def _make_cells(spell: Spell, explanation: AnswerExplanation, segments: Segments) -> Iterator[_Cell]:
    return map(partial(_make_cell, spell), color_answer(explanation, segments))


def _make_cell(spell: Spell, colored: ColoredWord) -> _Cell:
    text = _make_box(spell(clip(colored.word.text, MAX_WORD)), TEXT_SIZE)
    below = _make_faint_box(spell(format_probabilities(colored.word, " rather than ")))
    return _Cell(replace(text, step=colored.step), below, colored.begins_line)


def _make_box(text: str, size: int) -> Box:
    """Return a text without a position."""
    return Box(text, 0.0, 0.0, measure_text(text, size), size)


def _make_faint_box(text: str) -> Box:
    return replace(_make_box(text, CAPTION_SIZE), ink=LIGHT.faint)


def _add_answer(layout: Layout, cells: Iterable[_Cell]) -> None:
    """Add the words of the answer, each above its probability, in lines."""
    _add_caption(layout, "Answer")
    line: list[Box] = []
    x = float(MARGIN)
    for cell in cells:
        # The first word of a line stays there even if it is too wide.
        if line and (cell.begins_line or x + cell.width > MARGIN + TEXT_WIDTH):
            _end_line(layout, line)
            line = []
            x = float(MARGIN)
        line += cell.place(x, layout.y)
        x += cell.width + WORD_GAP
    _end_line(layout, line)


def _end_line(layout: Layout, boxes: list[Box]) -> None:
    if _reads_leftwards(boxes):
        boxes = mirror(boxes, WIDTH)
    layout.boxes += boxes
    layout.y += ANSWER_LINE


def _reads_leftwards(boxes: Iterable[Box]) -> bool:
    return is_right_to_left([TextSpan(box.text) for box in boxes])


def _add_prompt(layout: Layout, spans: Sequence[TextSpan], scale: Scale) -> None:
    """Add the prompt; the template of a chat, text without relevance, is faint."""
    _add_caption(layout, "Prompt")
    words = chain.from_iterable(map(_split_unscored, _strip_end(spans)))
    layout.add_text(list(words), scale, LIGHT.faint)


def _add_pictures(layout: Layout, explanation: AnswerExplanation) -> None:
    """Add the pictures of the prompt with their heat maps, side by side, and what they mean."""
    if not explanation.picture_spans:
        return
    _add_caption(layout, "Pictures")
    scale = scale_pictures(explanation)
    x = float(MARGIN)
    bottom = layout.y
    for picture in explanation.pictures:
        if x > MARGIN and x + PICTURE_SIDE > MARGIN + TEXT_WIDTH:
            x = float(MARGIN)
            layout.y = bottom + GAP
        box = _make_picture(draw_picture(picture, scale, MAX_PICTURE_SIDE), x, layout.y)
        layout.boxes.append(box)
        x = box.right + GAP
        bottom = max(bottom, box.bottom)
    layout.y = bottom + GAP / 2
    for line in (*describe_pictures(explanation), format_full(explanation)):
        _add_note(layout, line)


def _make_picture(image: Image.Image, x: float, y: float) -> Box:
    """Return an image as high and wide as a square allows."""
    width = PICTURE_SIDE * min(1.0, image.width / image.height)
    return Box("", x, y, width, 0, image=image)


def _split_unscored(span: TextSpan) -> list[TextSpan]:
    """Return text without relevance as words, so that lines can be broken between them."""
    if span.relevance is not None:
        return [span]
    return list(map(TextSpan, re.findall(r"\s+|\S+", span.text)))


def _strip_end(spans: Sequence[TextSpan]) -> list[TextSpan]:
    """Return the spans without blanks at the end, which would be an empty line."""
    *rest, last = spans
    if last.relevance is not None:
        return list(spans)
    return [*rest, TextSpan(last.text.rstrip())]


def _add_legend(layout: Layout, explanation: AnswerExplanation) -> None:
    layout.y += GAP
    # Only relevance of both signs needs a scale in both directions.
    layout.add_legend(name_start(explanation), make_scale(explanation))


def _add_shares(layout: Layout, shares: Sequence[Share]) -> None:
    """Add a bar of the shares of relevance, and what its colours mean."""
    # Names stand below the bar, because a small share is narrower than its name.
    layout.y += GAP / 2
    layout.boxes += _make_bars(shares, layout.y)
    layout.y += CAPTION_SIZE * 2
    x = float(MARGIN)
    for share in shares:
        x = _add_share_name(layout, share, x)
    layout.y += CAPTION_SIZE * 2


def _make_bars(shares: Iterable[Share], y: float) -> Iterator[Box]:
    x = float(MARGIN)
    for share in shares:
        # The bars of all shares fill the line, because shares sum to 1.
        width = share.size * TEXT_WIDTH
        yield Box("", x, y, width, CAPTION_SIZE, fill=SHARE_COLORS[share.group])
        x += width


def _add_share_name(layout: Layout, share: Share, x: float) -> float:
    """Add a swatch and the name of a share, in a line of its own if there is no space; return where the next begins."""
    name = _make_faint_box(layout.spell(name_share(share)))
    if x + SHARE_INDENT + name.width > MARGIN + TEXT_WIDTH:
        x = float(MARGIN)
        layout.y += CAPTION_SIZE * 2
    name = replace(name, x=x + SHARE_INDENT, y=layout.y)
    swatch = Box("", x, layout.y + 3, CAPTION_SIZE, CAPTION_SIZE // 2 + 2, fill=SHARE_COLORS[share.group])
    layout.boxes += [swatch, name]
    return name.right + GAP


def _add_sources(layout: Layout, explanation: AnswerExplanation) -> None:
    sources = list_sources(explanation)
    if sources:
        _add_caption(layout, "Sources")
    scale = make_scale(explanation)
    for source in sources:
        layout.add_line(f"{scale.format(source.relevance)}  {describe_source(source)}", SMALL_SIZE)


def _add_grid(layout: Layout, grid: Grid | None) -> None:
    """Add a grid with the words of the prompt from bottom to top above its columns."""
    if grid is None:
        return
    _add_caption(layout, TITLE)
    names = _make_names(layout, grid.rows)
    # Columns begin after the longest name of a row.
    left = MARGIN + _max_width(names) + WORD_GAP
    _add_columns(layout, _make_names(layout, grid.columns), left)
    for row, name in enumerate(names):
        _add_row(layout, name, grid.steps(row), left)
    layout.y += GAP / 2
    # An empty line would only be a gap.
    if grid.note:
        _add_note(layout, grid.note)


def _make_names(layout: Layout, names: Iterable[str]) -> list[Box]:
    return [_make_box(layout.spell(name), SMALL_SIZE) for name in names]


def _max_width(boxes: Iterable[Box]) -> float:
    return max(box.width for box in boxes)


def _add_columns(layout: Layout, names: Sequence[Box], left: float) -> None:
    # Names end at the bottom, next to their columns.
    bottom = layout.y + _max_width(names)
    for index, name in enumerate(names):
        x = left + index * CELL
        layout.boxes.append(replace(name, x=x, y=bottom - name.width, is_rotated=True))
    layout.y = bottom + 4


def _add_row(layout: Layout, name: Box, steps: Iterable[int], left: float) -> None:
    layout.boxes.append(replace(name, x=MARGIN, y=layout.y))
    # Squares have no text, so that their colour is all they show.
    for index, step in enumerate(steps):
        layout.boxes.append(Box("", left + index * CELL, layout.y, CELL - CELL_GAP, SMALL_SIZE, step))
    layout.y += CELL + CELL_GAP
