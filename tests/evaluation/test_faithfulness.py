"""Faithfulness metrics against one slow pass per step."""

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers import pictures
from helpers.explained_examples import TEXTS, cases_of, values
from helpers.explanations import pictured

import clearhead
from clearhead.evaluation import removal as pixel_removal
from clearhead.evaluation.metric import parse_metric
from clearhead.model.inputs import encode
from clearhead.perturbation import ranking as removal


def slow_order(explanation, lowest=False):
    """Positions of real tokens, most relevant first, ties by position."""
    real = [position for position in range(len(explanation.tokens)) if not explanation.special[position]]
    sign = 1 if lowest else -1
    return sorted(real, key=lambda position: (sign * explanation.relevance[position], position))


def slow_logits(model, text, hidden, absent):
    """One forward pass of one text, changed by hand."""
    encoded = encode(model, text)
    ids, mask = list(encoded.values["input_ids"]), [1] * len(encoded.values["input_ids"])
    if absent == "delete":
        ids = [token for position, token in enumerate(ids) if position not in hidden]
        mask = mask[: len(ids)]
    else:
        name = absent.removesuffix("-attention")
        fill = model.processor.convert_tokens_to_ids(f"[{name.upper()}]")
        ids = [fill if position in hidden else token for position, token in enumerate(ids)]
        mask = [0 if position in hidden and absent.endswith("attention") else 1 for position in range(len(ids))]
    with torch.no_grad():
        output = model.network(input_ids=torch.tensor([ids]), attention_mask=torch.tensor([mask]))
    return (output if isinstance(output, torch.Tensor) else output.logits)[0]


def slow_probabilities(model, case, percents, absent, keep=False):
    explanation = case.explanations["prediction"]
    order = slow_order(explanation)
    probabilities = []
    for percent in percents:
        count = math.ceil(percent * len(order) / 100)
        hidden = set(order[count:] if keep else order[:count])
        probabilities.append(
            slow_logits(model, case.example.input, hidden, absent).softmax(-1)[explanation.target.number]
        )
    return np.array([float(probability) for probability in probabilities])


def test_aopc_is_the_mean_drop_over_eleven_steps(bert):
    cases = cases_of(bert, TEXTS)
    slow = [slow_probabilities(bert, case, range(0, 101, 10), "delete") for case in cases]
    expected = [np.mean(probabilities[0] - probabilities) for probabilities in slow]
    records = parse_metric("aopc").measure(bert, cases)
    np.testing.assert_allclose([record["aopc"] for record in records], expected, atol=1e-9)
    np.testing.assert_allclose(records[0]["changes"], slow[0][0] - slow[0], atol=1e-9)
    assert values("aopc", bert, cases)["aopc"] == pytest.approx(np.mean(expected), abs=1e-9)


def test_lodds_replaces_by_padding_and_keeps_the_attention(bert):
    cases = cases_of(bert, TEXTS)
    slow = [np.log(slow_probabilities(bert, case, range(0, 101, 10), "pad")) for case in cases]
    records = parse_metric("lodds").measure(bert, cases)
    expected = [np.mean(logs - logs[0]) for logs in slow]
    np.testing.assert_allclose([record["lodds"] for record in records], expected, atol=1e-9)


def test_the_authors_variant_of_aopc(bert):
    cases = cases_of(bert, TEXTS)
    percents = [Fraction(100 * step, 9) for step in range(10)]
    slow = [slow_probabilities(bert, case, percents, "delete") for case in cases]
    records = parse_metric("aopc:steps=9,first=1,absolute=true").measure(bert, cases)
    expected = [np.mean(np.abs(probabilities[0] - probabilities[1:])) for probabilities in slow]
    np.testing.assert_allclose([record["aopc"] for record in records], expected, atol=1e-9)


