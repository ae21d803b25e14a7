"""Path, sampling, occlusion and flow methods: known answers, axioms, agreement with Captum, invariance."""

import itertools
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from small_networks import answering_bert, bert, linear_image, linear_text, llama, lonely_gpt, picture, vit

import clearhead
from clearhead import Target
from clearhead.attribution import attention_flow as flow
from clearhead.attribution import integrated as path
from clearhead.attribution.method import METHODS
from clearhead.attribution.perturbation import local_weights, mean_gains
from clearhead.errors import BadInput, BadOption, ClearheadError, UnsupportedModel
from clearhead.model.inputs import as_inputs
from clearhead.model.model import Model
from clearhead.perturbation.features import group_features
from clearhead.perturbation.run import perturbed_scores

SAMPLED = ["smooth-gradient", "gradient-shap", "deeplift-shap", "lime", "shapley-sampling"]
HIDING = ["occlusion", "lime", "shapley-sampling"]
ADDED = ["attention-flow", "integrated-gradients", *SAMPLED, "occlusion"]
TEXTS = ["a fine film with no plot", ("is it good", "it is really bad . a film"), "film"]
IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [7, 8, 9, 0, 0, 0]])
DECODER = {"input_ids": IDS, "attention_mask": (IDS != 0).long()}


def cases() -> dict[str, tuple[Model, Any]]:
    return {"bert": (bert(), TEXTS), "vit": (vit(), [picture(), picture(1)]), "llama": (llama(), DECODER)}


# --- known answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("occlusion", {"output": "logit"}),
        ("lime", {"output": "logit", "ridge": 0.0}),
        ("shapley-sampling", {"output": "logit", "samples": 3}),
        ("integrated-gradients", {"steps": 2}),
        ("integrated-gradients", {"steps": 2, "baseline": "mask"}),
        ("gradient-shap", {"samples": 2}),
        ("deeplift-shap", {"samples": 1, "noise": 0.0}),
    ],
)
@pytest.mark.parametrize("target", [0, 1])
def test_a_linear_text_model_gives_back_its_weights(name: str, options: dict[str, Any], target: int) -> None:
    model = linear_text()
    ids = as_inputs(model, TEXTS).tensors["input_ids"]
    for place, found in enumerate(clearhead.explain(model, TEXTS, name, target=target, **options)):
        weight = model.network.weight(ids[place][: len(found.tokens)]).numpy() * (1 - 2 * target)
        plain = ~found.special
        np.testing.assert_allclose(found.relevance[plain], weight[plain], atol=1e-9)
        if name in HIDING or "baseline" in options:
            assert not found.relevance[found.special].any()


@pytest.mark.parametrize("name", ["occlusion", "lime", "shapley-sampling", "integrated-gradients", "gradient-shap"])
def test_a_linear_image_model_gives_back_its_weights(name: str) -> None:
    model = linear_image()
    pixels = torch.rand(2, 3, 12, 12, dtype=torch.float64)
    options: dict[str, Any] = {"output": "logit"} if name in HIDING else {}
    options |= {"ridge": 0.0} if name == "lime" else {}
    for place, found in enumerate(clearhead.explain(model, {"pixel_values": pixels}, name, target=0, **options)):
        np.testing.assert_allclose(found.relevance, model.network.products(pixels)[place].numpy(), atol=1e-9)


def test_the_gradient_of_a_linear_model_is_the_same_everywhere() -> None:
    smooth = clearhead.explain(linear_text(), "a fine film", "smooth-gradient", target=0)
    plain = clearhead.explain(linear_text(), "a fine film", "gradient", target=0)
    np.testing.assert_allclose(smooth.relevance, plain.relevance, atol=1e-12)


def test_windows_of_occlusion_are_averaged() -> None:
    model, text = linear_text(), "a fine film with no plot"
    ids = as_inputs(model, text).tensors["input_ids"][0]
    weight = model.network.weight(ids)[1:-1].tolist()
    windows = [range(start, start + 3) for start in range(len(weight) - 2)]
    wanted = [
        np.mean([sum(weight[place] for place in window) for window in windows if token in window])
        for token in range(len(weight))
    ]
    found = clearhead.explain(model, text, "occlusion", target=0, window=3, output="logit")
    np.testing.assert_allclose(found.relevance[1:-1], wanted, atol=1e-12)
    whole = clearhead.explain(model, "a fine film", "occlusion", target=0, window=9, output="logit")
    np.testing.assert_allclose(whole.relevance[1:-1], model.network.weight(ids)[1:4].sum().item(), atol=1e-12)


