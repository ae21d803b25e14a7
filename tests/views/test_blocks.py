"""Blocks × tokens heat maps."""

import numpy as np
import pytest
from helpers.samples import explained, review

from clearhead.errors import BadOption
from clearhead.views import (
    blocks as layers,
)


def test_layers_have_a_row_per_block_then_rollout_and_sum():
    one = review(layers=np.random.default_rng(0).normal(size=(3, 14)))
    assert len(one.tokens) == 14
    table = layers.heat_map(one, review(method="rollout"))
    names = [part.partition("<")[0] for part in table.split('<th scope="row">')[1:]]
    assert names == ["block 2", "block 1", "block 0", "Rollout", "Sum"]
    assert table.count("<td") == 5 * 14


def test_layers_of_long_texts_keep_the_strongest_tokens():
    long = explained(" ".join(["film"] * 100))
    table = layers.heat_map(explained(str(long.text), layers=np.ones((2, 102))))
    assert "42 less relevant tokens are left out" in table


def test_layers_need_scores_per_block():
    with pytest.raises(BadOption, match="no scores per block"):
        layers.heat_map(review())
    with pytest.raises(BadOption, match="another input"):
        layers.heat_map(review(layers=np.ones((2, 14))), explained("a film"))
