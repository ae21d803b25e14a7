"""Every metric on models whose true relevances are known: truth beats random beats reversed."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import linear_models, pictures, tiny_models, tiny_tokenizers
from helpers.explained_examples import cases_of, noise, signed_weights, true_weights, values
from helpers.pictures import png

import clearhead
from clearhead.data.task import Example, Mask
from clearhead.evaluation.metric import METRICS, ExplainedExample, parse_metric


def ways(oracle):
    """The truth, its opposite, and five kinds of noise, as functions of an explanation and a number to draw by."""
    noises = {f"random {seed}": lambda own, number, seed=seed: noise(own, 1000 * seed + number) for seed in range(1, 6)}
    return {"oracle": oracle, "reversed": lambda *arguments: -oracle(*arguments), **noises}


def drawn_texts(count, least, most):
    words = [word for word in tiny_tokenizers.PLOT_WORDS[6:] if not word.startswith("#")]
    generator = np.random.default_rng(3)
    return [" ".join(generator.choice(words, size=generator.integers(least, most))) for _ in range(count)]


def bracketed(model, inputs, oracle):
    """Cases explained by the truth, by its opposite, and by noise."""
    return {key: cases_of(model, inputs, way) for key, way in ways(oracle).items()}


def assert_bracketed(name, model, cases_by_way):
    value_by_way = {key: next(iter(values(name, model, cases).values())) for key, cases in cases_by_way.items()}
    sign = 1 if METRICS[name.partition(":")[0]].better == "higher" else -1
    noisy = np.mean([value for key, value in value_by_way.items() if key.startswith("random")])
    assert sign * value_by_way["oracle"] > sign * noisy > sign * value_by_way["reversed"], value_by_way


@pytest.mark.parametrize("name", ["aopc", "lodds", "comprehensiveness", "sufficiency", "hiding", "revealing"])
def test_true_weights_beat_random_and_reversed_on_a_linear_model(linear, name):
    def oracle(explanation, _):
        return signed_weights(linear, explanation, explanation.target.number)

    assert_bracketed(name, linear, bracketed(linear, drawn_texts(30, 5, 12), oracle))


@pytest.mark.parametrize("name", ["positive-perturbation", "negative-perturbation"])
def test_true_weights_beat_random_and_reversed_on_pixels(name):
    processor = tiny_models.vit().processor
    processor.size = {"height": 12, "width": 12}
    model = replace(linear_models.linear_image(), processor=processor)

    def oracle(explanation, _):
        pixels = processor(images=explanation.image, return_tensors="pt")["pixel_values"].double()
        black = -torch.tensor(processor.image_mean) / torch.tensor(processor.image_std)
        products = model.network.products(pixels - black.double().reshape(1, 3, 1, 1))[0].numpy()
        return products if explanation.target.number == 0 else -products

    assert_bracketed(name, model, bracketed(model, [pictures.picture(seed) for seed in range(24)], oracle))


def marked_spans(text, words):
    """Where these words stand in a text."""
    return tuple((0, match.start(), match.end()) for match in re.finditer(r"\S+", text) if match.group() in words)


def test_token_f1_of_true_weights_beats_random_and_reversed(linear):
    """People marked the words that speak for the class."""
    words = tiny_tokenizers.PLOT_WORDS[6:18]
    explanation = clearhead.explain(linear, " ".join(words), "random")
    weight = dict(zip(explanation.tokens, true_weights(linear, explanation), strict=True))
    cases_by_way = {}
    for key, way in ways(lambda own, _: signed_weights(linear, own, own.target.number)).items():
        cases_by_way[key] = cases = cases_of(linear, drawn_texts(12, 60, 90), way)
        for index, case in enumerate(cases):
            sign = 1 if case.example.label == 0 else -1
            best = sorted(words, key=lambda word: -sign * weight[word])[:3]
            gold = marked_spans(case.example.input, best)
            cases[index] = replace(case, example=replace(case.example, gold=gold))
    assert_bracketed("token-f1", linear, cases_by_way)


def test_precision_at_k_of_true_weights_beats_random_and_reversed():
    """The answer is the three tokens in a row with the largest logits."""
    model, cases_by_way = linear_models.linear_answers(), {}
    for key, way in ways(lambda own, _: true_weights(model, own)).items():
        cases_by_way[key] = []
        for index, passage in enumerate(drawn_texts(20, 12, 20)):
            own = clearhead.explain(model, ("is it good", passage), "random")
            weights = true_weights(model, own)[5:-1]
            first = int(np.argmax(np.convolve(weights, np.ones(3), "valid")))
            offsets = own.offsets[5 + first], own.offsets[7 + first]
            gold = ((1, offsets[0][-2], offsets[1][-1]),)
            explanations = {side: replace(own, relevance=way(own, index)) for side in ("start", "end")}
            cases_by_way[key].append(
                ExplainedExample(Example(str(index), ("is it good", passage), None, gold), explanations)
            )
    assert_bracketed("precision-at-k:k=4", model, cases_by_way)


def test_mosaics_of_true_weights_beat_random_and_reversed(linear):
    """Two texts of different classes are joined; the truth lies in the half of the class that is asked for."""
    texts = drawn_texts(60, 6, 12)
    labels = [explanation.target.number for explanation in clearhead.explain(linear, texts, "random")]
    assert set(labels) == {0, 1}
    rows = [Example(str(index), *row) for index, row in enumerate(zip(texts, labels, strict=True))]
    joined = parse_metric("mosaic").prepare(clearhead.data.task.Task("t", rows))
    cases_by_way = {}
    for key in ways(None):
        cases_by_way[key] = []
        for index, example in enumerate(joined):
            own = clearhead.explain(linear, example.input, "random")
            way = ways(lambda own, _, label=example.label: signed_weights(linear, own, label))[key]
            cases_by_way[key].append(ExplainedExample(example, {"label": replace(own, relevance=way(own, index))}))
    assert_bracketed("mosaic", linear, cases_by_way)


def test_kendall_of_true_weights_lies_below_noise_and_that_below_blindness(linear):
    """Reversed or not, the order for one class is the other's backwards; the far end is not to tell classes apart."""

    def case_of(text, index, way):
        own = clearhead.explain(linear, text, "random")
        both = {str(number): replace(own, relevance=way(own, number, index)) for number in (0, 1)}
        return ExplainedExample(Example(str(index), text), {**both, "prediction": both[str(own.target.number)]})

    def kendall(way):
        return values(
            "kendall", linear, [case_of(text, index, way) for index, text in enumerate(drawn_texts(30, 6, 12))]
        )["kendall"]

    oracle = kendall(lambda own, number, _: signed_weights(linear, own, number) + 1e-9 * (-1) ** number * rising(own))
    backwards = kendall(
        lambda own, number, _: -signed_weights(linear, own, number) - 1e-9 * (-1) ** number * rising(own)
    )
    noisy = kendall(lambda own, number, index: noise(own, 2 * index + number))
    blind = kendall(lambda own, *_: true_weights(linear, own))
    assert oracle == backwards == pytest.approx(-1)
    assert abs(noisy) < 0.2
    assert blind == pytest.approx(1)


