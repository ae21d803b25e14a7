"""Deletion and insertion curves against one plain call per step."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.pictures import picture
from helpers.tiny_models import bert, vit

import clearhead
from clearhead.errors import BadOption
from clearhead.model.inputs import as_inputs
from clearhead.perturbation.curves import (
    RANDOM,
    average_orders,
    random_orders,
    rank_order,
    removal_curves,
    removal_masks,
    score_orders,
)
from clearhead.perturbation.features import group_features
from clearhead.perturbation.run import perturbed_scores

TEXT = "is it goodly or bad , a fine film"


@pytest.mark.parametrize("reveal", [False, True])
def test_a_curve_hides_or_reveals_the_most_relevant_first(reveal: bool) -> None:
    model = bert()
    explanation = clearhead.explain(model, TEXT, "att-cat")
    relevance = explanation.relevance[~explanation.special]
    order = np.argsort(-relevance, kind="stable")
    curves = removal_curves(model, TEXT, {"att-cat": explanation}, reveal=reveal)
    assert list(curves) == ["att-cat", RANDOM]
    curve = curves["att-cat"]
    assert curve.shares == tuple(step / 10 for step in range(11))
    assert curve.counts == tuple(math.ceil(step * len(order) / 10) for step in range(11))
    for count, value in zip(curve.counts, curve.values, strict=True):
        mask = torch.full((1, len(order)), not reveal)
        mask[0, order[:count].copy()] = reveal
        (score,) = perturbed_scores(model, TEXT, [mask], [explanation.target])
        assert value == pytest.approx(float(score[0]), abs=1e-12)
    assert curve.low is None and curve.orders == 1
    ends = curve.values if not reveal else curve.values[::-1]
    assert ends[0] == pytest.approx(explanation.probability)


def test_random_orders_are_seeded_and_averaged() -> None:
    model = bert()
    explanation = clearhead.explain(model, TEXT, "att-cat")
    curve = removal_curves(model, TEXT, {"att-cat": explanation}, steps=4)[RANDOM]
    assert len(curve.values) == 5 and curve.orders == 5
    batch = as_inputs(model, TEXT)
    orders = random_orders(int((~explanation.special).sum()))
    assert orders == random_orders(len(orders[0]))
    scores = score_orders(model, batch, explanation.target, orders, curve.counts)
    np.testing.assert_allclose(curve.values, scores.mean(0), atol=1e-12)
    assert curve.low is not None and curve.high is not None
    np.testing.assert_allclose(curve.low, scores.min(0), atol=1e-12)
    np.testing.assert_allclose(curve.high, scores.max(0), atol=1e-12)


def test_words_are_hidden_as_wholes_and_ranked_by_their_sums() -> None:
    model = bert()
    explanation = clearhead.explain(model, TEXT, "att-cat")
    (features,) = group_features(model, as_inputs(model, TEXT), "word")
    words = [word.relevance for word in explanation.words()]
    assert rank_order(explanation, features) == np.argsort(-np.array(words), kind="stable").tolist()
    curve = removal_curves(model, TEXT, {"att-cat": explanation}, unit="word", steps=3)["att-cat"]
    assert curve.counts[-1] == len(TEXT.split())


def test_sub_words_whose_drops_do_not_add_up_are_ranked_by_the_strongest() -> None:
    model = bert()
    explanation = clearhead.explain(model, "goodly bad", "occlusion", check=False)
    assert len(explanation.tokens) == 5
    # "goodly" is the larger sum, "bad" the larger sub-word.
    explanation = replace(explanation, relevance=np.array([0.0, 0.3, 0.3, 0.4, 0.0]))
    (features,) = group_features(model, as_inputs(model, "goodly bad"), "word")
    assert explanation.top() == [("bad", 0.4), ("goodly", 0.3)]
    assert rank_order(explanation, features) == [1, 0]


def test_images_lose_patches() -> None:
    model = vit()
    explanation = clearhead.explain(model, picture(), "rollout")
    assert removal_curves(model, picture(), {"rollout": explanation})["rollout"].counts[-1] == 9
    with pytest.raises(BadOption, match="patches"):
        removal_curves(model, picture(), {"rollout": explanation}, unit="grid")


def test_masks_follow_the_order() -> None:
    hidden = removal_masks([2, 0, 1], [0, 1, 3])
    assert hidden.tolist() == [[True, True, True], [True, True, False], [False, False, False]]
    assert torch.equal(removal_masks([2, 0, 1], [0, 1, 3], reveal=True), ~hidden)


def test_one_order_has_no_range() -> None:
    curve = average_orders(np.array([[0.5, 0.25]]), [0, 1], [0.0, 1.0])
    assert (curve.values, curve.low, curve.high) == ((0.5, 0.25), None, None)
