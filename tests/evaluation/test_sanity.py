"""The randomisation test."""

import numpy as np
import pytest
import torch
from helpers.explained_examples import TEXTS

import clearhead
from clearhead.data.task import Example
from clearhead.evaluation import sanity
from clearhead.evaluation.metric import ExplainedExample, parse_metric


def test_randomisation_leaves_the_model_alone_and_tells_noise_from_explanation(bert):
    before = {name: value.clone() for name, value in bert.network.state_dict().items()}
    cases_by_method = {
        name: [
            ExplainedExample(Example(str(index), text), {"prediction": explanation})
            for index, (text, explanation) in enumerate(zip(TEXTS, clearhead.explain(bert, TEXTS, name), strict=True))
        ]
        for name in ("att-cat", "random")
    }
    records = parse_metric("randomisation").measure(bert, cases_by_method["att-cat"] + cases_by_method["random"])
    assert all(torch.equal(value, before[name]) for name, value in bert.network.state_dict().items())
    assert all(len(record["correlations"]) == 5 for record in records)
    noisy = [record["randomisation"] for record in records[5:] if record["randomisation"] is not None]
    assert noisy == pytest.approx([1] * 4)
    assert np.mean([record["randomisation"] for record in records[:5] if record["randomisation"] is not None]) < 0.9


def test_parts_go_from_the_head_to_the_embeddings(bert):
    groups = sanity.parts_from_output(bert.network)
    names = {id(value): name for name, value in bert.network.named_parameters()}
    firsts = [
        {names[id(parameter)].split("layer.")[-1].split(".")[0] for parameter in parameters} for parameters in groups
    ]
    assert firsts == [{"bert", "classifier"}, {"2"}, {"1"}, {"0"}, {"bert"}]
    assert all("embeddings" in names[id(parameter)] for parameter in groups[-1])
    assert sum(len(parameters) for parameters in groups) == len(names)


def test_spearman_is_scipys():
    stats = pytest.importorskip("scipy.stats", reason="the flow extra, which brings SciPy, is not installed")
    generator = np.random.default_rng(0)
    first, second = generator.integers(0, 5, 20).astype(float), generator.normal(size=20)
    assert sanity.spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert sanity.spearman(np.ones(4), np.arange(4.0)) == 0
