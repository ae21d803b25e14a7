"""Heat map of relevance per attention head: heads across, blocks down, all cells on one scale."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.explanation import Explanation
from clearhead.views import html_parts
from clearhead.views.scale import Scale, scale_values

MAX_SPOKEN_HEADS = 5


class Head(NamedTuple):
    """An attention head by its numbers, with its relevance: NaN if the block has fewer heads than others."""

    block: int
    head: int
    relevance: float

    @property
    def name(self) -> str:
        return f"block {self.block}, head {self.head}"

    @property
    def exists(self) -> bool:
        return not np.isnan(self.relevance)


class HeadGrid:
    """The heads of an explanation, for the views that draw them."""

    def __init__(self, explanation: Explanation) -> None:
        self.values: Array = _require_heads(explanation)
        self.scale: Scale = scale_values(self.values, "heads")

    @property
    def columns(self) -> range:
        """The numbers of the heads."""
        return range(self.values.shape[1])

    def describe(self, head: Head) -> str:
        """Return the name of a head with its share of all relevance."""
        return f"{head.name} · {self.scale.format(head.relevance)}"

    def rows(self) -> Iterator[tuple[str, list[Head]]]:
        """Iterate over the blocks with their names; the last block, next to the output, is on top."""
        for block in reversed(range(len(self.values))):
            yield f"block {block}", self._row(block)

    def _row(self, block: int) -> list[Head]:
        return [Head(block, head, float(self.values[block, head])) for head in self.columns]

    def strongest(self, count: int) -> list[Head]:
        """Return the heads with the largest absolute relevance, the strongest first."""
        # Heads that do not exist sort to the end, like those without relevance.
        order = np.argsort(-np.abs(np.nan_to_num(self.values)), axis=None, kind="stable")
        heads = [self._head(int(index)) for index in order]
        return [head for head in heads if head.exists][:count]

    def _head(self, index: int) -> Head:
        """Return a head by its index in the flattened grid."""
        block, head = divmod(index, len(self.columns))
        return Head(block, head, float(self.values[block, head]))


def _require_heads(explanation: Explanation) -> Array:
    if explanation.heads is None:
        raise BadOption(
            f"This explanation by '{explanation.method}' has no relevance per head: explain with heads=True, which "
            "attn-lrp, cp-lrp, balanced-cat, cat and att-cat take."
        )
    return explanation.heads


def heat_map(explanation: Explanation) -> str:
    """Render a table of the heads' relevance, last block on top, with its legend."""
    grid = HeadGrid(explanation)
    table = html_parts.scrollable("Relevance per head", _render_table(grid))
    legend = html_parts.render_legend(grid.scale, explanation.label)
    return _render_spoken_summary(grid) + table + legend


def _render_spoken_summary(grid: HeadGrid) -> str:
    heads = "; ".join(grid.describe(head) for head in grid.strongest(MAX_SPOKEN_HEADS))
    return f'<p class="ch-sr">Strongest heads: {html_parts.escape(heads)}.</p>'


def _render_table(grid: HeadGrid) -> str:
    body = "".join(_render_row(name, heads, grid) for name, heads in grid.rows())
    return f'<table class="ch-heads"><thead>{_render_head(grid.columns)}</thead><tbody>{body}</tbody></table>'


def _render_head(columns: Iterable[int]) -> str:
    cells = "".join(f'<th scope="col"><span class="ch-sr">head </span>{number}</th>' for number in columns)
    return f'<tr><th scope="col">head</th>{cells}</tr>'


def _render_row(name: str, heads: Iterable[Head], grid: HeadGrid) -> str:
    cells = "".join(_render_cell(head, grid) for head in heads)
    return f'<tr><th scope="row">{name}</th>{cells}</tr>'


def _render_cell(head: Head, grid: HeadGrid) -> str:
    # A block with fewer heads than others ends before the last column.
    if not head.exists:
        return "<td></td>"
    css = html_parts.css_class(grid.scale.find_step(head.relevance))
    number = grid.scale.format(head.relevance)
    return f'<td class="{css}" title="{grid.describe(head)}"><span class="ch-sr">{number}</span></td>'
