"""Segmentation and mosaics against pixel loops."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.explained_examples import TEXTS, cases_of, marked, values
from helpers.pictures import picture, png
from PIL import Image

import clearhead
from clearhead.data.task import Example, Mask, Task
from clearhead.errors import BadInput
from clearhead.evaluation import localisation, paired_tests, statistics
from clearhead.evaluation.metric import ExplainedExample, parse_metric


def slow_segmentation(heats, masks):
    """Pixel by pixel, as defined."""
    right = labelled = 0
    both, either, precisions = [0, 0], [0, 0], []
    for heat, mask in zip(heats, masks, strict=True):
        scaled = (heat - heat.min()) / (heat.max() - heat.min())
        pairs = [(s, m) for s, m in zip(scaled.flatten(), mask.flatten(), strict=True) if m >= 0]
        for score, gold in pairs:
            predicted = int(score > scaled.mean())
            right, labelled = right + (predicted == gold), labelled + 1
            for side in (0, 1):
                both[side] += predicted == side and gold == side
                either[side] += predicted == side or gold == side
        scores = sorted([(s, m == 1) for s, m in pairs] + [(1 - s, m == 0) for s, m in pairs], reverse=True)
        total, hits, area = len(pairs), 0, 0.0
        for threshold in sorted({score for score, _ in scores}, reverse=True):
            group = [gold for score, gold in scores if score >= threshold]
            area += (sum(group) - hits) / total * sum(group) / len(group)
            hits = sum(group)
        precisions.append(area)
    miou = (both[0] / either[0] + both[1] / either[1]) / 2
    return {"pixel-accuracy": right / labelled, "map": np.mean(precisions), "miou": miou}


def test_segmentation_against_pixel_loops(vit):
    generator = np.random.default_rng(2)
    photos = [picture(seed).resize((12, 12)) for seed in range(3)]
    trimaps = [generator.integers(1, 4, (12, 12)) for _ in photos]
    cases = cases_of(vit, photos)
    cases = [
        replace(case, example=replace(case.example, gold=Mask(png(trimap), (1,), (3,))))
        for case, trimap in zip(cases, trimaps, strict=True)
    ]
    masks = [np.select([trimap == 1, trimap == 2], [1, 0], -1) for trimap in trimaps]
    expected = slow_segmentation([case.explanations["prediction"].heatmap() for case in cases], masks)
    measured = values("segmentation", vit, cases)
    assert measured == pytest.approx(expected)


def test_an_explanation_that_is_the_mask_segments_perfectly(vit):
    mask = np.zeros((24, 24))
    mask[:8, :16] = 255
    relevance = np.array([0, 1, 1, 0, 0, 0, 0, 0, 0, 0.0])
    case = cases_of(vit, [picture()], lambda *_: relevance)[0]
    exact = replace(case.explanations["prediction"], pixels=mask / 255)
    case = ExplainedExample(replace(case.example, gold=Mask(png(mask))), {"prediction": exact})
    assert values("segmentation", vit, [case]) == {"pixel-accuracy": 1, "map": 1, "miou": 1}


def test_average_precision_by_hand():
    assert localisation.average_precision(np.array([0.9, 0.8, 0.7]), np.array([True, False, True])) == pytest.approx(
        0.5 * 1 + 0.5 * 2 / 3
    )
    assert localisation.average_precision(np.array([0.5, 0.5]), np.array([True, False])) == pytest.approx(0.5)


def test_a_mask_of_another_size_is_an_error(vit):
    case = cases_of(vit, [picture()])[0]
    case = replace(case, example=replace(case.example, gold=Mask(png(np.ones((5, 7))))))
    with pytest.raises(BadInput, match="7×5"):
        parse_metric("segmentation").measure(vit, [case])


def test_a_picture_without_labelled_pixels_takes_no_part(vit):
    pictures = [Image.fromarray(np.full((32, 32, 3), 40 * index, np.uint8)) for index in range(2)]
    masks = [Mask(png(np.full((32, 32), value)), (1,), (255,)) for value in (1, 255)]
    cases = [
        ExplainedExample(
            Example(str(index), picture, 0, mask), {"prediction": clearhead.explain(vit, picture, "random")}
        )
        for index, (picture, mask) in enumerate(zip(pictures, masks, strict=True))
    ]
    measure = parse_metric("segmentation")
    both, first = (measure.measure(vit, cases[:count]) for count in (2, 1))
    assert both[1] == {}
    assert measure.summarise(both) == measure.summarise(first)
    assert statistics.intervals(measure, [both])["miou"].n == 1


def test_the_parts_of_a_mosaic_are_drawn_together():
    records = [{"mosaic": share, "group": str(group)} for group in range(6) for share in (0.3, 0.7)]
    interval = statistics.intervals(parse_metric("mosaic"), [records])["mosaic"]
    assert (interval.low, interval.high, interval.n) == (pytest.approx(0.5), pytest.approx(0.5), 12)


def test_the_parts_of_a_mosaic_are_compared_together():
    generator = np.random.default_rng(0)
    raises = generator.normal(0.1, 0.2, size=20)
    poor = [{"mosaic": share, "group": str(group)} for group in range(20) for share in (0.3, 0.7)]
    good = [{**record, "mosaic": record["mosaic"] + raises[int(record["group"])]} for record in poor]
    grouped = paired_tests.differences(parse_metric("mosaic"), [good], [poor])["mosaic"]
    single = paired_tests.differences(parse_metric("mosaic"), [good[::2]], [poor[::2]])["mosaic"]
    assert (grouped.n, grouped.groups) == (40, 20)
    assert grouped.p == pytest.approx(single.p)


def test_a_part_of_a_mosaic_past_the_models_length_takes_no_part(bert):
    task = Task("t", [Example("1", "good film " * 100, 0), Example("2", "bad film " * 100, 1)])
    (records,) = clearhead.evaluate(bert, task, ["att-cat"], ["mosaic"]).records["att-cat", "mosaic"]
    assert [record["mosaic"] for record in records] == [pytest.approx(1), None]


def test_text_mosaics_join_two_classes(bert):
    examples = [Example(str(index), text, index % 2) for index, text in enumerate(TEXTS[:4])]
    mosaics = parse_metric("mosaic").prepare(clearhead.data.task.Task("t", examples))
    assert len(mosaics) == 4
    for mosaic in mosaics:
        (_, start, end), source = mosaic.gold[0], int(mosaic.id.partition(":")[0].split("+")[int(mosaic.id[-1])])
        assert mosaic.input[start:end] == TEXTS[source]
        assert mosaic.label == source % 2


def test_mosaic_shares_by_hand(bert):
    text = "a fine film no plot"
    case = marked(bert, text, [9, 1, 2, -5, 0, 1, 9], ((0, 0, text.index(" no")),))
    assert parse_metric("mosaic").measure(bert, [case])[0]["mosaic"] == pytest.approx(3 / 4)
    silent = marked(bert, text, [-1] * 7, ((0, 0, 6),))
    assert parse_metric("mosaic").measure(bert, [silent])[0]["mosaic"] == 0


def test_picture_mosaics_have_four_classes(vit):
    examples = [Example(str(seed), picture(seed), seed % 5) for seed in range(9)]
    mosaics = parse_metric("mosaic").prepare(clearhead.data.task.Task("t", examples))
    assert len(mosaics) == 8 and len({mosaic.label for mosaic in mosaics[:4]}) == 4
    canvas = mosaics[0].raw
    assert canvas.size == (48, 48)
    for index, mosaic in enumerate(mosaics[:4]):
        source = int(mosaic.id.partition(":")[0].split("+")[index])
        left, top, right, bottom = (round(48 * side) for side in mosaic.gold)
        np.testing.assert_array_equal(canvas.crop((left, top, right, bottom)), picture(source))
    relevance = np.array([0, 1, 0, 0, 0, 0, 0, 0, 0, 0.0])
    own = replace(clearhead.explain(vit, canvas, "random"), relevance=relevance)
    records = parse_metric("mosaic").measure(vit, [ExplainedExample(mosaic, {"label": own}) for mosaic in mosaics[:4]])
    assert records[0]["mosaic"] > 0.9 and sum(record["mosaic"] for record in records) == pytest.approx(1)


def test_mosaics_need_different_labels():
    with pytest.raises(BadInput, match="different labels"):
        parse_metric("mosaic").prepare(clearhead.data.task.Task("t", [Example("1", "a", 0), Example("2", "b", 0)]))