def rising(explanation):
    """Tells equal words apart."""
    return np.arange(len(explanation.tokens))


def test_segmentation_by_true_weights_beats_random_and_reversed():
    """The object is where pixel × weight speaks for the class."""
    processor = tiny_models.vit().processor
    processor.size = {"height": 12, "width": 12}
    model = replace(linear_models.linear_image(), processor=processor)

    def oracle(explanation, _):
        pixels = processor(images=explanation.image, return_tensors="pt")["pixel_values"].double()
        products = model.network.products(pixels)[0].numpy()
        return products if explanation.target.number == 0 else -products

    cases_by_way = {}
    for key, way in ways(oracle).items():
        cases_by_way[key] = cases = cases_of(model, [pictures.picture(seed) for seed in range(16)], way)
        for index, case in enumerate(cases):
            there = oracle(case.explanations["prediction"], 0).reshape(3, 3) > 0
            gold = Mask(png(255 * np.kron(there, np.ones((8, 8)))))
            cases[index] = replace(case, example=replace(case.example, gold=gold))
    values_by_way = {key: values("segmentation", model, cases) for key, cases in cases_by_way.items()}
    for name in ("pixel-accuracy", "map", "miou"):
        noisy = np.mean([measured[name] for key, measured in values_by_way.items() if key.startswith("random")])
        assert values_by_way["oracle"][name] > noisy > values_by_way["reversed"][name], (name, values_by_way)
