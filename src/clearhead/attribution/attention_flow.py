"""Attention flow: the maximum flow from the classification token down to each input token."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.method import Attribution, method
from clearhead.attribution.roll_out import reads_first_token, report_identity_share
from clearhead.attribution.two_sequences import unfold_layers
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput, ClearheadError
from clearhead.progress import progress

Edges = tuple[Array, ...]
"""Layer, upper token and lower token of every edge."""
CAPACITY_UNIT = 2**28
"""What a capacity of one is rounded to: SciPy solves flows over 32-bit integers."""
IDENTITY_CAPACITY = 0.5
"""The residual connection's half of what leaves a token; the other half is attention."""
WIDEST_EDGES = 16
"""Edges per token that are tried before the whole network."""


@method(paper="Abnar & Zuidema 2020", signed=False, class_specific=False, needs=("attention",))
def attention_flow(trace: Trace, *, limit: int = 512) -> Attribution:
    """Maximum flow from the classification token at the top to each token at the bottom.

    Edges between neighbouring layers hold 0.5·(mean-head attention) + 0.5·identity. Where the head reads several
    tokens, the source feeds each with the share the head gives it. What the identity edges alone carry to words that
    the head reads is removed (`identity_share` in the diagnostics). One maximum flow is solved per token, so inputs of
    more than `limit` tokens are refused.
    """
    trace.require_token_maps()
    _check_length(trace, limit)
    identity_BT = _identity_flows(trace)
    # Flows are rounded, so that one which only the identity edges carry may be smaller than they can.
    relevance_BT = (_solve_flows(trace) - identity_BT).clamp(min=0)
    return Attribution(relevance_BT, diagnostics=report_identity_share(relevance_BT, identity_BT))


def _solve_flows(trace: Trace) -> Tensor:
    """Return the maximum flow to every token (B,T)."""
    flow_BT = torch.zeros(trace.mask_BT.shape, dtype=torch.float64)
    # Each input by itself and without padding, whose edges would only make the networks larger.
    for row, mask_T in enumerate(trace.real_BT):
        flow_BT[row, mask_T] = torch.from_numpy(_solve_row(trace, row, mask_T))
    return flow_BT


def _solve_row(trace: Trace, row: int, mask_T: Tensor) -> Array:
    return token_flows(_mean_maps(trace, row, mask_T), _reading_weights(trace, row, mask_T))


def _identity_flows(trace: Trace) -> Tensor:
    """Return the flow to each token through its identity edges alone; none where the head reads a class token."""
    flow_BT = trace.reading_BT.double().clamp(max=IDENTITY_CAPACITY)
    return flow_BT.masked_fill(reads_first_token(trace)[:, None], 0).cpu()


def _check_length(trace: Trace, limit: int) -> None:
    longest = int(trace.mask_BT.sum(1).max())
    if longest > limit:
        raise BadInput(
            f"attention-flow solves one maximum flow per token, and {longest} tokens are more than limit={limit}. "
            "Raise the limit, shorten the input, or use rollout."
        )


def _mean_maps(trace: Trace, row: int, mask_T: Tensor) -> Array:
    """Return one input's attention maps without padding, averaged over heads (L,T,S)."""
    means = [attention[row].double().mean(0).cpu() for attention in trace.attentions]
    maps_LTS = torch.stack(list(map(_keep_idle, unfold_layers(trace, means))))
    return maps_LTS[:, mask_T][:, :, mask_T].contiguous().numpy()


def _keep_idle(map_TS: Tensor) -> Tensor:
    """Let tokens that attend to nothing, such as the source in the blocks of a decoder, keep all they have."""
    return map_TS + torch.diag((map_TS.sum(-1) == 0).to(map_TS.dtype))


def _reading_weights(trace: Trace, row: int, mask_T: Tensor) -> Array:
    weights: Array = trace.reading_BT[row].double().cpu()[mask_T].numpy()
    return weights


def token_flows(maps_LTS: Array, reading_T: Array) -> Array:
    """Return the maximum flow to every token, exact but for capacities rounded to 2⁻²⁸.

    No flow exceeds what the source and each layer can give, or what the token's own edges take. Where the widest
    edges already carry that much it is the maximum, so the whole network is solved for the other tokens only.
    """
    flows = FlowNetwork(maps_LTS, reading_T).solve_all()
    return np.fromiter(flows, dtype=np.float64) / CAPACITY_UNIT


class FlowNetwork:
    """Tokens of all layers as nodes, with integer capacities between neighbouring layers and from the source."""

    def __init__(self, maps_LTS: Array, reading_T: Array) -> None:
        self.source_T = _to_integers(reading_T)
        self.capacities_LTS = _drop_unreachable(_to_integers(_add_residual(maps_LTS)), self.source_T)
        self.bound_S = _flow_bounds(self.capacities_LTS, self.source_T)
        # The edges into layer 0 are those of the token that is solved, and added for each of them.
        inner_LTS = self.capacities_LTS[1:]
        self.all_edges = inner_LTS.nonzero()
        self.wide_edges = _keep_widest(inner_LTS).nonzero()

    def solve_all(self) -> Iterator[int]:
        """Yield the maximum flow to every token."""
        tokens = len(self.source_T)
        with progress(tokens, "flows") as advance:
            for token in range(tokens):
                yield self.solve(token)
                advance(1)

    def solve(self, token: int) -> int:
        """Return the maximum flow to one token, through few edges if these carry all that is possible."""
        edges = _add_column(self.wide_edges, self.capacities_LTS, token)
        flow = self._solve_through(edges, token)
        if flow == self.bound_S[token]:
            return flow
        return self._solve_through(self.all_edges, token)

    def _solve_through(self, edges: Edges, token: int) -> int:
        return _maximum_flow(self.capacities_LTS, self.source_T, edges, token)


