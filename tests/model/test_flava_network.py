"""FLAVA's matching head, which reads a picture and a text by a third stack."""

import pytest
import torch
from helpers.joined_models import FLAVA, joined_model, joined_network, joined_tensors
from helpers.two_towers import VISION

import clearhead

HIDDEN = {"patch": 7, "word": 21}
"""Tokens of a sequence of two class tokens, 16 patches and 7 words."""


@pytest.mark.parametrize("position", HIDDEN.values(), ids=HIDDEN)
def test_what_is_hidden_has_no_influence(position):
    model = joined_model("flava")
    tensors = dict(clearhead.capture(model, joined_tensors("flava")).inputs.tensors)
    tensors["attention_mask"] = tensors["attention_mask"].clone()
    tensors["attention_mask"][:, position] = 0
    changed = tensors["inputs_embeds"].clone()
    changed[:, position] = 1
    with torch.no_grad():
        expected = model.network(**tensors)
        assert torch.allclose(model.network(**{**tensors, "inputs_embeds": changed}), expected, atol=1e-12)
        seen = {**tensors, "attention_mask": torch.ones_like(tensors["attention_mask"])}
        assert not torch.allclose(model.network(**seen), expected, atol=1e-6)


def test_without_a_class_token_of_its_own_the_third_stack_reads_that_of_the_picture():
    network = joined_network("flava", multimodal_config={**VISION, "use_cls_token": False})
    joints = clearhead.explain(network, joined_tensors("flava"), "gae", 0, check=False)
    expected = network(**joined_tensors("flava")).itm_logits[:, 0].tolist()
    assert [joint.score for joint in joints] == pytest.approx(expected, abs=1e-10)
    assert joints[0].image.tokens[:2] == ("[CLS]", "patch 0,0")


def test_stacks_of_different_widths_are_refused():
    sizes = {**FLAVA, "multimodal_config": {**VISION, "hidden_size": 16}, "hidden_size": 16}
    with pytest.raises(clearhead.UnsupportedModel, match=r"\[16, 32\]"):
        clearhead.load(joined_network("flava", **sizes))


def test_stacks_of_different_heads_have_no_joint_maps():
    network = joined_network("flava", text_config={**FLAVA["text_config"], "num_attention_heads": 2})
    clearhead.explain(network, joined_tensors("flava"), "gradient-x-input", 0, check=False)
    with pytest.raises(clearhead.UnsupportedModel, match="as many heads"):
        clearhead.explain(network, joined_tensors("flava"), "gae", 0, check=False)
