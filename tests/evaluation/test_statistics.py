"""Intervals, paired tests and corrections."""

import numpy as np
import pytest
from scipy import stats

from clearhead.evaluation import corrected_t, localisation, paired_tests, statistics
from clearhead.evaluation.metric import parse_metric


def scored(values_N, name="aopc"):
    return [[{name: float(value)} for value in values_N]]


def test_the_interval_of_a_symmetric_sample_is_students():
    half_sample = np.random.default_rng(0).normal(0, 2, size=20)
    sample = 3 + np.array([*half_sample, *-half_sample])
    interval = statistics.intervals(parse_metric("aopc"), scored(sample))["aopc"]
    student = stats.t.interval(0.95, 39, sample.mean(), stats.sem(sample))
    assert (interval.low, interval.high) == pytest.approx(student)
    assert (interval.value, interval.n) == (pytest.approx(3), 40)


def hall(sample, mean, skewness):
    """The transformed t of a mean, as Hall writes it."""
    size = len(sample)
    t = (sample.mean() - mean) / stats.sem(sample)
    bend = skewness / np.sqrt(size)
    return t + bend * t**2 / 3 + bend**2 * t**3 / 27 + bend / 6


def test_the_interval_of_a_skewed_sample_is_halls_on_the_side_of_its_tail():
    sample = np.random.default_rng(2).exponential(size=30)
    skewness = stats.skew(sample, bias=False)
    interval = statistics.intervals(parse_metric("aopc"), scored(sample))["aopc"]
    quantile = stats.t.ppf(0.975, 29)
    assert hall(sample, interval.high, skewness) == pytest.approx(-quantile)
    assert interval.low == pytest.approx(sample.mean() - quantile * stats.sem(sample))
    mirrored = statistics.intervals(parse_metric("aopc"), scored(-sample))["aopc"]
    assert (mirrored.low, mirrored.high) == pytest.approx((-interval.high, -interval.low))


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (3, 7), (7, 7), (50, 872), (1, 1)])
def test_the_interval_of_a_share_is_exact(successes, trials):
    values = np.arange(trials) < successes
    interval = statistics.intervals(parse_metric("aopc"), scored(values))["aopc"]
    exact = stats.binomtest(successes, trials).proportion_ci(0.95, method="exact")
    assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_the_interval_of_values_between_0_and_1_stays_there():
    sample = [1.0, 1.0, 1.0, 0.2, 1.0]
    interval = statistics.intervals(parse_metric("recovery"), scored(sample, "recovery"))["recovery"]
    assert statistics.intervals(parse_metric("aopc"), scored(sample))["aopc"].high > 1
    assert interval.high == 1
    assert 0 <= interval.low < 0.84


def test_one_example_has_no_interval():
    interval = statistics.intervals(parse_metric("aopc"), scored([0.3]))["aopc"]
    assert interval.value == pytest.approx(0.3) and np.isnan([interval.low, interval.high]).all()


def test_the_interval_of_groups_is_that_of_their_sums():
    """Ten times the same record in a group is one observation."""
    sample = np.random.default_rng(3).normal(size=20)
    repeated = [{"aopc": float(value), "group": str(index)} for index, value in enumerate(sample) for _ in range(10)]
    single = statistics.intervals(parse_metric("aopc"), scored(sample))["aopc"]
    grouped = statistics.intervals(parse_metric("aopc"), [repeated])["aopc"]
    assert (grouped.low, grouped.high) == pytest.approx((single.low, single.high))
    assert (grouped.n, single.n) == (200, 20)


SKEWED = {
    "exponential": lambda generator, shape: generator.exponential(size=shape) - 1,
    "chi2": lambda generator, shape: generator.chisquare(1, shape) - 1,
    "normal": lambda generator, shape: generator.normal(size=shape),
}


@pytest.mark.parametrize("name", SKEWED)
@pytest.mark.parametrize("size", [10, 24])
def test_intervals_cover(name, size):
    """Percentiles of a bootstrap cover 0.84 to 0.90 of these skewed samples, which fails here."""
    samples = SKEWED[name](np.random.default_rng(size), (1500, size))
    intervals = [statistics.intervals(parse_metric("aopc"), scored(sample))["aopc"] for sample in samples]
    assert np.mean([interval.low <= 0 <= interval.high for interval in intervals]) > 0.935


@pytest.mark.parametrize("name", SKEWED)
def test_false_alarms_are_as_rare_as_promised(name):
    """Sign flips give 0.07 to 0.10 at 0.05 and 0.03 to 0.05 at 0.01 for the skewed ones."""
    samples = SKEWED[name](np.random.default_rng(7), (2000, 24))
    zero = paired_tests.draw_sample(parse_metric("aopc"), scored(np.zeros(24)))
    p_values = []
    for sample in samples:
        drawn = paired_tests.draw_sample(parse_metric("aopc"), scored(sample))
        p_values.append(paired_tests.compare_samples(drawn, zero)["aopc"].p)
    assert np.mean(np.array(p_values) <= 0.05) < 0.06
    assert np.mean(np.array(p_values) <= 0.01) < 0.015
    assert np.mean(np.array(p_values) <= 0.001) < 0.003


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


