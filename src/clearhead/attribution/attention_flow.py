"""Attention flow: how much can run from the classification token down to each input token."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.method import Attribution, method
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput, ClearheadError
from clearhead.progress import progress

Edges = tuple[Array, ...]
WHOLE = 2**28
WIDEST = 16


@method(paper="Abnar & Zuidema 2020", signed=False, class_specific=False)
def attention_flow(trace: Trace, *, limit: int = 512) -> Attribution:
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
    for place, mask_T in enumerate(trace.real_BT):
        flow_BT[place, mask_T] = torch.from_numpy(token_flows(*_sample(trace, place, mask_T)))
    return Attribution(flow_BT)


def _sample(trace: Trace, place: int, mask_T: Tensor) -> tuple[Array, Array]:
    maps = [attention[place].double().mean(0).cpu()[mask_T][:, mask_T] for attention in trace.attentions]
    return torch.stack(maps).numpy(), trace.reading_BT[place].double().cpu()[mask_T].numpy()


def token_flows(maps_LTS: Array, reading_T: Array) -> Array:
    """The maximum flow to every token, exact but for capacities rounded to 2⁻²⁸.

    No flow exceeds what the source and each layer can give, or what the token's own edges take. Where the widest
    edges already carry that much it is the maximum, so the whole network is solved for the other tokens only.
    """
    tokens = maps_LTS.shape[-1]
    source_T = _whole(reading_T)
    capacities_LTS = _fed(_whole(0.5 * maps_LTS + 0.5 * np.eye(tokens)), source_T)
    given = min(int(one.sum(dtype=np.int64)) for one in (source_T, *capacities_LTS))
    bound_S = np.minimum(given, capacities_LTS[0].sum(0, dtype=np.int64))
    every, wide = capacities_LTS[1:].nonzero(), _widest(capacities_LTS[1:]).nonzero()
    flow_S = np.zeros(tokens)
    with progress(tokens, "flows") as advance:
        for token in range(tokens):
            found = _maximum(capacities_LTS, source_T, _with_column(wide, capacities_LTS, token), token)
            filled = found == bound_S[token]
            flow_S[token] = found if filled else _maximum(capacities_LTS, source_T, every, token)
            advance(1)
    return flow_S / WHOLE


def _whole(shares: Array) -> Array:
    whole: Array = np.rint(shares * WHOLE).astype(np.int32)
    return whole


def _fed(capacities_LTS: Array, source_T: Array) -> Array:
    """Without the edges that leave a token which nothing reaches."""
    feeding_T, kept = source_T, []
    for capacities_TS in capacities_LTS[::-1]:
        kept.append(np.where(feeding_T[:, None] > 0, capacities_TS, 0))
        feeding_T = kept[-1].max(0)
    return np.stack(kept[::-1])


def _widest(capacities_LTS: Array) -> Array:
    """Without all but the widest edges out of and into each token."""
    if capacities_LTS.shape[-1] <= WIDEST:
        return capacities_LTS
    least = [np.partition(capacities_LTS, -WIDEST, axis).take([-WIDEST], axis) for axis in (1, 2)]
    return np.where((capacities_LTS >= least[0]) | (capacities_LTS >= least[1]), capacities_LTS, 0)


def _with_column(edges: Edges, capacities_LTS: Array, token: int) -> Edges:
    """The same edges and all that lead into this token, in any layer."""
    layer, upper = capacities_LTS[1:, :, token].nonzero()
    others = edges[2] != token
    more = (layer, upper, np.full(len(layer), token))
    return tuple(np.concatenate([old[others], new]) for old, new in zip(edges, more, strict=True))


def _maximum(capacities_LTS: Array, source_T: Array, edges: Edges, token: int) -> int:
    """From a source that feeds the last layer; layer b + 1 feeds layer b, and only `token` drains layer 1."""
    blocks, tokens = capacities_LTS.shape[:2]
    source, sink = blocks * tokens, blocks * tokens + 1
    layer, upper, lower = edges
    every = np.arange(tokens)
    starts = np.concatenate([every, upper + (layer + 1) * tokens, np.full(tokens, source)])
    ends = np.concatenate([np.full(tokens, sink), lower + layer * tokens, (blocks - 1) * tokens + every])
    values = np.concatenate([capacities_LTS[0][:, token], capacities_LTS[1:][edges], source_T])
    network = _sparse().csr_matrix((values, (starts, ends)), shape=(sink + 1, sink + 1))
    return int(_sparse().csgraph.maximum_flow(network, source, sink, method="dinic").flow_value)


def _sparse() -> Any:
    try:
        import scipy.sparse.csgraph
    except ImportError:
        raise ClearheadError("attention-flow needs SciPy: pip install 'clearhead[flow]'.") from None
    return scipy.sparse
