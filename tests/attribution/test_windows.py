"""Texts longer than the model takes: refused, truncated or explained in windows."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_heads import labelling_bert
from helpers.tiny_models import network, text_model
from helpers.tiny_tokenizers import blank_tokenizer, byte_tokenizer, word_piece_tokenizer
from helpers.two_towers import sentence_model

import clearhead
from clearhead import Target, UnsupportedModel
from clearhead.attribution.assemble import explain_trace
from clearhead.attribution.method import parse_method
from clearhead.attribution.windows import window_logits, windows_of
from clearhead.engine.context import frozen
from clearhead.errors import BadInput, NotFinite, TooLong
from clearhead.model.inputs import collate, encode


def test_long_texts_are_refused_truncated_or_cut_into_windows():
    explained = clearhead.load(network("bert", max_position_embeddings=16), word_piece_tokenizer(limit=16))
    words = "the film is not good , never very good . a dull film finds its heart ! " * 3
    with pytest.raises(TooLong, match=r"53 tokens, but .* takes at most 16.*truncate.*windows"):
        clearhead.explain(explained, words)
    cut = clearhead.explain(explained, words, overflow="truncate")
    assert len(cut.tokens) == 16
    explanation = clearhead.explain(explained, words, "att-cat", target=1, overflow="windows")
    assert len(explanation.tokens) == 51
    assert explanation.diagnostics["windows"] == 7
    assert [words[start:end] for start, end in explanation.offsets] == words.split()
    assert explanation.layers.shape == (3, 51)
    first = clearhead.explain(explained, " ".join(words.split()[:14]), "att-cat", target=1)
    np.testing.assert_allclose(explanation.relevance[:7], first.relevance[1:8], rtol=1e-9)
    assert len(clearhead.explain(explained, ["good", words], "att-cat", overflow="windows")) == 2


def test_of_many_texts_the_one_that_is_too_long_is_named():
    long_text = "what a film " * 400
    with pytest.raises(TooLong, match=r"^The input 'what a film what a …' has \d+ tokens, but"):
        clearhead.explain(text_model(), ["a film", long_text])
    with pytest.raises(TooLong, match=r"^The input has"):
        clearhead.explain(text_model(), long_text)


def test_heads_are_averaged_over_windows():
    explained = clearhead.load(network("bert", max_position_embeddings=16), word_piece_tokenizer(limit=16))
    words = "the film is not good , never very good . a dull film finds its heart ! " * 2
    explanation = clearhead.explain(explained, words, "attn-lrp:heads=true", target=1, overflow="windows")
    windows = windows_of(explained, encode(explained, words, overflow="windows"))
    trace = clearhead.capture(explained, collate(explained, windows).tensors, 1)
    expected = trace.head_relevance("attn-lrp").mean(0).numpy()
    np.testing.assert_allclose(explanation.heads, expected, rtol=1e-9, atol=1e-12)


def test_windows_are_counted_while_they_are_explained(monkeypatch):
    from contextlib import contextmanager

    counted = []

    @contextmanager
    def progress(total, label):
        counted.append((total, label))
        yield counted.append

    monkeypatch.setattr("clearhead.attribution.windows.progress", progress)
    explained = clearhead.load(network("bert", max_position_embeddings=16), word_piece_tokenizer(limit=16))
    words = "the film is not good , never very good . a dull film finds its heart ! " * 3
    clearhead.explain(explained, words, "att-cat", target=1, overflow="windows", batch_size=4)
    assert counted == [(14, "windows"), 4, 3, 4, 3]


def test_windows_agree_on_one_class():
    explained = clearhead.load(network("bert", max_position_embeddings=16), word_piece_tokenizer(limit=16))
    words = "the film is not good , never very good . a dull film finds its heart ! " * 3
    both = clearhead.compare(explained, words, ["rollout", "att-cat"], overflow="windows")
    assert both["rollout"].target == both["att-cat"].target


LONG = " ".join(["a film is not good"] * 20)


def test_training_and_autocast_do_not_change_what_windows_decide():
    explained = text_model(dtype=torch.float32, hidden_dropout_prob=0.5)
    windows = [encode(explained, "a good film"), encode(explained, "a dull film")]
    expected = window_logits(explained, windows)
    explained.network.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(window_logits(explained, windows), expected, rtol=0, atol=0)
    assert explained.network.training
    targets = {clearhead.explain(explained, LONG, "att-cat", overflow="windows").target.index for _ in range(8)}
    assert len(targets) == 1


def test_windows_without_finite_logits_are_refused():
    explained = text_model()
    with torch.no_grad():
        explained.network.classifier.bias.fill_(torch.nan)
    with pytest.raises(NotFinite, match="NaN"):
        window_logits(explained, [encode(explained, "a good film")])


def test_windows_wait_for_their_turn():
    explained = text_model()
    with ThreadPoolExecutor(1) as pool, frozen(explained.network):
        asked = pool.submit(window_logits, explained, [encode(explained, "a good film")])
        with pytest.raises(TimeoutError):
            asked.result(timeout=0.2)


def test_windows_hold_what_the_tokenizer_would_cut():
    explained, text = text_model(), "[CLS] a film [SEP] is not good ! " * 20 + "[SEP]"
    cut = explained.processor(text, truncation=True, max_length=64, stride=31, return_overflowing_tokens=True)
    windows = windows_of(explained, encode(explained, text, overflow="windows"))
    assert [window.values["input_ids"] for window in windows] == cut["input_ids"]


def test_windows_keep_the_tokens_of_one_character_apart():
    reader = byte_tokenizer()
    explained = clearhead.load(network("roberta", vocab_size=len(reader)), reader)
    text = "a 🎉 film is 漢字 good " * 5
    explanation = clearhead.explain(explained, text, "att-cat", target=1, overflow="windows")
    assert explanation.tokens == tuple(reader.tokenize(text))
    windows = windows_of(explained, encode(explained, text, overflow="windows"))
    ids = {"input_ids": torch.tensor([window.values["input_ids"] for window in windows[:2]])}
    first, second = clearhead.explain(explained, ids, "att-cat", target=1)
    both = np.concatenate([first.relevance[1:20], (first.relevance[20:39] + second.relevance[1:20]) / 2])
    np.testing.assert_allclose(explanation.relevance[:38], both, rtol=1e-9)


def test_windows_know_the_words_of_tokens_with_blanks():
    explained = clearhead.load(network("xlm-r"), blank_tokenizer())
    explanation = clearhead.explain(explained, LONG, "att-cat", overflow="windows")
    assert [word.text for word in explanation.words()] == LONG.split()
    np.testing.assert_array_equal([word.relevance for word in explanation.words()], explanation.relevance)


def test_windows_need_no_places_in_the_text():
    reader = transformers.CanineTokenizer(model_max_length=40)
    explained = clearhead.load(network("bert", vocab_size=2**16), reader)
    explanation = clearhead.explain(explained, LONG, "att-cat", overflow="windows")
    assert explanation.tokens == tuple(LONG) and explanation.offsets is None


def test_windows_of_one_text_are_the_same_among_others():
    explained, texts = text_model(), ["a good film", LONG, "the film is dull , " * 30, "bad"]
    together = clearhead.explain(explained, texts, "att-cat", overflow="windows")
    for text, explanation in zip(texts, together, strict=True):
        alone = clearhead.explain(explained, text, "att-cat", overflow="windows", batch_size=1)
        np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=1e-9)
        assert explanation.tokens == alone.tokens and explanation.label == alone.label
    plain = clearhead.explain(explained, texts[0], "att-cat")
    np.testing.assert_allclose(together[0].relevance, plain.relevance, rtol=1e-9)
    assert together[0].diagnostics == pytest.approx(plain.diagnostics)


@pytest.mark.parametrize("inputs", [["a film", None], ["a film", 5], [[]], ("a film", None), b"abc", [""], [(LONG, 5)]])
def test_windows_refuse_what_is_refused_without_them(text, inputs):
    with pytest.raises(BadInput) as plain_error:
        clearhead.explain(text, inputs)
    with pytest.raises(BadInput) as windows_error:
        clearhead.explain(text, inputs, overflow="windows")
    assert str(windows_error.value) == str(plain_error.value)


def averaged(explained, text):
    """The logits of a text's windows, averaged."""
    windows = windows_of(explained, encode(explained, text, overflow="windows"))
    return torch.cat([window_logits(explained, [window]) for window in windows]).mean(0)


