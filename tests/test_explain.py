"""explain and compare as a user meets them: texts, pairs, images, tensors, targets, long inputs, mistakes."""

import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image, ImageOps
from tiny import (
    blank_tokenizer,
    byte_tokenizer,
    image_model,
    image_processor,
    model,
    network,
    randomised,
    tensors,
    text_model,
    tokenizer,
)

import clearhead
from clearhead import ClearheadError, Target, UnsupportedModel
from clearhead.attribution.assemble import explain_trace
from clearhead.attribution.method import Attribution, Method, MethodSpec, parse_method
from clearhead.attribution.windows import window_logits, windows_of
from clearhead.data.task import Example, Task
from clearhead.engine.context import frozen
from clearhead.errors import Argument, BadInput, BadOption, NotFinite, TooLong, UnknownName
from clearhead.lazy import LazySequence
from clearhead.model.inputs import collate, encode, from_tensors
from clearhead.spec import parse_spec, parse_value, validate_options


@pytest.fixture(scope="module")
def text():
    return text_model()


@pytest.fixture(scope="module")
def image():
    return image_model()


def photo(width=60, height=40):
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_one_text_gives_one_explanation(text):
    one = clearhead.explain(text, "A joyless film, never good!")
    assert isinstance(one, clearhead.Explanation)
    assert one.tokens == ("[CLS]", "a", "joy", "##less", "film", ",", "never", "good", "!", "[SEP]")
    assert one.special.tolist() == [True] + 8 * [False] + [True]
    assert one.offsets[3] == (5, 9)
    assert one.text[5:9] == "less"
    assert one.relevance.shape == (10,)
    assert one.method == "trans-att"
    assert one.label in ("negative", "neutral", "positive")
    assert 0 < one.probability < 1
    assert one.diagnostics["conservation_gap"] < 1e-9


def test_many_texts_give_a_list_in_order(text):
    texts = ["a good film", "the dull film is not good", "bad"]
    together = clearhead.explain(text, texts, "att-cat", batch_size=2)
    for given, one in zip(texts, together, strict=True):
        assert one.text == given
        np.testing.assert_allclose(one.relevance, clearhead.explain(text, given, "att-cat").relevance, rtol=1e-9)
        assert one.layers.shape == (3, len(one.tokens))
        np.testing.assert_allclose(one.layers.sum(0), one.relevance, rtol=1e-9)


def test_a_pair_keeps_its_segments(text):
    one = clearhead.explain(text, ("a good film", "not bad"), "gradient")
    assert one.text == ("a good film", "not bad")
    assert [offset[0] for offset in one.offsets] == [0, 0, 0, 0, 0, 1, 1, 0]
    assert one.offsets[5] == (1, 0, 3)
    assert [word.text for word in one.words()] == ["a", "good", "film", "not", "bad"]
    assert [word.segment for word in one.words()] == [0, 0, 0, 1, 1]


def test_tensors_give_a_list_without_padding():
    found = clearhead.explain(model("bert"), tensors("bert"), "rollout")
    assert [len(one.tokens) for one in found] == [9, 6, 9]
    assert found[0].tokens[0] == str(int(tensors("bert")["input_ids"][0, 0]))
    assert found[0].text is None
    assert found[0].offsets is None
    assert not found[0].special.any()


def test_compare_shares_one_forward(text):
    calls = []
    handle = text.network.register_forward_hook(lambda *_: calls.append(1))
    both = clearhead.compare(text, "a good film", ["att-cat", "trans-att:first_block=1", ("rollout", {})])
    handle.remove()
    assert list(both) == ["att-cat", "trans-att:first_block=1", "rollout"]
    assert both["trans-att:first_block=1"].options["first_block"] == 1
    assert len(calls) == 1


def test_explanations_share_nothing_that_can_be_changed(image):
    pictures = {"pixel_values": torch.zeros(2, 3, 32, 32, dtype=torch.float64)}
    first, *others = [
        one for found in clearhead.compare(image, pictures, ["rollout", "random"]).values() for one in found
    ]
    first.special[:] = True
    first.relevance[:] = 99
    assert not any(one.special.all() or (one.relevance == 99).any() for one in others)


@pytest.mark.parametrize("hidden", [[7, 8], [0, 1], [3, 5]], ids=["at the end", "at the beginning", "in between"])
def test_wherever_padding_stands(hidden):
    ids = {"input_ids": torch.arange(5, 23).view(2, 9), "attention_mask": torch.ones(2, 9, dtype=torch.long)}
    ids["attention_mask"][1, hidden] = 0
    trace = clearhead.capture(model("bert"), ids)
    att_cat = parse_method("att-cat")
    scores, found = att_cat(trace), explain_trace(trace, att_cat)
    for row, (one, mask) in enumerate(zip(found, ids["attention_mask"].bool(), strict=True)):
        np.testing.assert_array_equal(one.relevance, scores.relevance_BT[row, mask])
        np.testing.assert_array_equal(one.layers, scores.layers_BLT[row][:, mask])
        assert one.tokens == tuple(map(str, ids["input_ids"][row, mask].tolist()))
        assert all(values.base is None and values.flags.c_contiguous for values in (one.relevance, one.layers))


def test_compare_on_many_gives_lists(text):
    both = clearhead.compare(text, ["a good film", "bad"], ["att-cat", "rollout"])
    assert {name: len(several) for name, several in both.items()} == {"att-cat": 2, "rollout": 2}


def test_targets(text):
    by_label = clearhead.explain(text, "a good film", "att-cat", target="positive")
    by_index = clearhead.explain(text, "a good film", "att-cat", target=2)
    np.testing.assert_array_equal(by_label.relevance, by_index.relevance)
    assert by_label.target == 2
    assert by_label.label == "positive"
    each = clearhead.explain(text, ["a good film"] * 2, "att-cat", target=["negative", Target("positive")])
    assert [one.label for one in each] == ["negative", "positive"]
    np.testing.assert_allclose(each[1].relevance, by_label.relevance, rtol=1e-9)


