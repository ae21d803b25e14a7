"""attention-flow against a linear program."""

import itertools

import numpy as np
import pytest
import torch
from helpers.baselines import TEXTS
from helpers.tiny_models import bert
from scipy.optimize import linprog

import clearhead
from clearhead.attribution import attention_flow as flow
from clearhead.errors import BadInput


def flow_by_programming(maps_LTS: np.ndarray, reading_T: np.ndarray, token: int) -> float:
    """The maximum flow as a linear programme: one variable per edge, conservation at every inner node."""
    blocks, tokens = maps_LTS.shape[:2]
    edges = [("source", (blocks, t), reading_T[t]) for t in range(tokens)]
    for block, (t, s) in itertools.product(range(blocks), itertools.product(range(tokens), repeat=2)):
        edges.append(((block + 1, t), (block, s), 0.5 * maps_LTS[block, t, s] + 0.5 * (t == s)))
    inner = [(layer, t) for layer in range(1, blocks + 1) for t in range(tokens)]
    balance = [[(end == node) - (start == node) for start, end, _ in edges] for node in inner]
    gain = [-float(end == (0, token)) for _, end, _ in edges]
    bounds = [(0, capacity) for *_, capacity in edges]
    return -linprog(gain, A_eq=np.array(balance, dtype=float), b_eq=np.zeros(len(inner)), bounds=bounds).fun


@pytest.mark.parametrize("widest", [1, 2, 16])
@pytest.mark.parametrize("seed", range(4))
def test_attention_flow_is_the_maximum_flow(seed: int, widest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "WIDEST_EDGES", widest)
    numbers = np.random.default_rng(seed)
    maps = numbers.dirichlet(np.full(4, 0.3), size=(3, 4))
    reading = np.eye(4)[0] if seed % 2 else numbers.dirichlet(np.ones(4))
    expected = [flow_by_programming(maps, reading, token) for token in range(4)]
    np.testing.assert_allclose(flow.token_flows(maps, reading), expected, atol=1e-6)


@pytest.mark.parametrize("spread", [0.03, 0.3, 3.0])
def test_the_widest_edges_prove_the_same_flow(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0)
    maps = numbers.dirichlet(np.full(40, spread), size=(5, 40))
    for reading in (np.eye(40)[0], numbers.dirichlet(np.ones(40))):
        monkeypatch.setattr(flow, "WIDEST_EDGES", 40)
        expected = flow.token_flows(maps, reading)
        for widest in (1, 4, 16):
            monkeypatch.setattr(flow, "WIDEST_EDGES", widest)
            np.testing.assert_array_equal(flow.token_flows(maps, reading), expected)


def test_attention_flow_of_hand_made_networks() -> None:
    ring = np.roll(np.eye(3), 1, axis=1)[None]
    np.testing.assert_allclose(flow.token_flows(ring, np.eye(3)[0]), [0.5, 0.5, 0], atol=1e-7)
    np.testing.assert_allclose(flow.token_flows(np.concatenate([ring, ring]), np.eye(3)[0]), [0.5, 1, 0.5], atol=1e-7)


def test_attention_flow_of_a_model() -> None:
    model = bert()
    explanation = clearhead.explain(model, TEXTS[0], "attention-flow")
    trace = clearhead.capture(model, TEXTS[0])
    maps = torch.stack([attention[0].mean(0) for attention in trace.attentions]).numpy()
    expected = [flow_by_programming(maps, np.eye(8)[0], token) for token in range(8)]
    np.testing.assert_allclose(explanation.relevance, expected, atol=1e-5)
    with pytest.raises(BadInput, match="limit=4"):
        clearhead.explain(model, TEXTS[0], "attention-flow", limit=4)
