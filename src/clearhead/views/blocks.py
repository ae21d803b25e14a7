"""Heat map of scores per block: tokens across, blocks down, each row on its own scale."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.explanation import Explanation
from clearhead.views import html_parts
from clearhead.views.scale import Scale, scale_values

# More columns than this would not fit a page.
MAX_COLUMNS = 60
# The name of a row and a score for each token.
Row = tuple[str, Array]


def heat_map(explanation: Explanation, rollout: Explanation | None = None) -> str:
    """Render a table of the blocks' scores, last block on top, then Rollout, if given, and the explanation itself.

    That is the sum over blocks, or what a method reads at the embeddings. Every row is scaled by its largest score
    outside special tokens. Long texts show their most relevant tokens.
    """
    layers = _require_layers(explanation)
    _check_rollout(explanation, rollout)
    columns = _select_tokens(explanation)
    rows = [*_block_rows(layers), *_sum_rows(explanation, rollout)]
    table = _render_table(rows, explanation, columns)
    return html_parts.scrollable("Scores per block", table) + _render_note(explanation, columns)


def _render_table(rows: Iterable[Row], explanation: Explanation, columns: Sequence[int]) -> str:
    head = _render_head(explanation, columns)
    body = "".join(_render_row(row, explanation, columns) for row in rows)
    return f'<table class="ch-blocks"><thead>{head}</thead><tbody>{body}</tbody></table>'


def _require_layers(explanation: Explanation) -> Array:
    if explanation.layers is None:
        raise BadOption(f"'{explanation.method}' has no scores per block. Use att-cat, cat or att-grads.")
    return explanation.layers


def _check_rollout(explanation: Explanation, rollout: Explanation | None) -> None:
    # Its scores would stand under the tokens of this explanation.
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


def _block_rows(layers: Array) -> list[Row]:
    rows = [(f"block {number}", scores) for number, scores in enumerate(layers)]
    # The last block, next to the output, is on top.
    return rows[::-1]


def _sum_rows(explanation: Explanation, rollout: Explanation | None) -> Iterator[Row]:
    if rollout is not None:
        yield "Rollout", rollout.relevance
    yield _name_total(explanation), explanation.relevance


def _name_total(explanation: Explanation) -> str:
    """Return "Sum" if the explanation is the sum over blocks; some methods read it at the embeddings."""
    total = _require_layers(explanation).sum(0)
    scale = float(np.abs(total).max(initial=0.0))
    return "Sum" if np.allclose(total, explanation.relevance, rtol=0, atol=1e-4 * scale) else "Embeddings"


def _render_row(row: Row, explanation: Explanation, columns: Sequence[int]) -> str:
    name, values = row
    scale = _scale_row(values, explanation.special)
    cells = []
    for index in columns:
        caption = f"{explanation.tokens[index]} · {name}"
        # Special tokens may have many times the relevance of all words: as a share that would be misread.
        number = "not counted" if explanation.special[index] else scale.format(float(values[index]))
        cells.append(_render_cell(scale.find_step(float(values[index])), number, caption))
    return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'


def _scale_row(values: Array, special: Array) -> Scale:
    """Return the scale of the scores outside special tokens, or of all if the others have none."""
    # Special tokens often get most of the relevance; on their scale the words would look empty.
    scale = scale_values(values[~special], "tokens")
    if scale.total > 0:
        return scale
    return scale_values(values, "tokens")


def _render_cell(step: int, number: str, caption: str) -> str:
    tooltip = html_parts.escape_attribute(f"{caption} · {number}")
    return f'<td class="{html_parts.css_class(step)}" title="{tooltip}"><span class="ch-sr">{number}</span></td>'


def _render_note(explanation: Explanation, columns: Sequence[int]) -> str:
    left_out = len(explanation.tokens) - len(columns)
    if not left_out:
        return ""
    return f'<p class="ch-faint">{left_out} less relevant tokens are left out.</p>'
