"""Answers as static images: each word above its probability, prompt, shares, strongest words, and a grid."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from clearhead.answer_explanation import AnswerExplanation
from clearhead.views.answer_grid import Grid, make_grid
from clearhead.views.answers import (
    AnswerWord,
    Share,
    answer_colors,
    describe_source,
    format_foil,
    format_rounded,
    format_sink,
    format_special,
    full_scale,
    iterate_answer,
    list_shares,
    list_sources,
    list_words,
    name_start,
)
from clearhead.views.captions import clip, format_diagnostics, format_percent, format_relevance
from clearhead.views.color import LIGHT, Rgb, color_step
from clearhead.views.fonts import measure_text
from clearhead.views.text_layout import (
    MARGIN,
    SMALL_SIZE,
    TEXT_SIZE,
    TEXT_WIDTH,
    WIDTH,
    Box,
    Layout,
    is_right_to_left,
    mirror,
)
from clearhead.views.text_spans import TextSpan, has_negative, select_scored, split_segments

GAP = 14
CAPTION_SIZE = 12
WORD_GAP = 6.0
# A word, its probability and a gap.
ANSWER_LINE = TEXT_SIZE * 1.5 + CAPTION_SIZE * 1.5 + 8
MAX_WORD = 40
SHARE_INDENT = CAPTION_SIZE + 6
CELL = 22.0
CELL_GAP = 2
MAX_GRID_COLUMNS = 24
SHARE_COLORS: dict[str, Rgb] = {
    "first": LIGHT.line,
    "prompt": LIGHT.prompt,
    "own": LIGHT.own,
    "special": LIGHT.faint,
}


def lay_out(layout: Layout, explanation: AnswerExplanation) -> None:
    """Add answer, prompt, legend, shares, sources, grid and notes below a heading."""
    segments = split_segments(explanation)
    full = full_scale(explanation, segments)
    _add_answer(layout, explanation, segments, full)
    _add_caption(layout, "Prompt")
    _add_prompt(layout, segments[0], full)
    layout.y += GAP
    layout.add_legend(name_start(explanation), full, has_negative(select_scored(segments)))
    _add_shares(layout, explanation)
    _add_sources(layout, explanation)
    _add_grid(layout, explanation)
    for note in filter(None, [format_sink(explanation), format_special(explanation), format_diagnostics(explanation)]):
        _add_note(layout, note)


def _add_note(layout: Layout, text: str) -> None:
    layout.add_line(text, SMALL_SIZE, LIGHT.faint)


def _add_caption(layout: Layout, text: str) -> None:
    layout.y += GAP / 2
    _add_note(layout, text)


def _add_answer(
    layout: Layout, explanation: AnswerExplanation, segments: Sequence[Sequence[TextSpan]], full: float
) -> None:
    """Add the words of the answer, each above its probability."""
    _add_caption(layout, "Answer")
    words = list_words(explanation)
    steps = [color_step(relevance, full) for relevance in answer_colors(segments, words)]
    line: list[Box] = []
    x = float(MARGIN)
    for (before, word), step in zip(iterate_answer(explanation, words), steps, strict=True):
        boxes = _make_word_boxes(layout, word, step)
        width = max(box.width for box in boxes)
        if line and ("\n" in before or x + width > MARGIN + TEXT_WIDTH):
            _end_answer_line(layout, line)
            line, x = [], float(MARGIN)
        line += [replace(box, x=x, y=box.y + layout.y) for box in boxes]
        x += width + WORD_GAP
    _end_answer_line(layout, line)


def _end_answer_line(layout: Layout, boxes: list[Box]) -> None:
    if is_right_to_left([TextSpan(box.text) for box in boxes]):
        boxes = mirror(boxes, WIDTH)
    layout.boxes += boxes
    layout.y += ANSWER_LINE


def _make_word_boxes(layout: Layout, word: AnswerWord, step: int) -> list[Box]:
    """Return the boxes of a word, of its probability and of its foil, relative to the start of the word."""
    text = layout.spell(clip(word.text, MAX_WORD))
    below = format_rounded(word.probability)
    foil = format_foil(word)
    if foil:
        below += f" rather than {layout.spell(foil)}"
    return [
        Box(text, 0.0, 0.0, measure_text(text, TEXT_SIZE), TEXT_SIZE, step),
        _make_small_box(below, TEXT_SIZE * 1.5 + 2),
    ]


def _make_small_box(text: str, y: float, x: float = 0.0) -> Box:
    return Box(text, x, y, measure_text(text, CAPTION_SIZE), CAPTION_SIZE, ink=LIGHT.faint)


def _add_prompt(layout: Layout, spans: Sequence[TextSpan], full: float) -> None:
    """Add the prompt; the template of a chat, text without relevance, is faint."""
    words: list[TextSpan] = []
    for span in _strip_end(spans):
        if span.relevance is None:
            words += map(TextSpan, re.findall(r"\s+|\S+", span.text))
        else:
            words.append(span)
    layout.add_text(words, full, LIGHT.faint)


def _strip_end(spans: Sequence[TextSpan]) -> list[TextSpan]:
    """Return the spans without blanks at the end, which would be an empty line."""
    *rest, last = spans
    if last.relevance is not None:
        return list(spans)
    return [*rest, TextSpan(last.text.rstrip())]


def _add_shares(layout: Layout, explanation: AnswerExplanation) -> None:
    """Add a bar of the shares of relevance, and what its colours mean."""
    shares = list_shares(explanation)
    if not shares:
        return
    layout.y += GAP / 2
    x = float(MARGIN)
    for share in shares:
        width = share.size * TEXT_WIDTH
        layout.boxes.append(Box("", x, layout.y, width, CAPTION_SIZE, fill=SHARE_COLORS[share.group]))
        x += width
    layout.y += CAPTION_SIZE * 2
    _add_share_legend(layout, shares)


def _add_share_legend(layout: Layout, shares: Iterable[Share]) -> None:
    x = float(MARGIN)
    for share in shares:
        label = _make_small_box(layout.spell(f"{share.name} {format_percent(share.size)}"), layout.y, x + SHARE_INDENT)
        swatch = Box("", x, layout.y + 3, CAPTION_SIZE, CAPTION_SIZE // 2 + 2, fill=SHARE_COLORS[share.group])
        layout.boxes += [swatch, label]
        x = label.right + GAP
    layout.y += CAPTION_SIZE * 2


def _add_sources(layout: Layout, explanation: AnswerExplanation) -> None:
    sources = list_sources(explanation)
    if not sources:
        return
    _add_caption(layout, "Sources")
    for source in sources:
        layout.add_line(f"{format_relevance(source.relevance)}  {describe_source(source)}", SMALL_SIZE)


def _add_grid(layout: Layout, explanation: AnswerExplanation) -> None:
    """Add the grid of a matrix with the words of the prompt from bottom to top above its columns."""
    grid = make_grid(explanation, MAX_GRID_COLUMNS)
    if grid is None:
        return
    _add_caption(layout, "Prompt × answer")
    left = MARGIN + _measure_rows(layout, grid.rows) + WORD_GAP
    _add_columns(layout, grid, left)
    for row, name in enumerate(grid.rows):
        _add_row(layout, name, grid.steps(row), left)
    layout.y += GAP / 2
    if grid.note:
        _add_note(layout, grid.note)


def _measure_rows(layout: Layout, names: Iterable[str]) -> float:
    return max(measure_text(layout.spell(name), SMALL_SIZE) for name in names)


def _add_columns(layout: Layout, grid: Grid, left: float) -> None:
    labels = [layout.spell(name) for name in grid.columns]
    widths = [measure_text(label, SMALL_SIZE) for label in labels]
    height = max(widths)
    for index, (label, width) in enumerate(zip(labels, widths, strict=True)):
        # At the bottom, next to its column.
        y = layout.y + height - width
        layout.boxes.append(Box(label, left + index * CELL, y, width, SMALL_SIZE, is_rotated=True))
    layout.y += height + 4


def _add_row(layout: Layout, name: str, steps: Iterable[int], left: float) -> None:
    label = layout.spell(name)
    layout.boxes.append(Box(label, MARGIN, layout.y, measure_text(label, SMALL_SIZE), SMALL_SIZE))
    for index, step in enumerate(steps):
        layout.boxes.append(Box("", left + index * CELL, layout.y, CELL - CELL_GAP, SMALL_SIZE, step))
    layout.y += CELL + CELL_GAP
