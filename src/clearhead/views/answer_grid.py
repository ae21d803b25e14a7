"""Prompt × answer: how relevant each word of the prompt is for each word of an answer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.views import html_parts
from clearhead.views.answers import AnswerWord, list_words, name_start, split_sink
from clearhead.views.captions import clip, format_relevance
from clearhead.views.color import color_step
from clearhead.views.text_spans import TextSpan, default_level, select_scored, split_segments

MAX_NAME = 24
MAX_ROWS = 60
MAX_COLUMNS = 60


@dataclass(frozen=True)
class Grid:
    """Names of the rows and columns, relevance, and the relevance of the full colour of each row.

    Rows are the words of the answer and, last, what is explained; `left_out` counts words of the prompt and of the
    answer that are not shown.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Array
    full: tuple[float, ...]
    left_out: tuple[int, int] = (0, 0)

    def steps(self, row: int) -> list[int]:
        """Return the colour steps of a row."""
        return [color_step(float(value), self.full[row]) for value in self.values[row]]

    @property
    def note(self) -> str:
        """What is not shown, or ""."""
        prompt_words, answer_words = self.left_out
        notes = []
        if prompt_words:
            notes.append(f"{prompt_words} less relevant words of the prompt")
        if answer_words:
            notes.append(f"the last {answer_words} words of the answer")
        return f"Not shown: {' and '.join(notes)}." if notes else ""


def make_grid(explanation: AnswerExplanation, max_columns: int = MAX_COLUMNS) -> Grid | None:
    """Return the grid of a matrix; None without one, or with fewer than two words to compare."""
    level = default_level(explanation)
    words = list_words(explanation, level)
    names = [clip(span.text, MAX_NAME) for span in _prompt_spans(explanation, level)]
    if explanation.matrix is None or len(words) < 2 or not names:
        return None
    shown = words[:MAX_ROWS]
    values = np.array([_prompt_relevance(row, level) for row in _list_rows(explanation, shown)])
    columns = _select_columns(values, max_columns)
    full = [_scale_row(row, explanation, level) for row in values]
    return Grid(
        rows=(*(clip(word.text, MAX_NAME) for word in shown), name_start(explanation)),
        columns=tuple(names[column] for column in columns),
        values=values[:, columns],
        full=tuple(full),
        left_out=(len(names) - len(columns), len(words) - len(shown)),
    )


def _list_rows(explanation: AnswerExplanation, words: Sequence[AnswerWord]) -> list[AnswerExplanation]:
    return [*(explanation.select_steps(word.steps) for word in words), explanation]


def _prompt_spans(explanation: AnswerExplanation, level: str) -> list[TextSpan]:
    return select_scored(split_segments(explanation, level)[:1])


def _prompt_relevance(explanation: AnswerExplanation, level: str) -> list[float]:
    return [span.relevance_or_zero for span in _prompt_spans(explanation, level)]


def _scale_row(values: Array, explanation: AnswerExplanation, level: str) -> float:
    """Return the largest absolute relevance of a row without the word of a sink."""
    sink, _ = split_sink(explanation, split_segments(explanation, level))
    rest = values[1:] if sink is not None else values
    return float(np.abs(rest).max(initial=0.0))


def _select_columns(values: Array, count: int) -> list[int]:
    """Return the indices of the most relevant words of the prompt in reading order."""
    # A stable sort keeps the first of equally relevant words.
    order = np.argsort(-np.abs(values).max(0), kind="stable")
    return sorted(int(index) for index in order[:count])


def render(explanation: AnswerExplanation) -> str:
    """Render the grid as an HTML table, folded if it is large; "" if there is none."""
    grid = make_grid(explanation)
    if grid is None:
        return ""
    head = "".join(map(_render_column, grid.columns))
    body = "".join(_render_row(grid, row) for row in range(len(grid.rows)))
    corner = '<th scope="col"><span class="ch-sr">answer</span></th>'
    table = f'<table class="ch-blocks"><thead><tr>{corner}{head}</tr></thead><tbody>{body}</tbody></table>'
    note = html_parts.render_faint(f"Every row has its own scale. {grid.note}")
    return html_parts.details("Prompt × answer", html_parts.scrollable("Prompt × answer", table) + note)


def _render_column(name: str) -> str:
    return f'<th scope="col"><span>{html_parts.escape(name)}</span></th>'


def _render_row(grid: Grid, row: int) -> str:
    cells = zip(grid.columns, grid.values[row].tolist(), grid.steps(row), strict=True)
    rendered = "".join(_render_cell(grid.rows[row], *cell) for cell in cells)
    return f'<tr><th scope="row" dir="auto">{html_parts.escape(grid.rows[row])}</th>{rendered}</tr>'


def _render_cell(row: str, column: str, value: float, step: int) -> str:
    number = format_relevance(value)
    tooltip = html_parts.escape_attribute(f"{column} → {row} · {number}")
    return f'<td class="{html_parts.css_class(step)}" title="{tooltip}"><span class="ch-sr">{number}</span></td>'