def test_windows_on_an_image_are_squares() -> None:
    model = linear_image()
    pixels = torch.rand(1, 3, 12, 12, dtype=torch.float64)
    cells = model.network.products(pixels)[0].reshape(3, 3)
    squares = cells.unfold(0, 2, 1).unfold(1, 2, 1).sum((2, 3))
    found = clearhead.explain(model, {"pixel_values": pixels}, "occlusion", target=0, window=2, output="logit")[0]
    assert found.relevance[0] == pytest.approx(squares[0, 0].item())
    assert found.relevance[4] == pytest.approx(squares.mean().item())
    assert found.relevance[5] == pytest.approx(squares[:, 1].mean().item())


def test_shapley_values_over_all_orders_are_the_formula() -> None:
    model, text = bert(), "a fine film ."
    coalitions = torch.tensor(list(itertools.product([False, True], repeat=4)))
    scores = perturbed_scores(model, text, [coalitions], [Target(0)])[0].tolist()
    worth = {frozenset(np.flatnonzero(row)): score for row, score in zip(coalitions.numpy(), scores, strict=True)}
    wanted = [
        sum(
            math.factorial(len(others))
            * math.factorial(3 - len(others))
            / math.factorial(4)
            * (worth[others | {one}] - s)
            for others, s in worth.items()
            if one not in others
        )
        for one in range(4)
    ]
    orders = torch.tensor(list(itertools.permutations(range(4))))
    grown = [worth[frozenset(order[:size].tolist())] for order in orders for size in range(5)]
    np.testing.assert_allclose(mean_gains(torch.tensor(grown, dtype=torch.float64), orders), wanted, atol=1e-12)


@pytest.mark.parametrize("case", ["bert", "vit", "llama"])
@pytest.mark.parametrize("output", ["probability", "logit"])
def test_shapley_values_sum_to_the_effect(case: str, output: str) -> None:
    model, inputs = cases()[case]
    batch = as_inputs(model, inputs)
    ends = [torch.tensor([[False] * one.count, [True] * one.count]) for one in group_features(model, batch)]
    explained = clearhead.explain(model, inputs, "shapley-sampling", target=1, samples=2, output=output)
    scores = perturbed_scores(model, batch, ends, [Target(1)] * len(batch), output=output)
    for found, (nothing, everything) in zip(explained, scores, strict=True):
        assert found.relevance.sum() == pytest.approx(float(everything - nothing), abs=1e-10)
        assert found.diagnostics["effect"] == pytest.approx(float(everything - nothing), abs=1e-10)


def test_lime_is_weighted_ridge_regression() -> None:
    drawn = torch.Generator().manual_seed(0)
    mask = (torch.rand(30, 5, generator=drawn) < 0.5).double()
    score = torch.rand(30, generator=drawn, dtype=torch.float64)
    similarity = torch.exp(-((1 - mask.mean(1).sqrt()) ** 2) / (2 * 0.25**2))
    design = torch.cat([mask, torch.ones(30, 1, dtype=torch.float64)], 1)
    penalty = torch.diag(torch.tensor([0.3] * 5 + [0.0], dtype=torch.float64))
    weighted = design.T * similarity
    wanted = torch.linalg.solve(weighted @ design + penalty, weighted @ score)
    torch.testing.assert_close(local_weights(mask, score, 0.25, 0.3), wanted[:5])


def test_units_share_their_relevance_among_their_tokens() -> None:
    model = bert()
    found = clearhead.explain(model, "a goodly films . no plot", "shapley-sampling", unit="word", target=0)
    assert found.diagnostics["unit"] == "word" and found.diagnostics["units"] == 6
    assert found.relevance[2] == found.relevance[3]
    sentences = clearhead.explain(model, "a goodly films . no plot", "occlusion", unit="sentence", target=0)
    assert len(set(sentences.relevance[1:6])) == 1 and sentences.diagnostics["units"] == 2


