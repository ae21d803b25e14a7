"""Boxes that are found in pictures, and labels of pixels: the scores are the model's own, batches change nothing."""

import numpy as np
import pytest
import torch
from helpers.pictures import photo
from helpers.tiny_models import image_processor
from helpers.tiny_pictures import PICTURES, picture_network, picture_tensors

import clearhead
from clearhead.errors import BadInput
from clearhead.model.inputs import from_tensors

DETECTORS = ("yolos", "detr", "conditional-detr")
BOX = 2
METHODS = {
    "yolos": ("gae", "trans-att", "lrp", "att-cat", "balanced-cat", "attn-lrp", "gradient-x-input", "occlusion"),
    "detr": ("gae", "balanced-cat", "attn-lrp", "cp-lrp", "cat", "gradient-x-input", "occlusion"),
    "conditional-detr": ("gae", "gradient-x-input", "occlusion"),
    "segformer": ("balanced-cat", "attn-lrp", "cp-lrp", "gradient-x-input", "occlusion"),
    "beit-pixels": ("cat", "att-cat", "gradient-x-input", "occlusion"),
}


def focus_of(family):
    return BOX if family in DETECTORS else (0, 0, 16, 32)


def own_scores(family, net, batch):
    """Return the logits of the explained part for each picture, from the network's own output."""
    logits = net(**batch).logits.detach()
    if family in DETECTORS:
        return logits[:, BOX]
    return logits[..., : logits.shape[-1] // 2].flatten(2).mean(2)


@pytest.mark.parametrize("family", PICTURES)
def test_scores_are_the_models_own_and_batches_change_nothing(family):
    net = picture_network(family)
    batch = picture_tensors(family)
    model = clearhead.load(net)
    methods = METHODS[family]
    together = clearhead.compare(model, batch, methods, 1, focus=focus_of(family), check=False)
    expected = own_scores(family, net, batch)
    for row in range(2):
        alone = {"pixel_values": batch["pixel_values"][[row]]}
        single = clearhead.compare(model, alone, methods, 1, focus=focus_of(family), check=False)
        for method in methods:
            explanation, by_itself = together[method][row], single[method][0]
            assert explanation.diagnostics["score"] == pytest.approx(float(expected[row, 1]), rel=1e-9)
            scale = max(np.abs(by_itself.relevance).max(), 1e-300)
            # Coefficients of norms cancel, so that their rounding is larger than the sum.
            tolerance = 1e-6 if method in ("cat", "att-cat", "trans-att", "lrp") else 1e-8
            assert np.abs(explanation.relevance - by_itself.relevance).max() <= tolerance * scale + 1e-12, method
            assert np.isfinite(explanation.relevance).all()


def test_relevance_of_a_box_token_is_conserved():
    model = clearhead.load(picture_network("yolos"))
    for explanation in clearhead.explain(model, picture_tensors("yolos"), "lrp", 1, focus=BOX, check=False):
        gap, dropped = (explanation.diagnostics[name] for name in ("conservation_gap", "dropped"))
        assert abs(gap - dropped) <= 1e-9 * (1 + dropped)


def test_box_tokens_stand_behind_the_patches_and_are_no_evidence():
    explanation = clearhead.explain(
        clearhead.load(picture_network("yolos")), picture_tensors("yolos"), "gae", focus=BOX, check=False
    )[0]
    assert explanation.grid == (4, 4)
    assert explanation.tokens[0] == "[CLS]" and explanation.tokens[-1] == "[BOX5]"
    assert explanation.special.tolist() == [True] + 16 * [False] + 6 * [True]


def test_gae_of_detr_follows_the_rules_for_two_sequences():
    """A transcription of Chefer et al. 2021 with plain R, from the recorded maps and autograd."""
    model = clearhead.load(picture_network("detr"))
    batch = from_tensors(model, picture_tensors("detr", rows=1), BOX)
    trace = clearhead.capture(model, batch, 1)
    encoder, decoder = trace.forward.attentions, trace.forward.decoder_maps
    assert [tuple(tensor.shape[-2:]) for tensor in encoder] == [(9, 9)] * 2
    assert [tuple(tensor.shape[-2:]) for tensor in decoder] == [(7, 9), (7, 7), (7, 9)]
    gradients = torch.autograd.grad(trace.forward.output[0, 1], [*encoder, *decoder], retain_graph=True)
    weighted = [(a * g).clamp(min=0).mean(1)[0].detach() for a, g in zip([*encoder, *decoder], gradients, strict=True)]
    patches, boxes, across = torch.eye(9).double(), torch.eye(7).double(), torch.zeros(7, 9).double()
    for number, weights in enumerate(weighted):
        if number < 2:
            patches = patches + weights @ patches
        elif weights.shape == (7, 7):
            across, boxes = across + weights @ across, boxes + weights @ boxes
        else:
            across = across + normalised(boxes).T @ weights @ normalised(patches)
    relevance = clearhead.explain(model, batch, "gae", 1, check=False)[0].relevance
    np.testing.assert_allclose(relevance, across[BOX], rtol=1e-9, atol=1e-12)


def normalised(relevance):
    extra = relevance - torch.eye(len(relevance)).double()
    return extra / extra.sum(1, keepdim=True).where(extra.sum(1, keepdim=True) != 0, 1) + torch.eye(len(extra)).double()


@pytest.mark.parametrize("method", ["rollout", "raw-attention", "trans-att", "att-cat"])
def test_maps_of_a_decoder_are_refused_with_what_to_choose(method):
    with pytest.raises(clearhead.UnsupportedModel, match="choose gae"):
        clearhead.explain(clearhead.load(picture_network("detr")), picture_tensors("detr"), method, focus=BOX)


def test_gradients_of_pixels_are_autograds():
    net = picture_network("segformer")
    batch = picture_tensors("segformer", rows=1)
    model = clearhead.load(net)
    trace = clearhead.capture(model, from_tensors(model, batch, (0, 0, 16, 32)), 2)
    pixels = batch["pixel_values"].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net(pixel_values=pixels).logits[0, 2, :, :4].mean(), pixels)
    torch.testing.assert_close(trace.leaf_gradient, gradient, rtol=1e-8, atol=1e-12)


