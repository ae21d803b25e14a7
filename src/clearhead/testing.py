"""Assertions for the tests of a model: does it decide for the right reasons, and still for the same ones?

A failed assertion tells the shares that it was judged by. What makes a test pointless, such as a word that does not
occur, is an error and no failure.
"""

from clearhead.drift.baseline_assertions import BaselineTest, assert_same_reasons
from clearhead.drift.word_assertions import assert_ignores, assert_relies_on, assert_same_reasons_for_pair

__all__ = [
    "BaselineTest",
    "assert_ignores",
    "assert_relies_on",
    "assert_same_reasons",
    "assert_same_reasons_for_pair",
]
