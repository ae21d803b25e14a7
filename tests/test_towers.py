"""Two-tower models: pictures and words explained together, each tower with the gradient of the score."""

import copy

import numpy as np
import pytest
import torch
import transformers as hf
from helpers.pictures import photo
from helpers.two_towers import FAMILIES, GRIDS, TEXTS, WITH_PATCHES, save_tower_folder, tower_model

import clearhead
from clearhead.data.task import Example, Task
from clearhead.errors import BadInput, TooLong, UnsupportedModel
from clearhead.joint_explanation import JointExplanation
from clearhead.model.placement import weight_versions
from clearhead.model.target import Target

METHODS = ("balanced-cat", "attn-lrp", "cp-lrp", "trans-att", "gae", "rollout", "raw-attention", "gradient-x-input")
METHODS += ("integrated-gradients", "occlusion", "lime", "shapley-sampling", "att-cat", "lrp")

# ALIGN rounds the attention of words to float32, which a trace in float64 does not.
ROUNDING = {"align": 1e-6}


def own_logits(model, image, texts):
    """Return what the stock model itself says of a picture and texts."""
    pixels = model.processor.image_processor(images=image, return_tensors="pt")
    length = model.network.padded_length
    padding = {"padding": "max_length", "max_length": length} if length else {"padding": True}
    words = model.processor.tokenizer(list(texts), return_tensors="pt", **padding)
    mask = torch.ones_like(words["input_ids"]) if length else words["attention_mask"]
    with torch.no_grad():
        return stock_logits(model, pixels.to(torch.float64), words["input_ids"], mask)


def stock_logits(model, pixels, ids, mask):
    network = model.network.network
    if model.config.model_type not in ("flava", "bridgetower"):
        return network(**pixels, input_ids=ids, attention_mask=mask).logits_per_image[0]
    # These read a picture with each text.
    images = pixels["pixel_values"].expand(len(ids), -1, -1, -1)
    tensors = {"input_ids": ids, "attention_mask": mask, "pixel_values": images}
    if model.config.model_type == "bridgetower":
        output = network(**tensors)
        return network.logit_scale.exp() * (output.image_embeds @ output.text_embeds.T)[0]
    # The similarity is computed with the heads of the pretraining.
    heads = hf.FlavaForPreTraining(network.config).double().eval()
    heads.flava = network
    return heads(**tensors, return_loss=False).contrastive_logits_per_image[0]


def total(joint):
    return sum(float(explanation.relevance.sum()) for explanation in joint.explanations)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_model(family):
    model = tower_model(family)
    joint = clearhead.explain(model, (photo(), TEXTS), "gradient", check=False)
    logits = own_logits(model, photo(), TEXTS)
    assert list(joint.diagnostics["scores"].values()) == pytest.approx(logits.tolist(), rel=1e-6, abs=1e-7)
    assert joint.target == int(logits.argmax())
    assert joint.score == pytest.approx(float(logits.max()), rel=1e-6, abs=1e-7)
    for explanation in joint.explanations:
        assert explanation.diagnostics["score"] == pytest.approx(joint.score, rel=ROUNDING.get(family, 1e-12))


@pytest.mark.parametrize("family", WITH_PATCHES)
@pytest.mark.parametrize("method", METHODS)
def test_patches_and_words_are_explained_at_once(family, method):
    joint = clearhead.explain(tower_model(family), (photo(), TEXTS[1]), method, check=False)
    assert isinstance(joint, JointExplanation)
    assert joint.image.grid == GRIDS[family] and joint.text.text == TEXTS[1]
    for explanation in joint.explanations:
        assert np.isfinite(explanation.relevance).all()
        assert np.abs(explanation.relevance).sum() > 0
        assert (explanation.label, explanation.method) == (TEXTS[1], method)


@pytest.mark.parametrize("family", WITH_PATCHES)
def test_the_default_method_works_and_is_checked(family):
    joint = clearhead.explain(tower_model(family), (photo(), TEXTS))
    assert joint.method == "balanced-cat"
    assert all(explanation.check is not None for explanation in joint.explanations)


@pytest.mark.parametrize("family", FAMILIES)
def test_integrated_gradients_of_each_side_add_up_to_its_effect(family):
    joint = clearhead.explain(tower_model(family), (photo(), TEXTS[0]), "integrated-gradients", check=False, steps=64)
    for explanation in joint.explanations:
        effect = explanation.diagnostics["effect"]
        gap = abs(effect["prediction"] - effect["base"] - explanation.relevance.sum())
        assert gap < 0.02 * max(abs(effect["prediction"] - effect["base"]), abs(joint.score))
        assert effect["prediction"] == pytest.approx(joint.score, rel=ROUNDING.get(family, 1e-9))


@pytest.mark.parametrize("family", WITH_PATCHES)
def test_relevance_by_rules_is_conserved_on_both_sides(family):
    joint = clearhead.explain(tower_model(family), (photo(), TEXTS[0]), "trans-att", check=False)
    assert joint.diagnostics["conservation_gap"] < 1e-6


