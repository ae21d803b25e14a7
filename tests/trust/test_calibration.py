"""Verdicts over the embedded models: random explanations seldom hold, reversed ones never do."""

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from PIL import Image

import clearhead
from clearhead.model.inputs import as_inputs
from clearhead.trust.removal_check import check_explanations

REVIEWS = ["a joyless , tedious film that never finds its heart", "a warm , funny and deeply moving story about loss"]
NEWS = ["Oil prices rose above fifty dollars a barrel as traders feared a cut in supply"]
MAX_HELD = {40: 6, 80: 9, 12: 3}
"""The 99 % quantiles of how many of so many random explanations hold, if each does in 5 %."""


def photo():
    return Image.open(str(files("clearhead.model.zoo") / "examples" / "chelsea.jpg"))


def verdicts(model, source, explanation, relevances):
    """Check the same input with other relevances."""
    others = [replace(explanation, relevance=relevance) for relevance in relevances]
    (row,) = check_explanations(model, as_inputs(model, [source]), [others])
    return [other.check.verdict for other in row]


@pytest.mark.parametrize(
    ("name", "inputs", "draws"),
    [
        ("clearhead/sst2-minilm", REVIEWS, 40),
        ("clearhead/agnews-minilm", NEWS, 40),
        ("clearhead/pets-vit", None, 12),
    ],
)
def test_random_explanations_seldom_hold_and_reversed_ones_fail(name, inputs, draws):
    model = clearhead.load(name)
    generator = np.random.default_rng(0)
    held = []
    for source in inputs or [photo()]:
        explanation = clearhead.explain(model, source)
        assert explanation.check.verdict in ("holds", "weak")
        assert verdicts(model, source, explanation, [-explanation.relevance]) == ["fails"]
        # Around zero: sums of positive noise would favour words of many tokens, which matter more.
        noise = generator.standard_normal((draws, len(explanation.relevance)))
        held += [verdict == "holds" for verdict in verdicts(model, source, explanation, noise)]
    assert sum(held) <= MAX_HELD[len(held)]