@pytest.mark.parametrize("unit", ["grid", "slic", "segment"])
def test_segments_of_an_image_carry_all_relevance(unit: str) -> None:
    found = clearhead.explain(vit(), picture(), "shapley-sampling", unit=unit, segments=4, target=0, samples=2)
    assert found.relevance.sum() == pytest.approx(found.diagnostics["effect"], abs=1e-10)
    assert found.pixels is not None and found.pixels.sum() == pytest.approx(found.diagnostics["effect"], abs=1e-10)


@pytest.mark.parametrize("absent", ["mask", "pad", "delete", "attention", "mask-attention"])
def test_absent_is_recorded_and_matters(absent: str) -> None:
    found = clearhead.explain(bert(), TEXTS[0], "occlusion", absent=absent, target=0)
    default = clearhead.explain(bert(), TEXTS[0], "occlusion", target=0)
    assert found.diagnostics["absent"] == absent and default.diagnostics["absent"] == "mask"
    assert (absent == "mask") == np.allclose(found.relevance, default.relevance, atol=1e-12)


# --- paths -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["bert", "vit"])
def test_integrated_gradients_are_complete(case: str) -> None:
    model, inputs = cases()[case]
    for found in clearhead.explain(model, inputs, "integrated-gradients", target=1, steps=60):
        assert found.relevance.sum() == pytest.approx(found.diagnostics["effect"], abs=1e-6)
        assert found.diagnostics["completeness_gap"] < 1e-6


def test_steps_are_doubled_for_the_inputs_that_need_it() -> None:
    model, inputs = llama(), DECODER
    rough = clearhead.explain(model, inputs, "integrated-gradients", target=0, steps=4)
    gaps = [found.diagnostics["completeness_gap"] for found in rough]
    between = sum(gaps) / 2
    fine = clearhead.explain(model, inputs, "integrated-gradients", target=0, steps=4, tolerance=between)
    for before, after in zip(rough, fine, strict=True):
        needed = before.diagnostics["completeness_gap"] > between
        assert (after.diagnostics["steps"] > 4) == needed
        assert after.diagnostics["completeness_gap"] <= between
    short = clearhead.explain(model, inputs, "integrated-gradients", target=0, steps=4, tolerance=1e-12, limit=16)
    assert [found.diagnostics["steps"] for found in short] == [16, 16]


def test_baselines_of_the_path() -> None:
    model = bert()
    by_name = {
        name: clearhead.explain(model, TEXTS[0], "integrated-gradients", baseline=name, target=0, steps=60)
        for name in ("zero", "pad", "mask")
    }
    hidden = torch.tensor([[False] * 6, [True] * 6])
    for name in ("pad", "mask"):
        nothing, everything = perturbed_scores(model, TEXTS[0], [hidden], [Target(0)], output="logit", absent=name)[0]
        assert by_name[name].diagnostics["effect"] == pytest.approx(float(everything - nothing), abs=1e-10)
        assert by_name[name].diagnostics["completeness_gap"] < 1e-6
    assert by_name["zero"].relevance[0] != 0
    black = clearhead.explain(vit(), picture(), "integrated-gradients", baseline="black", target=0, steps=60)
    ends = torch.tensor([[False] * 9, [True] * 9])
    nothing, everything = perturbed_scores(vit(), picture(), [ends], [Target(0)], output="logit")[0]
    assert black.relevance.sum() == pytest.approx(float(everything - nothing), abs=1e-6)


def test_contrasts_and_spans_are_explained_too() -> None:
    model = bert()
    one, other, contrast = (
        clearhead.explain(model, TEXTS[0], "integrated-gradients", target=target)
        for target in (Target(0), Target(1), Target(0, versus=1))
    )
    np.testing.assert_allclose(contrast.relevance, one.relevance - other.relevance, atol=1e-12)
    for name in ADDED:
        found = clearhead.explain(answering_bert(), TEXTS, name)
        alone = clearhead.explain(answering_bert(), TEXTS[2], name)
        np.testing.assert_allclose(found[2].relevance, alone.relevance, atol=1e-9)


