"""Confidence: does an explanation tell the predicted class from the others?"""

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.evaluation.metric import ExplainedExample, Record, explanation_for, metric
from clearhead.model.model import Model

ORDERS = ("rank", "index")


@metric(paper="AttCAT, Eq. 15", better="lower", targets=("every-class",))
def kendall(model: Model, cases: list[ExplainedExample], *, order: str = "rank") -> list[Record]:
    """Kendall's τ between the tokens' order for the predicted class and for each other class, averaged.

    Special tokens take no part. `order="index"` correlates the lists of token positions in order, as printed in the
    paper and done by its code.
    """
    if order not in ORDERS:
        raise BadOption(f"order={order!r} is not a choice. Use one of {', '.join(ORDERS)}.")
    return [_kendall(model, case, order) for case in cases]


def _kendall(model: Model, case: ExplainedExample, order: str) -> Record:
    predicted = explanation_for(case, "prediction")
    others = [number for number in range(len(model.labels)) if number != predicted.target.number]
    own = _order(predicted.relevance[~predicted.special], order)
    if len(own) < 2:
        return {"kendall": None}
    real = ~predicted.special
    found = [tau(own, _order(explanation_for(case, str(number)).relevance[real], order)) for number in others]
    return {"kendall": float(np.mean(found))}


def _order(relevance: Array, order: str) -> Array:
    return relevance if order == "rank" else np.argsort(-relevance, kind="stable")


def tau(first: Array, second: Array) -> float:
    """Concordant less discordant pairs, over those that are not tied (τ-b); no correlation where one is constant."""
    pairs = np.triu_indices(len(first), 1)
    rises = [np.sign(one[pairs[0]] - one[pairs[1]]) for one in (first, second)]
    scale = float(np.sqrt(np.prod([np.count_nonzero(one) for one in rises])))
    return float(rises[0] @ rises[1]) / scale if scale else 0.0
