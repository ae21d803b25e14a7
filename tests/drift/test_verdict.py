"""Noise and changes of known size: bounds, paired tests of words, verdicts, and how often noise raises an alarm."""

import numpy as np
import pytest
from helpers.reasons import make_noise, make_reasons, make_snapshot

from clearhead.drift.compare_models import compare_snapshots
from clearhead.drift.verdict import bound_examples, bound_mean
from clearhead.drift.word_shifts import collect_words, find_largest_shift
from clearhead.model_diff import MOVED, SAME, WITHIN_NOISE

EXAMPLES = 60
WORDS = "film story plot cast joke"


def draw_shares(generator, level):
    """Return the shares of five words with noise of a size, which is a property of the weights, and of the example."""
    shares = np.array([0.4, 0.3, 0.15, 0.1, 0.05]) + level * generator.normal(size=5)
    return shares / np.abs(shares).sum()


def make_model(seed, level, *, moved=0, **changes):
    """Return a snapshot; in the first `moved` examples the last word has most of the weight."""
    generator = np.random.default_rng(seed)
    level *= generator.uniform(0.7, 1.3)
    examples = []
    for number in range(EXAMPLES):
        shares = draw_shares(generator, level)
        if number < moved:
            shares = shares[::-1]
        examples.append(make_reasons(WORDS, shares, id=str(number), digest=str(number)))
    return make_snapshot(examples, checksum=str(seed), **changes)


def make_baseline(seed, level, draws=3):
    first = make_model(seed, 0.0)
    noisy = [compare_snapshots(first, make_model(1000 * seed + draw, level)) for draw in range(draws)]
    shift_DN = np.array([[row.agreement.shift for row in sorted(diff.rows, key=order)] for diff in noisy])
    word_shift = max(abs(word.difference) for diff in noisy for word in diff.words)
    return make_model(seed, 0.0, noise=make_noise(shift_DN, word_shift))


def order(row):
    return int(row.first.id)


def test_the_bound_of_the_mean_is_the_prediction_interval():
    noise = make_noise(np.array([[0.1, 0.2], [0.2, 0.3], [0.3, 0.4]]))
    # Means 0.15, 0.25, 0.35: mean 0.25, spread 0.1. A sixtieth of Student's t (2) lies above 5.339.
    assert bound_mean(noise) == pytest.approx(0.25 + 5.339 * 0.1 * np.sqrt(4 / 3), abs=1e-3)


def test_the_bound_of_an_example_is_at_least_its_own_noise():
    noise = make_noise(np.array([[0.01, 0.9], [0.02, 0.1]]))
    low, high = bound_examples(noise, 2)
    # Means 0.455 and 0.06: another draw may be 18 times stronger than their mean.
    assert low == high > np.quantile([0.01, 0.9, 0.02, 0.1], 0.95)
    assert bound_examples(make_noise(np.array([[0.01, 0.9, 0.1]])), 3)[1] == 0.9
    assert bound_examples(make_noise(np.zeros((3, 2))), 2).tolist() == [0.05, 0.05]


def test_noise_seldom_raises_an_alarm():
    alarms = 0
    for seed in range(60):
        diff = compare_snapshots(make_baseline(seed, 0.05), make_model(5000 + seed, 0.05))
        alarms += diff.verdict.outcome == MOVED
    assert alarms <= 3


def test_some_examples_that_moved_are_found():
    first = make_baseline(1, 0.05)
    assert compare_snapshots(first, make_model(7, 0.05)).verdict.outcome == WITHIN_NOISE
    diff = compare_snapshots(first, make_model(7, 0.05, moved=15))
    assert diff.verdict.outcome == MOVED
    assert diff.verdict.beyond >= 15
    assert {row.first.id for row in diff.rows[:15]} == set(map(str, range(15)))


def test_reasons_that_hardly_moved_are_the_same():
    diff = compare_snapshots(make_baseline(1, 0.001), make_model(7, 0.002))
    assert diff.verdict.outcome == SAME
    assert diff.verdict.sentence.startswith("Same reasons: 60 of 60 answers")


def test_words_that_moved_are_told_from_noise():
    diff = compare_snapshots(make_baseline(1, 0.02), make_model(7, 0.02, moved=30))
    by_word = {word.word: word for word in diff.words}
    assert by_word["joke"].is_beyond_noise
    assert by_word["joke"].low > 0 > by_word["film"].high
    assert by_word["joke"].difference == pytest.approx(0.175, abs=0.03)
    # The word in the middle keeps its place.
    assert not by_word["plot"].is_beyond_noise


def test_rare_words_are_not_tested():
    first = make_snapshot([make_reasons("rare", [1.0])] * 13)
    second = make_snapshot([make_reasons("rare", [-1.0])] * 13)
    word = compare_snapshots(first, second).words[0]
    assert (word.examples, word.p_corrected, word.is_beyond_noise) == (13, None, False)


def test_words_are_counted_without_case_and_punctuation():
    pair = (make_reasons("Good, good !", [0.5, 0.25, 0.25]), make_reasons("Good, good !", [0.25, 0.5, 0.25]))
    words = collect_words([pair])
    assert sorted(words) == ["!", "good"]
    assert words["good"].tolist() == [[0.375, 0.375]]
    assert find_largest_shift([pair] * 14) == 0
    assert find_largest_shift([(pair[0], make_reasons("Good, good !", [0.0, 0.0, 1.0]))] * 14) == 0.75


def test_without_noise_fixed_bounds_are_used():
    first, second = make_model(1, 0.0), make_model(2, 0.0, moved=60)
    diff = compare_snapshots(first, second)
    assert diff.verdict.outcome == MOVED
    assert any("No noise was measured" in note for note in diff.notes)