def test_windows_are_contrasted(text):
    explanation = clearhead.explain(text, LONG, "att-cat", Target(versus="negative"), overflow="windows")
    assert explanation.label == f"{explanation.diagnostics['predicted']} rather than negative"
    assert explanation.target == Target(int(averaged(text, LONG).argmax()), 0)
    with pytest.raises(BadInput, match="contrasted with itself"):
        clearhead.explain(
            text, LONG, "att-cat", Target(versus=explanation.diagnostics["predicted"]), overflow="windows"
        )
    with pytest.raises(BadInput, match="span target needs"):
        clearhead.explain(text, LONG, "att-cat", Target(span=(0, 1)), overflow="windows")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("target", [None, 1, Target(2, versus=0)])
def test_diagnostics_of_windows_tell_of_the_whole(seed, target):
    explained, mixed = text_model(seed=seed), "bad dull ! " * 5 + LONG + " never finds its heart" * 8
    explanation = clearhead.explain(explained, mixed, "att-cat", target, overflow="windows")
    logits = averaged(explained, mixed)
    shares, best = logits.softmax(0), int(logits.argmax())
    diagnostics, index = explanation.diagnostics, explanation.target.index
    assert diagnostics["predicted"] == explained.labels[best]
    assert diagnostics["predicted_probability"] == pytest.approx(float(shares[best]))
    assert explanation.probability == pytest.approx(float(shares[index]))
    contrast = 0 if explanation.target.versus is None else float(logits[0])
    assert diagnostics["score"] == pytest.approx(float(logits[index]) - contrast)
    assert index == (best if target is None else getattr(target, "index", target))


