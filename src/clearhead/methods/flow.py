"""Attention flow: how much can run from the classification token down to each input token."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.batching import progress
from clearhead.errors import BadInput, ClearheadError
from clearhead.method import Scores, method
from clearhead.trace import Trace

Array = np.ndarray[Any, np.dtype[Any]]
WHOLE = 2**28


@method(paper="Abnar & Zuidema 2020", signed=False, class_specific=False)
def attention_flow(trace: Trace, *, limit: int = 512) -> Scores:
    """Maximum flow from the classification token at the top to each token at the bottom.

    Edges between neighbouring layers hold 0.5·(mean-head attention) + 0.5·identity. Where the head reads several
    tokens, the source feeds each with the share the head gives it. One maximum flow is solved per token, so inputs
    of more than `limit` tokens are refused.
    """
    trace.require_token_maps()
    longest = int(trace.mask_BT.sum(1).max())
    if longest > limit:
        raise BadInput(
            f"attention-flow solves one maximum flow per token, and {longest} tokens are more than limit={limit}. "
            "Raise the limit, shorten the input, or use rollout."
        )
    flow_BT = torch.zeros(trace.mask_BT.shape, dtype=torch.float64)
    for place, mask_T in enumerate(trace.mask_BT.cpu()):
        flow_BT[place, mask_T] = torch.from_numpy(token_flows(*_sample(trace, place, mask_T)))
    return Scores(flow_BT)


def _sample(trace: Trace, place: int, mask_T: Tensor) -> tuple[Array, Array]:
    maps = [attention[place].double().mean(0).cpu()[mask_T][:, mask_T] for attention in trace.attentions]
    return torch.stack(maps).numpy(), trace.reading_BT[place].double().cpu()[mask_T].numpy()


def token_flows(maps_LTS: Array, reading_T: Array) -> Array:
    """The maximum flow to every token, exact but for capacities rounded to 2⁻²⁸."""
    tokens = maps_LTS.shape[-1]
    capacities_LTS = 0.5 * maps_LTS + 0.5 * np.eye(tokens)
    flow_T = np.zeros(tokens)
    with progress(tokens, "flows") as advance:
        for token in range(tokens):
            flow_T[token] = _maximum(*_network(capacities_LTS, reading_T, token))
            advance(1)
    return flow_T


def _network(capacities_LTS: Array, reading_T: Array, token: int) -> tuple[Any, int, int]:
    """Edges as a sparse matrix, source and sink: layer b + 1 feeds layer b, and only `token` drains layer 1."""
    blocks, tokens = capacities_LTS.shape[:2]
    source, sink = blocks * tokens, blocks * tokens + 1
    upper, lower = (places.ravel() for places in np.indices((tokens, tokens)))
    starts = [np.full(tokens, source), *(upper + block * tokens for block in range(1, blocks)), np.arange(tokens)]
    ends = [
        (blocks - 1) * tokens + np.arange(tokens),
        *(lower + (block - 1) * tokens for block in range(1, blocks)),
        np.full(tokens, sink),
    ]
    values = [reading_T, *(capacities_LTS[block].ravel() for block in range(1, blocks)), capacities_LTS[0][:, token]]
    whole = np.rint(np.concatenate(values) * WHOLE).astype(np.int32)
    edges = (whole, (np.concatenate(starts), np.concatenate(ends)))
    return _sparse().csr_matrix(edges, shape=(sink + 1, sink + 1)), source, sink


def _maximum(edges: Any, source: int, sink: int) -> float:
    return float(_sparse().csgraph.maximum_flow(edges, source, sink, method="dinic").flow_value) / WHOLE


def _sparse() -> Any:
    try:
        import scipy.sparse.csgraph
    except ImportError:
        raise ClearheadError("attention-flow needs SciPy: pip install 'clearhead[flow]'.") from None
    return scipy.sparse