def test_a_contrast_is_a_difference(text):
    contrast = clearhead.explain(text, "a good film", "att-cat", target=Target("positive", versus="negative"))
    parts = [clearhead.explain(text, "a good film", "att-cat", target=name) for name in ("positive", "negative")]
    np.testing.assert_allclose(contrast.relevance, parts[0].relevance - parts[1].relevance, rtol=1e-9, atol=1e-14)
    assert contrast.label == "positive rather than negative"
    trace = clearhead.capture(text, "a good film", Target(2, versus=0))
    separate = [trace.with_target(target).attention_relevances[0] for target in (2, 0)]
    torch.testing.assert_close(trace.attention_relevances[0], separate[0] - separate[1])
    assert clearhead.explain(text, "a film", target=Target(2, versus=0)).diagnostics["conservation_gap"] < 1e-9


@pytest.mark.parametrize(
    ("problem", "labels", "probability"),
    [
        ("multi_label_classification", 3, lambda logits: logits.sigmoid()[0, 0]),
        ("multi_label_classification", 1, lambda logits: logits.sigmoid()[0, 0]),
        ("single_label_classification", 3, lambda logits: logits.softmax(-1)[0, 0]),
    ],
)
def test_heads_and_their_probability(problem, labels, probability):
    explained = model("bert", problem_type=problem, num_labels=labels)
    batch = tensors("bert", rows=1)
    (one,) = clearhead.explain(explained, batch, target=0)
    assert one.probability == pytest.approx(probability(explained.network(**batch).logits).item())


def test_a_regression_has_a_score_and_no_probability():
    explained = model("bert", num_labels=1)
    (one,) = clearhead.explain(explained, tensors("bert", rows=1))
    assert one.probability is None
    assert one.diagnostics["score"] == pytest.approx(explained.network(**tensors("bert", rows=1)).logits.item())


@pytest.fixture(scope="module")
def answers():
    net = network("bert", kind=transformers.BertForQuestionAnswering, num_labels=2)
    return clearhead.load(net, tokenizer())


def test_answer_spans(answers):
    pair = ("is the film good", "the film is very good , not dull")
    whole = clearhead.explain(answers, pair, "att-cat", target=Target(span=(6, 8)))
    start, end = (clearhead.explain(answers, pair, "att-cat", target=Target(span=s)) for s in ((6, None), (None, 8)))
    np.testing.assert_allclose(whole.relevance, start.relevance + end.relevance, rtol=1e-9, atol=1e-14)
    assert whole.probability == pytest.approx(start.probability * end.probability)
    relevant = clearhead.explain(answers, pair, "trans-att", target=Target(span=(6, 8)))
    assert relevant.diagnostics["conservation_gap"] < 1e-9
    assert relevant.label == "the … is"


def test_the_predicted_span_ignores_padding(answers):
    pairs = [("good", "the film"), ("is the film good", "the film is very good , not dull")]
    together = clearhead.explain(answers, pairs, "gradient")
    for pair, one in zip(pairs, together, strict=True):
        alone = clearhead.explain(answers, pair, "gradient")
        assert one.target == alone.target
        start, end = one.target.span
        assert start <= end < len(one.tokens)
        np.testing.assert_allclose(one.relevance, alone.relevance, rtol=1e-8)


def test_positions_of_a_span_do_not_count_padding():
    pad_left = tokenizer()
    pad_left.padding_side = "left"
    net = network("bert", kind=transformers.BertForQuestionAnswering, num_labels=2, seed=2)
    answering = clearhead.load(net, pad_left)
    question, passages = "is film good", ["the film is not good , never dull", "film is not good"]
    batch = dict(pad_left([question] * 2, passages, padding=True, return_tensors="pt"))
    batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    for target in (None, Target(span=(4, 6)), Target(span=(None, 9))):
        together = clearhead.explain(answering, batch, "att-cat", target)
        for passage, one in zip(passages, together, strict=True):
            alone = clearhead.explain(answering, (question, passage), "att-cat", target)
            assert (one.label, one.target, one.tokens) == (alone.label, alone.target, alone.tokens)
            np.testing.assert_allclose(one.relevance, alone.relevance, rtol=1e-8, atol=1e-12)
            assert one.probability == pytest.approx(alone.probability)


@pytest.mark.parametrize(
    ("span", "says"),
    [
        ((1.5, 2), "whole numbers"),
        ((1, 2, 3), "pair"),
        ((1,), "pair"),
        (5, "pair"),
        ("12", "pair"),
        (("a", 2), "whole numbers"),
        ((True, False), "whole numbers"),
        ((4, 2), "ends before it starts"),
        ((None, None), "a start, an end, or both"),
        ((12, 12), "outside the 5 tokens"),
        ((-1, 2), "outside"),
    ],
)
def test_spans_that_are_none(answers, span, says):
    pairs = [("is the film good", "the film is very good , not dull"), ("a", "film")]
    with pytest.raises(BadInput, match=says):
        clearhead.explain(answers, pairs, "att-cat", [None, Target(span=span)])


def test_whole_numbers_of_numpy_and_torch_are_classes_and_positions(text, answers):
    for number in (np.int64(2), np.uint8(2), torch.tensor(2), np.array(2)):
        found = clearhead.explain(text, "a good film", "att-cat", [number])
        assert found.target == 2 and type(found.target.index) is int
        assert clearhead.explain(text, "a film", "att-cat", Target(number, versus=np.int32(0))).target.versus == 0
    found = clearhead.explain(answers, ("a", "film"), "att-cat", Target(span=[np.int64(1), torch.tensor(3)]))
    assert found.target.span == (1, 3)


def test_a_label_of_two_classes_is_refused():
    twice = text_model(id2label={0: "x", 1: "X", 2: "x"}, label2id={})
    with pytest.raises(BadInput, match=r"2 classes are called 'x': give the number of one of them \(0, 2\)"):
        clearhead.explain(twice, "a film", target="x")
    assert clearhead.explain(twice, "a film", target="X").target == 1


def test_span_models_refuse_classes_and_others_refuse_spans(answers, text):
    with pytest.raises(BadInput, match="span"):
        clearhead.explain(answers, ("a", "film"), target=1)
    with pytest.raises(BadInput, match="question-answering"):
        clearhead.explain(text, "a film", target=Target(span=(0, 1)))
    with pytest.raises(BadInput, match="outside"):
        clearhead.explain(answers, ("a", "film"), target=Target(span=(0, 99)))


