"""Confidence: does an explanation distinguish the predicted class from the others?"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from clearhead.arrays import Array
from clearhead.evaluation.examples import explanation_for, real_relevance
from clearhead.evaluation.metric import ExplainedExample, Record, metric
from clearhead.explanation import Explanation
from clearhead.model.model import Model
from clearhead.perturbation.ranking import sort_descending
from clearhead.validation import require_choice

ORDERS = ("rank", "index")


@metric(paper="AttCAT, Eq. 15", better="lower", targets=("every-class",))
def kendall(model: Model, cases: list[ExplainedExample], *, order: str = "rank") -> list[Record]:
    """Kendall's τ between the tokens' order for the predicted class and for each other class, averaged.

    Special tokens are ignored. `order="index"` correlates the lists of token positions in order, as printed in the
    paper and done by its code.
    """
    require_choice("order", order, ORDERS)
    return [_measure_kendall(model, case, order) for case in cases]


def _measure_kendall(model: Model, case: ExplainedExample, order: str) -> Record:
    predicted = explanation_for(case, "prediction")
    reference = _ordering(predicted, order)
    # One token has no order.
    if len(reference) < 2:
        return {"kendall": None}
    others = _other_classes(model, case, predicted.target.number)
    return {"kendall": _mean_tau(reference, others, order)}


def _mean_tau(reference: Array, others: Iterable[Explanation], order: str) -> float:
    return float(np.mean([tau(reference, _ordering(explanation, order)) for explanation in others]))


def _other_classes(model: Model, case: ExplainedExample, predicted: int | None) -> Iterator[Explanation]:
    """Yield the explanations of all classes but the predicted one."""
    for number in range(len(model.labels)):
        if number != predicted:
            yield explanation_for(case, str(number))


def _ordering(explanation: Explanation, order: str) -> Array:
    """Return what is correlated: relevance itself, since τ sees ranks only, or token positions in order."""
    relevance = real_relevance(explanation)
    if order == "rank":
        return relevance
    return sort_descending(relevance)


def tau(first: Array, second: Array) -> float:
    """Return Kendall's τ-b: concordant minus discordant pairs, tied ones left out; 0 where one input is constant."""
    first_signs = _pair_signs(first)
    second_signs = _pair_signs(second)
    scale = _untied_pairs(first_signs, second_signs)
    if not scale:
        return 0.0
    return float(first_signs @ second_signs) / scale


def _untied_pairs(first_signs: Array, second_signs: Array) -> float:
    """Return the geometric mean of the numbers of untied pairs, by which τ-b divides instead of by all pairs."""
    return math.sqrt(np.count_nonzero(first_signs) * np.count_nonzero(second_signs))


def _pair_signs(values: Array) -> Array:
    """Return for every pair of entries which one is larger: 1 the first, −1 the second, 0 for a tie."""
    # All pairs at once: texts have at most a few thousand tokens, and a Python loop over pairs would be slow.
    rows, columns = np.triu_indices(len(values), 1)
    signs: Array = np.sign(values[rows] - values[columns])
    return signs
