"""What every baseline method promises: batches, seeds, models left as they were, clear refusals."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from helpers.baselines import ADDED, IDS, SAMPLED, TEXTS, cases
from helpers.precision import require_half_precision
from helpers.tiny_models import bert, llama, lonely_gpt

import clearhead
from clearhead.attribution.method import METHODS
from clearhead.attribution.perturbation import TEXT_SAMPLES
from clearhead.errors import BadOption, ClearheadError, UnsupportedModel


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("case", ["bert", "vit", "llama"])
def test_alone_or_together_in_any_batch(case: str, name: str) -> None:
    model, inputs = cases()[case]
    together = clearhead.explain(model, inputs, name, target=1)
    one_by_one = clearhead.explain(model, inputs, name, target=1, batch_size=1)
    again = clearhead.explain(model, inputs, name, target=1)
    for first, second, third in zip(together, one_by_one, again, strict=True):
        assert len(first.relevance) == len(first.tokens) and np.isfinite(first.relevance).all()
        np.testing.assert_allclose(first.relevance, second.relevance, atol=1e-9)
        assert np.array_equal(first.relevance, third.relevance)
        assert first.diagnostics
    if "batch" in METHODS[name].options:
        for first, small in zip(together, clearhead.explain(model, inputs, name, target=1, batch=2), strict=True):
            np.testing.assert_allclose(first.relevance, small.relevance, atol=1e-9)


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("case", ["bert", "vit", "llama"])
def test_classes_differ_where_they_should(case: str, name: str) -> None:
    model, inputs = cases()[case]
    first_class, second_class = (
        clearhead.explain(model, inputs, name, target=target)[0].relevance for target in (0, 1)
    )
    assert np.allclose(first_class, second_class, atol=1e-9) != METHODS[name].class_specific


@pytest.mark.parametrize("name", [*SAMPLED, "random"])
def test_seeds_matter_and_are_told(name: str) -> None:
    model = bert()
    first, second = (clearhead.explain(model, TEXTS[0], name, target=0, seed=seed) for seed in (0, 1))
    assert first.diagnostics["seed"] == 0 and second.diagnostics["seed"] == 1
    defaults = {"lime": TEXT_SAMPLES, "shapley-sampling": first.diagnostics["samples"]}
    assert first.diagnostics["samples"] == (METHODS[name].options.get("samples", 1) or defaults[name])
    assert not np.allclose(first.relevance, second.relevance, atol=1e-9)


@pytest.mark.parametrize("name", ADDED)
def test_the_model_is_left_as_it_was(name: str) -> None:
    model = bert()
    model.network.train()
    before = {key: value.clone() for key, value in model.network.state_dict().items()}
    with torch.no_grad():
        clearhead.explain(model, TEXTS, name, target=0)
    assert all(module.training for module in model.network.modules())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.network.parameters())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.network.modules())
    assert all(torch.equal(value, before[key]) for key, value in model.network.state_dict().items())


@pytest.mark.parametrize("name", ADDED)
def test_low_precision_runs(name: str) -> None:
    require_half_precision("bfloat16")
    model = clearhead.load(bert(), dtype="bfloat16")
    for explanation in clearhead.explain(model, TEXTS, name, target=0):
        assert np.isfinite(explanation.relevance).all()


@pytest.mark.parametrize("name", ADDED)
def test_given_embeddings_are_explained(name: str) -> None:
    model = llama()
    embeddings = model.network.get_input_embeddings()(IDS).detach()
    explanation = clearhead.explain(model, {"inputs_embeds": embeddings[:1]}, name, target=0)[0]
    assert len(explanation.relevance) == 6 and np.isfinite(explanation.relevance).all()
    if name not in SAMPLED:
        words = clearhead.explain(model, {"input_ids": IDS[:1]}, name, target=0)[0]
        np.testing.assert_allclose(explanation.relevance, words.relevance, atol=1e-9)


@pytest.mark.parametrize("name", ADDED)
def test_a_model_without_padding_takes_one_input_at_a_time(name: str) -> None:
    ids = {"input_ids": IDS[:, :3]}
    if name == "deeplift-shap":
        with pytest.raises(UnsupportedModel, match="padding token"):
            clearhead.explain(lonely_gpt(), ids, name, target=0)
    else:
        for explanation in clearhead.explain(lonely_gpt(), ids, name, target=0):
            assert np.isfinite(explanation.relevance).all()


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("captum.attr", "deeplift-shap", "captum"), ("scipy.sparse.csgraph", "attention-flow", "flow")],
)
def test_missing_extras_are_named(module: str, name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ClearheadError, match=rf"clearhead\[{extra}\]"):
        clearhead.explain(bert(), TEXTS[0], name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lime", {"samples": 0}),
        ("lime", {"output": "odds"}),
        ("occlusion", {"window": 0}),
        ("occlusion", {"unit": "patch"}),
        ("occlusion", {"replacement": "zero"}),
        ("shapley-sampling", {"samples": 2.5}),
        ("integrated-gradients", {"steps": 0}),
        ("integrated-gradients", {"baseline": "black"}),
        ("smooth-gradient", {"noise": -1.0}),
        ("gradient-shap", {"batch": 0}),
        ("smooth-gradient", {"noise": float("inf")}),
        ("smooth-gradient", {"noise": 10**400}),
        ("lime", {"width": 1e-320}),
        ("lime", {"width": 1e-5, "samples": 25}),
        ("random:seed=1,seed=2", {}),
        (("random", None), {}),
        (("random", 5), {}),
        (("random", "seed=1"), {}),
        ((None, {}), {}),
    ],
)
def test_wrong_options_are_refused(name: Any, options: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        clearhead.explain(bert(), TEXTS[0], name, **options)


def test_large_numbers_are_taken_where_they_make_sense() -> None:
    flat = clearhead.explain(bert(), TEXTS[0], "lime", width=1e10).relevance
    np.testing.assert_allclose(clearhead.explain(bert(), TEXTS[0], "lime", width=1e308).relevance, flat)
    assert clearhead.explain(bert(), TEXTS[0], "gradient-shap", noise=2**70, samples=1).options["noise"] == 2.0**70


@pytest.mark.parametrize("name", [*SAMPLED, "random"])
def test_torchs_default_type_changes_nothing(name: str) -> None:
    model = bert()
    expected = clearhead.explain(model, TEXTS[0], name, target=0).relevance
    torch.set_default_dtype(torch.float64)
    try:
        relevance = clearhead.explain(model, TEXTS[0], name, target=0).relevance
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_allclose(relevance, expected, rtol=1e-5, atol=1e-7)