def test_an_image(image):
    one = clearhead.explain(image, photo(), "trans-att")
    assert one.grid == (4, 4)
    assert one.special.tolist() == [True] + 16 * [False]
    assert one.tokens[1] == "patch 0,0"
    heat = one.heatmap()
    assert heat.shape == (40, 60)
    assert np.isfinite(heat).all()
    assert heat.min() >= one.relevance[1:].min() - 1e-12
    assert heat.max() <= one.relevance[1:].max() + 1e-12


def test_image_paths(image, tmp_path):
    photo().save(tmp_path / "photo.png")
    by_path = clearhead.explain(image, [tmp_path / "photo.png", str(tmp_path / "photo.png")], "rollout")
    for one in by_path:
        wanted = clearhead.explain(image, photo(), "rollout").relevance
        np.testing.assert_allclose(one.relevance, wanted, rtol=1e-12)


def test_pixel_maps_sum_to_patches(image):
    for method in ("lrp", "gradient-x-input"):
        one = clearhead.explain(image, photo(32, 32), method)
        patches = one.pixels.reshape(4, 8, 4, 8).sum((1, 3))
        np.testing.assert_allclose(patches.flatten(), one.relevance[1:], rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(one.heatmap(), one.pixels, atol=1e-9)
    one = clearhead.explain(image, photo(32, 32), "gradient")
    norms = np.sqrt((one.pixels**2).reshape(4, 8, 4, 8).sum((1, 3)))
    np.testing.assert_allclose(norms.flatten(), one.relevance[1:], rtol=1e-6)


def test_the_heat_map_is_placed_through_resize_and_crop():
    processor = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}, do_center_crop=True
    )
    one = clearhead.explain(clearhead.load(network("vit"), processor), photo(100, 80), "rollout")
    # 100×80 → 50×40, cropped to the middle 32×32: original columns 18 … 82 and rows 8 … 72.
    assert one.box == (18.0, 8.0, 82.0, 72.0)
    heat = one.heatmap()
    assert heat.shape == (80, 100)
    assert np.isnan(heat[:8]).all()
    assert np.isnan(heat[:, :18]).all()
    assert np.isfinite(heat[8:72, 18:82]).all()
    # The middle of the first patch, 8 of the crop's 32 pixels wide, is 16/2 original pixels into the box.
    np.testing.assert_allclose(heat[8:24, 18:34].mean(), one.relevance[1], rtol=0.3)


def test_long_texts_are_refused_truncated_or_cut_into_windows():
    explained = clearhead.load(network("bert", max_position_embeddings=16), tokenizer(limit=16))
    words = "the film is not good , never very good . a dull film finds its heart ! " * 3
    with pytest.raises(TooLong, match=r"53 tokens, but .* takes at most 16.*truncate.*windows"):
        clearhead.explain(explained, words)
    cut = clearhead.explain(explained, words, long="truncate")
    assert len(cut.tokens) == 16
    whole = clearhead.explain(explained, words, "att-cat", target=1, long="windows")
    assert len(whole.tokens) == 51
    assert whole.diagnostics["windows"] == 7
    assert [words[start:end] for start, end in whole.offsets] == words.split()
    assert whole.layers.shape == (3, 51)
    first = clearhead.explain(explained, " ".join(words.split()[:14]), "att-cat", target=1)
    np.testing.assert_allclose(whole.relevance[:7], first.relevance[1:8], rtol=1e-9)
    assert len(clearhead.explain(explained, ["good", words], "att-cat", long="windows")) == 2


def test_windows_are_counted_while_they_are_explained(monkeypatch):
    from contextlib import contextmanager

    counted = []

    @contextmanager
    def progress(total, label):
        counted.append((total, label))
        yield counted.append

    monkeypatch.setattr("clearhead.attribution.windows.progress", progress)
    explained = clearhead.load(network("bert", max_position_embeddings=16), tokenizer(limit=16))
    words = "the film is not good , never very good . a dull film finds its heart ! " * 3
    clearhead.explain(explained, words, "att-cat", target=1, long="windows", batch_size=4)
    assert counted == [(14, "windows"), 4, 3, 4, 3]


def test_windows_agree_on_one_class():
    explained = clearhead.load(network("bert", max_position_embeddings=16), tokenizer(limit=16))
    words = "the film is not good , never very good . a dull film finds its heart ! " * 3
    both = clearhead.compare(explained, words, ["rollout", "att-cat"], long="windows")
    assert both["rollout"].target == both["att-cat"].target


LONG = " ".join(["a film is not good"] * 20)


def test_training_and_autocast_do_not_change_what_windows_decide():
    explained = text_model(dtype=torch.float32, hidden_dropout_prob=0.5)
    windows = [encode(explained, "a good film"), encode(explained, "a dull film")]
    wanted = window_logits(explained, windows)
    explained.network.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(window_logits(explained, windows), wanted, rtol=0, atol=0)
    assert explained.network.training
    targets = {clearhead.explain(explained, LONG, "att-cat", long="windows").target.index for _ in range(8)}
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
    windows = windows_of(explained, encode(explained, text, long="windows"))
    assert [one.values["input_ids"] for one in windows] == cut["input_ids"]


def test_windows_keep_the_tokens_of_one_character_apart():
    reader = byte_tokenizer()
    explained = clearhead.load(network("roberta", vocab_size=len(reader)), reader)
    text = "a 🎉 film is 漢字 good " * 5
    whole = clearhead.explain(explained, text, "att-cat", target=1, long="windows")
    assert whole.tokens == tuple(reader.tokenize(text))
    windows = windows_of(explained, encode(explained, text, long="windows"))
    ids = {"input_ids": torch.tensor([one.values["input_ids"] for one in windows[:2]])}
    first, second = clearhead.explain(explained, ids, "att-cat", target=1)
    both = np.concatenate([first.relevance[1:20], (first.relevance[20:39] + second.relevance[1:20]) / 2])
    np.testing.assert_allclose(whole.relevance[:38], both, rtol=1e-9)


def test_windows_know_the_words_of_tokens_with_blanks():
    explained = clearhead.load(network("xlm-r"), blank_tokenizer())
    whole = clearhead.explain(explained, LONG, "att-cat", long="windows")
    assert [word.text for word in whole.words()] == LONG.split()
    np.testing.assert_array_equal([word.relevance for word in whole.words()], whole.relevance)


