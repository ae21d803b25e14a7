"""Prompt × answer: how relevant each word of the prompt is for each word of an answer."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.views import html_parts
from clearhead.views.answers import AnswerWord, list_words, name_start
from clearhead.views.captions import clip
from clearhead.views.scale import Scale, make_scale
from clearhead.views.text_spans import TextSpan, default_level, select_scored, split_segments

MAX_NAME = 24
MAX_ROWS = 60
MAX_COLUMNS = 60
TITLE = "Prompt × answer"


@dataclass(frozen=True)
class Grid:
    """Names of the rows and columns, relevance, and the scale of each row, that of its word chosen alone.

    Rows are the words of the answer and, last, what is explained; `left_out` counts words of the prompt and of the
    answer that are not shown.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Array
    scales: tuple[Scale, ...]
    left_out: tuple[int, int] = (0, 0)

    def steps(self, row: int) -> list[int]:
        """Return the colour steps of a row."""
        return [self.scales[row].find_step(value) for value in self.values[row].tolist()]

    def numbers(self, row: int) -> list[str]:
        """Return the shares or effects of a row."""
        return [self.scales[row].format(value) for value in self.values[row].tolist()]

    @property
    def note(self) -> str:
        """What is not shown, or ""."""
        return " ".join(self._list_left_out())

    def _list_left_out(self) -> Iterator[str]:
        prompt_words, answer_words = self.left_out
        if prompt_words:
            yield f"{prompt_words} less relevant words of the prompt are not shown."
        if answer_words:
            yield f"The last {answer_words} words of the answer are not shown."


def make_grid(explanation: AnswerExplanation, max_columns: int = MAX_COLUMNS) -> Grid | None:
    """Return the grid of a matrix; None without one, or with fewer than two words to compare."""
    level = default_level(explanation)
    words = list_words(explanation, level)
    prompt = _prompt_spans(explanation, level)
    # One row and the row of the whole answer would be the same.
    if explanation.matrix is None or len(words) < 2 or not prompt:
        return None
    # The last row is what is explained.
    rows = [*(explanation.select_steps(word.steps) for word in words[:MAX_ROWS]), explanation]
    values = np.array([_prompt_relevance(row, level) for row in rows])
    columns = _select_columns(values, max_columns)
    return Grid(
        rows=(*map(_name_word, words[:MAX_ROWS]), name_start(explanation)),
        columns=tuple(_name_word(prompt[column]) for column in columns),
        values=values[:, columns],
        scales=tuple(map(make_scale, rows)),
        left_out=(len(prompt) - len(columns), max(0, len(words) - MAX_ROWS)),
    )


def _name_word(word: AnswerWord | TextSpan) -> str:
    return clip(word.text, MAX_NAME)


def _prompt_spans(explanation: AnswerExplanation, level: str) -> list[TextSpan]:
    # The first segment is the prompt.
    return select_scored(split_segments(explanation, level)[:1])


def _prompt_relevance(explanation: AnswerExplanation, level: str) -> list[float]:
    return [span.relevance_or_zero for span in _prompt_spans(explanation, level)]


def _select_columns(values: Array, count: int) -> list[int]:
    """Return the indices of the most relevant words of the prompt in reading order."""
    # A stable sort keeps the first of equally relevant words.
    order = np.argsort(-np.abs(values).max(0), kind="stable")
    return sorted(order[:count].tolist())


def render(explanation: AnswerExplanation) -> str:
    """Render the grid as a folded HTML table; "" if there is none."""
    grid = make_grid(explanation)
    if grid is None:
        return ""
    note = html_parts.render_faint(f"Every row has its own scale. {grid.note}")
    return html_parts.details(TITLE, html_parts.scrollable(TITLE, _render_table(grid)) + note)


def _render_table(grid: Grid) -> str:
    head = "".join(map(_render_column, grid.columns))
    body = "".join(_render_row(grid, row) for row in range(len(grid.rows)))
    # Screen readers announce the heading of the column of names, which has no text to see.
    corner = '<th scope="col"><span class="ch-sr">answer</span></th>'
    return f'<table class="ch-blocks"><thead><tr>{corner}{head}</tr></thead><tbody>{body}</tbody></table>'


def _render_column(name: str) -> str:
    return f'<th scope="col"><span>{html_parts.escape(name)}</span></th>'


def _render_row(grid: Grid, row: int) -> str:
    name = grid.rows[row]
    # In the tooltip too, because headings scroll out of sight.
    names = [f"{column} → {name}" for column in grid.columns]
    cells = "".join(map(_render_cell, names, grid.numbers(row), grid.steps(row)))
    return f'<tr><th scope="row" dir="auto">{html_parts.escape(name)}</th>{cells}</tr>'


def _render_cell(name: str, number: str, step: int) -> str:
    tooltip = html_parts.escape_attribute(f"{name} · {number}")
    return f'<td class="{html_parts.css_class(step)}" title="{tooltip}"><span class="ch-sr">{number}</span></td>'
