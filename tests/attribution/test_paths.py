"""Integrated gradients, SmoothGrad, GradientSHAP and DeepLIFT against formulas and Captum."""

from typing import Any

import numpy as np
import pytest
import torch
from helpers.baselines import ADDED, DECODER, TEXTS, cases
from helpers.explanations import total_effect
from helpers.pictures import picture
from helpers.tiny_models import answering_bert, bert, llama, vit

import clearhead
from clearhead import Target
from clearhead.attribution import integrated as path
from clearhead.model.inputs import as_inputs
from clearhead.model.model import Model
from clearhead.perturbation.run import perturbed_scores


@pytest.mark.parametrize("case", ["bert", "vit"])
def test_integrated_gradients_are_complete(case: str) -> None:
    model, inputs = cases()[case]
    for explanation in clearhead.explain(model, inputs, "integrated-gradients", target=1, steps=60):
        assert explanation.relevance.sum() == pytest.approx(total_effect(explanation), abs=1e-6)
        assert explanation.diagnostics["completeness_gap"] < 1e-6


def test_steps_are_doubled_for_the_inputs_that_need_it() -> None:
    model, inputs = llama(), DECODER
    rough = clearhead.explain(model, inputs, "integrated-gradients", target=0, steps=4)
    gaps = [explanation.diagnostics["completeness_gap"] for explanation in rough]
    between = sum(gaps) / 2
    fine = clearhead.explain(model, inputs, "integrated-gradients", target=0, steps=4, tolerance=between)
    for before, after in zip(rough, fine, strict=True):
        needed = before.diagnostics["completeness_gap"] > between
        assert (after.diagnostics["steps"] > 4) == needed
        assert after.diagnostics["completeness_gap"] <= between
    short = clearhead.explain(model, inputs, "integrated-gradients", target=0, steps=4, tolerance=1e-12, limit=16)
    assert [explanation.diagnostics["steps"] for explanation in short] == [16, 16]


def test_baselines_of_the_path() -> None:
    model = bert()
    by_name = {
        name: clearhead.explain(model, TEXTS[0], "integrated-gradients", baseline=name, target=0, steps=60)
        for name in ("zero", "pad", "mask")
    }
    hidden = torch.tensor([[False] * 6, [True] * 6])
    for name in ("pad", "mask"):
        nothing, everything = perturbed_scores(
            model, TEXTS[0], [hidden], [Target(0)], output="logit", replacement=name
        )[0]
        assert total_effect(by_name[name]) == pytest.approx(float(everything - nothing), abs=1e-10)
        assert by_name[name].diagnostics["completeness_gap"] < 1e-6
    assert by_name["zero"].relevance[0] != 0
    black = clearhead.explain(vit(), picture(), "integrated-gradients", baseline="black", target=0, steps=60)
    ends = torch.tensor([[False] * 9, [True] * 9])
    nothing, everything = perturbed_scores(vit(), picture(), [ends], [Target(0)], output="logit")[0]
    assert black.relevance.sum() == pytest.approx(float(everything - nothing), abs=1e-6)


def test_contrasts_and_spans_are_explained_too() -> None:
    model = bert()
    first, second, contrast = (
        clearhead.explain(model, TEXTS[0], "integrated-gradients", target=target)
        for target in (Target(0), Target(1), Target(0, versus=1))
    )
    np.testing.assert_allclose(contrast.relevance, first.relevance - second.relevance, atol=1e-12)
    for name in ADDED:
        together = clearhead.explain(answering_bert(), TEXTS, name)
        alone = clearhead.explain(answering_bert(), TEXTS[2], name)
        np.testing.assert_allclose(together[2].relevance, alone.relevance, atol=1e-9)


