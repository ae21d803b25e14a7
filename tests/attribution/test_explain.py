"""explain() and compare() from raw inputs: one, many, pairs, tensors, images."""

import gc
import weakref

import numpy as np
import pytest
import torch
import transformers
from helpers.pictures import photo
from helpers.tiny_models import image_processor, model, network, randomised, tensors
from helpers.tiny_tokenizers import word_piece_tokenizer

import clearhead
from clearhead import UnsupportedModel
from clearhead.attribution.assemble import explain_trace
from clearhead.attribution.method import Attribution, Method, MethodSpec, parse_method


def test_one_text_gives_one_explanation(text):
    explanation = clearhead.explain(text, "A joyless film, never good!")
    assert isinstance(explanation, clearhead.Explanation)
    assert explanation.tokens == ("[CLS]", "a", "joy", "##less", "film", ",", "never", "good", "!", "[SEP]")
    assert explanation.special.tolist() == [True] + 8 * [False] + [True]
    assert explanation.offsets[3] == (5, 9)
    assert explanation.text[5:9] == "less"
    assert explanation.relevance.shape == (10,)
    assert explanation.method == "balanced-cat"
    assert explanation.label in ("negative", "neutral", "positive")
    assert 0 < explanation.probability < 1
    assert explanation.diagnostics["completeness_gap"] >= 0


def test_between_batches_no_full_garbage_collection_runs(text):
    texts = [f"a good film {number}" for number in range(60)]
    clearhead.explain(text, texts[:2], "att-cat", batch_size=1, check=False)
    gc.collect()
    generations = []

    def note(phase, info):
        generations.append(info["generation"])

    gc.callbacks.append(note)
    try:
        explanations = clearhead.explain(text, texts, "att-cat", batch_size=1, check=False)
    finally:
        gc.callbacks.remove(note)
    assert 2 not in generations
    assert gc.isenabled()
    assert len(explanations) == len(texts)


def test_what_a_network_leaves_in_cycles_is_freed_between_batches(text):
    class Node:
        pass

    left = []

    def leave_cycle(module, inputs):
        node = Node()
        node.itself = node
        left.append(weakref.ref(node))

    alive = []
    handle = text.network.register_forward_pre_hook(leave_cycle)
    count_handle = text.network.register_forward_pre_hook(
        lambda *_: alive.append(sum(node() is not None for node in left))
    )
    try:
        clearhead.explain(text, [f"film {number}" for number in range(20)], "att-cat", batch_size=1, check=False)
    finally:
        handle.remove()
        count_handle.remove()
    assert len(alive) >= 20
    assert max(alive) <= 3


def test_many_texts_give_a_list_in_order(text):
    texts = ["a good film", "the dull film is not good", "bad"]
    together = clearhead.explain(text, texts, "att-cat", batch_size=2)
    for sentence, explanation in zip(texts, together, strict=True):
        assert explanation.text == sentence
        np.testing.assert_allclose(
            explanation.relevance, clearhead.explain(text, sentence, "att-cat").relevance, rtol=1e-9
        )
        assert explanation.layers.shape == (3, len(explanation.tokens))
        np.testing.assert_allclose(explanation.layers.sum(0), explanation.relevance, rtol=1e-9)


def test_a_pair_keeps_its_segments(text):
    explanation = clearhead.explain(text, ("a good film", "not bad"), "gradient")
    assert explanation.text == ("a good film", "not bad")
    assert [offset[0] for offset in explanation.offsets] == [0, 0, 0, 0, 0, 1, 1, 0]
    assert explanation.offsets[5] == (1, 0, 3)
    assert [word.text for word in explanation.words()] == ["a", "good", "film", "not", "bad"]
    assert [word.segment for word in explanation.words()] == [0, 0, 0, 1, 1]


def test_tensors_give_a_list_without_padding():
    explanations = clearhead.explain(model("bert"), tensors("bert"), "rollout")
    assert [len(explanation.tokens) for explanation in explanations] == [9, 6, 9]
    assert explanations[0].tokens[0] == str(int(tensors("bert")["input_ids"][0, 0]))
    assert explanations[0].text is None
    assert explanations[0].offsets is None
    assert not explanations[0].special.any()


def test_compare_shares_one_forward(text):
    calls = []
    handle = text.network.register_forward_hook(lambda *_: calls.append(1))
    names = ["att-cat", "trans-att:first_block=1", ("rollout", {})]
    both = clearhead.compare(text, "a good film", names, check=False)
    handle.remove()
    assert list(both) == ["att-cat", "trans-att:first_block=1", "rollout"]
    assert both["trans-att:first_block=1"].options["first_block"] == 1
    assert len(calls) == 1


def test_explanations_share_nothing_that_can_be_changed(image):
    pictures = {"pixel_values": torch.zeros(2, 3, 32, 32, dtype=torch.float64)}
    first, *rest = [
        explanation
        for explanations in clearhead.compare(image, pictures, ["rollout", "random"]).values()
        for explanation in explanations
    ]
    first.special[:] = True
    first.relevance[:] = 99
    assert not any(explanation.special.all() or (explanation.relevance == 99).any() for explanation in rest)


@pytest.mark.parametrize("hidden", [[7, 8], [0, 1], [3, 5]], ids=["at the end", "at the beginning", "in between"])
def test_wherever_padding_stands(hidden):
    ids = {"input_ids": torch.arange(5, 23).view(2, 9), "attention_mask": torch.ones(2, 9, dtype=torch.long)}
    ids["attention_mask"][1, hidden] = 0
    trace = clearhead.capture(model("bert"), ids)
    att_cat = parse_method("att-cat")
    scores, explanations = att_cat(trace), explain_trace(trace, att_cat)
    for row, (explanation, mask) in enumerate(zip(explanations, ids["attention_mask"].bool(), strict=True)):
        np.testing.assert_array_equal(explanation.relevance, scores.relevance_BT[row, mask])
        np.testing.assert_array_equal(explanation.layers, scores.layers_BLT[row][:, mask])
        assert explanation.tokens == tuple(map(str, ids["input_ids"][row, mask].tolist()))
        assert all(
            values.base is None and values.flags.c_contiguous for values in (explanation.relevance, explanation.layers)
        )


