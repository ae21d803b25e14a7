"""Random sets of units, the control of every check."""

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from clearhead.arrays import Array


def draw_sets(units: int, size: int, count: int, generator: np.random.Generator) -> Array:
    """Return `count` different sets of `size` units in random order (S,U); all sets if there are no more."""
    if math.comb(units, size) <= count:
        chosen = list(combinations(range(units), size))
        generator.shuffle(chosen)
    else:
        chosen = list(_draw_different(units, size, count, generator))
    return mark_units(np.array(chosen), units)


def _draw_different(units: int, size: int, count: int, generator: np.random.Generator) -> Iterator[tuple[int, ...]]:
    """Yield different sets of units, each with the same probability."""
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < count:
        numbers = tuple(sorted(generator.permutation(units)[:size].tolist()))
        if numbers not in drawn:
            drawn.add(numbers)
            yield numbers


def mark_units(numbers_SK: Array, units: int) -> Array:
    """Return which units are in each set (S,U), given the numbers of those that are."""
    marked_SU = np.zeros((len(numbers_SK), units), dtype=bool)
    np.put_along_axis(marked_SU, numbers_SK, True, axis=1)
    return marked_SU


def differ_from(sets_SU: Array, strongest_U: Array) -> Array:
    """Return the sets that are not the strongest units themselves."""
    differs_S = (sets_SU != strongest_U).any(1)
    return sets_SU[differs_S]
