"""Two texts compared by a sentence encoder: which words of both make them similar."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import text_model
from helpers.tiny_tokenizers import word_piece_tokenizer
from helpers.two_towers import encoder_network, save_sentence_folder, sentence_model

import clearhead
from clearhead.errors import BadInput, BadOption, UnsupportedModel

PAIR = ("a fine film", "a joyless film that is not bad")


def embed(network, text, pooling):
    tokens = word_piece_tokenizer()(text, return_tensors="pt")
    with torch.no_grad():
        hidden_TD = network(**tokens).last_hidden_state[0]
    return hidden_TD[0] if pooling == "cls" else hidden_TD.mean(0)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("score", ["cosine", "dot"])
def test_the_score_is_that_of_the_embeddings(pooling, score):
    network = encoder_network()
    model = clearhead.similarity(network, word_piece_tokenizer(), pooling=pooling, score=score)
    joint = clearhead.explain(model, PAIR, "cp-lrp", check=False)
    first, second = (embed(network, text, pooling) for text in PAIR)
    if score == "cosine":
        first, second = first / first.norm(), second / second.norm()
    assert joint.score == pytest.approx(float(first @ second), rel=1e-9)
    assert [text.text for text in joint.texts] == list(PAIR)


@pytest.mark.parametrize("method", ["balanced-cat", "trans-att", "gae", "integrated-gradients", "occlusion", "cat"])
def test_both_texts_are_explained(method):
    joint = clearhead.explain(sentence_model(), PAIR, method, check=False)
    for explanation in joint.explanations:
        assert np.isfinite(explanation.relevance).all() and np.abs(explanation.relevance).sum() > 0


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("score", ["cosine", "dot"])
def test_without_biases_pairs_and_sides_add_up_to_the_score(pooling, score):
    model = sentence_model(has_biases=False, pooling=pooling, score=score)
    joint = clearhead.explain(model, PAIR, "cp-lrp", matrix=True, check=False)
    first, second = joint.explanations
    assert joint.pairs.shape == (len(first.tokens), len(second.tokens))
    assert joint.pairs.sum() == pytest.approx(joint.score, rel=1e-9)
    assert joint.diagnostics["pairs_gap"] == pytest.approx(0, abs=1e-9 * abs(joint.score))
    # Each side has half of the score, a row or column of the matrix the whole of its token.
    np.testing.assert_allclose(joint.pairs.sum(1), 2 * first.relevance, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(joint.pairs.sum(0), 2 * second.relevance, rtol=1e-8, atol=1e-12)


def test_with_biases_the_gap_is_reported():
    joint = clearhead.explain(sentence_model(), PAIR, "attn-lrp", matrix=True, check=False)
    assert joint.diagnostics["pairs_gap"] == pytest.approx(abs(joint.pairs.sum() - joint.score))
    assert joint.diagnostics["pairs_gap"] > 0


def test_a_text_among_several_is_a_class():
    joint = clearhead.explain(sentence_model(), ("a fine film", ["not bad", "a fine film", "joyless"]), check=False)
    assert joint.label == "a fine film"
    assert joint.score == pytest.approx(1)


def test_pairs_in_a_batch_equal_single_ones():
    pairs = [PAIR, ("not bad", "a fine film"), ("a", "a joyless film")]
    for joint, pair in zip(clearhead.explain(sentence_model(), pairs, check=False), pairs, strict=True):
        alone = clearhead.explain(sentence_model(), pair, check=False)
        for explanation, expected in zip(joint.explanations, alone.explanations, strict=True):
            np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("mode", "pooling"), [("pooling_mode_mean_tokens", "mean"), ("pooling_mode_cls_token", "cls")])
@pytest.mark.parametrize("score", ["cosine", "dot"])
def test_a_folder_of_sentence_transformers_says_how_it_pools(tmp_path, mode, pooling, score):
    extra = [("2_Normalize", "Normalize")]
    folder = save_sentence_folder(tmp_path, mode=mode, similarity=score, extra=extra)
    model = clearhead.load(folder)
    expected = clearhead.similarity(tmp_path, pooling=pooling, score=score)
    scores = [clearhead.explain(loaded, PAIR, "gradient", check=False).score for loaded in (model, expected)]
    assert scores[0] == pytest.approx(scores[1])


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(UnsupportedModel, match="Dense"):
        clearhead.load(save_sentence_folder(tmp_path, extra=[("2_Dense", "Dense")]))
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(clearhead.ClearheadError, match="cannot be read"):
        clearhead.load(tmp_path)


def test_another_pooling_is_refused(tmp_path):
    with pytest.raises(UnsupportedModel, match="max_tokens"):
        clearhead.load(save_sentence_folder(tmp_path, mode="pooling_mode_max_tokens"))


@pytest.mark.parametrize("options", [{"pooling": "max"}, {"score": "euclid"}])
def test_unknown_options_are_refused(options):
    with pytest.raises(BadOption, match="use"):
        clearhead.similarity(encoder_network(), word_piece_tokenizer(), **options)


def test_methods_without_pairs_and_contrasts_are_refused():
    with pytest.raises(BadOption, match="no pairs of tokens"):
        clearhead.explain(sentence_model(), PAIR, "gae", matrix=True)
    with pytest.raises(BadOption, match="leave out versus"):
        target = clearhead.Target(0, versus=1)
        clearhead.explain(sentence_model(), ("a film", ["bad", "fine"]), "cp-lrp", target, matrix=True, check=False)
    with pytest.raises(BadInput, match="compares two inputs"):
        clearhead.explain(sentence_model(), "a film")


def test_a_reranker_reads_both_texts_as_one_input():
    reranker = text_model(num_labels=1, id2label={0: "relevance"}, label2id={"relevance": 0})
    explanation = clearhead.explain(reranker, PAIR, "attn-lrp")
    assert explanation.text == PAIR
    assert {word.segment for word in explanation.words()} == {0, 1}
    assert explanation.label == "relevance"
