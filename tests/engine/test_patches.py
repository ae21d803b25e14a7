"""Patch-grid geometry: sums over patches, and scores of merged patches."""

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_models import randomised, tensors

import clearhead
from clearhead.engine.patches import PatchGrid
from clearhead.errors import UnsupportedModel


def test_sums_over_patches_keep_the_total_and_skip_leading_tokens():
    grid = PatchGrid(rows=2, columns=3, tokens=8)
    pixels_BPQ = torch.arange(96, dtype=torch.float64).reshape(1, 8, 12)
    sums_BT = grid.sum_pixels(pixels_BPQ)
    assert grid.leading == 2
    assert sums_BT.shape == (1, 8)
    assert sums_BT[0, :2].tolist() == [0, 0]
    torch.testing.assert_close(sums_BT.sum(), pixels_BPQ.sum())
    torch.testing.assert_close(sums_BT[0, 2], pixels_BPQ[0, :4, :4].sum())


def test_merged_patches_share_their_score_equally():
    grid = PatchGrid(rows=4, columns=4, tokens=16)
    assert grid.merge_factor(4) == 2
    spread_BT = grid.spread_merged(torch.tensor([[4.0, 8.0, 12.0, 16.0]]), 2)
    assert spread_BT.reshape(4, 4).tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]


def test_tokens_that_form_no_grid_have_no_merge_factor():
    assert PatchGrid(rows=4, columns=4, tokens=16).merge_factor(5) is None
    assert PatchGrid(rows=4, columns=4, tokens=17).merge_factor(4) is None


def make_segformer():
    sizes = {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32]}
    sizes |= {"patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}
    config = transformers.SegformerConfig(**sizes, num_labels=3)
    return randomised(transformers.SegformerForImageClassification(config).double().eval())


def test_overlapping_patches_that_merge_are_explained_at_the_pixels():
    net = make_segformer()
    pixels = tensors("vit", rows=1)["pixel_values"]
    (explanation,) = clearhead.explain(net, {"pixel_values": pixels}, "gradient-x-input", 1)
    leaf = pixels.clone().requires_grad_()
    net(pixel_values=leaf).logits[0, 1].backward()
    np.testing.assert_allclose(explanation.pixels, (leaf.grad * pixels).sum(1)[0].numpy(), rtol=1e-5, atol=1e-12)
    (default,) = clearhead.explain(net, {"pixel_values": pixels})
    assert default.grid == (8, 8)


def test_keys_of_merged_patches_have_no_token_to_token_map():
    with pytest.raises(UnsupportedModel, match="does not relate"):
        clearhead.explain(make_segformer(), tensors("vit"), "trans-att")
