"""The unit of effects, and the scores that they lead from and to."""

import pytest
import torch
from helpers.baselines import TEXTS
from helpers.tiny_models import bert, network
from helpers.tiny_tokenizers import word_piece_tokenizer

import clearhead
from clearhead import Target
from clearhead.perturbation.run import perturbed_scores

HIDING = ["occlusion", "lime:samples=4", "shapley-sampling:samples=2"]


@pytest.mark.parametrize("method", HIDING)
@pytest.mark.parametrize("output", ["probability", "logit"])
def test_hiding_methods_lead_from_nothing_to_everything(method, output):
    explanation = clearhead.explain(bert(), TEXTS[0], method, target=1, output=output)
    ends = torch.tensor([[False] * 6, [True] * 6])
    (scores,) = perturbed_scores(bert(), TEXTS[0], [ends], [Target(1)], output=output)
    assert explanation.diagnostics["effect"] == {
        "unit": output,
        "base": pytest.approx(float(scores[0]), rel=1e-9),
        "prediction": pytest.approx(float(scores[1]), rel=1e-9),
    }


@pytest.mark.parametrize("method", ["integrated-gradients", "gradient-shap"])
def test_path_methods_lead_from_the_baseline_to_the_logit(method):
    explanation = clearhead.explain(bert(), TEXTS[0], method, target=1, baseline="mask")
    ends = torch.tensor([[False] * 6])
    (scores,) = perturbed_scores(bert(), TEXTS[0], [ends], [Target(1)], output="logit", replacement="mask")
    effect = explanation.diagnostics["effect"]
    assert effect["unit"] == "logit" and effect["base"] == pytest.approx(float(scores[0]), rel=1e-9)
    assert effect["prediction"] == pytest.approx(explanation.diagnostics["score"])


def test_deeplift_leads_from_the_mean_of_its_references():
    explanation = clearhead.explain(bert(), TEXTS[0], "deeplift-shap", target=1, noise=0.0)
    path = clearhead.explain(bert(), TEXTS[0], "integrated-gradients", target=1)
    effect = explanation.diagnostics["effect"]
    assert effect == {key: pytest.approx(value) for key, value in path.diagnostics["effect"].items()}


@pytest.mark.parametrize("method", ["occlusion", "integrated-gradients"])
def test_a_regression_has_effects_on_its_value(method):
    model = clearhead.load(network("bert", num_labels=1), word_piece_tokenizer())
    effect = clearhead.explain(model, TEXTS[0], method).diagnostics["effect"]
    assert effect["unit"] == "value"


def test_context_cite_has_effects_on_the_odds():
    effect = clearhead.explain(bert(), TEXTS[0], "context-cite", target=1).diagnostics["effect"]
    assert effect["unit"] == "log-odds"
