"""The checksum by which a model is recognised."""

import torch
from helpers.tiny_models import text_model

import clearhead
from clearhead.model import checksum
from clearhead.model.checksum import weights_checksum
from clearhead.model.placement import with_precision


def test_the_same_weights_have_the_same_checksum_wherever_they_are_loaded_from(tmp_path):
    model = with_precision(text_model(), "float32")
    model.network.save_pretrained(tmp_path)
    model.processor.save_pretrained(tmp_path)
    assert weights_checksum(clearhead.load(tmp_path)) == weights_checksum(model)


def test_a_copy_in_another_precision_is_the_same_model():
    model = with_precision(text_model(), "float32")
    assert weights_checksum(with_precision(model, "float64")) == weights_checksum(model)
    assert weights_checksum(with_precision(model, "bfloat16")) != weights_checksum(model)


def test_weights_are_hashed_again_only_after_they_have_changed(monkeypatch):
    hashed = []
    hash_weights = checksum._hash_weights
    monkeypatch.setattr(checksum, "_hash_weights", lambda model: hashed.append(model) or hash_weights(model))
    model = with_precision(text_model(), "float32")
    before = weights_checksum(model)
    assert weights_checksum(model) == before
    assert len(hashed) == 1
    with torch.no_grad():
        next(model.network.parameters()).add_(1)
    assert weights_checksum(model) != before
    assert len(hashed) == 2