def test_windows_need_no_places_in_the_text():
    reader = transformers.CanineTokenizer(model_max_length=40)
    explained = clearhead.load(network("bert", vocab_size=2**16), reader)
    whole = clearhead.explain(explained, LONG, "att-cat", long="windows")
    assert whole.tokens == tuple(LONG) and whole.offsets is None


def test_windows_of_one_text_are_the_same_among_others():
    explained, texts = text_model(), ["a good film", LONG, "the film is dull , " * 30, "bad"]
    together = clearhead.explain(explained, texts, "att-cat", long="windows")
    for text, one in zip(texts, together, strict=True):
        alone = clearhead.explain(explained, text, "att-cat", long="windows", batch_size=1)
        np.testing.assert_allclose(one.relevance, alone.relevance, rtol=1e-9)
        assert one.tokens == alone.tokens and one.label == alone.label
    plain = clearhead.explain(explained, texts[0], "att-cat")
    np.testing.assert_allclose(together[0].relevance, plain.relevance, rtol=1e-9)
    assert together[0].diagnostics == pytest.approx(plain.diagnostics)


@pytest.mark.parametrize("inputs", [["a film", None], ["a film", 5], [[]], ("a film", None), b"abc", [""], [(LONG, 5)]])
def test_windows_refuse_what_is_refused_without_them(text, inputs):
    with pytest.raises(BadInput) as wanted:
        clearhead.explain(text, inputs)
    with pytest.raises(BadInput) as found:
        clearhead.explain(text, inputs, long="windows")
    assert str(found.value) == str(wanted.value)


def averaged(explained, text):
    """The logits of a text's windows, averaged."""
    windows = windows_of(explained, encode(explained, text, long="windows"))
    return torch.cat([window_logits(explained, [one]) for one in windows]).mean(0)


def test_windows_are_contrasted(text):
    one = clearhead.explain(text, LONG, "att-cat", Target(versus="negative"), long="windows")
    assert one.label == f"{one.diagnostics['predicted']} rather than negative"
    assert one.target == Target(int(averaged(text, LONG).argmax()), 0)
    with pytest.raises(BadInput, match="contrasted with itself"):
        clearhead.explain(text, LONG, "att-cat", Target(versus=one.diagnostics["predicted"]), long="windows")
    with pytest.raises(BadInput, match="span target needs"):
        clearhead.explain(text, LONG, "att-cat", Target(span=(0, 1)), long="windows")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("target", [None, 1, Target(2, versus=0)])
def test_diagnostics_of_windows_tell_of_the_whole(seed, target):
    explained, mixed = text_model(seed=seed), "bad dull ! " * 5 + LONG + " never finds its heart" * 8
    one, logits = clearhead.explain(explained, mixed, "att-cat", target, long="windows"), averaged(explained, mixed)
    shares, best = logits.softmax(0), int(logits.argmax())
    said, index = one.diagnostics, one.target.index
    assert said["predicted"] == explained.labels[best]
    assert said["predicted_probability"] == pytest.approx(float(shares[best]))
    assert one.probability == pytest.approx(float(shares[index]))
    contrast = 0 if one.target.versus is None else float(logits[0])
    assert said["score"] == pytest.approx(float(logits[index]) - contrast)
    assert index == (best if target is None else getattr(target, "index", target))


@pytest.mark.parametrize("head", [{"num_labels": 1}, {"problem_type": "multi_label_classification"}])
def test_windows_of_other_heads(head):
    explained = clearhead.load(network("bert", **head), tokenizer())
    one, logits = clearhead.explain(explained, LONG, "att-cat", long="windows"), averaged(explained, LONG)
    likely = None if "num_labels" in head else pytest.approx(float(logits.max().sigmoid()))
    assert one.probability == likely and one.diagnostics.get("predicted_probability") == likely
    assert one.diagnostics["score"] == pytest.approx(float(logits.max()))


def test_windows_sum_up_what_methods_say(text):
    one = clearhead.explain(text, LONG, "integrated-gradients", 1, long="windows", steps=4)
    windows = windows_of(text, encode(text, LONG, long="windows"))
    several = [
        explain_trace(clearhead.capture(text, collate(text, [part]), 1), parse_method("integrated-gradients", steps=4))
        for part in windows
    ]
    said = [part.diagnostics for (part,) in several]
    assert one.diagnostics["completeness_gap"] == pytest.approx(max(each["completeness_gap"] for each in said))
    assert one.diagnostics["effect"] == pytest.approx(np.mean([each["effect"] for each in said]))


def test_special_tokens_of_windows_are_left_out(text):
    one = clearhead.explain(text, LONG, "att-cat", long="windows")
    assert one.tokens == tuple(LONG.split()) and not one.special.any()


def test_a_model_without_room_for_a_text_has_no_windows():
    explained = clearhead.load(network("bert"), tokenizer(limit=2))
    with pytest.raises(UnsupportedModel, match="no room for a text"):
        clearhead.explain(explained, "good", long="windows")


def test_rows_of_a_decoder_without_padding_are_explained_one_by_one():
    net = network("gpt2")
    batch = {"input_ids": tensors("gpt2", rows=1)["input_ids"].repeat(2, 1)}
    wanted = clearhead.explain(net, batch, "att-cat")
    net.config.pad_token_id = None
    found = clearhead.explain(net, batch, "att-cat")
    np.testing.assert_allclose(found[1].relevance, wanted[1].relevance, rtol=1e-9)


def test_labels_in_the_tensors_are_ignored():
    batch = {**tensors("bert"), "labels": torch.zeros(3, dtype=torch.long)}
    assert len(clearhead.explain(model("bert"), batch, "gradient")) == 3


def test_embeddings_may_be_given_instead_of_ids():
    explained = model("bert")
    batch = tensors("bert")
    words = explained.network.get_input_embeddings()(batch["input_ids"]).detach()
    by_words = clearhead.explain(explained, {"inputs_embeds": words, "attention_mask": batch["attention_mask"]})
    by_ids = clearhead.explain(explained, batch)
    for one, other in zip(by_words, by_ids, strict=True):
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=1e-9)


IDS = {"input_ids": torch.ones(1, 3).long()}


