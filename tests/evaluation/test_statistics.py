"""Intervals, paired tests and corrections."""

import numpy as np
import pytest

from clearhead.evaluation import localisation, permutation_tests, statistics
from clearhead.evaluation.metric import parse_metric


def scored(values_N, name="aopc"):
    return [[{name: float(value)} for value in values_N]]


def test_intervals_are_those_of_resampled_records():
    generator = np.random.default_rng(0)
    sample = generator.normal(3, 2, size=400)
    interval = statistics.intervals(parse_metric("aopc"), scored(sample), samples=4000)["aopc"]
    half = 1.96 * sample.std() / 20
    assert interval.value == pytest.approx(sample.mean())
    assert (interval.low, interval.high) == pytest.approx((sample.mean() - half, sample.mean() + half), abs=0.1 * half)
    assert interval.n == 400
    assert interval == statistics.intervals(parse_metric("aopc"), scored(sample), samples=4000)["aopc"]


@pytest.mark.parametrize("name", ["segmentation", "token-overlap:k=2", "aopc"])
def test_reweighted_records_are_repeated_records(name):
    generator = np.random.default_rng(4)
    measure = parse_metric(name)
    records = {
        "segmentation": [dict.fromkeys((*localisation.COUNTS, "ap"), 0) for _ in range(6)],
        "token-overlap": [
            {"class": str(index % 3), "tokens": list("abcd"), "relevance": generator.normal(size=4).tolist()}
            for index in range(6)
        ],
        "aopc": [{"aopc": value} for value in (*generator.normal(size=5), None)],
    }[measure.metric.name]
    for record in records if name == "segmentation" else ():
        record.update({key: float(generator.integers(1, 9)) for key in record})
    weights = np.array([[1, 1, 1, 1, 1, 1], [2, 0, 1, 3, 1, 1]], dtype=float)
    resampled = measure.resampled(records, weights)
    for row, weight in enumerate(weights):
        repeated = [record for record, times in zip(records, weight, strict=True) for _ in range(int(times))]
        assert {key: value[row] for key, value in resampled.items()} == pytest.approx(measure.summarise(repeated))


def test_a_band_is_the_interval_at_each_place_of_the_curve():
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(30, 11))
    records = [{"aopc": float(row.mean()), "changes": row.tolist()} for row in rows]
    band = statistics.band(parse_metric("aopc"), [records, records], seed=5)
    assert band.x == pytest.approx(np.arange(11) / 10) and band.y == pytest.approx(rows.mean(0))
    for step in (0, 4, 10):
        column = [{"aopc": value} for value in rows[:, step]]
        interval = statistics.intervals(parse_metric("aopc"), [column], seed=5)["aopc"]
        assert (band.low[step], band.high[step]) == pytest.approx((interval.low, interval.high))


def test_the_band_of_an_overlap_lies_around_the_curve():
    words = [chr(97 + index) for index in range(26)]
    generator = np.random.default_rng(0)
    records = [
        {"class": str(index % 2), "tokens": words, "relevance": generator.normal(size=26).tolist()}
        for index in range(20)
    ]
    band = statistics.band(parse_metric("token-overlap"), [records], samples=200)
    assert band.y == tuple(parse_metric("token-overlap").curve(records)[1])
    assert all(low <= y <= high for low, y, high in zip(band.low, band.y, band.high, strict=True))
    assert band.low[0] < band.high[0]


def test_records_without_anything_to_draw_have_no_curve():
    assert parse_metric("token-f1").curve([{"token-f1": None, "f1": None}]) is None
    assert parse_metric("kendall").curve([{"kendall": 0.5}]) is None
    assert statistics.band(parse_metric("token-f1"), [[{"token-f1": None, "f1": None}]]) is None


def test_few_examples_show_nothing():
    """However large the difference: two methods trade one, two or four records in as many ways."""
    counts = dict.fromkeys(localisation.COUNTS, 9.0)
    for size in (1, 2, 4):
        good = [{**counts, "both_fg": 9.0, "right": 9.0, "ap": 1 - 0.01 * index} for index in range(size)]
        poor = [{**counts, "both_fg": 1.0, "right": 1.0, "ap": 0.1 + 0.01 * index} for index in range(size)]
        for name, difference in permutation_tests.differences(parse_metric("segmentation"), [good], [poor]).items():
            assert difference.p == pytest.approx(2 / 2**size, abs=0.05), name