def test_compare_on_many_gives_lists(text):
    both = clearhead.compare(text, ["a good film", "bad"], ["att-cat", "rollout"])
    assert {name: len(explanations) for name, explanations in both.items()} == {"att-cat": 2, "rollout": 2}


def test_an_image(image):
    explanation = clearhead.explain(image, photo(), "trans-att")
    assert explanation.grid == (4, 4)
    assert explanation.special.tolist() == [True] + 16 * [False]
    assert explanation.tokens[1] == "patch 0,0"
    heat = explanation.heatmap()
    assert heat.shape == (40, 60)
    assert np.isfinite(heat).all()
    assert heat.min() >= explanation.relevance[1:].min() - 1e-12
    assert heat.max() <= explanation.relevance[1:].max() + 1e-12


def test_image_paths(image, tmp_path):
    photo().save(tmp_path / "photo.png")
    by_path = clearhead.explain(image, [tmp_path / "photo.png", str(tmp_path / "photo.png")], "rollout")
    for explanation in by_path:
        expected = clearhead.explain(image, photo(), "rollout").relevance
        np.testing.assert_allclose(explanation.relevance, expected, rtol=1e-12)


def test_pixel_maps_sum_to_patches(image):
    for method in ("lrp", "gradient-x-input"):
        explanation = clearhead.explain(image, photo(32, 32), method)
        patches = explanation.pixels.reshape(4, 8, 4, 8).sum((1, 3))
        np.testing.assert_allclose(patches.flatten(), explanation.relevance[1:], rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(explanation.heatmap(), explanation.pixels, atol=1e-9)
    explanation = clearhead.explain(image, photo(32, 32), "gradient")
    norms = np.sqrt((explanation.pixels**2).reshape(4, 8, 4, 8).sum((1, 3)))
    np.testing.assert_allclose(norms.flatten(), explanation.relevance[1:], rtol=1e-6)


def test_the_heat_map_is_placed_through_resize_and_crop():
    processor = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}, do_center_crop=True
    )
    explanation = clearhead.explain(clearhead.load(network("vit"), processor), photo(100, 80), "rollout")
    # 100×80 → 50×40, cropped to the middle 32×32: original columns 18 … 82 and rows 8 … 72.
    assert explanation.box == (18.0, 8.0, 82.0, 72.0)
    heat = explanation.heatmap()
    assert heat.shape == (80, 100)
    assert np.isnan(heat[:8]).all()
    assert np.isnan(heat[:, :18]).all()
    assert np.isfinite(heat[8:72, 18:82]).all()
    # The middle of the first patch, 8 of the crop's 32 pixels wide, is 16/2 original pixels into the box.
    np.testing.assert_allclose(heat[8:24, 18:34].mean(), explanation.relevance[1], rtol=0.3)


def test_rows_of_a_decoder_without_padding_are_explained_one_by_one():
    net = network("gpt2")
    batch = {"input_ids": tensors("gpt2", rows=1)["input_ids"].repeat(2, 1)}
    expected = clearhead.explain(net, batch, "att-cat")
    net.config.pad_token_id = None
    explanations = clearhead.explain(net, batch, "att-cat")
    np.testing.assert_allclose(explanations[1].relevance, expected[1].relevance, rtol=1e-9)


def test_labels_in_the_tensors_are_ignored():
    batch = {**tensors("bert"), "labels": torch.zeros(3, dtype=torch.long)}
    assert len(clearhead.explain(model("bert"), batch, "gradient")) == 3


def test_embeddings_may_be_given_instead_of_ids():
    explained = model("bert")
    batch = tensors("bert")
    words = explained.network.get_input_embeddings()(batch["input_ids"]).detach()
    by_words = clearhead.explain(explained, {"inputs_embeds": words, "attention_mask": batch["attention_mask"]})
    by_ids = clearhead.explain(explained, batch)
    for from_words, from_ids in zip(by_words, by_ids, strict=True):
        np.testing.assert_allclose(from_words.relevance, from_ids.relevance, rtol=1e-9)


def test_a_pipeline_object_is_taken():
    net = network("bert", dtype=torch.float32)
    pipe = transformers.pipeline("text-classification", model=net, tokenizer=word_piece_tokenizer())
    assert clearhead.explain(clearhead.load(pipe), "a good film", "rollout").text == "a good film"


def test_images_of_the_image_processor_are_what_the_network_sees(image):
    trace = clearhead.capture(image, photo())
    expected = image_processor()(images=photo(), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(trace.leaf, expected.double())


def test_trace_shapes_of_the_contract(text):
    trace = clearhead.capture(text, ["a good film", "bad"], [0, 2])
    assert trace.logits.shape == (2, 3)
    for maps in (trace.attentions, trace.attention_gradients, trace.attention_relevances):
        assert [tuple(attention.shape) for attention in maps] == [(2, 4, 5, 5)] * 3
    for states in (trace.hidden_states, trace.hidden_gradients):
        assert [tuple(state.shape) for state in states] == [(2, 5, 32)] * 4


def test_one_block_is_enough():
    net = randomised(network("bert", num_hidden_layers=1))
    (explanation, *_) = clearhead.explain(net, tensors("bert"), "trans-att")
    assert explanation.diagnostics["conservation_gap"] < 1e-9


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