@pytest.mark.parametrize(
    ("inputs", "options", "error", "says"),
    [
        ("", {}, BadInput, "empty"),
        ("   ", {}, BadInput, "empty"),
        ([], {}, BadInput, "empty"),
        (3, {}, BadInput, "int"),
        ([3], {}, BadInput, "int"),
        (["a film", None], {}, BadInput, "NoneType"),
        (photo(), {}, BadInput, "reads text, but a picture was given"),
        (Path("a.png"), {}, BadInput, "reads text, but a path was given"),
        ("a film", {"target": "postive"}, UnknownName, "Did you mean 'positive'"),
        ("a film", {"target": 7}, BadInput, r"classes 0 … 2"),
        ("a film", {"target": np.int64(7)}, BadInput, r"Target 7 is not a class .* classes 0 … 2"),
        ("a film", {"target": True}, BadInput, "neither the number nor the label"),
        ("a film", {"target": np.True_}, BadInput, "neither the number nor the label"),
        ("a film", {"target": torch.tensor(True)}, BadInput, "neither the number nor the label"),
        ("a film", {"target": 1.0}, BadInput, "neither the number nor the label"),
        ("a film", {"target": torch.tensor([1])}, BadInput, "neither the number nor the label"),
        ("a film", {"target": [0, 1]}, BadInput, "2 targets were given for 1"),
        ("a film", {"target": Target(1, versus=1)}, BadInput, "itself"),
        ("a film", {"method": "attcat"}, UnknownName, "Did you mean 'att-cat'"),
        ("a film", {"method": "att-cat:hiden=input"}, BadOption, "Did you mean 'hidden'"),
        ("a film", {"method": "att-cat", "hidden": "both"}, BadOption, "Use 'output' or 'input'"),
        ("a film", {"method": "trans-att", "first_block": 9}, BadOption, r"0 … 2"),
        ("a film", {"method": "trans-att", "only_block": 9}, BadOption, r"-3 … 2"),
        ("a film", {"method": "trans-att", "weight": "x"}, BadOption, "gradient"),
        ("a film", {"method": "layer-gradcam", "layer": 4}, BadOption, r"0 \(embeddings\) … 3"),
        ("a film", {"method": "rollout:normalise_rows"}, BadOption, "name=value"),
        ("a film", {"method": "decoded-gradcam"}, UnsupportedModel, "lm_head"),
        ("a film", {"method": "random", "sed": 1}, BadOption, "seed"),
        ("a film", {"method": "random:seed=abc"}, BadOption, "'abc' is not a choice of 'random': it must be a whole"),
        ("a film", {"method": "integrated-gradients:tolerance=nan"}, BadOption, "must be a number"),
        ("a film", {"method": "rollout:normalise_rows=maybe"}, BadOption, "true or false"),
        ("a film", {"method": "rollout", "normalise_rows": 1}, BadOption, "true or false"),
        ("a film", {"method": "trans-att", "only_block": 1.5}, BadOption, "a whole number or none"),
        ("a film", {"method": "trans-att", "first_block": True}, BadOption, "a whole number"),
        ("a film", {"method": "integrated-gradients:tolerance=abc"}, BadOption, "a number or none"),
        ("a film", {"method": "att-cat", "hidden": 3}, BadOption, "a word"),
        ("a film", {"method": "lime:ridge=inf"}, BadOption, "finite"),
        ("a film", {"method": "integrated-gradients:tolerance=-1"}, BadOption, "at least 0"),
        ("a film", {"method": "integrated-gradients:limit=0"}, BadOption, "at least 1"),
        ("a film", {"method": "lime:ridge=-1"}, BadOption, "not below"),
        ("a film", {"method": "lime:width=0"}, BadOption, "above zero"),
        ("a film", {"method": "smooth-gradient:noise=nan"}, BadOption, "must be a number"),
        ("a film", {"method": "smooth-gradient:noise=-1"}, BadOption, "not negative"),
        ("a film", {"method": "gradient", "layer": 1}, BadOption, "no options"),
        ("a film", {"batch_size": 0}, BadOption, "at least 1"),
        ("a film", {"precision": "int8"}, BadOption, "float32"),
        ("a film", {"long": "cut"}, BadOption, "truncate"),
        ({"ids": torch.ones(1, 2)}, {}, BadInput, "input_ids"),
        ({"input_ids": torch.ones(1, 2)}, {}, BadInput, "integers"),
        ({"input_ids": [[1, 2]]}, {}, BadInput, "return_tensors"),
        ({"input_ids": torch.ones(2, 3).long(), "attention_mask": torch.ones(1, 3)}, {}, BadInput, "does not go with"),
        ({"input_ids": torch.ones(1, 3).long(), "attention_mask": torch.zeros(1, 3)}, {}, BadInput, "all zero"),
        ({"input_ids": torch.ones(1, 99).long()}, {}, TooLong, "99 tokens.*Cut every tensor"),
        ({"input_ids": torch.ones(1, 99).long()}, {"long": "truncate"}, TooLong, "99 tokens.*Cut every tensor"),
        ({"input_ids": torch.ones(1, 3).long()}, {"long": "cut"}, BadOption, "truncate"),
        ({"input_ids": torch.ones(3).long()}, {}, BadInput, r"shape \(3,\), but .* takes \(inputs, tokens\)"),
        ({"input_ids": torch.tensor(3)}, {}, BadInput, r"shape \(\)"),
        ({"input_ids": torch.ones(1, 1, 3).long()}, {}, BadInput, r"shape \(1, 1, 3\)"),
        ({"input_ids": torch.ones(1, 3).to(torch.uint8)}, {}, BadInput, "int64 or int32"),
        ({"input_ids": torch.ones(1, 3).short()}, {}, BadInput, "int64 or int32"),
        ({"input_ids": torch.ones(1, 3).long().to_sparse()}, {}, BadInput, "to_dense"),
        ({"input_ids": torch.full((1, 3), 60)}, {}, BadInput, r"holds 60, but .* knows 0 … 59"),
        ({"input_ids": torch.full((1, 3), -1)}, {}, BadInput, "holds -1"),
        ({**IDS, "token_type_ids": IDS["input_ids"] + 1}, {}, BadInput, r"'token_type_ids' holds 2, .* 0 … 1"),
        ({**IDS, "token_type_ids": torch.zeros(1)}, {}, BadInput, "integers"),
        ({**IDS, "token_type_ids": torch.zeros(1).long()}, {}, BadInput, r"token_type_ids has shape \(1,\)"),
        ({**IDS, "position_ids": IDS["input_ids"] + 63}, {}, BadInput, r"'position_ids' holds 64, .* 0 … 63"),
        ({**IDS, "inputs_embeds": torch.zeros(1, 3, 32)}, {}, BadInput, "Both input_ids and inputs_embeds"),
        ({"inputs_embeds": torch.zeros(1, 3, 31)}, {}, BadInput, r"takes \(inputs, tokens, 32\)"),
        ({"inputs_embeds": torch.zeros(1, 32)}, {}, BadInput, r"takes \(inputs, tokens, 32\)"),
        ({"pixel_values": torch.zeros(1, 3, 32, 32)}, {}, BadInput, "reads text: give input_ids, not pixel_values"),
    ],
)
def test_mistakes_are_named(text, inputs, options, error, says):
    with pytest.raises(error, match=says) as caught:
        clearhead.explain(text, inputs, **options)
    assert isinstance(caught.value, ClearheadError)


