"""Labels of words and masked words: every family, by the rules that hold for classes."""

import numpy as np
import pytest
import torch
from helpers.tiny_heads import HEADS, filling_bert, head_network, head_tensors, labelling_bert
from helpers.tiny_models import alone

import clearhead
from clearhead import Target
from clearhead.attribution.reading import gathers_words
from clearhead.model.inputs import from_tensors

FOCUS = 3
METHODS = [
    *("gae", "trans-att", "att-cat", "balanced-cat", "attn-lrp", "cp-lrp", "lrp", "gradient-x-input", "rollout"),
    "integrated-gradients:steps=8",
]
# Rounding of relevance rules, which divide, and of all other methods.
TOLERANCE = {"trans-att": 1e-7, "lrp": 1e-7}


def focus_of(head):
    return FOCUS if head == "words" else None


def position_of(head, row):
    return FOCUS if head == "words" else (4, 2, 7)[row]


@pytest.mark.parametrize(("head", "family"), HEADS)
def test_the_score_is_the_models_own_logit(head, family):
    net = head_network(head, family)
    batch = head_tensors(head, family)
    explained = clearhead.explain(clearhead.load(net), batch, "gradient", 2, focus=focus_of(head), check=False)
    expected = net(**batch).logits.detach()
    for row, explanation in enumerate(explained):
        logits = expected[row, position_of(head, row)]
        np.testing.assert_allclose(explanation.diagnostics["score"], float(logits[2]), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(explanation.probability, float(logits.softmax(-1)[2]), rtol=1e-9)


@pytest.mark.parametrize(("head", "family"), HEADS)
def test_relevance_is_conserved(head, family):
    model = clearhead.load(head_network(head, family))
    explained = clearhead.explain(model, head_tensors(head, family), "lrp", 1, focus=focus_of(head), check=False)
    for explanation in explained:
        gap, dropped = (explanation.diagnostics[name] for name in ("conservation_gap", "dropped"))
        assert abs(gap - dropped) <= 1e-9 * (1 + dropped)


@pytest.mark.parametrize(("head", "family"), HEADS)
def test_gradients_are_those_of_the_logit_at_the_position(head, family):
    net = head_network(head, family)
    batch = head_tensors(head, family)
    model = clearhead.load(net)
    trace = clearhead.capture(model, from_tensors(model, batch, focus_of(head)), Target(1, versus=0))
    words = {"inputs_embeds": net.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()}
    logits = net(**words, attention_mask=batch["attention_mask"]).logits
    chosen = torch.stack([logits[row, position_of(head, row)] for row in range(3)])
    (gradient,) = torch.autograd.grad((chosen[:, 1] - chosen[:, 0]).sum(), words["inputs_embeds"])
    torch.testing.assert_close(trace.leaf_gradient, gradient, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("head", ["words", "masks"])
def test_path_methods_are_complete(head):
    model = clearhead.load(head_network(head, "bert"))
    batch = head_tensors(head, "bert")
    method = "integrated-gradients:steps=200"
    for explanation in clearhead.explain(model, batch, method, 1, focus=focus_of(head), check=False):
        assert abs(explanation.diagnostics["completeness_gap"]) < 2e-3


@pytest.mark.parametrize(("head", "family"), HEADS)
def test_batched_is_single_is_padded(head, family):
    model = clearhead.load(head_network(head, family))
    batch = head_tensors(head, family)
    together = clearhead.compare(model, batch, METHODS, 1, focus=focus_of(head), check=False)
    for row in range(3):
        single = clearhead.compare(model, alone(batch, row), METHODS, 1, focus=focus_of(head), check=False)
        for name in METHODS:
            expected = single[name][0].relevance
            tolerance = TOLERANCE.get(name, 1e-9) * max(1, np.abs(expected).max())
            np.testing.assert_allclose(together[name][row].relevance, expected, rtol=0, atol=tolerance)


def test_an_entity_is_the_mean_of_its_tokens_with_the_labels_of_first_and_further_ones():
    model = labelling_bert()
    explanation = clearhead.explain(model, "a good film", "gradient", "B-PER", focus="good film", check=False)
    ids = model.processor("a good film", return_tensors="pt")
    logits = model.network.network(**ids).logits[0].detach()
    expected = (logits[2, 1] + logits[3, 2]) / 2
    assert explanation.diagnostics["score"] == pytest.approx(float(expected))
    assert explanation.label == "B-PER at “good film”"
    assert explanation.diagnostics["focus"] == {"name": "at “good film”", "tokens": (2, 3), "characters": (2, 11)}


def test_relevance_of_an_entity_is_conserved():
    trace = clearhead.capture(labelling_bert(), "a good film")
    batch = clearhead.explain(labelling_bert(), "a good film", "lrp", "PER", focus=(2, 11), check=False)
    gap, dropped = (batch.diagnostics[name] for name in ("conservation_gap", "dropped"))
    assert abs(gap - dropped) <= 1e-9 * (1 + dropped)
    assert trace.logits.shape == (1, 5)


def test_only_the_labelled_word_gathers_from_others():
    """Block relevance of the explained word is that of its embedding; other words keep theirs."""
    model = labelling_bert()
    trace = clearhead.capture(model, "a joyless film is not good")
    gathers = gathers_words(trace, trace.hidden_coefficients("attn-lrp")[-1])
    assert gathers[0].nonzero().flatten().tolist() == list(trace.inputs.items[0].focus.tokens)


@pytest.mark.parametrize("make_model", [labelling_bert, filling_bert])
def test_words_are_hidden_for_the_check_and_by_perturbation(make_model):
    text = "the [MASK] is not very good , never dull"
    model = make_model()
    focus = 2 if make_model is labelling_bert else 0
    for method in ("occlusion", "lime:samples=60", "shapley-sampling:samples=10"):
        explanation = clearhead.explain(model, text, method, 1, focus=focus)
        assert explanation.check is not None
        assert np.isfinite(explanation.relevance).all()


def test_masks_are_never_hidden():
    explanation = clearhead.explain(filling_bert(), "the [MASK] is not very [MASK]", "occlusion", "film", focus=1)
    masks = [index for index, token in enumerate(explanation.tokens) if token == "[MASK]"]
    assert explanation.special[masks].all() and not explanation.relevance[masks].any()
    assert explanation.label == "film at [MASK] 2 of 2"


def test_deleting_words_is_refused():
    with pytest.raises(clearhead.UnsupportedModel, match="moves what is explained"):
        clearhead.explain(labelling_bert(), "a good film", "occlusion", replacement="delete", focus="film", check=False)


def test_a_network_in_training_mode_is_left_as_it_was():
    net = head_network("words", "bert").train()
    net.bert.encoder.layer[0].eval()
    before = [module.training for module in net.modules()]
    model = clearhead.load(net)
    first = clearhead.explain(model, head_tensors("words", "bert"), "gradient", check=False)
    again = clearhead.explain(model, head_tensors("words", "bert"), "gradient", check=False)
    assert [module.training for module in net.modules()] == before
    assert [explanation.label for explanation in first] == [explanation.label for explanation in again]
