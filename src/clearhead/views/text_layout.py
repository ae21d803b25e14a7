"""Layout of coloured words in lines, from left to right or from right to left."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from PIL import Image

from clearhead.explanation import Explanation
from clearhead.views.color import LEGEND_STEPS, LIGHT, NEGATIVE_LEGEND_STEPS, UNREAD_INK, Rgb
from clearhead.views.fonts import measure_text
from clearhead.views.scale import Scale
from clearhead.views.text_spans import TextSpan
from clearhead.views.trust import describe_hidden, describe_shown, describe_verdict

# Units of the layout are CSS pixels; a PNG has `fonts.SCALE` times as many.
WIDTH = 760
MARGIN = 24
TEXT_WIDTH = WIDTH - 2 * MARGIN
TEXT_SIZE = 19
SMALL_SIZE = 14
SWATCH_WIDTH = 16.0
# The names of a grid's rows stand left of its cells.
GRID_LEFT = MARGIN + 80.0
MAX_CELL_WIDTH = 34.0
CELL_GAP = 3.0
LINE_HEIGHT = 1.75
# Share of the font size from the top of a box to the baseline of its text.
BASELINE = 1.12
# Longer runs without a space are broken, so that a line can hold them.
MAX_RUN_LENGTH = 40
# Turns text of the user into text that can be drawn: `replace_missing_glyphs` for PNG, `escape_hidden` for SVG.
Spell = Callable[[str], str]
# A text that fits a line, its step of the colour scale, and its ink.
_Run = tuple[str, int, Rgb]


@dataclass(frozen=True)
class Box:
    """A word or cell on its colour: position, size, step of the colour scale behind it, ink, and tooltip in an SVG.

    `fill` is a colour outside of the scale, `image` a picture instead of a text. A rotated box reads from bottom to
    top, and its width is that of the text.
    """

    text: str
    x: float
    y: float
    width: float
    size: int
    step: int = 0
    ink: Rgb = LIGHT.ink
    tooltip: str = ""
    fill: Rgb | None = None
    is_rotated: bool = False
    image: Image.Image | None = None

    @property
    def height(self) -> float:
        if self.image is not None:
            return self.width * self.image.height / self.image.width
        return self.size * 1.5

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def baseline(self) -> float:
        return self.y + self.size * BASELINE


class GridCell(NamedTuple):
    """A cell of a grid: its step of the colour scale, and its tooltip."""

    step: int
    tooltip: str


@dataclass
class Layout:
    """Boxes placed so far, from top to bottom, and the vertical position of the next one."""

    spell: Spell
    boxes: list[Box] = field(default_factory=list)
    y: float = float(MARGIN)

    def add_line(self, text: str, size: int, ink: Rgb = LIGHT.ink) -> None:
        """Add text without relevance, wrapped at spaces."""
        # Without relevance no word gets a colour, whatever the scale.
        words = list(map(TextSpan, _split_at_spaces(text)))
        for box in self._wrap(words, None, size):
            self.boxes.append(replace(box, ink=ink))

    def add_text(self, spans: Sequence[TextSpan], scale: Scale, unscored_ink: Rgb = LIGHT.ink) -> None:
        """Add words on their colours, wrapped; `unscored_ink` is that of text without relevance."""
        self.boxes += self._wrap(spans, scale, TEXT_SIZE, unscored_ink)

    def add_legend(self, label: str, scale: Scale) -> None:
        """Add the colour scale on one line, and what its numbers are."""
        x = float(MARGIN)
        for text, step in _legend_entries(self.spell(label), scale):
            box = _make_legend_box(text, step, x, self.y)
            self.boxes.append(box)
            x = box.right
        self._end_line(SMALL_SIZE)
        self.add_line(scale.caption, SMALL_SIZE, LIGHT.faint)

    def add_check(self, explanation: Explanation) -> None:
        """Add the verdict of the check and what was hidden, if there was a check."""
        if explanation.check is not None:
            self.y += SMALL_SIZE / 2
            self.add_line(f"Check {explanation.check.verdict}: {describe_verdict(explanation.check)}.", SMALL_SIZE)
            self.add_line(describe_hidden(explanation, explanation.check), SMALL_SIZE)
            self.add_line(describe_shown(explanation, explanation.check), SMALL_SIZE)
            self.y += SMALL_SIZE / 2

    def add_grid_head(self, name: str, columns: Sequence[str]) -> None:
        """Add the names of a grid's columns, centred on them."""
        self._add_label(name, float(MARGIN))
        cell_width = _cell_width(len(columns))
        for index, column in _skip_crowded(columns, cell_width):
            width = measure_text(column, SMALL_SIZE)
            self._add_label(column, GRID_LEFT + index * cell_width + (cell_width - CELL_GAP - width) / 2)
        self._end_line(SMALL_SIZE)

    def add_grid_row(self, name: str, cells: Iterable[GridCell], columns: int) -> None:
        """Add the name of a row and its cells; all rows of a grid have as many columns."""
        self._add_label(name, float(MARGIN))
        cell_width = _cell_width(columns)
        for index, (step, tooltip) in enumerate(cells):
            x = GRID_LEFT + index * cell_width
            self.boxes.append(Box(" ", x, self.y, cell_width - CELL_GAP, SMALL_SIZE, step, tooltip=tooltip))
        self._end_line(SMALL_SIZE)

    def _add_label(self, text: str, x: float) -> None:
        self.boxes.append(_make_legend_box(text, 0, x, self.y))

    def _wrap(
        self, spans: Sequence[TextSpan], scale: Scale | None, size: int, unscored_ink: Rgb = LIGHT.ink
    ) -> list[Box]:
        """Break spans into lines, then order each line by the direction of its words."""
        from_right = is_right_to_left(spans)
        # Lines are broken in logical order, as the text is read, and only then ordered for display.
        boxes = self._break_lines(_split_runs(spans, scale, self.spell, unscored_ink), size)
        ordered: list[Box] = []
        for _, line in groupby(boxes, key=attrgetter("y")):
            ordered += _order_line(list(line), from_right)
        return ordered

    def _break_lines(self, runs: Iterable[_Run], size: int) -> list[Box]:
        """Place runs from left to right; a run that does not fit begins a new line, where spaces are dropped."""
        boxes: list[Box] = []
        x = 0.0
        for text, step, ink in runs:
            width = _measure_run(text, size)
            if _begins_line(text, x + width):
                x = 0.0
                self._end_line(size)
            # A line break is a space at the start of the line that it begins.
            if x > 0 or not text.isspace():
                boxes.append(Box(text, x + MARGIN, self.y, width, size, step, ink))
                x += width
        self._end_line(size)
        return boxes

    def _end_line(self, size: int) -> None:
        self.y += size * LINE_HEIGHT


