"""Agreement of two explanations of one input, with numbers that can be checked by hand."""

import numpy as np
import pytest
from helpers.reasons import make_reasons

from clearhead.drift.agreement import compare_reasons, correlate_blocks
from clearhead.errors import BadInput
from clearhead.model_diff import PATCH, TOKEN

TEXT = "one two three four five six"


def test_equal_reasons_agree():
    reasons = make_reasons(TEXT, [0.5, -0.2, 0.1, 0.1, 0.05, 0.05])
    agreement = compare_reasons(reasons, reasons)
    assert (agreement.correlation, agreement.overlap, agreement.shift) == (1, 1, 0)


def test_the_shift_is_half_the_sum_of_differences():
    first = make_reasons("one two", [0.75, 0.25])
    second = make_reasons("one two", [0.25, 0.75])
    agreement = compare_reasons(first, second)
    assert agreement.shift == 0.5
    assert agreement.correlation == -1


def test_a_change_of_sign_is_a_change():
    first = make_reasons(TEXT, [0.5, 0.3, 0.05, 0.05, 0.05, 0.05])
    second = make_reasons(TEXT, [-0.5, 0.3, 0.05, 0.05, 0.05, 0.05])
    agreement = compare_reasons(first, second)
    assert agreement.shift == 0.5
    # Of the two strongest the first has another sign.
    assert agreement.overlap == 0.5


def test_reasons_without_relevance_agree():
    nothing = make_reasons("one two", [0.0, 0.0])
    assert compare_reasons(nothing, nothing).correlation == 1


def test_only_common_words_are_compared():
    long = make_reasons("one two three", [0.25, 0.25, 0.5])
    short = make_reasons("one two three", [0.5, 0.5], spans=long.spans[:2])
    assert compare_reasons(long, short).shift == 0
    assert compare_reasons(short, long).shift == 0


def test_patches_of_different_grids_are_compared():
    fine = np.zeros((4, 4))
    fine[:2, :2] = 0.25
    coarse = np.array([[1.0, 0.0], [0.0, 0.0]])
    first = make_reasons(None, fine.flatten(), kind=PATCH, grid=(4, 4))
    second = make_reasons(None, coarse.flatten(), kind=PATCH, grid=(2, 2))
    other = make_reasons(None, coarse[::-1].flatten(), kind=PATCH, grid=(2, 2))
    assert compare_reasons(first, second).shift == pytest.approx(0)
    assert compare_reasons(first, other).shift == pytest.approx(1)


def test_tokens_without_a_text_must_be_as_many():
    first = make_reasons(None, [0.5, 0.5], kind=TOKEN)
    second = make_reasons(None, [0.5, 0.25, 0.25], kind=TOKEN)
    with pytest.raises(BadInput, match="2 tokens in one model and 3 in the other"):
        compare_reasons(first, second)
    with pytest.raises(BadInput, match="by its tokens in one model and by its words"):
        compare_reasons(first, make_reasons("one two", [0.5, 0.5]))


def test_blocks_at_the_same_depth_are_compared():
    rows = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 2.0]])
    deep = make_reasons("one two three", [0.5, 0.25, 0.25], blocks=rows)
    shallow = make_reasons("one two three", [0.5, 0.25, 0.25], blocks=rows[[1, 3]])
    assert correlate_blocks([(shallow, deep)]) == (1, 1)
    assert correlate_blocks([(deep, deep)]) == (1, 1, 1, 1)
    assert correlate_blocks([(deep, make_reasons("one two three", [0.5, 0.25, 0.25]))]) == ()
