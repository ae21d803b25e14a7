"""Standard errors from the samples themselves, against repeated draws and slow formulas."""

import numpy as np
import pytest
import torch
from helpers.baselines import TEXTS
from helpers.pictures import picture
from helpers.tiny_models import bert, vit

import clearhead
from clearhead.attribution.perturbation import _local_error, local_weights
from clearhead.attribution.sampling_error import GROUPS, grouped_error, mean_error, ridge_error

SAMPLED = {
    "smooth-gradient": 10,
    "gradient-shap": 10,
    "deeplift-shap": 10,
    "shapley-sampling": 10,
    "lime": 60,
    "context-cite:unit=word,penalty=0.0001": 40,
}
SEEDS = range(24)


@pytest.mark.parametrize(("method", "samples"), SAMPLED.items())
def test_the_standard_error_is_the_spread_over_seeds(method, samples):
    explained = [clearhead.explain(bert(), TEXTS[0], method, target=1, samples=samples, seed=seed) for seed in SEEDS]
    shown = ~explained[0].special
    relevance = np.array([explanation.relevance[shown] for explanation in explained])
    spread = relevance.std(0, ddof=1).max() / np.abs(relevance.mean(0)).max()
    estimate = np.mean([explanation.diagnostics["sampling_error"] for explanation in explained])
    assert 0.5 < estimate / spread < 2


@pytest.mark.parametrize("method", ["smooth-gradient", "gradient-shap"])
def test_two_seeds_agree_by_default(method):
    model = clearhead.load()
    text = "a joyless , tedious film that never finds its heart"
    orders = []
    for seed in (0, 1):
        explanation = clearhead.explain(model, text, method, seed=seed, check=False)
        orders.append(np.argsort([word.relevance for word in explanation.words()]).argsort())
    assert np.corrcoef(orders)[0, 1] > 0.6


@pytest.mark.parametrize("method", ["smooth-gradient", "gradient-shap", "deeplift-shap", "shapley-sampling", "lime"])
def test_a_single_sample_has_no_known_error(method):
    explanation = clearhead.explain(bert(), TEXTS[0], method, target=1, samples=1)
    assert explanation.diagnostics["sampling_error"] is None


def test_images_have_sampling_errors():
    explanation = clearhead.explain(vit(), picture(), "smooth-gradient", target=0, samples=3)
    assert 0 < explanation.diagnostics["sampling_error"] < 1


def test_the_jackknife_of_lime_leaves_out_every_sample():
    drawn = torch.Generator().manual_seed(0)
    mask = (torch.rand(12, 3, generator=drawn) < 0.5).double()
    score = torch.rand(12, generator=drawn, dtype=torch.float64)
    kept = ~torch.eye(12, dtype=torch.bool)
    refitted = torch.stack([local_weights(mask[rows], score[rows], 0.25, 0.1) for rows in kept])
    expected = ((refitted - refitted.mean(0)).square().sum(0) * 11 / 12).sqrt()
    torch.testing.assert_close(_local_error(mask, score, 0.25, 0.1), expected)


def test_errors_of_few_samples_are_unknown():
    assert mean_error(torch.ones(1, 3)) is None
    assert ridge_error(torch.ones(1, 3), torch.ones(1), torch.ones(3)) is None
    assert grouped_error(lambda chosen: torch.ones(3), 2 * GROUPS - 1) is None


def test_lime_agrees_with_itself_by_default():
    model = clearhead.load()
    text = "a joyless , tedious film that never finds its heart"
    first, second = (clearhead.explain(model, text, "lime", seed=seed, check=False) for seed in (0, 1))
    assert first.diagnostics["samples"] == 500
    shown = ~first.special
    assert np.corrcoef(first.relevance[shown], second.relevance[shown])[0, 1] > 0.95
    assert first.diagnostics["sampling_error"] < 0.15