def test_comprehensiveness_and_sufficiency(bert):
    cases, bins = cases_of(bert, TEXTS), (1, 5, 10, 20, 50)
    unchanged = [slow_probabilities(bert, case, [0], "delete")[0] for case in cases]
    without = [slow_probabilities(bert, case, bins, "delete").mean() for case in cases]
    alone = [slow_probabilities(bert, case, bins, "delete", keep=True).mean() for case in cases]
    measured = values("comprehensiveness", bert, cases) | values("sufficiency", bert, cases)
    assert measured["comprehensiveness"] == pytest.approx(np.mean(unchanged) - np.mean(without), abs=1e-9)
    assert measured["sufficiency"] == pytest.approx(np.mean(unchanged) - np.mean(alone), abs=1e-9)


@pytest.mark.parametrize("name", ["hiding", "revealing"])
def test_hiding_and_revealing_take_tokens_from_attention(linear, name):
    labels = [0, 1, 0, 1, 0]
    cases = cases_of(linear, TEXTS, labels=labels)
    for case, record in zip(cases, parse_metric(name).measure(linear, cases), strict=True):
        order, correct = slow_order(case.explanations["prediction"]), []
        for step in range(11):
            count = math.ceil(step * len(order) / 10)
            hidden = set(order[:count] if name == "hiding" else order[count:])
            logits = slow_logits(linear, case.example.input, hidden, "mask-attention")
            correct.append(float(logits.argmax() == case.example.label))
        assert record["correct"] == correct
        assert record[name] == pytest.approx(sum((correct[k] + correct[k + 1]) / 20 for k in range(10)))


@pytest.mark.parametrize(("name", "lowest"), [("positive-perturbation", False), ("negative-perturbation", True)])
def test_pixels_go_black_in_the_order_of_the_upsampled_map(vit, name, lowest):
    images = [pictures.picture(seed) for seed in range(4)]
    cases = cases_of(vit, images)
    for picture, case, record in zip(images, cases, parse_metric(name).measure(vit, cases), strict=True):
        pixels = vit.processor(images=picture, return_tensors="pt")["pixel_values"].double()
        grid = torch.tensor(case.explanations["prediction"].relevance[1:]).reshape(1, 1, 3, 3)
        heat = torch.nn.functional.interpolate(grid, size=(24, 24), mode="bilinear").flatten()
        order = torch.argsort(heat, descending=not lowest, stable=True)
        black = -torch.tensor(vit.processor.image_mean) / torch.tensor(vit.processor.image_std)
        correct = []
        for step in range(10):
            changed = pixels.clone().flatten(2)
            changed[:, :, order[: math.ceil(step * 576 / 10)]] = black.double()[None, :, None]
            with torch.no_grad():
                logits = vit.network(pixel_values=changed.reshape(pixels.shape)).logits
            correct.append(float(logits.argmax() == case.example.label))
        assert record["correct"] == correct
        assert record[name] == pytest.approx(100 * sum((correct[k] + correct[k + 1]) / 20 for k in range(9)))


def test_the_papers_text_starts_at_ten_percent(vit):
    cases = cases_of(vit, [pictures.picture()])
    record = parse_metric("positive-perturbation:start=0.1").measure(vit, cases)[0]
    assert record["correct"] == parse_metric("positive-perturbation").measure(vit, cases)[0]["correct"][1:]


def test_one_packed_call_runs_equal_inputs_once(linear):
    linear.network.calls.clear()
    cases = cases_of(linear, TEXTS) + cases_of(linear, TEXTS)
    linear.network.calls.clear()
    parse_metric("aopc").measure(linear, cases)
    rows = sum(shape[0] for shape in linear.network.calls)
    longest = max(len(case.explanations["prediction"].tokens) for case in cases)
    assert rows < 11 * len(TEXTS)
    # Short rows may have a narrower call of their own.
    assert len(linear.network.calls) <= math.ceil(rows * longest / 1024) + 2


def test_stages_count_upwards_and_break_ties_by_position():
    assert removal.removal_counts([0, 0.1, 0.5, 1], 7) == [0, 1, 4, 7]
    assert removal.removal_counts([step / 10 for step in range(11)], 10) == list(range(11))
    assert removal.removal_stages(np.array([1.0, 3.0, 3.0, 0.0]), [0, 0.25, 0.5, 1]).tolist() == [3, 1, 2, 3]
    assert removal.removal_stages(np.array([1.0, 3.0, 2.0]), [0, 0.3]).tolist() == [2, 1, 2]


