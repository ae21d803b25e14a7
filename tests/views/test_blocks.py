"""Blocks × tokens heat maps."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.explanations import explained, review

from clearhead.errors import BadOption
from clearhead.views import blocks


def test_heat_maps_have_a_row_per_block_then_rollout_and_sum():
    layers = np.random.default_rng(0).normal(size=(3, 14))
    explanation = replace(review(layers=layers), relevance=layers.sum(0))
    assert len(explanation.tokens) == 14
    table = blocks.heat_map(explanation, review(method="rollout"))
    assert list_rows(table) == ["block 2", "block 1", "block 0", "Rollout", "Sum"]
    assert table.count("<td") == 5 * 14


def list_rows(table):
    return [row.partition("<")[0] for row in table.split('<th scope="row">')[1:]]


def test_what_is_not_the_sum_over_blocks_is_not_called_so():
    layers = np.random.default_rng(0).normal(size=(3, 14))
    explanation = replace(review(layers=layers), relevance=layers[0])
    assert list_rows(blocks.heat_map(explanation))[-1] == "Embeddings"


def test_heat_maps_of_long_texts_keep_the_strongest_tokens():
    long = explained(" ".join(["film"] * 100))
    table = blocks.heat_map(explained(str(long.text), layers=np.ones((2, 102))))
    assert "42 less relevant tokens are left out" in table


def test_heat_maps_need_scores_per_block():
    with pytest.raises(BadOption, match="no scores per block"):
        blocks.heat_map(review())
    with pytest.raises(BadOption, match="another input"):
        blocks.heat_map(review(layers=np.ones((2, 14))), explained("a film"))
