"""Tests behind the verdict."""

import numpy as np


def test_a_clear_difference_survives_the_correction_for_many_comparisons():
    """Values that are no means are tested by trading examples, whose p must be able to become small."""
    from clearhead.evaluation.permutation_tests import _p_value, holm

    chance = np.random.default_rng(0).normal(0.0, 0.1, 499)
    assert holm([_p_value(np.array([1.0, *chance]))] * 100)[0] < 0.001
    assert _p_value(np.array([0.0, *chance])) == 1.0
    assert 0.0 < _p_value(np.array([0.2, *chance])) < 0.1
    assert _p_value(np.zeros(500)) == 1.0