def test_smooth_gradients_are_gradients_at_noisy_inputs() -> None:
    model = vit()
    trace = clearhead.capture(model, picture(), 0)
    gradients = []
    for point in path.noisy_points(trace, 10, 0.1, 0):
        pixels = point.make()[None].requires_grad_()
        model.network(pixel_values=pixels).logits[0, 0].backward()
        gradients.append(pixels.grad[0])
    blocks = torch.stack(gradients).unfold(2, 8, 8).unfold(3, 8, 8)
    wanted = blocks.square().sum((1, 4, 5)).sqrt().mean(0).flatten()
    found = clearhead.explain(model, picture(), "smooth-gradient", target=0)
    np.testing.assert_allclose(found.relevance[1:], wanted.numpy(), atol=1e-10)
    spread = (point.make() - trace.leaf[0]).std() / (trace.leaf.max() - trace.leaf.min())
    assert float(spread) == pytest.approx(0.1, rel=0.1)


def test_deeplift_says_that_it_is_not_complete() -> None:
    found = clearhead.explain(bert(), TEXTS[0], "deeplift-shap", target=0)
    diagnostics = found.diagnostics
    assert diagnostics["completeness_gap"] == pytest.approx(abs(found.relevance.sum() - diagnostics["effect"]))
    assert "completeness_gap" in diagnostics["note"]


# --- Captum ------------------------------------------------------------------------------------------------------


def embedded(model: Model, text: str) -> tuple[torch.Tensor, Any]:
    tensors = as_inputs(model, text).tensors
    leaf = model.network.get_input_embeddings()(tensors["input_ids"]).detach()
    others = {name: value for name, value in tensors.items() if name != "input_ids"}

    def forward(embeddings: torch.Tensor) -> torch.Tensor:
        rows = {name: value.expand(len(embeddings), -1) for name, value in others.items()}
        logits: torch.Tensor = model.network(inputs_embeds=embeddings, **rows).logits
        return logits

    return leaf, forward


def test_integrated_gradients_agree_with_captum() -> None:
    from captum.attr import IntegratedGradients

    leaf, forward = embedded(bert(), TEXTS[0])
    wanted = IntegratedGradients(forward).attribute(leaf, torch.zeros_like(leaf), target=2, n_steps=7).sum(-1)[0]
    found = clearhead.explain(bert(), TEXTS[0], "integrated-gradients", target=2, steps=7)
    np.testing.assert_allclose(found.relevance, wanted.detach().numpy(), atol=1e-10)


def test_gradient_shap_agrees_with_captum(monkeypatch: pytest.MonkeyPatch) -> None:
    from captum.attr import GradientShap

    shares = [0.1, 0.35, 0.6, 0.8, 0.95]
    monkeypatch.setattr(np.random, "uniform", lambda *_: np.array(shares))
    monkeypatch.setattr(path, "_share", lambda trace, sample, seed, number: shares[number])
    leaf, forward = embedded(bert(), TEXTS[0])
    wanted = GradientShap(forward).attribute(leaf, torch.zeros_like(leaf), n_samples=5, stdevs=0.0, target=2)
    found = clearhead.explain(bert(), TEXTS[0], "gradient-shap", target=2)
    np.testing.assert_allclose(found.relevance, wanted.sum(-1)[0].detach().numpy(), atol=1e-10)


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

    wanted = DeepLift(FromEmbeddings()).attribute(leaf, torch.zeros_like(leaf), target=2).sum(-1)[0]
    found = clearhead.explain(bert(), TEXTS[0], "deeplift-shap", target=2, noise=0.0, samples=1)
    np.testing.assert_allclose(found.relevance, wanted.detach().numpy(), atol=1e-10)


def decoder_probability(ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits = llama().network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    return logits.softmax(-1)


@pytest.mark.parametrize("window", [1, 3])
def test_occlusion_agrees_with_captum(window: int) -> None:
    from captum.attr import Occlusion

    ids = IDS[:1]
    wanted = Occlusion(decoder_probability).attribute(ids, sliding_window_shapes=(window,), baselines=0, target=1)
    found = clearhead.explain(llama(), {"input_ids": ids}, "occlusion", target=1, absent="pad", window=window)[0]
    np.testing.assert_allclose(found.relevance, wanted[0].numpy(), atol=1e-6)


def test_shapley_sampling_agrees_with_captum(monkeypatch: pytest.MonkeyPatch) -> None:
    from captum.attr import ShapleyValueSampling

    from clearhead.attribution import perturbation

    ids = IDS[:1]
    orders = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(seed)) for seed in range(4)])
    sampling = ShapleyValueSampling(decoder_probability)
    sampling.permutation_generator = lambda features, samples: iter(orders.tolist())
    wanted = sampling.attribute(ids, baselines=0, target=1, n_samples=4)
    monkeypatch.setattr(perturbation, "_orders", lambda *_: orders)
    found = clearhead.explain(llama(), {"input_ids": ids}, "shapley-sampling", target=1, absent="pad", samples=4)[0]
    np.testing.assert_allclose(found.relevance, wanted[0].numpy(), atol=1e-6)


