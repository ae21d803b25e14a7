"""Planted evidence: what decides by construction, and who finds it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.planted_keywords import make_texts, train
from helpers.tiny_models import image_model, text_model

import clearhead
from clearhead.data.task import Example, Task
from clearhead.errors import UnsupportedModel
from clearhead.evaluation.planted import plant_evidence, rank_evidence
from clearhead.evaluation.planted_patterns import mark_patches
from clearhead.evaluation.planting import choose_targets
from clearhead.model.inputs import encode

TEXTS = ["a joyless film is not good", "the film has a heart", "we see a good film", "a very joyless heart"]


@pytest.fixture(scope="module")
def trained():
    return train("bert")


def plant(model, texts, seed=0):
    return plant_evidence(model, [encode(model, text) for text in texts], seed)


def run(model, tensors):
    with torch.no_grad():
        return model.network(**tensors).logits


def test_the_class_that_is_planted_is_never_the_predicted_one():
    logits = torch.tensor([[3.0, 1.0, 0.0], [3.0, 1.0, 0.0], [0.0, 3.0, 1.0]])
    assert choose_targets(logits) == (1, 1, 0)
    assert choose_targets(logits[:2]) == (1, 1)


def test_one_row_of_the_embedding_alone_is_changed(trained):
    planting = plant(trained.model, make_texts(8))
    before = dict(trained.model.network.named_parameters())
    changed = set()
    for name, parameter in planting.model.network.named_parameters():
        rows = (parameter != before[name]).reshape(len(parameter), -1).any(1)
        if rows.any():
            changed.add(name)
            assert rows.sum() <= len(set(planting.targets))
    (name,) = changed
    assert name.endswith("word_embeddings.weight")


def test_the_planted_token_turns_the_prediction_and_nothing_else_differs(trained):
    texts = make_texts(8)
    planting = plant(trained.model, texts)
    assert sum(planting.decides) >= 5
    after = run(planting.model, planting.inputs.tensors).argmax(1)
    for row, text in enumerate(texts):
        encoded = encode(trained.model, text)
        ids = planting.inputs.tensors["input_ids"][row, : encoded.length]
        differs = (ids != torch.tensor(encoded.values["input_ids"])).nonzero().flatten()
        assert differs.tolist() == [planting.locations[row]]
        if planting.decides[row]:
            assert after[row] == planting.targets[row]
            tensors = {"input_ids": torch.tensor([encoded.values["input_ids"]])}
            assert run(planting.model, tensors).argmax() != planting.targets[row]


def test_a_seed_plants_the_same_again(trained):
    first, second = plant(trained.model, make_texts(4), 3), plant(trained.model, make_texts(4), 3)
    assert first.locations == second.locations
    assert torch.equal(first.inputs.tensors["input_ids"], second.inputs.tensors["input_ids"])
    weights = [planting.model.network.get_input_embeddings().weight for planting in (first, second)]
    assert torch.equal(*weights)


def test_a_method_that_finds_keywords_finds_planted_ones_and_noise_does_not(trained):
    task = Task("texts", [Example(str(number), text) for number, text in enumerate(make_texts(24))])
    table = clearhead.evaluate(trained.model, task, ["att-cat", "occlusion", "random:seed=0"], ["planted"])
    first = {row["method"]: row["value"] for row in table.rows if row["part"] == "planted-first"}
    assert first["occlusion"] == 1
    assert first["random:seed=0"] < 0.4
    assert first["att-cat"] > first["random:seed=0"]


def test_a_pattern_is_planted_into_images():
    model = image_model()
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(4, 3, 32, 32, generator=generator, dtype=torch.float64)
    before = run(model, {"pixel_values": pixels}).argmax(1)
    encoded = [encode(model, picture) for picture in _pictures(pixels)]
    planting = plant_evidence(model, encoded, 0)
    assert planting.model is model
    after = run(model, planting.inputs.tensors).argmax(1)
    for row, decides in enumerate(planting.decides):
        if decides:
            assert after[row] == planting.targets[row]
    assert len(before) == len(planting.locations)


def _pictures(pixels):
    from PIL import Image

    arrays = (pixels.clamp(-1, 1).add(1).mul(127).byte().permute(0, 2, 3, 1)).numpy()
    return [Image.fromarray(array) for array in arrays]


def test_patches_whose_middle_is_painted_are_evidence():
    assert mark_patches((0.0, 0.0, 0.5, 0.25), (4, 4)).nonzero()[1].tolist() == [0, 1]
    assert mark_patches((0.3, 0.3, 0.6, 0.6), (1, 1)).all()
    assert not mark_patches((0.6, 0.6, 0.9, 0.9), (1, 1)).any()


def test_equal_relevance_counts_against_the_evidence(trained):
    explanation = clearhead.explain(trained.model, TEXTS[0], "gae", check=False)
    constant = replace(explanation, relevance=np.ones_like(explanation.relevance))
    assert rank_evidence(constant, 2) == {"planted-first": 0.0, "planted-reciprocal-rank": 1 / 6}
    relevance = np.ones_like(explanation.relevance)
    relevance[[0, 2]] = 5, 2
    # A special token does not count, however relevant.
    assert rank_evidence(replace(explanation, relevance=relevance), 2)["planted-first"] == 1


def test_models_without_classes_that_exclude_each_other_are_refused():
    with pytest.raises(UnsupportedModel, match="exclude each other"):
        plant(text_model(problem_type="multi_label_classification"), TEXTS)
