"""SigLIP 2 for pictures of any shape, which it reads as flat sequences of patches."""

import numpy as np
import pytest
import torch
from helpers.pictures import photo
from helpers.two_towers import TEXTS, save_tower_folder, tower_model
from PIL import Image

import clearhead
from clearhead.model.packed_patches import cut_patches, join_patches
from clearhead.model.placement import weight_versions

SHAPES = ((60, 40), (40, 60), (40, 40), (100, 30), (60, 40))
GRIDS = ((3, 5), (5, 3), (4, 4), (2, 7), (3, 5))


def pack(model, image):
    """Return the tensors of the stock network, with their padding."""
    return model.processor.image_processor(images=image, return_tensors="pt").to(torch.float64)


def test_patches_are_cut_as_the_processor_cuts_them():
    packed = pack(tower_model("siglip2"), photo())
    pixels = join_patches(packed["pixel_values"][0], (3, 5))
    assert pixels.shape == (3, 24, 40)
    assert torch.equal(cut_patches(pixels[None], 8), packed["pixel_values"][:, :15])


def test_a_picture_is_put_together_as_it_was():
    model = tower_model("siglip2")
    resized = np.asarray(photo().resize((40, 24), Image.Resampling.BILINEAR))
    pixels = join_patches(pack(model, photo())["pixel_values"][0], (3, 5))
    np.testing.assert_allclose(pixels.permute(1, 2, 0) * 127.5 + 127.5, resized, atol=1e-4)


def test_gradients_are_those_of_the_stock_model():
    model = tower_model("siglip2")
    joint = clearhead.explain(model, (photo(), TEXTS[0]), "gradient-x-input", check=False)
    packed = pack(model, photo())
    words = model.processor.tokenizer(TEXTS[0], padding="max_length", max_length=12, return_tensors="pt")
    patches = packed.pop("pixel_values").requires_grad_()
    output = model.network.network(pixel_values=patches, **packed, input_ids=words["input_ids"])
    (gradient,) = torch.autograd.grad(output.logits_per_image.sum(), patches)
    expected = (gradient * patches).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(joint.image.relevance, expected[:15], rtol=1e-6, atol=1e-9)
    # Padding has none.
    assert not expected[15:].any()


@pytest.mark.parametrize("method", ["balanced-cat", "trans-att", "integrated-gradients", "occlusion"])
def test_pictures_of_several_shapes_are_explained_as_alone(method):
    model = tower_model("siglip2")
    pairs = [(photo(*shape, seed), TEXTS) for seed, shape in enumerate(SHAPES)]
    batched = clearhead.explain(model, pairs, method, check=False)
    assert tuple(joint.image.grid for joint in batched) == GRIDS
    for joint, pair in zip(batched, pairs, strict=True):
        alone = clearhead.explain(model, pair, method, check=False)
        assert joint.score == pytest.approx(alone.score, rel=1e-9)
        for explanation, expected in zip(joint.explanations, alone.explanations, strict=True):
            np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-6, atol=1e-9)


def test_the_heat_map_covers_the_whole_picture():
    joint = clearhead.explain(tower_model("siglip2"), (photo(100, 30), TEXTS[0]), "cp-lrp", check=False)
    heatmap = joint.image.heatmap()
    assert heatmap.shape == (30, 100) and np.isfinite(heatmap).all()


def test_pairs_of_patches_and_words():
    joint = clearhead.explain(tower_model("siglip2"), (photo(), TEXTS[0]), "cp-lrp", matrix=True, check=False)
    assert joint.pairs.shape == (15, 12)


def test_a_folder_with_texts_as_classes(tmp_path):
    model = clearhead.load(save_tower_folder(tmp_path, "siglip2"))
    versions = weight_versions(model)
    classifier = clearhead.zero_shot(model, TEXTS)
    explanation = clearhead.explain(classifier, photo(40, 60), "gae")
    assert explanation.grid == (5, 3)
    assert weight_versions(model) == versions