def _cell_width(columns: int) -> float:
    return min(MAX_CELL_WIDTH, (WIDTH - MARGIN - GRID_LEFT) / columns)


def _skip_crowded(columns: Sequence[str], cell_width: float) -> list[tuple[int, str]]:
    """Return the columns with their indices; only every few of them if their names would touch each other."""
    widest = max(measure_text(column, SMALL_SIZE) for column in columns)
    step = math.ceil((widest + CELL_GAP) / cell_width)
    return list(enumerate(columns))[::step]


def _measure_run(text: str, size: int) -> float:
    if text == "\n":
        return 0.0
    return measure_text(text, size)


def _begins_line(text: str, end: float) -> bool:
    # Spaces may hang over the end of a line: they are not seen there.
    return text == "\n" or (end > TEXT_WIDTH and not text.isspace())


def _make_legend_box(text: str, step: int, x: float, y: float) -> Box:
    return Box(text, x, y, _measure_entry(text, step), SMALL_SIZE, step, LIGHT.faint)


def _measure_entry(text: str, step: int) -> float:
    # All swatches of a legend are equally wide.
    if step == 0:
        return measure_text(text, SMALL_SIZE)
    return SWATCH_WIDTH


def _split_at_spaces(text: str) -> list[str]:
    """Split text into words and the single spaces between them."""
    return re.findall(r" |[^ ]+", text)


def _split_runs(spans: Sequence[TextSpan], scale: Scale | None, spell: Spell, unscored_ink: Rgb) -> Iterator[_Run]:
    """Iterate over runs of text that fit a line, with their colour steps; line breaks are runs of their own."""
    for span in spans:
        step = 0 if scale is None or not span.is_read else scale.find_step(span.relevance)
        ink = _choose_ink(span, unscored_ink)
        # What was cut off, and a sentence or source, is a single span, and may be long.
        words = _split_at_spaces(span.text) if span.name or not span.is_read else [span.text]
        for word in words:
            for text in _split_lines(spell(word)):
                yield text, step, ink