def test_shares_stay_shares():
    """Moved around their value, resampled overlaps would lie below nothing."""
    generator = np.random.default_rng(1)
    records = [
        {"class": str(index % 3), "tokens": list("abcdefghijkl"), "relevance": generator.normal(size=12).tolist()}
        for index in range(9)
    ]
    for k in (1, 2, 12):
        intervals = statistics.intervals(parse_metric(f"token-overlap:k={k}"), [records])
        assert 0 <= intervals["token-overlap"].low <= intervals["token-overlap"].high <= 1
        assert intervals["count"].low >= 0


def test_the_paired_test_against_all_sign_flips():
    first, second = np.array([0.9, 0.4, 0.8, 0.3, 0.6, 0.7]), np.array([0.1, 0.5, 0.2, 0.1, 0.3, 0.4])
    difference = first - second
    flips = [sum(d * (1 if bits >> index & 1 else -1) for index, d in enumerate(difference)) for bits in range(64)]
    exact = np.mean([abs(total) >= abs(difference.sum()) - 1e-12 for total in flips])
    tested = permutation_tests.differences(parse_metric("aopc"), scored(first), scored(second))["aopc"]
    assert tested.p == pytest.approx(exact, abs=0.02)
    assert tested.value == pytest.approx(difference.mean())
    assert tested.low < tested.value < tested.high
    same = permutation_tests.differences(parse_metric("aopc"), scored(first), scored(first))["aopc"]
    assert (same.p, same.value) == (1, 0)


def test_values_that_are_no_means_are_tested_too():
    generator = np.random.default_rng(0)

    def records(right):
        return [
            [
                dict.fromkeys((*localisation.COUNTS, "ap"), 1.0) | {"right": float(count), "labelled": 10.0}
                for count in right
            ]
        ]

    low, high = generator.integers(2, 5, 50), generator.integers(6, 9, 50)
    differences = permutation_tests.differences(parse_metric("segmentation"), records(high), records(low))
    assert differences["pixel-accuracy"].p < 0.01 and differences["pixel-accuracy"].low > 0
    assert differences["miou"].p == 1


def test_false_alarms_are_as_rare_as_promised():
    generator = np.random.default_rng(5)
    p_values = [
        permutation_tests.differences(
            parse_metric("aopc"), scored(generator.normal(size=30)), scored(generator.normal(size=30)), samples=10
        )["aopc"].p
        for _ in range(60)
    ]
    assert np.mean(np.array(p_values) < 0.05) < 0.15


def test_the_interval_of_an_overlap_lies_around_it():
    generator = np.random.default_rng(6)
    words = [f"w{index}" for index in range(200)]
    records = [
        {"class": str(index % 2), "tokens": list(generator.choice(words, 10)), "relevance": [1.0] * 10}
        for index in range(60)
    ]
    interval = statistics.intervals(parse_metric("token-overlap"), [records], samples=200)["token-overlap"]
    assert interval.low < interval.value < interval.high


def test_repeats_are_averaged():
    repeats = [*scored([1, 2, 3]), *scored([3, 4, 5])]
    assert statistics.intervals(parse_metric("aopc"), repeats)["aopc"].value == pytest.approx(3)


def test_holm_by_hand():
    assert permutation_tests.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert permutation_tests.holm([0.5, 0.9]) == [1, 1]
    assert permutation_tests.holm([]) == []


def test_a_clear_difference_is_told_apart_even_after_hundreds_of_comparisons():
    generator = np.random.default_rng(0)
    first = generator.normal(1.0, 0.5, size=200)
    second = first - generator.normal(0.4, 0.2, size=200)
    tested = permutation_tests.differences(parse_metric("aopc"), scored(first), scored(second), samples=10)["aopc"]
    assert tested.p * 1000 < 1e-6


def test_few_examples_cannot_give_a_smaller_p_than_all_their_sign_flips():
    second = np.zeros(6)
    tested = permutation_tests.differences(parse_metric("aopc"), scored(second + 1), scored(second), samples=10)["aopc"]
    assert tested.p == pytest.approx(2 / 2**6, rel=0.1)
    few = np.arange(1.0, 21)
    exact = permutation_tests.differences(parse_metric("aopc"), scored(few + 30), scored(np.zeros(20)), samples=10)[
        "aopc"
    ]
    assert exact.p >= 2 / 2**20
