"""Random controls: whether hiding some units does more than hiding as many random ones, by an exact rank test."""

from typing import Final, Literal

import numpy as np

from clearhead.arrays import Array
from clearhead.perturbation.curves import random_orders
from clearhead.trust.verdict import LEVEL, rank_p_value

CONTROLS = 19
"""The fewest random sets of which one that does more than all of them is rare enough: 1 of 20."""
MORE: Final = "more"
LESS: Final = "less"
UNCLEAR: Final = "unclear"
NOTICEABLE = 0.005
"""Smaller differences are none: half a point of probability, or half a per cent of another score."""
Outcome = Literal["more", "less", "unclear"]


def draw_orders(units: int) -> list[list[int]]:
    """Return the random orders whose first units are the controls of as many chosen ones."""
    return random_orders(units, CONTROLS)


def compare_with_random(score: float, random_N: Array, *, are_probabilities: bool = True) -> Outcome:
    """Return whether the score without some units is lower (MORE) or higher (LESS) than without random ones.

    If the units were chosen at random, each rank of their score among the random ones would be equally likely: either
    answer is then wrong in one of twenty cases at most. Within or close to the range of the random scores it is
    UNCLEAR.
    """
    margin = NOTICEABLE
    if not are_probabilities:
        margin *= float(np.abs(random_N).max())
    if rank_p_value(random_N <= score + margin) <= LEVEL:
        return MORE
    if rank_p_value(random_N >= score - margin) <= LEVEL:
        return LESS
    return UNCLEAR