@pytest.mark.parametrize("head", [{"num_labels": 1}, {"problem_type": "multi_label_classification"}])
def test_windows_of_other_heads(head):
    explained = clearhead.load(network("bert", **head), word_piece_tokenizer())
    explanation, logits = clearhead.explain(explained, LONG, "att-cat", overflow="windows"), averaged(explained, LONG)
    likely = None if "num_labels" in head else pytest.approx(float(logits.max().sigmoid()))
    assert explanation.probability == likely and explanation.diagnostics.get("predicted_probability") == likely
    assert explanation.diagnostics["score"] == pytest.approx(float(logits.max()))


def test_windows_sum_up_what_methods_say(text):
    explanation = clearhead.explain(text, LONG, "integrated-gradients", 1, overflow="windows", steps=4)
    windows = windows_of(text, encode(text, LONG, overflow="windows"))
    separate = [
        explain_trace(
            clearhead.capture(text, collate(text, [window]), 1), parse_method("integrated-gradients", steps=4)
        )
        for window in windows
    ]
    reports = [single.diagnostics for (single,) in separate]
    assert explanation.diagnostics["completeness_gap"] == pytest.approx(
        max(each["completeness_gap"] for each in reports)
    )
    for end in ("base", "prediction"):
        assert explanation.diagnostics["effect"][end] == pytest.approx(
            np.mean([each["effect"][end] for each in reports])
        )


def test_special_tokens_of_windows_are_left_out(text):
    explanation = clearhead.explain(text, LONG, "att-cat", overflow="windows")
    assert explanation.tokens == tuple(LONG.split()) and not explanation.special.any()


def test_a_model_without_room_for_a_text_has_no_windows():
    explained = clearhead.load(network("bert"), word_piece_tokenizer(limit=2))
    with pytest.raises(UnsupportedModel, match="no room for a text"):
        clearhead.explain(explained, "good", overflow="windows")


@pytest.mark.parametrize("overflow", ["error", "windows"])
@pytest.mark.parametrize("head", ["pair", "words", "towers"])
def test_what_has_no_windows_is_refused_with_what_to_do(head, overflow):
    inputs = (LONG, "a film") if head != "words" else LONG
    models = {"pair": text_model, "words": labelling_bert, "towers": sentence_model}
    with pytest.raises(TooLong, match=r"at most .* (cut into windows|Windows are not defined).*overflow='truncate'"):
        clearhead.explain(models[head](), inputs, overflow=overflow)


def test_among_many_pairs_the_one_that_is_too_long_is_named(text):
    pairs = [("a film", "good"), (LONG, "bad")]
    with pytest.raises(TooLong, match="The input 'a film is not good"):
        clearhead.explain(text, pairs, overflow="windows")
    with pytest.raises(BadInput, match="A text of input 2 is empty"):
        clearhead.explain(text, [("a film", "good"), ("a film", " ")])