def test_smooth_gradients_are_gradients_at_noisy_inputs() -> None:
    model = vit()
    trace = clearhead.capture(model, picture(), 0)
    gradients = []
    for point in path.noisy_points(trace, 10, 0.1, 0):
        pixels = point.make()[None].requires_grad_()
        model.network(pixel_values=pixels).logits[0, 0].backward()
        gradients.append(pixels.grad[0])
    blocks = torch.stack(gradients).unfold(2, 8, 8).unfold(3, 8, 8)
    expected = blocks.square().sum((1, 4, 5)).sqrt().mean(0).flatten()
    explanation = clearhead.explain(model, picture(), "smooth-gradient", target=0, samples=10)
    np.testing.assert_allclose(explanation.relevance[1:], expected.numpy(), atol=1e-10)
    spread = (point.make() - trace.leaf[0]).std() / (trace.leaf.max() - trace.leaf.min())
    assert float(spread) == pytest.approx(0.1, rel=0.1)


def test_deeplift_says_that_it_is_not_complete() -> None:
    explanation = clearhead.explain(bert(), TEXTS[0], "deeplift-shap", target=0)
    diagnostics = explanation.diagnostics
    gap = abs(explanation.relevance.sum() - total_effect(explanation))
    assert diagnostics["completeness_gap"] == pytest.approx(gap)
    assert "completeness_gap" in diagnostics["note"]


def embedded(model: Model, text: str) -> tuple[torch.Tensor, Any]:
    tensors = as_inputs(model, text).tensors
    leaf = model.network.get_input_embeddings()(tensors["input_ids"]).detach()
    extra_tensors = {name: value for name, value in tensors.items() if name != "input_ids"}

    def forward(embeddings: torch.Tensor) -> torch.Tensor:
        rows = {name: value.expand(len(embeddings), -1) for name, value in extra_tensors.items()}
        logits: torch.Tensor = model.network(inputs_embeds=embeddings, **rows).logits
        return logits

    return leaf, forward


def test_integrated_gradients_agree_with_captum() -> None:
    from captum.attr import IntegratedGradients

    leaf, forward = embedded(bert(), TEXTS[0])
    expected = IntegratedGradients(forward).attribute(leaf, torch.zeros_like(leaf), target=2, n_steps=7).sum(-1)[0]
    explanation = clearhead.explain(bert(), TEXTS[0], "integrated-gradients", target=2, steps=7)
    np.testing.assert_allclose(explanation.relevance, expected.detach().numpy(), atol=1e-10)


def test_gradient_shap_agrees_with_captum(monkeypatch: pytest.MonkeyPatch) -> None:
    from captum.attr import GradientShap

    shares = [0.1, 0.35, 0.6, 0.8, 0.95]
    monkeypatch.setattr(np.random, "uniform", lambda *_: np.array(shares))
    monkeypatch.setattr(path, "_draw_share", lambda trace, sample, seed, number: shares[number])
    leaf, forward = embedded(bert(), TEXTS[0])
    expected = GradientShap(forward).attribute(leaf, torch.zeros_like(leaf), n_samples=5, stdevs=0.0, target=2)
    explanation = clearhead.explain(bert(), TEXTS[0], "gradient-shap", target=2, samples=5)
    np.testing.assert_allclose(explanation.relevance, expected.sum(-1)[0].detach().numpy(), atol=1e-10)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_deeplift_agrees_with_captum() -> None:
    from captum.attr import DeepLift

    leaf, _ = embedded(bert(), TEXTS[0])
    module = bert().network

    class FromEmbeddings(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = module(inputs_embeds=embeddings).logits
            return logits

    expected = DeepLift(FromEmbeddings()).attribute(leaf, torch.zeros_like(leaf), target=2).sum(-1)[0]
    explanation = clearhead.explain(bert(), TEXTS[0], "deeplift-shap", target=2, noise=0.0, samples=1)
    np.testing.assert_allclose(explanation.relevance, expected.detach().numpy(), atol=1e-10)


@pytest.mark.parametrize("steps", [1, 2, 3, 25, 400])
def test_gauss_legendre_is_numpys(steps: int) -> None:
    for values, expected in zip(path.gauss_legendre(steps), np.polynomial.legendre.leggauss(steps), strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-12)