def _add_residual(maps_LTS: Array) -> Array:
    shares_LTS: Array = (1 - IDENTITY_CAPACITY) * maps_LTS + IDENTITY_CAPACITY * np.eye(maps_LTS.shape[-1])
    return shares_LTS


def _to_integers(shares: Array) -> Array:
    integers: Array = np.rint(shares * CAPACITY_UNIT).astype(np.int32)
    return integers


def _flow_bounds(capacities_LTS: Array, source_T: Array) -> Array:
    """Return what the flow to each token cannot exceed."""
    # In 64 bits: the sum over a layer exceeds the 32 bits of a capacity.
    layer_sums = capacities_LTS.sum((1, 2), dtype=np.int64)
    narrowest = min(source_T.sum(dtype=np.int64), layer_sums.min())
    bound_S: Array = np.minimum(narrowest, capacities_LTS[0].sum(0, dtype=np.int64))
    return bound_S


def _drop_unreachable(capacities_LTS: Array, source_T: Array) -> Array:
    """Set the capacity of edges to zero that leave a token which the source does not reach."""
    # From the top down: a token is reached through those above it.
    feeding_T = source_T
    kept = []
    for capacities_TS in capacities_LTS[::-1]:
        reachable_TS = np.where(feeding_T[:, None] > 0, capacities_TS, 0)
        kept.append(reachable_TS)
        feeding_T = reachable_TS.max(0)
    return np.stack(kept[::-1])


def _keep_widest(capacities_LTS: Array) -> Array:
    """Set the capacity to zero of all but the widest edges out of and into each token."""
    if capacities_LTS.shape[-1] <= WIDEST_EDGES:
        return capacities_LTS
    is_wide_LTS = _is_among_widest(capacities_LTS, 1) | _is_among_widest(capacities_LTS, 2)
    return np.where(is_wide_LTS, capacities_LTS, 0)


def _is_among_widest(capacities_LTS: Array, axis: int) -> Array:
    """Return which edges are no narrower than the last of the widest edges along an axis."""
    is_wide: Array = capacities_LTS >= _narrowest_kept(capacities_LTS, axis)
    return is_wide


def _narrowest_kept(capacities_LTS: Array, axis: int) -> Array:
    # A partition is linear in the number of edges, where sorting is not.
    return np.partition(capacities_LTS, -WIDEST_EDGES, axis).take([-WIDEST_EDGES], axis)


def _add_column(edges: Edges, capacities_LTS: Array, token: int) -> Edges:
    """Return the edges together with all that lead into this token, in any layer."""
    layer, upper = capacities_LTS[1:, :, token].nonzero()
    column = (layer, upper, np.full(len(layer), token))
    # Without those among the edges already: SciPy would add the capacities of an edge that is given twice.
    return _join_edges(_select_edges(edges, edges[2] != token), column)


def _select_edges(edges: Edges, is_selected: Array) -> Edges:
    return tuple(index[is_selected] for index in edges)


def _join_edges(first: Edges, second: Edges) -> Edges:
    return tuple(map(np.concatenate, zip(first, second, strict=True)))


def _maximum_flow(capacities_LTS: Array, source_T: Array, edges: Edges, token: int) -> int:
    """Return the maximum flow through these edges from the source to one token."""
    blocks, tokens = capacities_LTS.shape[:2]
    # The token's own edges into the sink, those between layers, and those out of the source.
    capacities = np.concatenate([capacities_LTS[0][:, token], capacities_LTS[1:][edges], source_T])
    starts, ends = _connect(edges, blocks, tokens)
    return _solve(capacities, starts, ends, source=blocks * tokens)


def _solve(capacities: Array, starts: Array, ends: Array, source: int) -> int:
    """Return the maximum flow from the source to the sink, which are the last two nodes."""
    # Here instead of at the top: SciPy may not be installed.
    sparse = _import_sparse()
    sink = source + 1
    network = sparse.csr_matrix((capacities, (starts, ends)), shape=(sink + 1, sink + 1))
    # Dinic's method: layered networks have short paths, on which it is fast.
    return int(sparse.csgraph.maximum_flow(network, source, sink, method="dinic").flow_value)


def _connect(edges: Edges, blocks: int, tokens: int) -> tuple[Array, Array]:
    """Return the nodes that edges leave and enter; token t of layer b is node b · tokens + t.

    The source feeds the last layer, layer b + 1 feeds layer b, and layer 0 drains into the sink.
    """
    layer, upper, lower = edges
    source = np.full(tokens, blocks * tokens)
    sink = source + 1
    first_layer = np.arange(tokens)
    last_layer = (blocks - 1) * tokens + first_layer
    starts = np.concatenate([first_layer, (layer + 1) * tokens + upper, source])
    ends = np.concatenate([sink, layer * tokens + lower, last_layer])
    return starts, ends


def _import_sparse() -> Any:
    try:
        import scipy.sparse.csgraph
    except ImportError:
        raise ClearheadError("attention-flow needs SciPy: pip install 'clearhead[flow]'.") from None
    return scipy.sparse
