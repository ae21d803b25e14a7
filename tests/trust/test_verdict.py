"""The exact test behind a check: every order of the groups' scores is tried."""

from itertools import permutations

import numpy as np
import pytest

from clearhead.trust.experiment import divide
from clearhead.trust.verdict import LEVEL, MAX_ORDERS, Trial, list_orders

SHOWN = np.array([0.95, 0.8, 0.5, 0.4, 0.1])
HIDDEN = np.array([0.1, 0.6, 0.8, 0.85, 0.9])


@pytest.mark.parametrize("are_probabilities", [True, False])
def test_of_all_orders_exactly_five_per_cent_are_significant(are_probabilities):
    orders = [list(order) for order in permutations(range(5))]
    trials = [Trial(SHOWN[order], HIDDEN[order], are_probabilities) for order in orders]
    assert sum(trial.p_value <= LEVEL for trial in trials) == 6
    assert sum(trial.verdict == "holds" for trial in trials) <= 6


def test_a_right_order_holds_and_its_reverse_fails():
    right = Trial(SHOWN, HIDDEN)
    assert (right.verdict, right.p_value, right.percentile) == ("holds", 1 / 120, 1.0)
    wrong = Trial(SHOWN[::-1], HIDDEN[::-1])
    assert (wrong.verdict, wrong.p_value, wrong.percentile) == ("fails", 1.0, 0.0)


def test_a_score_that_nothing_changes_fails():
    constant = Trial(np.full(5, 0.9), np.full(5, 0.9))
    assert (constant.verdict, constant.p_value, constant.percentile) == ("fails", 1.0, 0.0)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_verdict_on_a_value_does_not_depend_on_its_unit(unit):
    right = Trial(SHOWN * unit, HIDDEN * unit, are_probabilities=False, unit=unit)
    assert (right.verdict, right.p_value) == ("holds", 1 / 120)
    # Rounding errors of float32.
    noise = unit * np.array([1e-7, 0, -1e-7, 2e-7, 0])
    constant = Trial(np.full(5, unit) + noise, np.full(5, unit) - noise, are_probabilities=False, unit=unit)
    assert (constant.verdict, constant.p_value) == ("fails", 1.0)


def test_strong_words_that_the_answer_does_not_need_are_weak_evidence():
    # The trend is clear, but hiding any other group does more harm than hiding the first.
    assert Trial(SHOWN, np.array([0.9, 0.85, 0.85, 0.85, 0.85])).verdict == "weak"


def test_an_unclear_trend_is_weak_if_the_strongest_are_needed():
    unclear = Trial(np.array([0.9, 0.2, 0.95, 0.3, 0.6]), np.array([0.5, 0.9, 0.9, 0.9, 0.9]))
    assert unclear.p_value > LEVEL
    assert unclear.verdict == "weak"


def test_few_groups_never_hold():
    assert Trial(SHOWN[:3], HIDDEN[:3]).verdict == "weak"
    assert Trial(SHOWN[:2], HIDDEN[:2]).p_value == 0.5


def test_of_many_groups_a_seeded_sample_of_orders_is_tried():
    orders = list_orders(8, seed=0)
    assert orders.shape == (MAX_ORDERS, 8)
    assert (np.sort(orders, 1) == np.arange(8)).all()
    np.testing.assert_array_equal(orders, list_orders(8, seed=0))
    assert (orders != list_orders(8, seed=1)).any()


def test_random_scores_are_significant_in_five_per_cent():
    generator = np.random.default_rng(0)
    # Skewed on purpose: the test assumes nothing of the distribution.
    scores = generator.exponential(size=(2000, 2, 9))
    significant = sum(Trial(shown, hidden, False).p_value <= LEVEL for shown, hidden in scores)
    # The 99.9 % quantile of a binomial distribution with 2000 trials of 5 %.
    assert significant <= 133


@pytest.mark.parametrize(
    ("units", "groups", "shape"),
    [(10, 5, (5, 2)), (9, 5, (5, 1)), (14, 5, (5, 2)), (3, 5, (3, 1)), (29, 5, (5, 5)), (196, 5, (5, 39))],
)
def test_groups_are_of_equal_size_and_leave_out_the_middle(units, groups, shape):
    numbers = divide(np.arange(units)[::-1], groups)
    assert numbers.shape == shape
    assert numbers[0, 0] == units - 1
    assert numbers[-1, -1] == 0
    assert len(np.unique(numbers)) == numbers.size
