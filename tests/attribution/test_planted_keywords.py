"""Roll-outs on trained models in which one planted keyword or patch decides: it wins over the tokens the head reads."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers.planted_keywords import DECODERS, KEYWORDS, NETWORKS, SPLIT_WORDS, train

import clearhead

WINS = 0.9
"""Share of held-out inputs on which the keyword must be the most relevant token."""


@cache
def planted(family):
    """Return the model of a family, trained once."""
    return train(family)


@cache
def explained(family, name):
    """Return the explanations of the held-out inputs by one method."""
    model = planted(family)
    return clearhead.explain(model.model, model.inputs, name, model.targets)


def top_token(relevance, special):
    """Return the most relevant token, counted without special ones."""
    return int(np.argmax(np.asarray(relevance)[~np.asarray(special)]))


def share_won(family, tops):
    """Return on which share of the inputs the top token is one that decides."""
    return np.mean([top in deciding for top, deciding in zip(tops, planted(family).places, strict=True)])


def top_word(explanation):
    return max(explanation.words(), key=lambda word: word.relevance).text


def with_identity(family, name):
    """Return the explanations with the identity path, which is what the head reads."""
    model = planted(family)
    reading_BT = clearhead.capture(model.model, model.inputs, model.targets).reading_BT.numpy()
    explanations = []
    for explanation, reading_T in zip(explained(family, name), reading_BT, strict=True):
        # The texts are padded on the right.
        relevance = explanation.relevance + reading_T[: len(explanation.tokens)]
        explanations.append(replace(explanation, relevance=relevance))
    return explanations


@pytest.mark.parametrize("family", NETWORKS)
def test_the_models_have_learned_their_task(family):
    assert np.mean([explanation.probability > 0.5 for explanation in explained(family, "trans-att")]) >= WINS


@pytest.mark.parametrize("name", ["trans-att", "gae", "rollout", "balanced-cat", "attn-lrp", "cp-lrp"])
@pytest.mark.parametrize("family", NETWORKS)
def test_the_planted_keyword_wins(family, name):
    tops = [top_token(explanation.relevance, explanation.special) for explanation in explained(family, name)]
    assert share_won(family, tops) >= WINS


# Not rollout: a word's attention adds up over its tokens whether or not the class depends on it.
@pytest.mark.parametrize("name", ["trans-att", "gae", "balanced-cat", "attn-lrp"])
@pytest.mark.parametrize("family", ["bert", "modernbert-mean", "gpt2", "llama"])
def test_the_planted_keyword_wins_over_words_of_several_tokens(family, name):
    words = [top_word(explanation) for explanation in explained(family, name)]
    assert np.mean([word in KEYWORDS for word in words]) >= WINS


@pytest.mark.parametrize("name", ["trans-att", "gae", "rollout"])
@pytest.mark.parametrize("family", NETWORKS)
def test_the_share_of_the_identity_is_reported_unless_a_class_token_is_read(family, name):
    for explanation in explained(family, name):
        share = explanation.diagnostics.get("identity_share")
        assert share is None if family == "bert" else 0 < share < 1


@pytest.mark.parametrize("name", ["trans-att", "gae"])
@pytest.mark.parametrize("family", DECODERS)
def test_with_the_identity_a_decoder_answers_the_last_token(family, name):
    explanations = with_identity(family, name)
    tops = [top_token(explanation.relevance, explanation.special) for explanation in explanations]
    assert tops == [len(explanation.tokens) - 1 for explanation in explanations]
    assert share_won(family, tops) == 0


@pytest.mark.parametrize("name", ["trans-att", "gae"])
def test_with_the_identity_a_mean_counts_the_tokens_of_words(name):
    words = [top_word(explanation) for explanation in with_identity("modernbert-mean", name)]
    assert np.mean([word in SPLIT_WORDS for word in words]) >= WINS


def test_with_the_identity_the_patches_of_a_mean_look_alike():
    for explanation in with_identity("beit-mean", "trans-att"):
        np.testing.assert_allclose(explanation.relevance[~explanation.special], 1 / 16, rtol=0.02)


def test_with_the_identity_both_ends_of_an_answer_get_half():
    for explanation in with_identity("bert-answers", "trans-att"):
        assert min(explanation.relevance[list(explanation.target.span)]) >= 0.5
