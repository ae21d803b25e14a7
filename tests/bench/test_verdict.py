"""Tests behind the verdict."""

import numpy as np

from clearhead.evaluation.corrected_t import p_value, resampled_moments
from clearhead.evaluation.paired_tests import holm


def test_a_clear_difference_survives_the_correction_for_many_comparisons():
    """Values that are no means are tested by resampling examples, whose p must be able to become small."""
    chance = np.random.default_rng(0).normal(0.0, 0.1, 1000)
    clear = p_value(resampled_moments(1.0, 1.0 + chance, 200))
    assert holm([clear] * 100)[0] < 0.001
    assert p_value(resampled_moments(0.0, chance, 200)) == 1.0
    assert 0.0 < p_value(resampled_moments(0.2, 0.2 + chance, 200)) < 0.15
    assert p_value(resampled_moments(0.0, np.zeros(1000), 200)) == 1.0
