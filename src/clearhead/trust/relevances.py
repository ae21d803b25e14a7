"""The relevances that a reader sees: of words or patches, without special tokens."""

from collections.abc import Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.explanation import Explanation, Word
from clearhead.model.text_units import find_larger_unit


def list_relevances(explanation: Explanation) -> Array:
    """Return the relevance of each word of a text, else of each token that is not special, in float64."""
    if explanation.text is None or explanation.offsets is None:
        return _list_tokens(explanation)
    return _list_words(explanation)


def _list_tokens(explanation: Explanation) -> Array:
    return explanation.relevance[~explanation.special].astype(np.float64)


def _list_words(explanation: Explanation) -> Array:
    return _read_relevances(explanation.words())


def _read_relevances(words: Sequence[Word]) -> Array:
    return np.array([word.relevance for word in words], dtype=np.float64)


def _list_units(explanation: Explanation) -> Array:
    """Return the relevance of each sentence or source of methods that score these, else of each word."""
    if not find_larger_unit(explanation):
        return list_relevances(explanation)
    return _read_relevances(explanation.units())


def relative_difference(first: Explanation, second: Explanation) -> float:
    """Return the largest difference of two explanations of one input, relative to the largest relevance of either."""
    first_U = _list_units(first)
    second_U = _list_units(second)
    difference = _largest(first_U - second_U)
    # Before the division, which would be 0 / 0 where nothing has relevance.
    if not difference:
        return 0.0
    return difference / max(_largest(first_U), _largest(second_U))


def _largest(value_U: Array) -> float:
    return float(np.abs(value_U).max(initial=0.0))