def detector(**changes):
    return clearhead.load(picture_network("yolos", **changes), image_processor())


def test_the_surest_box_is_explained_and_placed_on_the_photo():
    model = detector()
    explanation = clearhead.explain(model, photo(60, 40))
    pixels = model.processor(images=photo(60, 40), return_tensors="pt")["pixel_values"].double()
    output = model.network.network(pixel_values=pixels)
    probability = output.logits[0].softmax(-1)[:, :-1].detach()
    found = output.logits[0].argmax(-1) != 3
    box = int(probability.amax(1).where(found, -1).argmax())
    focus = explanation.diagnostics["focus"]
    assert focus["name"] == f"in box {box}"
    assert explanation.check is not None
    x, y, width, height = output.pred_boxes[0, box].tolist()
    corners = ((x - width / 2) * 60, (y - height / 2) * 40, (x + width / 2) * 60, (y + height / 2) * 40)
    assert focus["box"] == pytest.approx(corners)


def test_a_box_by_its_label():
    model = detector()
    first = clearhead.explain(model, photo(), "gradient", check=False)
    label = first.diagnostics["predicted"]
    again = clearhead.explain(model, photo(), "gradient", focus=label, check=False)
    assert again.label == first.label
    assert again.probability == first.probability


@pytest.mark.parametrize(
    ("focus", "message"),
    [(6, "boxes 0 … 5"), ((1, 2), "give the index of a box"), ("cat", "No label is called 'cat'")],
)
def test_boxes_that_are_not_there(focus, message):
    with pytest.raises(clearhead.ClearheadError, match=message):
        clearhead.explain(detector(), photo(), focus=focus)


def test_a_picture_without_objects():
    net = picture_network("yolos")
    with torch.no_grad():
        net.class_labels_classifier.layers[-1].bias[-1] += 100
    with pytest.raises(BadInput, match=r"finds no object.*focus=0 … 5"):
        clearhead.explain(clearhead.load(net, image_processor()), photo())


def test_pixels_by_class_and_by_box():
    model = clearhead.load(picture_network("segformer"), image_processor())
    most = clearhead.explain(model, photo(), "gradient-x-input", check=False)
    by_label = clearhead.explain(model, photo(), "gradient-x-input", focus=most.diagnostics["predicted"], check=False)
    np.testing.assert_allclose(most.relevance, by_label.relevance)
    assert most.diagnostics["focus"]["note"] == "the class of most pixels"
    half = clearhead.explain(model, photo(60, 40), "gradient-x-input", focus=(0, 0, 30, 40), check=False)
    assert "32 of 8 × 8 output pixels" in half.label
    with pytest.raises(BadInput, match="holds no pixel"):
        clearhead.explain(model, photo(), focus=(100, 100, 101, 101))
    with pytest.raises(BadInput, match=r"\(left, top, right, bottom\)"):
        clearhead.explain(model, photo(), focus=3)