@pytest.mark.parametrize("lowest", [False, True])
@pytest.mark.parametrize("shares", [[0.0], [0.0, 0.1, 0.5, 0.9], [step / 300 for step in range(301)]])
def test_pixels_of_many_maps_are_staged_as_each_map_by_itself(shares, lowest):
    # Whole numbers, so that many pixels are tied, as where a map is clamped.
    maps = np.random.default_rng(0).integers(-2, 3, (5, 60)).astype(float)
    maps[3, ::7] = np.inf
    maps[4, :20] = np.nan
    maps[4, 40:] = -np.nan
    staged = removal.removal_stages_of_maps(torch.from_numpy(maps), shares, lowest=lowest)
    alone = [removal.removal_stages(relevance, shares, lowest=lowest) for relevance in maps]
    assert staged.tolist() == np.stack(alone).tolist()


def test_no_nan_that_is_sorted_has_a_sign(monkeypatch):
    # A GPU would put it before all numbers.
    sort, seen = torch.argsort, []
    monkeypatch.setattr(torch, "argsort", lambda key, **options: seen.append(key) or sort(key, **options))
    for lowest in (False, True):
        removal.removal_stages_of_maps(torch.tensor([[math.nan, -math.nan, 1.0]]), [0.0, 0.5], lowest=lowest)
    assert len(seen) == 2
    assert not any(torch.signbit(key[key.isnan()]).any() for key in seen)


@pytest.mark.parametrize("shares", [3, 254, 255, 999])
def test_labels_of_pixels_hold_the_number_of_the_last_stage(shares):
    staging = pixel_removal._Staging([step / shares for step in range(shares)], lowest=False)
    labels = staging.number_maps(torch.rand(2, 2000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    assert int(labels.min()) == 2 and int(labels.max()) == shares + 1


def test_maps_are_sorted_in_parts(monkeypatch):
    pixels = torch.zeros(5, 3, 8, 8)
    maps = np.random.default_rng(0).normal(size=(5, 8, 8))
    explanations = [pictured(pixels=pixels_PQ) for pixels_PQ in maps]
    staging = pixel_removal._Staging([0.0, 0.5], lowest=False)
    whole = pixel_removal._stage_pixels(pixels, explanations, staging)
    monkeypatch.setattr(pixel_removal, "MAPS_PER_SORT", 2)
    parts = pixel_removal._stage_pixels(pixels, explanations, staging)
    assert len(parts) == 5 and [part.count for part in parts] == [3] * 5
    assert all(torch.equal(one.labels, other.labels) for one, other in zip(whole, parts, strict=True))


def _count_rows(monkeypatch, model):
    """Return a list that gets the size of every batch the network reads."""
    sizes = []
    run = model.network.forward

    def counting(*args, **kwargs):
        sizes.append(len(kwargs["input_ids"]))
        return run(*args, **kwargs)

    monkeypatch.setattr(model.network, "forward", counting)
    return sizes


def test_metrics_that_remove_the_same_parts_share_their_passes(bert, monkeypatch):
    cases = cases_of(bert, TEXTS)
    sizes = _count_rows(monkeypatch, bert)
    first = parse_metric("aopc").measure(bert, cases)
    assert sizes
    sizes.clear()
    assert parse_metric("aopc:target=label").measure(bert, [*cases, cases[0]]) == [*first, first[0]]
    assert not sizes
    # Others ask for other inputs.
    parse_metric("lodds").measure(bert, cases)
    assert sizes


def test_shared_passes_are_those_of_the_model_and_its_weights(bert):
    cases = cases_of(bert, TEXTS)
    first = parse_metric("aopc").measure(bert, cases)
    copied = copy.deepcopy(bert.network)
    with torch.no_grad():
        for weight in copied.parameters():
            weight.mul_(1.5)
    other = clearhead.load(copied, processor=bert.processor)
    changed = parse_metric("aopc").measure(other, cases)
    assert changed != first
    assert changed == parse_metric("aopc").measure(other, cases_of(bert, TEXTS))
    with torch.no_grad():
        for weight in copied.parameters():
            weight.mul_(1.5)
    assert parse_metric("aopc").measure(other, cases) != changed
