"""The layer view: tokens across, blocks down, each row on its own scale, with the sum and rollout below."""

from collections.abc import Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.explanation import Explanation
from clearhead.views import html_parts as markup
from clearhead.views.captions import number
from clearhead.views.color import step

WIDEST = 60


def heat_map(explanation: Explanation, rollout: Explanation | None = None) -> str:
    """A table of the blocks' scores, last block on top, then Rollout, if given, and Sum.

    Every row is divided by its largest score outside special tokens. Long texts show their most relevant tokens.
    """
    if explanation.layers is None:
        raise BadOption(f"'{explanation.method}' has no scores per block. Use att-cat, cat or att-grads.")
    if rollout is not None and rollout.tokens != explanation.tokens:
        raise BadOption("The rollout belongs to another input: explain the same one by both methods.")
    places = _places(explanation)
    head = "".join(f'<th scope="col"><span>{markup.escape(explanation.tokens[place])}</span></th>' for place in places)
    body = "".join(_row(name, values, explanation, places) for name, values in _rows(explanation, rollout))
    left_out = len(explanation.tokens) - len(places)
    note = f'<p class="ch-faint">{left_out} less relevant tokens are left out.</p>' if left_out else ""
    return (
        '<div class="ch-scroll" tabindex="0" role="group" aria-label="Scores per block"><table class="ch-blocks">'
        f'<thead><tr><th scope="col"><span class="ch-sr">block</span></th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _rows(explanation: Explanation, rollout: Explanation | None) -> list[tuple[str, Array]]:
    layers = explanation.layers if explanation.layers is not None else np.zeros((0, len(explanation.tokens)))
    blocks = [(f"block {place}", layers[place]) for place in reversed(range(len(layers)))]
    below = [("Rollout", rollout.relevance)] if rollout is not None else []
    return [*blocks, *below, ("Sum", explanation.relevance)]


def _places(explanation: Explanation) -> list[int]:
    order = np.argsort(-np.abs(explanation.relevance), kind="stable")[:WIDEST]
    return sorted(int(place) for place in order)


def _row(name: str, values: Array, explanation: Explanation, places: Sequence[int]) -> str:
    full = float(np.abs(values[~explanation.special]).max(initial=0.0)) or float(np.abs(values).max(initial=0.0))
    cells = "".join(_cell(float(values[place]), full, explanation.tokens[place], name) for place in places)
    return f'<tr><th scope="row">{name}</th>{cells}</tr>'


def _cell(value: float, full: float, token: str, name: str) -> str:
    css = markup.css_class(step(value, full))
    tip = markup.attribute(f"{token} · {name} · {number(value)}")
    return f'<td class="{css}" title="{tip}"><span class="ch-sr">{number(value)}</span></td>'
