"""Two explanations of one input: words and patches that both have, predictions, and the sentence."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.pictures import picture
from helpers.tiny_models import image_model, text_model

import clearhead
from clearhead.drift.compare_explanations import compare_explanations
from clearhead.errors import BadInput

TEXT = "a good film never bad"


@pytest.fixture(scope="module")
def first():
    return clearhead.explain(text_model(), TEXT, "cat", check=False)


def change(explanation, relevance, **diagnostics):
    """Return an explanation with other relevance of its words."""
    values = np.zeros_like(explanation.relevance)
    values[~explanation.special] = relevance
    return replace(explanation, relevance=values, diagnostics={**explanation.diagnostics, **diagnostics})


def test_a_model_agrees_with_itself(first):
    diff = compare_explanations(first, first)
    assert (diff.agreement.shift, diff.agreement.correlation, diff.agreement.overlap) == (0, 1, 1)
    assert not diff.change_U.any()
    assert diff.sentence == f"Both predict '{first.label}', for the same reasons: 0% of the relevance moved."


def test_changes_are_those_of_words_that_both_read(first):
    old, new = change(first, [0.5, 0.5, 0, 0, 0]), change(first, [0.5, 0.25, 0, 0, 0.25])
    diff = compare_explanations(old, new)
    assert [TEXT[start:end] for _, start, end in diff.spans] == TEXT.split()
    assert diff.change_U == pytest.approx([0, -0.25, 0, 0, 0.25])
    assert diff.agreement.shift == pytest.approx(0.25)
    assert diff.sentence.endswith("for similar reasons: 25% of the relevance moved, most on 'good' (-25%).")
    other = compare_explanations(old, change(first, [0, 0, 0, 0, 1]))
    assert "for other reasons: 100% of the relevance moved, most on 'bad' (+100%)." in other.sentence


def test_other_predictions_are_named(first):
    old, new = (
        change(first, [1, 0, 0, 0, 0], predicted="negative"),
        change(first, [1, 0, 0, 0, 0], predicted="positive"),
    )
    labels = replace(old, label="negative"), replace(new, label="positive")
    sentence = compare_explanations(*labels).sentence
    assert sentence.startswith("They predict different things, 'negative' and 'positive', for the same reasons")
    # A class that was chosen is not what is predicted.
    chosen = compare_explanations(replace(old, label="neutral"), replace(old, label="neutral")).sentence
    assert chosen.startswith("Both predict 'negative'; the same reasons for 'neutral': ")


def test_patches_are_compared_on_the_coarser_grid():
    fine = clearhead.explain(image_model(), picture(), "cat", check=False)
    coarse = clearhead.explain(image_model(patch_size=16), picture(), "cat", check=False)
    diff = compare_explanations(fine, coarse)
    assert (diff.kind, diff.grid, len(diff.change_U)) == ("patch", (2, 2), 4)
    assert np.abs(diff.first_U).sum() == pytest.approx(1)
    assert "most on" not in diff.sentence


def test_other_methods_are_refused(first):
    with pytest.raises(BadInput, match="by the same method"):
        compare_explanations(first, replace(first, method="rollout"))
    with pytest.raises(BadInput, match="by the same method"):
        compare_explanations(first, replace(first, options={"layer": 1}))


def test_long_names_are_cut(first):
    long = change(first, [1, 0, 0, 0, 0], predicted="x" * 99)
    assert f"'{'x' * 40}…'" in compare_explanations(long, long).sentence
