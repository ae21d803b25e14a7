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
    noises = {f"random {seed}": lambda own, place, seed=seed: noise(own, 1000 * seed + place) for seed in range(1, 6)}
    return {"oracle": oracle, "reversed": lambda *one: -oracle(*one), **noises}


def drawn_texts(count, least, most):
    words = [word for word in tiny_tokenizers.PLOT_WORDS[6:] if not word.startswith("#")]
    generator = np.random.default_rng(3)
    return [" ".join(generator.choice(words, size=generator.integers(least, most))) for _ in range(count)]


def bracketed(model, inputs, oracle):
    """Cases explained by the truth, by its opposite, and by noise."""
    return {key: cases_of(model, inputs, way) for key, way in ways(oracle).items()}


def assert_bracketed(name, model, several):
    found = {key: next(iter(values(name, model, cases).values())) for key, cases in several.items()}
    sign = 1 if METRICS[name.partition(":")[0]].better == "higher" else -1
    noisy = np.mean([value for key, value in found.items() if key.startswith("random")])
    assert sign * found["oracle"] > sign * noisy > sign * found["reversed"], found


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
    return tuple((0, one.start(), one.end()) for one in re.finditer(r"\S+", text) if one.group() in words)


def test_token_f1_of_true_weights_beats_random_and_reversed(linear):
    """People marked the words that speak for the class."""
    words = tiny_tokenizers.PLOT_WORDS[6:18]
    found = clearhead.explain(linear, " ".join(words), "random")
    weight = dict(zip(found.tokens, true_weights(linear, found), strict=True))
    several = {}
    for key, way in ways(lambda own, _: signed_weights(linear, own, own.target.number)).items():
        several[key] = cases = cases_of(linear, drawn_texts(12, 60, 90), way)
        for place, case in enumerate(cases):
            sign = 1 if case.example.label == 0 else -1
            best = sorted(words, key=lambda word: -sign * weight[word])[:3]
            gold = marked_spans(case.example.input, best)
            cases[place] = replace(case, example=replace(case.example, gold=gold))
    assert_bracketed("token-f1", linear, several)


def test_precision_at_k_of_true_weights_beats_random_and_reversed():
    """The answer is the three tokens in a row with the largest logits."""
    model, several = linear_models.linear_answers(), {}
    for key, way in ways(lambda own, _: true_weights(model, own)).items():
        several[key] = []
        for place, passage in enumerate(drawn_texts(20, 12, 20)):
            own = clearhead.explain(model, ("is it good", passage), "random")
            weights = true_weights(model, own)[5:-1]
            first = int(np.argmax(np.convolve(weights, np.ones(3), "valid")))
            offsets = own.offsets[5 + first], own.offsets[7 + first]
            gold = ((1, offsets[0][-2], offsets[1][-1]),)
            parts = {side: replace(own, relevance=way(own, place)) for side in ("start", "end")}
            several[key].append(ExplainedExample(Example(str(place), ("is it good", passage), None, gold), parts))
    assert_bracketed("precision-at-k:k=4", model, several)


def test_mosaics_of_true_weights_beat_random_and_reversed(linear):
    """Two texts of different classes are joined; the truth lies in the half of the class that is asked for."""
    texts = drawn_texts(60, 6, 12)
    labels = [found.target.number for found in clearhead.explain(linear, texts, "random")]
    assert set(labels) == {0, 1}
    rows = [Example(str(place), *row) for place, row in enumerate(zip(texts, labels, strict=True))]
    joined = parse_metric("mosaic").prepare(clearhead.data.task.Task("t", rows))
    several = {}
    for key in ways(None):
        several[key] = []
        for place, example in enumerate(joined):
            own = clearhead.explain(linear, example.input, "random")
            way = ways(lambda own, _, label=example.label: signed_weights(linear, own, label))[key]
            several[key].append(ExplainedExample(example, {"label": replace(own, relevance=way(own, place))}))
    assert_bracketed("mosaic", linear, several)


def test_kendall_of_true_weights_lies_below_noise_and_that_below_blindness(linear):
    """Reversed or not, the order for one class is the other's backwards; the far end is not to tell classes apart."""

    def case_of(text, place, way):
        own = clearhead.explain(linear, text, "random")
        both = {str(number): replace(own, relevance=way(own, number, place)) for number in (0, 1)}
        return ExplainedExample(Example(str(place), text), {**both, "prediction": both[str(own.target.number)]})

    def found(way):
        return values(
            "kendall", linear, [case_of(text, place, way) for place, text in enumerate(drawn_texts(30, 6, 12))]
        )["kendall"]

    oracle = found(lambda own, number, _: signed_weights(linear, own, number) + 1e-9 * (-1) ** number * rising(own))
    backwards = found(lambda own, number, _: -signed_weights(linear, own, number) - 1e-9 * (-1) ** number * rising(own))
    noisy = found(lambda own, number, place: noise(own, 2 * place + number))
    blind = found(lambda own, *_: true_weights(linear, own))
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

    several = {}
    for key, way in ways(oracle).items():
        several[key] = cases = cases_of(model, [pictures.picture(seed) for seed in range(16)], way)
        for place, case in enumerate(cases):
            there = oracle(case.explanations["prediction"], 0).reshape(3, 3) > 0
            gold = Mask(png(255 * np.kron(there, np.ones((8, 8)))))
            cases[place] = replace(case, example=replace(case.example, gold=gold))
    found = {key: values("segmentation", model, cases) for key, cases in several.items()}
    for name in ("pixel-accuracy", "map", "miou"):
        noisy = np.mean([one[name] for key, one in found.items() if key.startswith("random")])
        assert found["oracle"][name] > noisy > found["reversed"][name], (name, found)