def test_lime_agrees_with_captum(monkeypatch: pytest.MonkeyPatch) -> None:
    from captum._utils.models.model import Model as Interpretable
    from captum.attr import Lime

    from clearhead.attribution import perturbation

    class Ridge(Interpretable):
        def fit(self, train_data: Any, **_: Any) -> None:
            rows = list(train_data)
            mask, score, weight = (torch.cat([row[place] for row in rows]).double() for place in range(3))
            design = torch.cat([mask, torch.ones(len(mask), 1)], 1)
            penalty = torch.diag(torch.tensor([0.01] * 6 + [0.0]).double())
            self.solution = torch.linalg.solve(design.T * weight @ design + penalty, design.T * weight @ score)

        def representation(self) -> torch.Tensor:
            return self.solution[None, :-1]

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.solution[:-1]

    coins = torch.rand(40, 6, generator=torch.Generator().manual_seed(5)) < 0.5
    draws = iter(coins.long()[:, None])

    def similarity(original: Any, perturbed: Any, mask: torch.Tensor, **_: Any) -> float:
        distance = 1 - mask.double().mean().sqrt()
        return float(torch.exp(-(distance**2) / (2 * 0.25**2)))

    lime = Lime(decoder_probability, Ridge(), similarity, lambda *_, **__: next(draws))
    wanted = lime.attribute(IDS[:1], baselines=0, target=1, n_samples=40)
    monkeypatch.setattr(perturbation, "_coins", lambda *_: coins)
    found = clearhead.explain(llama(), {"input_ids": IDS[:1]}, "lime", target=1, absent="pad", samples=40)[0]
    np.testing.assert_allclose(found.relevance, wanted[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 3, 25, 400])
def test_gauss_legendre_is_numpys(steps: int) -> None:
    for found, wanted in zip(path.gauss_legendre(steps), np.polynomial.legendre.leggauss(steps), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-12)


# --- flow --------------------------------------------------------------------------------------------------------


def flow_by_programming(maps_LTS: np.ndarray, reading_T: np.ndarray, token: int) -> float:
    """The maximum flow as a linear programme: one variable per edge, conservation at every inner node."""
    blocks, tokens = maps_LTS.shape[:2]
    edges = [("source", (blocks, t), reading_T[t]) for t in range(tokens)]
    for block, (t, s) in itertools.product(range(blocks), itertools.product(range(tokens), repeat=2)):
        edges.append(((block + 1, t), (block, s), 0.5 * maps_LTS[block, t, s] + 0.5 * (t == s)))
    inner = [(layer, t) for layer in range(1, blocks + 1) for t in range(tokens)]
    balance = [[(end == node) - (start == node) for start, end, _ in edges] for node in inner]
    gain = [-float(end == (0, token)) for _, end, _ in edges]
    bounds = [(0, capacity) for *_, capacity in edges]
    return -linprog(gain, A_eq=np.array(balance, dtype=float), b_eq=np.zeros(len(inner)), bounds=bounds).fun


@pytest.mark.parametrize("widest", [1, 2, 16])
@pytest.mark.parametrize("seed", range(4))
def test_attention_flow_is_the_maximum_flow(seed: int, widest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "WIDEST", widest)
    numbers = np.random.default_rng(seed)
    maps = numbers.dirichlet(np.full(4, 0.3), size=(3, 4))
    reading = np.eye(4)[0] if seed % 2 else numbers.dirichlet(np.ones(4))
    wanted = [flow_by_programming(maps, reading, token) for token in range(4)]
    np.testing.assert_allclose(flow.token_flows(maps, reading), wanted, atol=1e-6)