def damaged(folder):
    """A PNG that begins well, but whose later parts claim to be of no known kind."""
    photo(300, 300).save(folder / "damaged.png")
    begun, first, later = (folder / "damaged.png").read_bytes().partition(b"IDAT")
    (folder / "damaged.png").write_bytes(begun + first + later.replace(b"IDAT", b"\xfc\xf4d\xad"))
    return folder / "damaged.png"


def cut(folder):
    """A picture that was opened, but whose file ends too early."""
    photo().save(folder / "cut.png")
    return Image.open(io.BytesIO((folder / "cut.png").read_bytes()[:2000]))


def closed():
    picture = photo()
    picture.close()
    return picture


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda folder: folder / "missing.png", "no image at"),
        (lambda folder: Path(__file__), "cannot be read"),
        (lambda folder: "nul\0.png", "cannot be read"),
        (lambda folder: 3, "int"),
        (damaged, "damaged.png' cannot be read"),
        (cut, "cannot be read.*open it again"),
        (lambda folder: closed(), "cannot be read.*open it again"),
        (lambda folder: Image.new("RGB", (0, 5)), "no pixels: it is 0 × 5"),
        (lambda folder: Image.new("F", (5, 5), 0.5), "mode F and values 0.5 … 0.5"),
        (lambda folder: Image.new("F", (5, 5), float("nan")), "do not tell what white is"),
        (lambda folder: Image.new("I", (5, 5), 40000), "scale them to 0 … 255"),
    ],
)
def test_image_mistakes(image, tmp_path, given, says):
    with pytest.raises(BadInput, match=says):
        clearhead.explain(image, [given(tmp_path)])


@pytest.mark.parametrize(
    ("family", "pixels", "says"),
    [
        ("vit", torch.zeros(1, 3, 16, 16), "takes pictures of 32 × 32 pixels, not 16 × 16"),
        ("swin", torch.zeros(1, 3, 16, 16), "takes pictures of 32 × 32 pixels, not 16 × 16"),
        ("clip", torch.zeros(1, 3, 64, 32), "takes pictures of 32 × 32 pixels, not 64 × 32"),
        ("vit", torch.zeros(1, 4, 32, 32), r"takes \(inputs, 3, rows, columns\)"),
        ("clip", torch.zeros(1, 32, 32, 3), r"takes \(inputs, 3, rows, columns\)"),
        ("vit", torch.zeros(3, 32, 32), r"shape \(3, 32, 32\)"),
        ("vit", torch.zeros(1, 3, 32, 32).int(), "a floating type is needed"),
    ],
)
def test_pixels_that_do_not_fit(family, pixels, says):
    with pytest.raises(BadInput, match=says):
        clearhead.explain(model(family), {"pixel_values": pixels}, "gradient")


def test_pixels_of_another_size_are_taken_where_the_network_takes_them():
    assert len(clearhead.explain(model("dinov2"), {"pixel_values": torch.zeros(1, 3, 16, 16)}, "gradient")) == 1


def test_ids_for_an_image_model(image):
    with pytest.raises(BadInput, match="reads pictures: give pixel_values, not input_ids"):
        clearhead.explain(image, IDS)


def test_pictures_of_two_sizes_that_nobody_resizes():
    explained = clearhead.load(network("dinov2"), image_processor(do_resize=False))
    pictures = [photo(32, 32), photo(48, 40)]
    with pytest.raises(BadInput, match=r"different sizes \(32×32, 48×40\).*batch_size=1"):
        clearhead.explain(explained, pictures, "gradient")
    assert len(clearhead.explain(explained, pictures, "gradient", batch_size=1)) == 2


@pytest.mark.parametrize("note", range(1, 9))
def test_a_photo_is_explained_as_people_see_it(image, tmp_path, note):
    exif = Image.Exif()
    exif[274] = note
    photo().save(tmp_path / "photo.png", exif=exif)
    seen = ImageOps.exif_transpose(Image.open(tmp_path / "photo.png"))
    wanted = clearhead.explain(image, seen, "rollout")
    for given in (tmp_path / "photo.png", Image.open(tmp_path / "photo.png")):
        one = clearhead.explain(image, given, "rollout")
        np.testing.assert_array_equal(one.relevance, wanted.relevance)
        np.testing.assert_array_equal(one.image, seen)
        assert one.heatmap().shape == seen.size[::-1]
        assert one.image.getexif().get(274, 1) == 1


def test_a_photo_with_a_broken_note_stands_as_it_is(image):
    picture = photo()
    picture.info["exif"] = b"Exif\0\0nonsense"
    np.testing.assert_array_equal(clearhead.explain(image, picture, "rollout").image, photo())


@pytest.mark.parametrize("kind", ["I;16", "I;16B", "I", "F"])
def test_pictures_of_more_bits_are_scaled(image, kind):
    grey = np.asarray(photo().convert("L"))
    stored = {"I;16": (grey * np.uint16(257)), "I;16B": (grey * np.uint16(257)).astype(">u2")}
    values = stored.get(kind, grey.astype(np.int32 if kind == "I" else np.float32))
    picture = Image.fromarray(values)
    assert picture.mode == kind
    np.testing.assert_array_equal(np.asarray(clearhead.explain(image, picture, "rollout").image)[..., 0], grey)