def test_a_model_without_biases_is_divided_into_halves():
    model = tower_model("clip")
    bare = clearhead.load(_without_biases(model), model.processor)
    joint = clearhead.explain(bare, (photo(), TEXTS[0]), "cp-lrp", check=False)
    assert joint.text.relevance.sum() == pytest.approx(joint.score / 2, rel=1e-9)
    # At the pixels, what class and position embeddings carry is missing; at every block nothing is.
    np.testing.assert_allclose(joint.image.layers.sum(1), joint.score / 2, rtol=1e-9)


def _without_biases(model):
    network = copy.deepcopy(model.network.network)
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            parameter.data.zero_()
    return network


def _pixels(model):
    return model.processor.image_processor(images=photo(), return_tensors="pt")["pixel_values"]


def test_gradients_are_those_of_the_whole_model():
    model = tower_model("clip")
    joint = clearhead.explain(model, (photo(), TEXTS[0]), "gradient-x-input", check=False)
    pixels = _pixels(model).double().requires_grad_()
    words = model.processor.tokenizer(TEXTS[0], return_tensors="pt")
    table = model.network.network.text_model.get_input_embeddings()
    with _CaughtEmbeddings(table) as embedded:
        logits = model.network.network(pixel_values=pixels, **words).logits_per_image
    of_pixels, of_words = torch.autograd.grad(logits.sum(), [pixels, embedded[0]])
    expected = (of_words * embedded[0]).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(joint.text.relevance, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(joint.image.pixels, (of_pixels * pixels).sum(1)[0].detach(), rtol=1e-6, atol=1e-9)


class _CaughtEmbeddings:
    def __init__(self, table):
        self.outputs = []
        self.table = table

    def __enter__(self):
        def keep(module, args, output):
            self.outputs.append(output.detach().requires_grad_())
            return self.outputs[-1]

        self.handle = self.table.register_forward_hook(keep)
        return self.outputs

    def __exit__(self, *_):
        self.handle.remove()


@pytest.mark.parametrize("family", ["clip", "siglip", "siglip2", "flava", "bridge-tower"])
@pytest.mark.parametrize("method", ["balanced-cat", "trans-att", "occlusion"])
def test_batched_pairs_equal_single_ones(family, method):
    model = tower_model(family)
    pairs = [(photo(seed=1), TEXTS), (photo(seed=2), TEXTS), (photo(seed=3), "a fine film that is not bad")]
    batched = clearhead.explain(model, pairs, method, check=False)
    assert len(batched) == 3
    for joint, pair in zip(batched, pairs, strict=True):
        alone = clearhead.explain(model, pair, method, check=False)
        assert joint.label == alone.label
        for explanation, expected in zip(joint.explanations, alone.explanations, strict=True):
            np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-6, atol=1e-9)


def test_a_contrast_explains_both_texts():
    model = tower_model("clip")
    joint = clearhead.explain(model, (photo(), TEXTS), "cp-lrp", Target(TEXTS[2], versus=0), check=False)
    assert joint.label == "not bad rather than a fine film"
    assert [text.text for text in joint.texts] == ["not bad", "a fine film"]
    scores = joint.diagnostics["scores"]
    assert joint.score == pytest.approx(scores["not bad"] - scores["a fine film"])
    other = clearhead.explain(model, (photo(), TEXTS[0]), "cp-lrp", check=False)
    np.testing.assert_allclose(joint.texts[1].relevance, -other.text.relevance, rtol=1e-9)


def test_probabilities_are_softmax_or_sigmoid():
    clip = clearhead.explain(tower_model("clip"), (photo(), TEXTS), "gradient", check=False)
    scores = torch.tensor(list(clip.diagnostics["scores"].values()))
    assert clip.probability == pytest.approx(float(scores.softmax(0).max()), rel=1e-6)
    assert clearhead.explain(tower_model("clip"), (photo(), TEXTS[0]), "gradient", check=False).probability is None
    siglip = clearhead.explain(tower_model("siglip"), (photo(), TEXTS[0]), "gradient", check=False)
    assert siglip.probability == pytest.approx(float(torch.tensor(siglip.score).sigmoid()), rel=1e-6)


@pytest.mark.parametrize("family", ["clip", "flava", "bridge-tower", "align"])
def test_the_model_is_left_as_it_was(family):
    model = tower_model(family)
    versions = weight_versions(model)
    before = own_logits(model, photo(), TEXTS)
    clearhead.explain(model, (photo(), TEXTS), "gradient-x-input" if family == "align" else "trans-att")
    assert weight_versions(model) == versions
    assert torch.equal(own_logits(model, photo(), TEXTS), before)
    assert all(parameter.requires_grad for parameter in model.network.parameters())


@pytest.mark.parametrize("source", ["a text", ("only one",), (photo(), []), (photo(), [1]), [photo()], 5, (photo(), 7)])
def test_what_is_no_pair_is_refused(source):
    with pytest.raises(BadInput):
        clearhead.explain(tower_model("clip"), source)


