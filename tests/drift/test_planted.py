"""On planted truth: a word that a model was trained to use is found first; rounding is noise; pruning is not."""

import pytest
from helpers.planted_words import TOKEN, prune_heads, round_to_int8
from helpers.precision import require_half_precision

import clearhead
from clearhead.model.weight_noise import with_weight_noise
from clearhead.model_diff import MOVED, SAME, WITHIN_NOISE


def test_the_planted_word_is_found_first(planted, baseline):
    diff = clearhead.diff(baseline, planted.model, planted.task)
    assert diff.verdict.outcome == MOVED
    word = diff.words[0]
    assert word.word == TOKEN
    assert word.is_beyond_noise
    assert word.low > 0.3
    assert f"'{TOKEN}' +" in diff.verdict.sentence
    # The same answer for other reasons: all have the planted word, those that moved less do not.
    same = [row for row in diff.rows if row.has_same_answer]
    first = same[: len(same) // 4]
    assert all(TOKEN in row.first.words for row in first)
    assert all(row.is_beyond_noise for row in first)
    assert all(TOKEN in row.first.words for row in diff.changed)


def test_blocks_disagree_more_than_by_noise(planted, baseline):
    diff = clearhead.diff(baseline, planted.model, planted.task)
    # The last block writes to the class token alone, where no word has a share.
    assert [entry.block for entry in diff.blocks] == [0, 1, 2, 3, 4]
    assert all(entry.correlation < entry.noise for entry in diff.blocks)


def test_classes_that_rose_and_fell(planted, baseline):
    negative, positive = clearhead.diff(baseline, planted.model, planted.task).classes
    assert (negative.label, positive.label) == ("negative", "positive")
    assert positive.difference == -negative.difference > 0.1
    assert positive.low > 0 > negative.high
    assert max(positive.p_corrected, negative.p_corrected) < 0.05


@pytest.mark.parametrize("change", [round_to_int8, lambda model: with_weight_noise(model, 77)], ids=["int8", "noise"])
def test_rounded_and_noisy_weights_are_within_noise(planted, baseline, change):
    diff = clearhead.diff(baseline, change(planted.original), planted.task)
    assert diff.verdict.outcome in (SAME, WITHIN_NOISE)
    assert not any(word.is_beyond_noise for word in diff.words)


def test_half_precision_is_within_noise(planted, baseline):
    require_half_precision("bfloat16")
    second = clearhead.snapshot(planted.original, planted.task, precision="bfloat16", noise=0)
    assert clearhead.diff(baseline, second).verdict.outcome in (SAME, WITHIN_NOISE)


def test_half_of_the_heads_pruned_is_moved(planted, baseline):
    diff = clearhead.diff(baseline, prune_heads(planted.original), planted.task)
    assert diff.verdict.outcome == MOVED
    assert diff.verdict.p < 0.05
    assert diff.verdict.shift > 2 * diff.verdict.bound


def test_the_same_model_has_the_same_reasons(planted, baseline):
    diff = clearhead.diff(baseline, planted.original, planted.task)
    assert diff.verdict.outcome == SAME
    assert diff.verdict.shift == 0
    assert diff.correlation == diff.overlap == 1
    assert "Both models have the same weights." in diff.notes
