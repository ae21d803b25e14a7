"""torch's own multi-head attention, as in SigLIP's pooling head, is recorded in steps."""

import numpy as np
import pytest
import torch
from helpers.two_towers import TEXTS, tower_model, tower_network
from torch import nn

import clearhead
from clearhead.engine.multi_head_attention import can_decompose, decompose_heads


def call_directly(function, *args):
    return function(*args)


@pytest.mark.parametrize("has_bias", [True, False])
def test_the_steps_give_what_torch_gives(has_bias):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(16, 4, bias=has_bias).double().eval()
    query_TBD, key_SBD = torch.randn(2, 3, 16).double(), torch.randn(5, 3, 16).double()
    weights = (attention.in_proj_weight, attention.in_proj_bias, None, None, False, 0.0)
    args = (query_TBD, key_SBD, key_SBD, 16, 4, *weights, attention.out_proj.weight, attention.out_proj.bias)
    assert can_decompose(args, {})
    out_TBD, _ = decompose_heads(args, call_directly, torch.nn.functional.scaled_dot_product_attention)
    expected, _ = attention(query_TBD, key_SBD, key_SBD)
    torch.testing.assert_close(out_TBD, expected)


def test_masks_and_added_keys_are_left_to_torch():
    args = (None, None, None, 16, 4, None, None, None, None, False, 0.0, None, None)
    assert not can_decompose(args, {"attn_mask": torch.ones(1)})
    assert not can_decompose((*args[:9], True, *args[10:]), {})
    assert not can_decompose(args[:5], {})


def test_the_pooling_head_of_siglip_passes_relevance():
    model = tower_model("siglip")
    classifier = clearhead.zero_shot(model, TEXTS)
    pixels = {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
    trace = clearhead.capture(classifier, pixels)
    assert all(report["conservation_gap"] < 1e-9 for report in trace.conservation())
    # The head reads every patch.
    assert bool((trace.reading_BT > 0).all())
    with torch.no_grad():
        embeddings = tower_network("siglip").get_image_features(pixels["pixel_values"].double()).pooler_output
    unit = embeddings / embeddings.norm(dim=-1, keepdim=True)
    np.testing.assert_allclose(model.network.embed(0, trace.inputs.tensors).detach(), unit, rtol=1e-9)
