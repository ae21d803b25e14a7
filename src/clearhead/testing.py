"""Assertions for the tests of a model: does it decide for the right reasons, and still for the same ones?"""

from clearhead.drift.assertions import (
    BaselineTest,
    assert_ignores,
    assert_relies_on,
    assert_same_reasons,
    assert_same_reasons_for_pair,
)

__all__ = [
    "BaselineTest",
    "assert_ignores",
    "assert_relies_on",
    "assert_same_reasons",
    "assert_same_reasons_for_pair",
]