def test_several_methods_share_the_pairs():
    comparison = clearhead.compare(tower_model("clip"), (photo(), TEXTS[0]), ["gae", "cat"], check=False)
    assert list(comparison) == ["gae", "cat"]
    assert comparison["gae"].explanations[0].method == "gae"


def test_fixed_texts_make_a_classifier():
    model = tower_model("clip")
    classifier = clearhead.zero_shot(model, TEXTS)
    assert classifier.labels == list(TEXTS)
    explanation = clearhead.explain(classifier, photo(), "gae", target=TEXTS[0], check=False)
    joint = clearhead.explain(model, (photo(), TEXTS), "gae", target=TEXTS[0], check=False)
    np.testing.assert_allclose(explanation.relevance, joint.image.relevance, rtol=1e-9)
    with pytest.raises(BadInput, match="list of texts"):
        clearhead.zero_shot(model, "a cat")
    with pytest.raises(UnsupportedModel, match="does not compare"):
        clearhead.zero_shot(clearhead.load(), TEXTS)


@pytest.mark.parametrize("family", ["flava", "bridge-tower"])
def test_folders_of_families_with_other_heads_are_loaded(tmp_path, family):
    model = clearhead.load(save_tower_folder(tmp_path, family))
    joint = clearhead.explain(model, (photo(), TEXTS), "gae", check=False)
    expected = clearhead.explain(tower_model(family), (photo(), TEXTS), "gae", check=False)
    assert joint.score == pytest.approx(expected.score, rel=1e-5)


def test_a_text_longer_than_its_tower_takes_is_refused_or_cut():
    model, pair = tower_model(), (photo(), "film " * 60)
    with pytest.raises(TooLong, match="40"):
        clearhead.explain(model, pair, check=False)
    joint = clearhead.explain(model, pair, overflow="truncate", check=False)
    assert len(joint.text.tokens) == 40


def test_pairs_of_patches_and_words():
    model = tower_model("clip")
    bare = clearhead.load(_without_biases(model), model.processor)
    joint = clearhead.explain(bare, (photo(), TEXTS[0]), "cp-lrp", matrix=True, check=False)
    assert joint.pairs.shape == (17, len(joint.text.tokens))
    assert joint.pairs.sum() == pytest.approx(joint.score, rel=1e-9)
    np.testing.assert_allclose(joint.pairs.sum(0), 2 * joint.text.relevance, rtol=1e-9, atol=1e-12)


def test_other_functions_are_told_to_take_fixed_texts():
    for use in (clearhead.capture, clearhead.evaluate):
        with pytest.raises(BadInput, match="zero_shot"):
            use(tower_model("clip"), Task("pictures", [Example("1", photo(), 0)]))


EFFECTS = ("integrated-gradients", "occlusion", "lime", "shapley-sampling")


@pytest.mark.parametrize("family", ["clip", "siglip"])
@pytest.mark.parametrize("method", EFFECTS)
@pytest.mark.parametrize("target", [None, Target(TEXTS[2], versus=0)])
def test_effects_on_pictures_and_words_are_changes_of_one_score(family, method, target):
    joint = clearhead.explain(tower_model(family), (photo(), TEXTS), method, target, check=False)
    picture, *texts = [explanation.diagnostics["effect"] for explanation in joint.explanations]
    for text in texts:
        assert text["unit"] == picture["unit"]
        assert text["prediction"] == pytest.approx(picture["prediction"], rel=1e-6)


def test_hiding_a_word_changes_the_probability_among_all_texts():
    model = tower_model("clip")
    joint = clearhead.explain(model, (photo(), TEXTS), "occlusion", TEXTS[0], check=False)
    effect = joint.text.diagnostics["effect"]
    hidden = clearhead.explain(model, (photo(), ["[MASK] [MASK] [MASK]", *TEXTS[1:]]), "gradient", 0, check=False)
    assert effect["base"] == pytest.approx(hidden.probability, rel=1e-6)
    assert effect["prediction"] == pytest.approx(joint.probability, rel=1e-6)


def test_the_checks_of_all_inputs_are_about_one_score():
    joint = clearhead.explain(tower_model("clip"), (photo(), TEXTS), "cp-lrp", Target(TEXTS[2], versus=0))
    checks = [explanation.check for explanation in joint.explanations if explanation.check is not None]
    assert len(checks) > 1
    for check in checks:
        assert (check.scale, check.score) == (checks[0].scale, pytest.approx(checks[0].score, rel=1e-6))


@pytest.mark.parametrize("method", ["trans-att", "lrp"])
def test_a_held_text_does_not_count_as_lost_relevance(method):
    joint = clearhead.explain(tower_model("clip"), (photo(), TEXTS), method, Target(TEXTS[2], versus=0), check=False)
    assert joint.diagnostics["conservation_gap"] < 1e-6