@pytest.mark.parametrize("spread", [0.03, 0.3, 3.0])
def test_the_widest_edges_prove_the_same_flow(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0)
    maps = numbers.dirichlet(np.full(40, spread), size=(5, 40))
    for reading in (np.eye(40)[0], numbers.dirichlet(np.ones(40))):
        monkeypatch.setattr(flow, "WIDEST", 40)
        wanted = flow.token_flows(maps, reading)
        for widest in (1, 4, 16):
            monkeypatch.setattr(flow, "WIDEST", widest)
            np.testing.assert_array_equal(flow.token_flows(maps, reading), wanted)


def test_attention_flow_of_hand_made_networks() -> None:
    ring = np.roll(np.eye(3), 1, axis=1)[None]
    np.testing.assert_allclose(flow.token_flows(ring, np.eye(3)[0]), [0.5, 0.5, 0], atol=1e-7)
    np.testing.assert_allclose(flow.token_flows(np.concatenate([ring, ring]), np.eye(3)[0]), [0.5, 1, 0.5], atol=1e-7)


def test_attention_flow_of_a_model() -> None:
    model = bert()
    found = clearhead.explain(model, TEXTS[0], "attention-flow")
    trace = clearhead.capture(model, TEXTS[0])
    maps = torch.stack([attention[0].mean(0) for attention in trace.attentions]).numpy()
    wanted = [flow_by_programming(maps, np.eye(8)[0], token) for token in range(8)]
    np.testing.assert_allclose(found.relevance, wanted, atol=1e-5)
    with pytest.raises(BadInput, match="limit=4"):
        clearhead.explain(model, TEXTS[0], "attention-flow", limit=4)


# --- in common ---------------------------------------------------------------------------------------------------


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
    one, other = (clearhead.explain(model, inputs, name, target=target)[0].relevance for target in (0, 1))
    assert np.allclose(one, other, atol=1e-9) != METHODS[name].class_specific


@pytest.mark.parametrize("name", [*SAMPLED, "random"])
def test_seeds_matter_and_are_told(name: str) -> None:
    model = bert()
    first, second = (clearhead.explain(model, TEXTS[0], name, target=0, seed=seed) for seed in (0, 1))
    assert first.diagnostics["seed"] == 0 and second.diagnostics["seed"] == 1
    assert first.diagnostics["samples"] == METHODS[name].options.get("samples", 1)
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
    model = clearhead.load(bert(), dtype="bfloat16")
    for found in clearhead.explain(model, TEXTS, name, target=0):
        assert np.isfinite(found.relevance).all()


@pytest.mark.parametrize("name", ADDED)
def test_given_embeddings_are_explained(name: str) -> None:
    model = llama()
    embeddings = model.network.get_input_embeddings()(IDS).detach()
    found = clearhead.explain(model, {"inputs_embeds": embeddings[:1]}, name, target=0)[0]
    assert len(found.relevance) == 6 and np.isfinite(found.relevance).all()
    if name not in SAMPLED:
        words = clearhead.explain(model, {"input_ids": IDS[:1]}, name, target=0)[0]
        np.testing.assert_allclose(found.relevance, words.relevance, atol=1e-9)


@pytest.mark.parametrize("name", ADDED)
def test_a_model_without_padding_takes_one_input_at_a_time(name: str) -> None:
    ids = {"input_ids": IDS[:, :3]}
    if name == "deeplift-shap":
        with pytest.raises(UnsupportedModel, match="padding token"):
            clearhead.explain(lonely_gpt(), ids, name, target=0)
    else:
        for found in clearhead.explain(lonely_gpt(), ids, name, target=0):
            assert np.isfinite(found.relevance).all()


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
        ("occlusion", {"absent": "zero"}),
        ("shapley-sampling", {"samples": 2.5}),
        ("integrated-gradients", {"steps": 0}),
        ("integrated-gradients", {"baseline": "black"}),
        ("smooth-gradient", {"noise": -1.0}),
        ("gradient-shap", {"batch": 0}),
        ("smooth-gradient", {"noise": float("inf")}),
        ("smooth-gradient", {"noise": 10**400}),
        ("lime", {"width": 1e-320}),
        ("lime", {"width": 1e-5}),
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
    wanted = clearhead.explain(model, TEXTS[0], name, target=0).relevance
    torch.set_default_dtype(torch.float64)
    try:
        found = clearhead.explain(model, TEXTS[0], name, target=0).relevance
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
