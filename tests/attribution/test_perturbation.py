"""occlusion, LIME and Shapley sampling against formulas and Captum."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from helpers.baselines import IDS, TEXTS, cases
from helpers.explanations import total_effect
from helpers.linear_models import linear_image, linear_text
from helpers.pictures import picture
from helpers.tiny_models import bert, llama, vit

import clearhead
from clearhead import Target
from clearhead.attribution.perturbation import local_weights
from clearhead.attribution.shapley import find_gains
from clearhead.errors import BadOption
from clearhead.model.inputs import as_inputs
from clearhead.perturbation.features import group_features
from clearhead.perturbation.run import perturbed_scores
from clearhead.views.text_spans import scored_spans

HIDING = ["occlusion", "lime", "shapley-sampling"]


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
    for row, explanation in enumerate(clearhead.explain(model, TEXTS, name, target=target, **options)):
        weight = model.network.weight(ids[row][: len(explanation.tokens)]).numpy() * (1 - 2 * target)
        plain = ~explanation.special
        np.testing.assert_allclose(explanation.relevance[plain], weight[plain], atol=1e-9)
        if name in HIDING or "baseline" in options:
            assert not explanation.relevance[explanation.special].any()


@pytest.mark.parametrize("name", ["occlusion", "lime", "shapley-sampling", "integrated-gradients", "gradient-shap"])
def test_a_linear_image_model_gives_back_its_weights(name: str) -> None:
    model = linear_image()
    pixels = torch.rand(2, 3, 12, 12, dtype=torch.float64)
    options: dict[str, Any] = {"output": "logit"} if name in HIDING else {}
    options |= {"ridge": 0.0} if name == "lime" else {}
    for row, explanation in enumerate(clearhead.explain(model, {"pixel_values": pixels}, name, target=0, **options)):
        np.testing.assert_allclose(explanation.relevance, model.network.products(pixels)[row].numpy(), atol=1e-9)


def test_the_gradient_of_a_linear_model_is_the_same_everywhere() -> None:
    smooth = clearhead.explain(linear_text(), "a fine film", "smooth-gradient", target=0)
    plain = clearhead.explain(linear_text(), "a fine film", "gradient", target=0)
    np.testing.assert_allclose(smooth.relevance, plain.relevance, atol=1e-12)


def test_drops_of_sub_words_are_not_added_up() -> None:
    text = "broomfield turns his distinctive ` blundering ' style into something"
    single = clearhead.explain(clearhead.load(), text, "occlusion", check=False)
    pieces = [float(value) for token, value in zip(single.tokens, single.relevance, strict=True) if "nder" in token]
    (word,) = [word for word in single.words() if word.text == "blundering"]
    assert len(pieces) == 1 and abs(word.relevance) >= abs(pieces[0])
    assert word.relevance in [float(value) for value in single.relevance]
    assert {span.text: span.relevance for span in scored_spans(single)}["blundering"] == word.relevance
    whole = clearhead.explain(clearhead.load(), text, "occlusion:unit=word", check=False)
    (removed,) = [word for word in whole.words() if word.text == "blundering"]
    hidden = text.replace("blundering", "[MASK]" * 3)
    without = clearhead.explain(clearhead.load(), hidden, "gradient", whole.label, check=False).probability
    assert removed.relevance == pytest.approx(whole.probability - without, abs=1e-5)


def test_windows_of_occlusion_are_averaged() -> None:
    model, text = linear_text(), "a fine film with no plot"
    ids = as_inputs(model, text).tensors["input_ids"][0]
    weight = model.network.weight(ids)[1:-1].tolist()
    windows = [range(start, start + 3) for start in range(len(weight) - 2)]
    expected = [
        np.mean([sum(weight[index] for index in window) for window in windows if token in window])
        for token in range(len(weight))
    ]
    explanation = clearhead.explain(model, text, "occlusion", target=0, window=3, output="logit")
    np.testing.assert_allclose(explanation.relevance[1:-1], expected, atol=1e-12)
    single_window = clearhead.explain(model, "a fine film", "occlusion", target=0, window=9, output="logit")
    np.testing.assert_allclose(single_window.relevance[1:-1], model.network.weight(ids)[1:4].sum().item(), atol=1e-12)


def test_windows_on_an_image_are_squares() -> None:
    model = linear_image()
    pixels = torch.rand(1, 3, 12, 12, dtype=torch.float64)
    cells = model.network.products(pixels)[0].reshape(3, 3)
    squares = cells.unfold(0, 2, 1).unfold(1, 2, 1).sum((2, 3))
    explanation = clearhead.explain(model, {"pixel_values": pixels}, "occlusion", target=0, window=2, output="logit")[0]
    assert explanation.relevance[0] == pytest.approx(squares[0, 0].item())
    assert explanation.relevance[4] == pytest.approx(squares.mean().item())
    assert explanation.relevance[5] == pytest.approx(squares[:, 1].mean().item())


def test_shapley_values_over_all_orders_are_the_formula() -> None:
    model, text = bert(), "a fine film ."
    coalitions = torch.tensor(list(itertools.product([False, True], repeat=4)))
    scores = perturbed_scores(model, text, [coalitions], [Target(0)])[0].tolist()
    worth = {frozenset(np.flatnonzero(row)): score for row, score in zip(coalitions.numpy(), scores, strict=True)}
    expected = [
        sum(
            math.factorial(len(coalition))
            * math.factorial(3 - len(coalition))
            / math.factorial(4)
            * (worth[coalition | {player}] - s)
            for coalition, s in worth.items()
            if player not in coalition
        )
        for player in range(4)
    ]
    orders = torch.tensor(list(itertools.permutations(range(4))))
    grown = [worth[frozenset(order[:size].tolist())] for order in orders for size in range(5)]
    np.testing.assert_allclose(
        find_gains(torch.tensor(grown, dtype=torch.float64), orders).mean(0), expected, atol=1e-12
    )


@pytest.mark.parametrize("case", ["bert", "vit", "llama"])
@pytest.mark.parametrize("output", ["probability", "logit"])
def test_shapley_values_sum_to_the_effect(case: str, output: str) -> None:
    model, inputs = cases()[case]
    batch = as_inputs(model, inputs)
    ends = [
        torch.tensor([[False] * features.count, [True] * features.count]) for features in group_features(model, batch)
    ]
    explained = clearhead.explain(model, inputs, "shapley-sampling", target=1, samples=2, output=output)
    scores = perturbed_scores(model, batch, ends, [Target(1)] * len(batch), output=output)
    for explanation, (nothing, everything) in zip(explained, scores, strict=True):
        assert explanation.relevance.sum() == pytest.approx(float(everything - nothing), abs=1e-10)
        assert total_effect(explanation) == pytest.approx(float(everything - nothing), abs=1e-10)


def test_lime_is_weighted_ridge_regression() -> None:
    drawn = torch.Generator().manual_seed(0)
    mask = (torch.rand(30, 5, generator=drawn) < 0.5).double()
    score = torch.rand(30, generator=drawn, dtype=torch.float64)
    similarity = torch.exp(-((1 - mask.mean(1).sqrt()) ** 2) / (2 * 0.25**2))
    design = torch.cat([mask, torch.ones(30, 1, dtype=torch.float64)], 1)
    penalty = torch.diag(torch.tensor([0.3] * 5 + [0.0], dtype=torch.float64))
    weighted = design.T * similarity
    expected = torch.linalg.solve(weighted @ design + penalty, weighted @ score)
    torch.testing.assert_close(local_weights(mask, score, 0.25, 0.3), expected[:5])


def test_units_share_their_relevance_among_their_tokens() -> None:
    model = bert()
    explanation = clearhead.explain(model, "a goodly films . no plot", "shapley-sampling", unit="word", target=0)
    assert explanation.diagnostics["unit"] == "word" and explanation.diagnostics["units"] == 6
    assert explanation.relevance[2] == explanation.relevance[3]
    sentences = clearhead.explain(model, "a goodly films . no plot", "occlusion", unit="sentence", target=0)
    assert len(set(sentences.relevance[1:6])) == 1 and sentences.diagnostics["units"] == 2


@pytest.mark.parametrize("unit", ["grid", "slic", "segment"])
def test_segments_of_an_image_carry_all_relevance(unit: str) -> None:
    explanation = clearhead.explain(vit(), picture(), "shapley-sampling", unit=unit, segments=4, target=0, samples=2)
    assert explanation.relevance.sum() == pytest.approx(total_effect(explanation), abs=1e-10)
    assert explanation.pixels is not None and explanation.pixels.sum() == pytest.approx(
        total_effect(explanation), abs=1e-10
    )


@pytest.mark.parametrize("replacement", ["mask", "pad", "delete", "attention", "mask-attention"])
def test_the_replacement_is_recorded_and_matters(replacement: str) -> None:
    explanation = clearhead.explain(bert(), TEXTS[0], "occlusion", replacement=replacement, target=0)
    default = clearhead.explain(bert(), TEXTS[0], "occlusion", target=0)
    assert explanation.diagnostics["absent"] == replacement and default.diagnostics["absent"] == "mask"
    assert explanation.options["replacement"] == replacement and "absent" not in explanation.options
    assert (replacement == "mask") == np.allclose(explanation.relevance, default.relevance, atol=1e-12)


@pytest.mark.parametrize("name", ["occlusion", "lime", "shapley-sampling"])
def test_the_former_name_of_the_replacement_is_taken(name: str) -> None:
    former = clearhead.explain(bert(), TEXTS[0], f"{name}:absent=pad", target=0)
    current = clearhead.explain(bert(), TEXTS[0], name, replacement="pad", target=0)
    assert former.options == current.options and former.options["replacement"] == "pad"
    np.testing.assert_array_equal(former.relevance, current.relevance)
    with pytest.raises(BadOption, match="replacement"):
        clearhead.explain(bert(), TEXTS[0], f"{name}:absent=pad", replacement="mask")


def decoder_probability(ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits = llama().network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    return logits.softmax(-1)


@pytest.mark.parametrize("window", [1, 3])
def test_occlusion_agrees_with_captum(window: int) -> None:
    from captum.attr import Occlusion

    ids = IDS[:1]
    expected = Occlusion(decoder_probability).attribute(ids, sliding_window_shapes=(window,), baselines=0, target=1)
    explanation = clearhead.explain(
        llama(), {"input_ids": ids}, "occlusion", target=1, replacement="pad", window=window
    )[0]
    np.testing.assert_allclose(explanation.relevance, expected[0].numpy(), atol=1e-6)


def test_shapley_sampling_agrees_with_captum(monkeypatch: pytest.MonkeyPatch) -> None:
    from captum.attr import ShapleyValueSampling

    ids = IDS[:1]
    orders = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(seed)) for seed in range(4)])
    sampling = ShapleyValueSampling(decoder_probability)
    sampling.permutation_generator = lambda features, samples: iter(orders.tolist())
    expected = sampling.attribute(ids, baselines=0, target=1, n_samples=4)
    monkeypatch.setattr("clearhead.attribution.shapley._draw_orders", lambda *_: orders)
    explanation = clearhead.explain(
        llama(), {"input_ids": ids}, "shapley-sampling", target=1, replacement="pad", samples=4
    )[0]
    np.testing.assert_allclose(explanation.relevance, expected[0].numpy(), atol=1e-6)


def test_lime_agrees_with_captum(monkeypatch: pytest.MonkeyPatch) -> None:
    from captum._utils.models.model import Model as Interpretable
    from captum.attr import Lime

    class Ridge(Interpretable):
        def fit(self, train_data: Any, **_: Any) -> None:
            rows = list(train_data)
            mask, score, weight = (torch.cat([row[column] for row in rows]).double() for column in range(3))
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
    expected = lime.attribute(IDS[:1], baselines=0, target=1, n_samples=40)
    monkeypatch.setattr("clearhead.attribution.perturbation.draw_masks", lambda *_: coins)
    explanation = clearhead.explain(llama(), {"input_ids": IDS[:1]}, "lime", target=1, replacement="pad", samples=40)[0]
    np.testing.assert_allclose(explanation.relevance, expected[0].numpy(), atol=1e-5)
