"""What happens to the model's answer as the most relevant tokens or patches are hidden, or alone revealed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model
    from clearhead.views.line_chart import Curve

STEPS = tuple(place / 10 for place in range(11))
SEEDS = 5
RANDOM = "random order"
BAND = f"Random order: the mean of {SEEDS} random orders; the band is their range, lowest to highest."


def card(model: "Model", source: Any, found: "Mapping[str, Explanation]") -> str:
    """Two charts, a line per method beside random orders, as a part of a page."""
    from clearhead.views import html_parts as markup
    from clearhead.views import line_chart as curves

    orders = _orders(found)
    up = _measured(next(iter(found.values())))
    what = "patches" if model.takes_images else "tokens"
    hiding = _lines(model, source, found, orders, reveal=False)
    revealing = _lines(model, source, found, orders, reveal=True)
    return markup.card(
        markup.side_by_side(
            [
                curves.chart(hiding, title="Hiding the most relevant first", across=f"{what} hidden", up=up),
                curves.chart(revealing, title="Revealing the most relevant first", across=f"{what} revealed", up=up),
            ]
        ),
        f'<p class="ch-faint">{BAND}</p>',
    )


def _measured(explanation: "Explanation") -> str:
    """What the vertical axis counts."""
    if explanation.target.versus is not None:
        return "difference of probabilities"
    return "probability" if explanation.probability is not None else "score"


def _orders(found: "Mapping[str, Explanation]") -> dict[str, list[list[int]]]:
    """Per line the orders that it averages: a method's own, or several at random."""
    import numpy as np

    kept = {name: one.relevance[~one.special] for name, one in found.items()}
    own = {name: [np.argsort(-values, kind="stable").tolist()] for name, values in kept.items()}
    count = len(next(iter(kept.values())))
    return {**own, RANDOM: [np.random.default_rng(seed).permutation(count).tolist() for seed in range(SEEDS)]}


def _lines(
    model: "Model",
    source: Any,
    found: "Mapping[str, Explanation]",
    orders: Mapping[str, list[list[int]]],
    *,
    reveal: bool,
) -> "list[Curve]":
    import torch

    from clearhead.perturbation.run import perturbed_scores

    target = next(iter(found.values())).target
    every = [order for several in orders.values() for order in several]
    masks = torch.cat([_masks(order, reveal=reveal) for order in every])
    (scores,) = perturbed_scores(model, [source], [masks], [target])
    rows = iter(scores.reshape(len(every), len(STEPS)).tolist())
    return [_curve(name, [next(rows) for _ in several]) for name, several in orders.items()]


def _masks(order: Sequence[int], *, reveal: bool) -> Any:
    """A row per step: which units are present."""
    import torch

    masks = torch.full((len(STEPS), len(order)), not reveal)
    for row, share in zip(masks, STEPS, strict=True):
        row[list(order[: -(-round(share * 10) * len(order) // 10)])] = reveal
    return masks


def _curve(name: str, rows: list[list[float]]) -> "Curve":
    from clearhead.views.line_chart import Curve

    columns = list(zip(*rows, strict=True))
    mean = tuple(sum(column) / len(column) for column in columns)
    if len(rows) == 1:
        return Curve(name, STEPS, mean)
    return Curve(name, STEPS, mean, tuple(map(min, columns)), tuple(map(max, columns)))