def test_a_band_has_no_width_where_every_curve_starts_at_zero():
    rows = np.random.default_rng(4).uniform(size=(6, 11))
    rows[:, 0] = 0.0
    records = [{"aopc": float(row.mean()), "changes": row.tolist()} for row in rows]
    band = statistics.band(parse_metric("aopc"), [records])
    assert (band.low[0], band.high[0]) == (0.0, 0.0)
    assert band.low[5] < band.y[5] < band.high[5]


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
    """However large the difference."""
    counts = dict.fromkeys(localisation.COUNTS, 9.0)
    for size in (1, 2, corrected_t.MIN_GROUPS - 1):
        good = [{**counts, "both_fg": 9.0, "right": 9.0, "ap": 1 - 0.01 * index} for index in range(size)]
        poor = [{**counts, "both_fg": 1.0, "right": 1.0, "ap": 0.1 + 0.01 * index} for index in range(size)]
        for name, difference in paired_tests.differences(parse_metric("segmentation"), [good], [poor]).items():
            assert (difference.p, difference.groups) == (1, size), name


def test_the_fewest_examples_are_those_with_which_a_rare_outcome_would_show():
    fewest = corrected_t.MIN_GROUPS
    assert (1 - corrected_t.RARE_OUTCOME) ** fewest < 0.05 < (1 - corrected_t.RARE_OUTCOME) ** (fewest - 1)
    values = np.linspace(1, 1.1, fewest)
    tested = paired_tests.differences(parse_metric("aopc"), scored(values), scored(np.zeros(fewest)))["aopc"]
    assert tested.p == pytest.approx(0.8**fewest)
    same = paired_tests.differences(parse_metric("aopc"), scored(np.ones(fewest)), scored(np.zeros(fewest)))["aopc"]
    assert same.p == pytest.approx(0.9**fewest)


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


def test_the_paired_test_by_hand():
    generator = np.random.default_rng(8)
    first, second = generator.normal(size=60), generator.exponential(size=60) - 0.7
    sample = first - second
    tested = paired_tests.differences(parse_metric("aopc"), scored(first), scored(second))["aopc"]
    assert sample.mean() < 0
    # The margin makes the skewness worse: positive where the mean is negative.
    worse = max(0, stats.skew(sample, bias=False) + 1.5 * np.sqrt(6 / 60))
    assert tested.p == pytest.approx(2 * stats.t.cdf(hall(sample, 0, worse), 59))
    assert tested.value == pytest.approx(sample.mean())
    assert tested.low < tested.value < tested.high
    assert tested.p > stats.ttest_1samp(sample, 0).pvalue
    turned = paired_tests.differences(parse_metric("aopc"), scored(second), scored(first))["aopc"]
    assert (turned.p, turned.value) == pytest.approx((tested.p, -tested.value))
    same = paired_tests.differences(parse_metric("aopc"), scored(first), scored(first))["aopc"]
    assert (same.p, same.value) == (1, 0)


def test_a_difference_of_shares_that_is_almost_always_the_same_is_shown():
    """The long tail of one example in a hundred keeps the corrected t small, whatever the mean."""
    best = np.ones(107)
    best[0] = 0.1
    worst = np.full(107, 0.03)
    shares = [scored(values, "recovery") for values in (best, worst)]
    assert paired_tests.differences(parse_metric("recovery"), *shares)["recovery"].p < 1e-15
    changes = [scored(values) for values in (best, worst)]
    assert paired_tests.differences(parse_metric("aopc"), *changes)["aopc"].p > 0.05


def test_examples_without_a_value_are_left_out_in_pairs():
    generator = np.random.default_rng(9)
    first, second = generator.normal(1, 1, 40), generator.normal(size=40)
    kept = paired_tests.differences(parse_metric("aopc"), scored(first[2:]), scored(second[2:]))["aopc"]
    first[0] = second[1] = np.nan
    tested = paired_tests.differences(parse_metric("aopc"), scored(first), scored(second))["aopc"]
    assert tested == kept and tested.n == tested.groups == 38


def test_a_paired_test_needs_the_same_examples():
    with pytest.raises(ValueError, match="not 3 and 2 records"):
        paired_tests.differences(parse_metric("aopc"), scored([1, 2, 3]), scored([1, 2]))


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
    differences = paired_tests.differences(parse_metric("segmentation"), records(high), records(low))
    assert differences["pixel-accuracy"].p < 0.01 and differences["pixel-accuracy"].low > 0
    assert differences["miou"].p == 1


def pooled(pixels, right):
    counts = dict.fromkeys((*localisation.COUNTS, "ap"), 1.0)
    pairs = zip(pixels, right, strict=True)
    return [[{**counts, "labelled": float(labelled), "right": float(count)} for labelled, count in pairs]]


def test_false_alarms_of_pooled_values_are_as_rare_as_promised():
    """A few large images decide the value: the normal tail of a bootstrap gives 0.09."""
    generator = np.random.default_rng(11)
    p_values = []
    for _ in range(300):
        pixels = generator.lognormal(4, 1, 24)
        first, second = (pooled(pixels, pixels * generator.beta(2, 1, 24)) for _ in range(2))
        tested = paired_tests.differences(parse_metric("segmentation"), first, second, samples=200)
        p_values.append(tested["pixel-accuracy"].p)
    assert 0 < np.mean(np.array(p_values) <= 0.05) < 0.06


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
    assert paired_tests.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert paired_tests.holm([0.5, 0.9]) == [1, 1]
    assert paired_tests.holm([]) == []


def test_a_clear_difference_is_told_apart_even_after_hundreds_of_comparisons():
    generator = np.random.default_rng(0)
    first = generator.normal(1.0, 0.5, size=200)
    second = first - generator.normal(0.4, 0.2, size=200)
    tested = paired_tests.differences(parse_metric("aopc"), scored(first), scored(second), samples=10)["aopc"]
    assert tested.p * 1000 < 1e-6
