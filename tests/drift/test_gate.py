"""The gate: conditions by thresholds and by noise, false alarms, and its reports for CI."""

from dataclasses import replace
from itertools import permutations
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.reasons import make_noise, make_reasons, make_snapshot
from helpers.tiny_models import text_model

from clearhead.attribution.method import parse_method
from clearhead.drift.compare_models import compare_snapshots
from clearhead.drift.gate import Thresholds, bound_largest_word, judge_release
from clearhead.drift.noise import describe_draw
from clearhead.drift.snapshot import Survey, choose_task
from clearhead.errors import BadOption
from clearhead.model.weight_noise import with_weight_noise
from clearhead.model_diff import Noise
from clearhead.views import gate_junit, gate_markdown

TEXTS = ["a bad film", "a good film", "its heart is not dull", "the story is a bad joke", "never a dull film"]
DRAWS = 9
# With fewer, three words whose shares do not vary could not be told.
EXAMPLES = 45


def make_examples(shares, count=EXAMPLES):
    return [make_reasons("good film <b>", shares, id=str(number), digest=str(number)) for number in range(count)]


def compare(shares, **changes):
    """Compare examples of three words with the shares 0.5, 0.3 and 0.2."""
    first = make_snapshot(make_examples([0.5, 0.3, 0.2]), **changes)
    return compare_snapshots(first, make_snapshot(make_examples(shares), model="new", checksum="1"))


def test_thresholds_take_the_place_of_noise():
    diff = compare([0.3, 0.5, 0.2])
    assert diff.shift == pytest.approx(0.2)
    assert judge_release(diff, Thresholds(max_shift=0.21)).passes
    result = judge_release(diff, Thresholds(max_shift=0.19, min_agreement=0.4))
    # The two first words of three changed places, which is a rank correlation of 0.5.
    assert [condition.holds for condition in result.conditions] == [False, True]
    assert result.summary == "FAILED: new. Reasons moved by 20.0% on average, at most 19.0% is allowed."
    assert not judge_release(diff, Thresholds(min_agreement=0.51)).passes


@pytest.mark.parametrize("limits", [{"min_agreement": 1.5}, {"max_shift": -0.1}, {"max_shift": float("nan")}])
def test_impossible_thresholds_are_refused(limits):
    with pytest.raises(BadOption, match="must be a finite number"):
        Thresholds(**limits)


def test_noise_decides_without_thresholds():
    noise = make_noise(np.full((3, EXAMPLES), 0.08), word_shift=0.06)
    assert judge_release(compare([0.45, 0.35, 0.2], noise=noise)).passes
    result = judge_release(compare([0.2, 0.3, 0.5], noise=noise))
    assert [condition.name for condition in result.failed] == ["reasons within noise", "words within noise"]
    assert "'b' moved most, from +20.0% to +50.0%" in result.summary


def test_a_word_in_few_examples_fails_the_gate():
    noise = make_noise(np.full((3, 1200), 0.08), word_shift=0.02)
    first = make_examples([0.5, 0.3, 0.2], 1200)
    second = list(first)
    for number in range(EXAMPLES):
        text = replace(first[number], text="good film kiw")
        first[number], second[number] = text, replace(text, shares=np.array([0.3, 0.2, 0.5]))
    diff = compare_snapshots(make_snapshot(first, noise=noise), make_snapshot(second, checksum="1"))
    result = judge_release(diff)
    # 45 of 1200 move neither the mean nor too many examples.
    assert [condition.name for condition in result.failed] == ["words within noise"]
    assert "'kiw' moved most" in result.summary


def test_the_bound_of_words_is_the_prediction_interval():
    noise = Noise(tuple(make_noise(np.zeros((1, 2)), shift).draws[0] for shift in (0.1, 0.2, 0.3)))
    assert bound_largest_word(noise) == pytest.approx(0.2 + 5.339 * 0.1 * np.sqrt(4 / 3), abs=1e-3)


def test_noise_of_rounding_seldom_fails_the_gate():
    model = text_model()
    survey = Survey(choose_task([f"{text} {end}" for text in TEXTS for end in TEXTS], None), parse_method("cat"))
    base = survey.take(model)
    noisy = [replace(survey.take(with_weight_noise(model, seed)), model=str(seed)) for seed in range(DRAWS)]
    draws = [describe_draw(taken.model, base.examples, taken.examples) for taken in noisy]
    alarms = []
    for new, *others in permutations(range(DRAWS), 4):
        # Any order of the three draws of a baseline is the same.
        if others == sorted(others) and sum(others) % 4 == 0:
            baseline = replace(base, noise=Noise(tuple(draws[number] for number in others)))
            alarms.append(not judge_release(compare_snapshots(baseline, noisy[new])).passes)
    assert len(alarms) > 80
    assert np.mean(alarms) <= 0.05


def test_junit_has_a_case_for_each_condition():
    noise = make_noise(np.full((3, EXAMPLES), 0.08), word_shift=0.31)
    result = judge_release(compare([0.2, 0.3, 0.5], noise=noise))
    suite = ElementTree.fromstring(gate_junit.document(result)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failed, passed = suite.findall("testcase")
    assert failed.find("failure").get("message") == result.diff.verdict.sentence
    assert "0: 30.0% moved, beyond noise; before: positive 0.90: good +50 %" in failed.find("failure").text
    assert passed.find("failure") is None


def test_junit_lists_the_words_that_moved():
    noise = make_noise(np.full((3, EXAMPLES), 0.08), word_shift=0.06)
    result = judge_release(compare([0.2, 0.3, 0.5], noise=noise))
    cases = ElementTree.fromstring(gate_junit.document(result)).find("testsuite").findall("testcase")
    text = cases[1].find("failure").text
    assert text.startswith("Words that moved beyond noise")
    assert "good: +50 % before, +20 % after, in 45 examples" in text
    assert "film" not in text


def test_the_comment_has_the_conditions_and_what_changed():
    text = gate_markdown.document(judge_release(compare([0.2, 0.3, 0.5]), Thresholds(max_shift=0.1)))
    assert text.startswith("## Clearhead check failed: new\n")
    assert "- Reasons moved by 30.0% on average, at most 10.0% is allowed." in text
    assert "| 30\\.0 % | 10\\.0 % | fails |" in text
    assert "<details><summary>What changed</summary>" in text
    assert "\\<b\\>" in text
    assert "<b>" not in text