def test_nan_logits_are_an_error():
    net = network("bert")
    with torch.no_grad():
        net.classifier.bias.fill_(float("nan"))
    with pytest.raises(NotFinite, match="NaN"):
        clearhead.explain(net, tensors("bert"))


def test_texts_need_a_tokenizer():
    with pytest.raises(BadInput, match="without a tokenizer"):
        clearhead.explain(model("bert"), "a film")


def test_greyscale_pictures_are_taken(image):
    assert clearhead.explain(image, photo().convert("L"), "rollout").grid == (4, 4)


def test_a_pipeline_object_is_taken():
    net = network("bert", dtype=torch.float32)
    pipe = transformers.pipeline("text-classification", model=net, tokenizer=tokenizer())
    assert clearhead.explain(clearhead.load(pipe), "a good film", "rollout").text == "a good film"


def test_images_of_the_image_processor_are_what_the_network_sees(image):
    trace = clearhead.capture(image, photo())
    wanted = image_processor()(images=photo(), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(trace.leaf, wanted.double())


def test_trace_shapes_of_the_contract(text):
    trace = clearhead.capture(text, ["a good film", "bad"], [0, 2])
    assert trace.logits.shape == (2, 3)
    for maps in (trace.attentions, trace.attention_gradients, trace.attention_relevances):
        assert [tuple(one.shape) for one in maps] == [(2, 4, 5, 5)] * 3
    for states in (trace.hidden_states, trace.hidden_gradients):
        assert [tuple(one.shape) for one in states] == [(2, 5, 32)] * 4


def test_one_block_is_enough():
    net = randomised(network("bert", num_hidden_layers=1))
    (one, *_) = clearhead.explain(net, tensors("bert"))
    assert one.diagnostics["conservation_gap"] < 1e-9


# --- tensors as they are ---------------------------------------------------------------------------------------


def test_an_unknown_word_and_a_mask_are_no_special_tokens(text):
    words = "film zzz [MASK] good"
    by_text = clearhead.explain(text, words, "occlusion")
    (by_ids,) = clearhead.explain(text, dict(text.processor([words], return_tensors="pt")), "occlusion")
    assert by_text.tokens == by_ids.tokens == ("[CLS]", "film", "[UNK]", "[MASK]", "good", "[SEP]")
    assert by_text.special.tolist() == by_ids.special.tolist() == [True, False, False, False, False, True]
    np.testing.assert_allclose(by_ids.relevance, by_text.relevance, rtol=1e-9)


def test_ids_that_the_tokenizer_does_not_have(text):
    (one,) = clearhead.explain(text, {"input_ids": torch.tensor([[2, 5, 45, 3]])}, "gradient")
    assert one.tokens == ("[CLS]", "a", "45", "[SEP]")


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_a_tokenizer_that_makes_no_mask(family):
    bare = tokenizer()
    bare.model_input_names = ["input_ids"]
    explained = clearhead.load(network(family), bare)
    texts = ["a film", "a film is not good , never dull"]
    for text, one in zip(texts, clearhead.explain(explained, texts), strict=True):
        alone = clearhead.explain(explained, text)
        assert len(one.relevance) == len(one.tokens) == len(text.replace(",", "").split()) + 2 + text.count(",")
        assert one.probability == pytest.approx(alone.probability)
        np.testing.assert_allclose(one.relevance, alone.relevance, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 1), (2, 9), (2, 6, 6), (2, 1, 6, 6)])
def test_a_mask_of_another_shape_than_the_ids_is_refused(shape):
    ids = {"input_ids": torch.full((2, 6), 7), "attention_mask": torch.ones(shape)}
    with pytest.raises(BadInput, match="attention_mask has shape"):
        clearhead.capture(model("bert"), ids)


def test_items_made_later_are_those_of_the_tensors_that_were_given():
    ids, mask = torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    inputs = from_tensors(model("bert"), {"input_ids": ids, "attention_mask": mask})
    ids[:], mask[:] = 1, True
    assert [item.tokens for item in pickle.loads(pickle.dumps(inputs)).items] == [("5", "6", "7"), ("8", "9")]


def test_what_goes_wrong_when_items_are_made_is_told():
    def broken():
        raise IndexError("no such word")

    with pytest.raises(IndexError, match="no such word"):
        list(LazySequence(2, broken))


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_whatever_torch_takes_for_its_default_device(family):
    explained, batch, names = model(family), tensors(family), ["trans-att", "lrp", "random"]
    own = clearhead.compare(explained, batch, names, 1)
    with torch.device("meta"):
        there = clearhead.compare(explained, batch, names, 1)
    for name, several in own.items():
        for one, other in zip(several, there[name], strict=True):
            np.testing.assert_array_equal(one.relevance, other.relevance)
            assert one.diagnostics == other.diagnostics


def test_scores_of_more_tokens_than_the_input_has_are_refused():
    wide = Method("wide", lambda trace: Attribution(torch.ones(3, 99)), "", signed=False, class_specific=False)
    trace = clearhead.capture(model("bert"), tensors("bert"))
    with pytest.raises(UnsupportedModel, match="works on 99 tokens, but the input has 9"):
        explain_trace(trace, MethodSpec("wide", wide, {}))


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        (Attribution(torch.ones(9)), "relevance_BT of shape \\(9,\\) for 3 inputs of 9 tokens"),
        (Attribution(torch.ones(2, 9)), "relevance_BT of shape \\(2, 9\\)"),
        (Attribution(torch.ones(3, 9), torch.ones(3, 4, 7)), "layers_BLT of shape \\(3, 4, 7\\)"),
        (Attribution(torch.ones(3, 9), pixels_BPQ=torch.ones(3)), "pixels_BPQ of shape \\(3,\\)"),
    ],
)
def test_scores_of_another_shape_are_refused(scores, says):
    own = Method("own", lambda trace: scores, "", signed=False, class_specific=False)
    trace = clearhead.capture(model("bert"), tensors("bert"))
    with pytest.raises(UnsupportedModel, match=f"'own' answered with {says}"):
        explain_trace(trace, MethodSpec("own", own, {}))


