"""ALIGN, whose pictures are read by a convolutional network: cells of pixels in the place of patches."""

import numpy as np
import pytest
import torch
import transformers
from helpers.pictures import photo
from helpers.two_towers import TEXTS, save_tower_folder, tower_model

import clearhead
from clearhead.engine.patches import PatchGrid

METHODS = ("gradient", "gradient-x-input", "integrated-gradients", "attn-lrp", "occlusion", "lime", "shapley-sampling")
REFUSED = ("gae", "trans-att", "rollout", "raw-attention", "lrp", "att-cat", "balanced-cat")


@pytest.mark.parametrize("method", METHODS)
def test_cells_and_words_are_explained_at_once(method):
    joint = clearhead.explain(tower_model("align"), (photo(), TEXTS[1]), method, check=False)
    assert joint.image.grid == (8, 8)
    assert [word.text for word in joint.text.words()] == TEXTS[1].split()
    for explanation in joint.explanations:
        assert np.isfinite(explanation.relevance).all()
        assert np.abs(explanation.relevance).sum() > 0.01


@pytest.mark.parametrize("method", REFUSED)
def test_methods_over_attention_are_refused_with_what_works(method):
    with pytest.raises(clearhead.UnsupportedModel, match=r"convolutional network.*integrated-gradients.*occlusion"):
        clearhead.explain(tower_model("align"), (photo(), TEXTS[0]), method, check=False)


def test_gradients_are_those_of_the_whole_model():
    model = tower_model("align")
    joint = clearhead.explain(model, (photo(), TEXTS[0]), "gradient-x-input", check=False)
    pixels = model.processor.image_processor(images=photo(), return_tensors="pt")["pixel_values"]
    pixels = pixels.double().requires_grad_()
    words = model.processor.tokenizer(TEXTS[0], return_tensors="pt")
    logits = model.network.network(pixel_values=pixels, **words).logits_per_image
    (gradient,) = torch.autograd.grad(logits.sum(), pixels)
    product = (gradient * pixels).sum(1)[0].detach()
    np.testing.assert_allclose(joint.image.pixels, product, rtol=1e-6, atol=1e-9)
    cells = product.reshape(8, 4, 8, 4).sum((1, 3)).flatten()
    np.testing.assert_allclose(joint.image.relevance, cells, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["gradient-x-input", "integrated-gradients", "occlusion"])
def test_batched_pairs_equal_single_ones(method):
    model = tower_model("align")
    pairs = [(photo(seed=1), TEXTS), (photo(seed=2), TEXTS), (photo(seed=3), "a fine film that is not bad")]
    for joint, pair in zip(clearhead.explain(model, pairs, method, check=False), pairs, strict=True):
        alone = clearhead.explain(model, pair, method, check=False)
        for explanation, expected in zip(joint.explanations, alone.explanations, strict=True):
            np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-6, atol=1e-9)


def test_the_default_is_complete_and_checked():
    joint = clearhead.explain(tower_model("align"), (photo(), TEXTS))
    assert joint.method == "integrated-gradients"
    assert all(explanation.check is not None for explanation in joint.explanations)


def test_a_folder_with_texts_as_classes(tmp_path):
    classifier = clearhead.zero_shot(clearhead.load(save_tower_folder(tmp_path, "align")), TEXTS)
    explanation = clearhead.explain(classifier, photo())
    assert (explanation.method, explanation.grid) == ("integrated-gradients", (8, 8))


def test_other_convolutional_networks_are_explained_at_their_pixels():
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], num_labels=3)
    network = transformers.ResNetForImageClassification(config).double().eval()
    tensors = {"pixel_values": torch.randn(2, 3, 30, 30).double()}
    explanations = clearhead.explain(network, tensors, "integrated-gradients", 1, check=False)
    assert [explanation.grid for explanation in explanations] == [(8, 8)] * 2
    assert explanations[0].relevance.sum() == pytest.approx(explanations[0].pixels.sum(), rel=1e-9)


def test_cells_of_a_side_that_they_do_not_divide_keep_the_sum():
    pixels = torch.arange(35.0).reshape(1, 5, 7)
    summed = PatchGrid(2, 3, 6).sum_pixels(pixels)
    # Rows 0–2 and 3–4, columns 0–2, 3–4 and 5–6.
    expected = [pixels[0, a:b, c:d].sum() for a, b in ((0, 3), (3, 5)) for c, d in ((0, 3), (3, 5), (5, 7))]
    assert summed[0].tolist() == [float(value) for value in expected]