def _choose_ink(span: TextSpan, unscored_ink: Rgb) -> Rgb:
    if not span.is_read:
        return UNREAD_INK
    return unscored_ink if span.relevance is None else LIGHT.ink


def _split_lines(text: str) -> Iterator[str]:
    # Fonts have no glyphs for returns and tabs.
    text = text.replace("\r", "").replace("\t", "    ")
    for index, line in enumerate(text.split("\n")):
        if index:
            yield "\n"
        yield from _cut(line)


def _cut(line: str) -> Iterator[str]:
    for start in range(0, len(line), MAX_RUN_LENGTH):
        yield line[start : start + MAX_RUN_LENGTH]


def _order_line(line: list[Box], from_right: bool) -> list[Box]:
    """Reorder a line for display: a simple form of the Unicode bidirectional algorithm for whole words.

    Runs against the direction of the text are mirrored in themselves, a line from right to left as a whole.
    """
    ordered: list[Box] = []
    for direction, run in _group_by_direction(line, from_right):
        if direction != from_right:
            run = _mirror_run(run)
        ordered += run
    if from_right:
        return mirror(ordered, WIDTH)
    return ordered


def _group_by_direction(line: list[Box], from_right: bool) -> Iterator[tuple[bool, list[Box]]]:
    """Iterate over the runs of one direction, each with whether it reads from right to left."""
    directions = _resolve_directions(line, from_right)
    for direction, run in groupby(zip(directions, line, strict=True), key=itemgetter(0)):
        yield direction, [box for _, box in run]


def _mirror_run(boxes: list[Box]) -> list[Box]:
    first, last = boxes[0], boxes[-1]
    return mirror(boxes, first.x + last.x + last.width)


def mirror(boxes: list[Box], ends: float) -> list[Box]:
    """Mirror boxes in the middle of an area; `ends` is the sum of its left and right ends."""
    return [replace(box, x=ends - box.x - box.width) for box in boxes]


def _resolve_directions(line: list[Box], from_right: bool) -> list[bool]:
    """Return whether each box reads from right to left.

    A box without direction, such as a space or a number, takes that of its neighbours if they agree, else the text's.
    """
    own = [_reads_from_right(box.text) for box in line]
    directions = []
    for index, direction in enumerate(own):
        if direction is None:
            direction = _infer_direction(own[:index], own[index + 1 :], from_right)
        directions.append(direction)
    return directions


def _infer_direction(before: list[bool | None], after: list[bool | None], from_right: bool) -> bool:
    previous = _first_known(reversed(before), from_right)
    following = _first_known(after, from_right)
    if previous == following:
        return previous
    return from_right


def _first_known(directions: Iterable[bool | None], default: bool) -> bool:
    for direction in directions:
        if direction is not None:
            return direction
    return default


def is_right_to_left(spans: Sequence[TextSpan]) -> bool:
    """Return whether the text as a whole reads from right to left; text without any direction does not."""
    return bool(_reads_from_right("".join(span.text for span in spans)))


def _reads_from_right(text: str) -> bool | None:
    """Return the direction of the first character that has one; None if no character has."""
    for character in text:
        # Left to right, right to left as Hebrew, right to left as Arabic.
        direction = unicodedata.bidirectional(character)
        if direction in ("L", "R", "AL"):
            return direction != "L"
    return None


def _legend_entries(label: str, scale: Scale) -> list[tuple[str, int]]:
    """Return texts and swatches of the legend from left to right; a swatch has a step."""
    entries = []
    if scale.signed:
        entries += [(f"against {scale.lowest} ", 0), *_list_swatches(NEGATIVE_LEGEND_STEPS)]
    entries.append((" 0 ", 0))
    entries += _list_swatches(LEGEND_STEPS)
    entries.append((f" {scale.highest} for {label}", 0))
    return entries


def _list_swatches(steps: Iterable[int]) -> list[tuple[str, int]]:
    return [(" ", step) for step in steps]
