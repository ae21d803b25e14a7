"""Planted evidence: what decides by construction, and who finds it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.planted_keywords import KEYWORDS, make_texts, train
from helpers.tiny_models import image_model, text_model

import clearhead
from clearhead.data.task import Example, Task
from clearhead.errors import UnsupportedModel
from clearhead.evaluation.decisive_words import _find_mark, _is_word, find_words, list_words
from clearhead.evaluation.planted import plant_evidence, rank_evidence
from clearhead.evaluation.planted_patterns import mark_patches
from clearhead.evaluation.planted_words import _cut
from clearhead.evaluation.planting import choose_targets, list_content
from clearhead.model.inputs import Item, encode

TEXTS = ["a joyless film is not good", "the film has a heart", "we see a good film", "a very joyless heart"]


@pytest.fixture(scope="module")
def trained():
    return train("bert")


def plant(model, texts, seed=0):
    return plant_evidence(model, [encode(model, text) for text in texts], seed)


def run(model, tensors):
    with torch.no_grad():
        return model.network(**tensors).logits


def test_the_class_that_is_planted_is_the_second_most_likely_of_a_few():
    logits = torch.tensor([[3.0, 1.0, 0.0], [3.0, 1.0, 0.0], [0.0, 3.0, 1.0]])
    assert choose_targets(logits) == (1, 1, 2)
    # Of the class that comes second most often and another one.
    assert choose_targets(logits, 2) == (1, 1, 2)
    assert choose_targets(logits[[0, 0, 1, 1]], 1) == (1, 1, 1, 1)


def test_the_model_is_left_as_it_is(trained):
    before = {name: parameter.clone() for name, parameter in trained.model.network.named_parameters()}
    planting = plant(trained.model, make_texts(8))
    assert planting.model is trained.model
    for name, parameter in trained.model.network.named_parameters():
        assert torch.equal(parameter, before[name])


def test_words_of_the_vocabulary_are_found_that_speak_for_a_class(trained):
    texts = [encode(trained.model, text) for text in make_texts(8)[:6]]
    for target, keyword in enumerate(KEYWORDS):
        first, *_ = find_words(trained.model, texts, target, np.random.default_rng(0))
        assert trained.model.processor.decode([first]) == keyword


def test_the_planted_word_turns_the_prediction_and_nothing_else_differs(trained):
    texts = make_texts(8)
    planting = plant(trained.model, texts)
    assert sum(planting.decides) >= 5
    after = run(planting.model, planting.inputs.tensors).argmax(1)
    for row, text in enumerate(texts):
        ids = encode(trained.model, text).values["input_ids"]
        item = planting.inputs.items[row]
        planted = planting.inputs.tensors["input_ids"][row, : len(item.tokens)].tolist()
        if not planting.decides[row]:
            assert planted == ids
            continue
        assert after[row] == planting.targets[row]
        assert item.tokens[planting.locations[row]] == planting.words[row]
        assert planting.words[row] in KEYWORDS
        others = [token for index, token in enumerate(planted) if index != planting.locations[row]]
        assert is_part(others, ids)


def is_part(tokens, ids):
    """Return whether tokens stand in a text in this order."""
    rest = iter(ids)
    return all(token in rest for token in tokens)


def test_without_the_planted_word_the_model_decides_otherwise(trained):
    planting = plant(trained.model, make_texts(8))
    tensors = dict(planting.inputs.tensors)
    ids = tensors["input_ids"].clone()
    ids[range(8), planting.locations] = trained.model.processor.convert_tokens_to_ids("film")
    without = run(trained.model, {**tensors, "input_ids": ids}).argmax(1)
    for row in np.flatnonzero(planting.decides).tolist():
        assert without[row] != planting.targets[row]


def test_a_piece_begins_with_a_word_and_keeps_special_tokens(trained):
    row = encode(trained.model, "rainings a planters film walkings the heart raining we see")
    for seed in range(8):
        piece = _cut(row, 2, np.random.default_rng(seed))
        assert piece.item.tokens[0] == "[CLS]"
        assert piece.item.tokens[-1] == "[SEP]"
        assert not piece.item.tokens[1].startswith("##")
        assert len(list_content(piece.item)) == len(list_content(row.item)) // 2
        assert piece.length == len(piece.values["input_ids"]) == len(piece.item.offsets)


def test_whole_words_are_told_from_pieces():
    assert _is_word("film", "")
    assert not _is_word("##ing", "")
    assert _is_word("Ġfilm", "Ġ")
    assert not _is_word("ing", "Ġ")
    assert _find_mark(["a", "▁film"]) == "▁"
    item = Item(("film", "rain", "##ing", "no", "."), (False,) * 5, "film raining no.")
    item = replace(item, offsets=((0, 4), (5, 9), (9, 12), (13, 15), (15, 16)))
    assert list_words(item) == [0, 3]
    # Without the text they cannot be told.
    assert list_words(replace(item, text=None)) == [0, 1, 2, 3, 4]


def test_a_seed_plants_the_same_again(trained):
    first, second = plant(trained.model, make_texts(4), 3), plant(trained.model, make_texts(4), 3)
    assert first.locations == second.locations
    assert torch.equal(first.inputs.tensors["input_ids"], second.inputs.tensors["input_ids"])


def test_a_method_that_finds_keywords_finds_planted_ones_and_noise_does_not(trained):
    task = Task("texts", [Example(str(number), text) for number, text in enumerate(make_texts(24))])
    methods = ["balanced-cat", "occlusion", "random:seed=0"]
    table = clearhead.evaluate(trained.model, task, methods, ["planted"])
    first = {row["method"]: row["value"] for row in table.rows if row["part"] == "planted-first"}
    assert first["occlusion"] == 1
    assert first["balanced-cat"] > 0.8
    assert first["random:seed=0"] < 0.4


def test_a_reversed_explanation_never_finds_the_planted_word(trained):
    planting = plant(trained.model, make_texts(8))
    explanations = clearhead.explain(
        trained.model, planting.inputs, "balanced-cat", list(planting.targets), check=False
    )
    decided = np.flatnonzero(planting.decides).tolist()
    assert decided
    for row in decided:
        reversed_relevance = replace(explanations[row], relevance=-explanations[row].relevance)
        assert rank_evidence(explanations[row], planting.locations[row])["planted-first"] == 1
        assert rank_evidence(reversed_relevance, planting.locations[row])["planted-first"] == 0


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
