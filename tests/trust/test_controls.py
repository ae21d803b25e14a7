"""The rank test of hidden units beside random ones."""

import numpy as np
import pytest

from clearhead.trust.controls import CONTROLS, LESS, MORE, UNCLEAR, compare_with_random, draw_orders


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.1, MORE), (0.2, UNCLEAR), (0.5, UNCLEAR), (0.8, UNCLEAR), (0.9, LESS)],
)
def test_only_outside_of_the_range_of_random_scores_something_is_said(score, expected):
    assert compare_with_random(score, np.linspace(0.2, 0.8, CONTROLS)) == expected


def test_a_difference_that_nobody_would_notice_is_none():
    same = np.full(CONTROLS, 0.5)
    assert compare_with_random(0.496, same) == UNCLEAR
    assert compare_with_random(0.494, same) == MORE
    assert compare_with_random(-101.0, -200 * same, are_probabilities=False) == MORE
    assert compare_with_random(-100.4, -200 * same, are_probabilities=False) == UNCLEAR


@pytest.mark.parametrize("shape", ["normal", "exponential"])
def test_one_of_twenty_random_choices_is_called_more(shape):
    draw = getattr(np.random.default_rng(0), shape)
    outcomes = [compare_with_random(row[0], row[1:]) for row in draw(size=(4000, 20))]
    assert outcomes.count(MORE) / 4000 == pytest.approx(0.05, abs=0.012)
    assert outcomes.count(LESS) / 4000 == pytest.approx(0.05, abs=0.012)


def test_controls_are_the_same_for_every_choice():
    orders = draw_orders(6)
    assert len(orders) == CONTROLS
    assert orders == draw_orders(6)
    assert all(sorted(order) == list(range(6)) for order in orders)
