"""Kendall tau between the explanations of classes."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny_models
from helpers.explained_examples import TEXTS

import clearhead
from clearhead.data.task import Example
from clearhead.evaluation import confidence
from clearhead.evaluation.metric import ExplainedExample, parse_metric


@pytest.mark.parametrize("order", ["rank", "index"])
def test_kendall_is_scipys_tau_averaged_over_the_other_classes(bert, order):
    stats = pytest.importorskip("scipy.stats", reason="the flow extra, which brings SciPy, is not installed")
    own = clearhead.explain(bert, TEXTS[2], "random")
    generator = np.random.default_rng(1)
    explanations = {str(number): replace(own, relevance=generator.normal(size=len(own.tokens))) for number in range(3)}
    predicted = own.target.number
    case = ExplainedExample(Example("x", TEXTS[2]), {**explanations, "prediction": explanations[str(predicted)]})
    record = parse_metric(("kendall", {"order": order})).measure(bert, [case])[0]
    lists = {key: explanation.relevance[1:-1] for key, explanation in explanations.items()}
    if order == "index":
        lists = {key: np.argsort(-value) for key, value in lists.items()}
    taus = [stats.kendalltau(lists[str(predicted)], lists[str(n)]).statistic for n in range(3) if n != predicted]
    assert record["kendall"] == pytest.approx(np.mean(taus))


def test_ties_count_neither_way():
    stats = pytest.importorskip("scipy.stats", reason="the flow extra, which brings SciPy, is not installed")
    first, second = np.random.default_rng(0).integers(0, 4, (2, 30)).astype(float)
    assert confidence.tau(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)
    assert confidence.tau(first, first) == pytest.approx(1)
    assert confidence.tau(first, np.zeros(30)) == 0


def test_kendall_of_equal_and_opposite_classes():
    model = tiny_models.bert(labels=2)
    own = clearhead.explain(model, TEXTS[0], "random")
    opposite = replace(own, relevance=-own.relevance)
    other_class = str(1 - own.target.number)
    same = ExplainedExample(Example("x", TEXTS[0]), {"prediction": own, other_class: own})
    against = ExplainedExample(Example("x", TEXTS[0]), {"prediction": own, other_class: opposite})
    assert [record["kendall"] for record in parse_metric("kendall").measure(model, [same, against])] == [1, -1]