@pytest.mark.parametrize(
    ("word", "value"), [("no", False), ("Off", False), ("yes", True), ("on", True), ("None", None)]
)
def test_words_that_stand_for_values(word, value):
    assert parse_value(word) is value


def test_options_without_a_kind_are_taken_as_they_are():
    def own(trace, *, anything=None, several: list[int] = (), call: Callable[[int], float] | None = None):
        return Attribution(torch.ones(3, 9))

    given = {"anything": "x", "several": [1, 2], "call": abs}
    assert validate_options("own", own, given) == given

    def later(trace, *, kind: "NotYetDefined" = None):  # noqa: F821
        return Attribution(torch.ones(3, 9))

    assert validate_options("later", later, {"kind": 5}) == {"kind": 5}


def test_what_is_written_is_taken_as_the_option_takes_it():
    _, _, given = parse_spec("own:name=on,flag=on,number=2024,text=2024,nothing=none")

    def own(*, name: str = "", flag: bool = False, number: int = 0, text: str | None = "", nothing: str | None = ""):
        return None

    wanted = {"name": "on", "flag": True, "number": 2024, "text": "2024", "nothing": None}
    assert validate_options("own", own, given) == wanted


def test_numbers_of_numpy_are_numbers(text):
    options = parse_method("lime", samples=np.int64(3), width=np.float32(0.5)).options
    assert [type(value) for value in options.values()] == [int, float]
    assert clearhead.explain(text, "a film", "rollout", normalise_rows=np.True_).options["normalise_rows"] is True


@pytest.mark.parametrize("name", ["trans-att", "att-cat", "cat", "lrp", "layer-gradcam", "rollout"])
def test_a_network_that_adds_tokens_of_its_own_is_refused_by_name(name):
    net = network("bert")
    net.bert.embeddings.register_forward_hook(lambda module, given, out: torch.cat([out[:, :1], out], 1))
    explained, ids = clearhead.load(net), {"input_ids": torch.tensor([[5, 6, 7]])}
    with pytest.raises(UnsupportedModel, match="works on 4 tokens, but the input has 3"):
        clearhead.explain(explained, ids, name)
    assert len(clearhead.explain(explained, ids, "gradient")[0].relevance) == 3


def test_a_message_names_arguments_as_they_are_given():
    cut, column = Argument("long", "truncate"), Argument("text_column")
    error = TooLong("It is 'long=x' too long.", " Use ", cut, " or ", column, ".")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert str(one) == "It is 'long=x' too long. Use long='truncate' or text_column."
        assert one.with_flags == "It is 'long=x' too long. Use --long truncate or --text-column."
        assert one.fact == "It is 'long=x' too long."


# --- networks and tokenizers of other kinds ---------------------------------------------------------------------------


def test_a_network_that_takes_no_mask_gets_texts_of_one_length():
    """FNet mixes all tokens, padding included, so that nothing may be padded: neither inputs nor perturbed ones."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "vocab_size": 60, "num_labels": 3}
    net = randomised(transformers.FNetForSequenceClassification(transformers.FNetConfig(**sizes, pad_token_id=0)))
    explained, texts = clearhead.load(net, tokenizer()), ["a film", "a film is not good", "good"]
    for method in ("gradient", "occlusion"):
        for one, text in zip(clearhead.explain(explained, texts, method), texts, strict=True):
            np.testing.assert_allclose(one.relevance, clearhead.explain(explained, text, method).relevance, rtol=1e-6)
    examples = [Example(str(place), text) for place, text in enumerate(texts)]
    whole = clearhead.evaluate(explained, Task("t", examples), ["gradient"], ["aopc"]).rows[0]["value"]
    alone = [
        clearhead.evaluate(explained, Task("t", [one]), ["gradient"], ["aopc"]).rows[0]["value"] for one in examples
    ]
    assert whole == pytest.approx(np.mean(alone))
    clearhead.evaluate(explained, Task("t", examples), ["gradient"], ["hiding:against=prediction"])
    with pytest.raises(UnsupportedModel, match="takes no attention_mask"):
        clearhead.explain(explained, texts, "occlusion:absent=attention")


def test_token_types_of_several_kinds():
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    settings = transformers.TapasConfig(**sizes, vocab_size=60, max_position_embeddings=64, num_labels=3)
    net = randomised(transformers.TapasForSequenceClassification(settings))
    batch = {"input_ids": torch.arange(5, 14)[None], "token_type_ids": torch.zeros(1, 9, 7).long()}
    assert np.isfinite(clearhead.explain(net, batch, "occlusion")[0].relevance).all()


def test_special_tokens_are_those_around_texts_whoever_put_them_there():
    own = tokenizer()
    own.add_special_tokens({"extra_special_tokens": ["film"]})
    ids = torch.tensor([own.convert_tokens_to_ids(["film", "a", "[UNK]", "[MASK]", "[SEP]", "good"])])
    (one,) = clearhead.explain(clearhead.load(network("bert"), own), {"input_ids": ids}, "att-cat")
    assert one.special.tolist() == [True, False, False, False, True, False]


def test_positions_before_the_first_are_those_of_padding():
    ids, mask = torch.randint(5, 50, (1, 6)), torch.tensor([[0, 0, 1, 1, 1, 1]])
    batch = {"input_ids": ids, "attention_mask": mask, "position_ids": torch.tensor([[-1, -1, 0, 1, 2, 3]])}
    assert len(clearhead.explain(network("opt"), batch, "att-cat")[0].relevance) == 4
    with pytest.raises(BadInput, match=r"holds -3, but .* knows -2"):
        clearhead.explain(network("opt"), {**batch, "position_ids": torch.full((1, 6), -3)}, "att-cat")


def test_what_has_nothing_to_do_with_size_is_not_blamed_on_it():
    net, batch = network("dinov2", image_size=64), {"pixel_values": torch.randn(1, 3, 32, 32)}
    clearhead.explain(net, batch, "gradient")

    def failing(*_):
        raise RuntimeError("the user's own fault")

    net.register_forward_pre_hook(failing)
    with pytest.raises(RuntimeError, match="own fault"):
        clearhead.explain(net, batch, "gradient")
