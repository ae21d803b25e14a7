"""Inputs of every kind are encoded, and bad ones refused with a reason."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from helpers.pictures import photo
from helpers.tiny_models import THREE_TOKENS, model, network, randomised, tensors
from helpers.tiny_tokenizers import word_piece_tokenizer

import clearhead
from clearhead import ClearheadError, Target, UnsupportedModel
from clearhead.data.task import Example, Task
from clearhead.errors import Argument, BadInput, BadOption, NotFinite, TooLong, UnknownName
from clearhead.lazy import LazySequence
from clearhead.model.inputs import from_tensors


@pytest.mark.parametrize(
    ("inputs", "options", "error", "says"),
    [
        ("", {}, BadInput, "empty"),
        ("   ", {}, BadInput, "empty"),
        ([], {}, BadInput, "empty"),
        (3, {}, BadInput, "int"),
        ([3], {}, BadInput, "int"),
        (["a film", None], {}, BadInput, "NoneType"),
        (photo(), {}, BadInput, "takes text, not an image"),
        (Path("a.png"), {}, BadInput, "takes text, not a path"),
        ("a film", {"target": "postive"}, UnknownName, "Did you mean 'positive'"),
        ("a film", {"target": 7}, BadInput, r"classes 0 … 2"),
        ("a film", {"target": np.int64(7)}, BadInput, r"Invalid target 7: this model has classes 0 … 2"),
        ("a film", {"target": True}, BadInput, "give a class index, a label or a Target"),
        ("a film", {"target": np.True_}, BadInput, "give a class index, a label or a Target"),
        ("a film", {"target": torch.tensor(True)}, BadInput, "give a class index, a label or a Target"),
        ("a film", {"target": 1.0}, BadInput, "give a class index, a label or a Target"),
        ("a film", {"target": torch.tensor([1])}, BadInput, "give a class index, a label or a Target"),
        ("a film", {"target": [0, 1]}, BadInput, "2 targets were given for 1"),
        ("a film", {"target": Target(1, versus=1)}, BadInput, "itself"),
        ("a film", {"method": "attcat"}, UnknownName, "Did you mean 'att-cat'"),
        ("a film", {"method": "att-cat:hiden=input"}, BadOption, "Did you mean 'hidden'"),
        ("a film", {"method": "att-cat", "hidden": "both"}, BadOption, "Available: output, input"),
        ("a film", {"method": "trans-att", "first_block": 9}, BadOption, r"0 … 2"),
        ("a film", {"method": "trans-att", "only_block": 9}, BadOption, r"-3 … 2"),
        ("a film", {"method": "trans-att", "weight": "x"}, BadOption, "gradient"),
        ("a film", {"method": "layer-gradcam", "layer": 4}, BadOption, r"0 \(embeddings\) … 3"),
        ("a film", {"method": "rollout:normalise_rows"}, BadOption, "name=value"),
        ("a film", {"method": "decoded-gradcam"}, UnsupportedModel, "lm_head"),
        ("a film", {"method": "random", "sed": 1}, BadOption, "seed"),
        ("a film", {"method": "random:seed=abc"}, BadOption, "Invalid seed='abc' for 'random': it must be a whole"),
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
        ({"input_ids": torch.ones(2, 3).long(), "attention_mask": torch.ones(1, 3)}, {}, BadInput, "does not match"),
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
        ({"input_ids": torch.full((1, 3), 60)}, {}, BadInput, r"Invalid input_ids 60: .* has 0 … 59"),
        ({"input_ids": torch.full((1, 3), -1)}, {}, BadInput, "Invalid input_ids -1"),
        (
            {**THREE_TOKENS, "token_type_ids": torch.full((1, 3), 2)},
            {},
            BadInput,
            r"Invalid token_type_ids 2: .* 0 … 1",
        ),
        ({**THREE_TOKENS, "token_type_ids": torch.zeros(1)}, {}, BadInput, "integers"),
        ({**THREE_TOKENS, "token_type_ids": torch.zeros(1).long()}, {}, BadInput, r"'token_type_ids' has shape \(1,\)"),
        (
            {**THREE_TOKENS, "position_ids": torch.full((1, 3), 64)},
            {},
            BadInput,
            r"Invalid position_ids 64: .* 0 … 63",
        ),
        ({**THREE_TOKENS, "inputs_embeds": torch.zeros(1, 3, 32)}, {}, BadInput, "Both input_ids and inputs_embeds"),
        ({"inputs_embeds": torch.zeros(1, 3, 31)}, {}, BadInput, r"takes \(inputs, tokens, 32\)"),
        ({"inputs_embeds": torch.zeros(1, 32)}, {}, BadInput, r"takes \(inputs, tokens, 32\)"),
        ({"pixel_values": torch.zeros(1, 3, 32, 32)}, {}, BadInput, "takes text: give input_ids, not pixel_values"),
    ],
)
def test_mistakes_are_named(text, inputs, options, error, says):
    with pytest.raises(error, match=says) as caught:
        clearhead.explain(text, inputs, **options)
    assert isinstance(caught.value, ClearheadError)


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


def test_an_unknown_word_and_a_mask_are_no_special_tokens(text):
    words = "film zzz [MASK] good"
    by_text = clearhead.explain(text, words, "occlusion")
    (by_ids,) = clearhead.explain(text, dict(text.processor([words], return_tensors="pt")), "occlusion")
    assert by_text.tokens == by_ids.tokens == ("[CLS]", "film", "[UNK]", "[MASK]", "good", "[SEP]")
    assert by_text.special.tolist() == by_ids.special.tolist() == [True, False, False, False, False, True]
    np.testing.assert_allclose(by_ids.relevance, by_text.relevance, rtol=1e-9)


def test_ids_that_the_tokenizer_does_not_have(text):
    (explanation,) = clearhead.explain(text, {"input_ids": torch.tensor([[2, 5, 45, 3]])}, "gradient")
    assert explanation.tokens == ("[CLS]", "a", "45", "[SEP]")


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_a_tokenizer_that_makes_no_mask(family):
    bare = word_piece_tokenizer()
    bare.model_input_names = ["input_ids"]
    explained = clearhead.load(network(family), bare)
    texts = ["a film", "a film is not good , never dull"]
    for text, explanation in zip(texts, clearhead.explain(explained, texts), strict=True):
        alone = clearhead.explain(explained, text)
        assert (
            len(explanation.relevance)
            == len(explanation.tokens)
            == len(text.replace(",", "").split()) + 2 + text.count(",")
        )
        assert explanation.probability == pytest.approx(alone.probability)
        np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 1), (2, 9), (2, 6, 6), (2, 1, 6, 6)])
def test_a_mask_of_another_shape_than_the_ids_is_refused(shape):
    ids = {"input_ids": torch.full((2, 6), 7), "attention_mask": torch.ones(shape)}
    with pytest.raises(BadInput, match="'attention_mask' has shape"):
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
    expected = clearhead.compare(explained, batch, names, 1)
    with torch.device("meta"):
        there = clearhead.compare(explained, batch, names, 1)
    for name, explanations in expected.items():
        for explanation, same in zip(explanations, there[name], strict=True):
            np.testing.assert_array_equal(explanation.relevance, same.relevance)
            assert explanation.diagnostics == same.diagnostics


@pytest.mark.parametrize("name", ["trans-att", "att-cat", "cat", "lrp", "layer-gradcam", "rollout"])
def test_a_network_that_adds_tokens_of_its_own_is_refused_by_name(name):
    net = network("bert")
    net.bert.embeddings.register_forward_hook(lambda module, args, out: torch.cat([out[:, :1], out], 1))
    explained, ids = clearhead.load(net), {"input_ids": torch.tensor([[5, 6, 7]])}
    with pytest.raises(UnsupportedModel, match="works on 4 tokens, but the input has 3"):
        clearhead.explain(explained, ids, name)
    assert len(clearhead.explain(explained, ids, "gradient")[0].relevance) == 3


def test_a_message_names_arguments_as_they_are_given():
    cut, column = Argument("long", "truncate"), Argument("text_column")
    error = TooLong("It is 'long=x' too long.", " Use ", cut, " or ", column, ".")
    for raised in (error, pickle.loads(pickle.dumps(error))):
        assert str(raised) == "It is 'long=x' too long. Use long='truncate' or text_column."
        assert raised.with_flags == "It is 'long=x' too long. Use --long truncate or --text-column."
        assert raised.fact == "It is 'long=x' too long."


def test_a_network_that_takes_no_mask_gets_texts_of_one_length():
    """FNet mixes all tokens, padding included, so that nothing may be padded: neither inputs nor perturbed ones."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "vocab_size": 60, "num_labels": 3}
    net = randomised(transformers.FNetForSequenceClassification(transformers.FNetConfig(**sizes, pad_token_id=0)))
    explained, texts = clearhead.load(net, word_piece_tokenizer()), ["a film", "a film is not good", "good"]
    for method in ("gradient", "occlusion"):
        for explanation, text in zip(clearhead.explain(explained, texts, method), texts, strict=True):
            alone = clearhead.explain(explained, text, method)
            np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=1e-6)
    examples = [Example(str(index), text) for index, text in enumerate(texts)]
    together = clearhead.evaluate(explained, Task("t", examples), ["gradient"], ["aopc"]).rows[0]["value"]
    values = [
        clearhead.evaluate(explained, Task("t", [example]), ["gradient"], ["aopc"]).rows[0]["value"]
        for example in examples
    ]
    assert together == pytest.approx(np.mean(values))
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
    tokenizer = word_piece_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["film"]})
    ids = torch.tensor([tokenizer.convert_tokens_to_ids(["film", "a", "[UNK]", "[MASK]", "[SEP]", "good"])])
    (explanation,) = clearhead.explain(clearhead.load(network("bert"), tokenizer), {"input_ids": ids}, "att-cat")
    assert explanation.special.tolist() == [True, False, False, False, True, False]


def test_positions_before_the_first_are_those_of_padding():
    ids, mask = torch.randint(5, 50, (1, 6)), torch.tensor([[0, 0, 1, 1, 1, 1]])
    batch = {"input_ids": ids, "attention_mask": mask, "position_ids": torch.tensor([[-1, -1, 0, 1, 2, 3]])}
    assert len(clearhead.explain(network("opt"), batch, "att-cat")[0].relevance) == 4
    with pytest.raises(BadInput, match=r"Invalid position_ids -3: .* has -2"):
        clearhead.explain(network("opt"), {**batch, "position_ids": torch.full((1, 6), -3)}, "att-cat")


def test_what_has_nothing_to_do_with_size_is_not_blamed_on_it():
    net, batch = network("dinov2", image_size=64), {"pixel_values": torch.randn(1, 3, 32, 32)}
    clearhead.explain(net, batch, "gradient")

    def failing(*_):
        raise RuntimeError("the user's own fault")

    net.register_forward_pre_hook(failing)
    with pytest.raises(RuntimeError, match="own fault"):
        clearhead.explain(net, batch, "gradient")
