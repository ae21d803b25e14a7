"""Heat map of scores per block: tokens across, blocks down, each row on its own scale."""

from collections.abc import Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.explanation import Explanation
from clearhead.views import html_parts
from clearhead.views.captions import format_relevance
from clearhead.views.color import color_step

MAX_COLUMNS = 60


def heat_map(explanation: Explanation, rollout: Explanation | None = None) -> str:
    """Render a table of the blocks' scores, last block on top, then Rollout, if given, and Sum.

    Every row is scaled by its largest score outside special tokens. Long texts show their most relevant tokens.
    """
    _check_blocks(explanation, rollout)
    columns = _select_tokens(explanation)
    head = _render_head(explanation, columns)
    body = _render_body(explanation, rollout, columns)
    table = f'<table class="ch-blocks"><thead>{head}</thead><tbody>{body}</tbody></table>'
    return html_parts.scrollable("Scores per block", table) + _render_note(explanation, columns)


def _check_blocks(explanation: Explanation, rollout: Explanation | None) -> None:
    if explanation.layers is None:
        raise BadOption(f"'{explanation.method}' has no scores per block. Use att-cat, cat or att-grads.")
    if rollout is not None and rollout.tokens != explanation.tokens:
        raise BadOption("The rollout belongs to another input: explain the same input by both methods.")


def _select_tokens(explanation: Explanation) -> list[int]:
    """Return the indices of the most relevant tokens in reading order, at most 60."""
    # A stable sort keeps the first of equally relevant tokens.
    order = np.argsort(-np.abs(explanation.relevance), kind="stable")
    return sorted(int(index) for index in order[:MAX_COLUMNS])


def _render_head(explanation: Explanation, columns: Sequence[int]) -> str:
    cells = [_render_head_cell(explanation.tokens[index]) for index in columns]
    # Screen readers announce the heading of the column of names, which has no text to see.
    corner = '<th scope="col"><span class="ch-sr">block</span></th>'
    return f"<tr>{corner}{''.join(cells)}</tr>"


def _render_head_cell(token: str) -> str:
    return f'<th scope="col"><span>{html_parts.escape(token)}</span></th>'


def _render_body(explanation: Explanation, rollout: Explanation | None, columns: Sequence[int]) -> str:
    rows = []
    for name, values in _list_rows(explanation, rollout):
        rows.append(_render_row(name, values, explanation, columns))
    return "".join(rows)


def _list_rows(explanation: Explanation, rollout: Explanation | None) -> list[tuple[str, Array]]:
    """Return name and scores of each row from top to bottom."""
    rows = _block_rows(explanation)
    if rollout is not None:
        rows.append(("Rollout", rollout.relevance))
    rows.append(("Sum", explanation.relevance))
    return rows


def _block_rows(explanation: Explanation) -> list[tuple[str, Array]]:
    rows: list[tuple[str, Array]] = []
    if explanation.layers is not None:
        rows += ((f"block {number}", scores) for number, scores in enumerate(explanation.layers))
    # The last block, next to the output, is on top.
    return rows[::-1]


def _render_row(name: str, values: Array, explanation: Explanation, columns: Sequence[int]) -> str:
    # Special tokens often get most of the relevance; on their scale the words would look empty.
    full = _row_scale(values, explanation.special)
    cells = []
    for index in columns:
        cells.append(_render_cell(float(values[index]), full, explanation.tokens[index], name))
    return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'


def _row_scale(values: Array, special: Array) -> float:
    """Return the largest absolute score outside special tokens, or of all if the others have none."""
    return _max_absolute(values[~special]) or _max_absolute(values)


def _max_absolute(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))


def _render_cell(value: float, full: float, token: str, name: str) -> str:
    css = html_parts.css_class(color_step(value, full))
    number = format_relevance(value)
    tooltip = html_parts.escape_attribute(f"{token} · {name} · {number}")
    return f'<td class="{css}" title="{tooltip}"><span class="ch-sr">{number}</span></td>'


def _render_note(explanation: Explanation, columns: Sequence[int]) -> str:
    left_out = len(explanation.tokens) - len(columns)
    if not left_out:
        return ""
    return f'<p class="ch-faint">{left_out} less relevant tokens are left out.</p>'
