"""Confidence: does an explanation tell the predicted class from the others?"""

import numpy as np

from clearhead.errors import BadOption
from clearhead.explanation import Array
from clearhead.metric import Case, Record, explained, metric
from clearhead.metrics.removal import ranks
from clearhead.model import Model

ORDERS = ("rank", "index")


@metric(paper="AttCAT, Eq. 15", better="lower", targets=("every-class",))
def kendall(model: Model, cases: list[Case], *, order: str = "rank") -> list[Record]:
    """Kendall's τ between the tokens' order for the predicted class and for each other class, averaged.

    Special tokens take no part. `order="index"` correlates the lists of token positions in order, as printed in the
    paper and done by its code.
    """
    if order not in ORDERS:
        raise BadOption(f"order={order!r} is not a choice. Use one of {', '.join(ORDERS)}.")
    return [_kendall(model, case, order) for case in cases]


def _kendall(model: Model, case: Case, order: str) -> Record:
    predicted = explained(case, "prediction")
    others = [number for number in range(len(model.labels)) if number != predicted.target.number]
    own = _order(predicted.relevance[~predicted.special], order)
    if len(own) < 2:
        return {"kendall": None}
    real = ~predicted.special
    found = [tau(own, _order(explained(case, str(number)).relevance[real], order)) for number in others]
    return {"kendall": float(np.mean(found))}


def _order(relevance: Array, order: str) -> Array:
    return ranks(relevance) if order == "rank" else np.argsort(-relevance, kind="stable")


def tau(first: Array, second: Array) -> float:
    """Concordant less discordant pairs, over all pairs; for orders without ties."""
    pairs = np.triu_indices(len(first), 1)
    agreement = np.sign(first[pairs[0]] - first[pairs[1]]) * np.sign(second[pairs[0]] - second[pairs[1]])
    return float(agreement.mean())
