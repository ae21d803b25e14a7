"""Relevance of pairs of tokens for the score of a two-tower model.

Under a balanced backward pass the embedding of an input is a sum over its tokens, x̂ = Σ_i x̂_i with
x̂_i[d] = Σ_D h₀[i] ⊙ c_d[i], where c_d are the coefficients of dimension d at the embedding output. A pass is linear in
its start, c_d = Jᵀ e_d, so x̂_i is also J h₀ with all tokens but i at zero: a product per token instead of a pass per
dimension. The score is linear in both embeddings, so it is a sum over pairs of tokens, R_ij = scale · ⟨x̂_i, ŷ_j⟩, but
for what biases hold back. Moeller et al. (EMNLP 2023, arXiv 2310.05703) have the same form with integrated Jacobians in
the place of coefficients.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.method import MethodSpec
from clearhead.engine.backward import ATTN_LRP, BALANCED, GRADIENT
from clearhead.engine.batching import in_batches
from clearhead.engine.step_gradients import carry_rows, push_rows
from clearhead.engine.trace import Trace, capture
from clearhead.errors import BadOption
from clearhead.model.model import Model
from clearhead.model.similarity import encode_one, make_tower
from clearhead.model.two_towers import FIRST, SECOND

BACKWARDS = {
    "attn-lrp": ATTN_LRP,
    "cp-lrp": BALANCED,
    "balanced-cat": BALANCED,
    "gradient-x-input": GRADIENT,
}
"""The backward pass whose coefficients the pairs of a method are made of."""
TOKENS_PER_PASS = 1024
"""Tokens that are carried back at a time, one copy of the input for each direction."""


def require_pairs(spec: MethodSpec) -> None:
    """Raise BadOption unless a method has relevance of pairs of tokens."""
    if spec.method.name not in BACKWARDS:
        raise _no_pairs(spec)


def _no_pairs(spec: MethodSpec) -> BadOption:
    available = ", ".join(BACKWARDS)
    return BadOption(f"'{spec.text}' has no pairs of tokens: use {available}, or leave out matrix=True.")


def relate_tokens(model: Model, first: Any, text: str, method: str, overflow: str = "error") -> Array:
    """Return the relevance of each pair of tokens of both inputs (tokens of the first × tokens of the text).

    Takes a product and a backward pass for each token of the text, whatever the width of the embedding.
    """
    backward = BACKWARDS[method]
    # Products with tokens go through the derivative of a pass, which fused attention does not have.
    text_SD = _split_embedding(_trace_side(model, SECOND, text, overflow, gradients_only=False), backward)
    # Of the other embedding only what lies along the text's tokens is needed, which are fewer than dimensions. Only
    # coefficients are read: no attention maps, and nothing that relevance needs.
    pairs_TS = _contract(_trace_side(model, FIRST, first, overflow, gradients_only=True), text_SD, backward)
    pairs: Array = (model.network.read_scale() * pairs_TS).cpu().numpy()
    return pairs


def _trace_side(model: Model, side: int, source: Any, overflow: str, *, gradients_only: bool) -> Trace:
    """Return the trace of an input whose output is its embedding."""
    inputs = encode_one(model, side, source, overflow)
    with torch.no_grad():
        width = model.network.embed(side, inputs.tensors).shape[-1]
    units_DD = torch.eye(width, dtype=model.dtype, device=model.device)
    # The tower compared with each unit vector answers with the embedding itself, scaled.
    tower = make_tower(model, side, units_DD / model.network.read_scale(), list(map(str, range(width))))
    return capture(tower, inputs, 0, gradients_only=gradients_only)


def _split_embedding(trace: Trace, backward: str) -> Tensor:
    """Return what each token contributes to the embedding: the product of its own activation alone (T,D)."""
    # Where attn-lrp and cp-lrp read the relevance of words, so that rows add up to theirs.
    embedding_1TE = trace.forward.hidden_states[0]
    tokens = embedding_1TE.shape[1]
    products: list[Tensor] = []

    def compute(start: int, stop: int) -> None:
        own_KTE = _separate_tokens(embedding_1TE.detach()[0], start, stop)
        products.append(push_rows(trace.forward.output, own_KTE, embedding_1TE))

    _run_passes(trace, compute, tokens, backward)
    return torch.cat(products)


def _separate_tokens(embedding_TE: Tensor, start: int, stop: int) -> Tensor:
    """Return the activations with all tokens at zero but one, for each of some tokens (K,T,E)."""
    # A few at a time: for all tokens of a long text they would fill the memory.
    own_KTE = embedding_TE.new_zeros(stop - start, *embedding_TE.shape)
    own_KTE[range(stop - start), range(start, stop)] = embedding_TE[start:stop]
    return own_KTE


def _contract(trace: Trace, directions_KD: Tensor, backward: str) -> Tensor:
    """Return activation × coefficient at the embedding output for each direction of the output (T,K)."""
    embedding_1TE = trace.forward.hidden_states[0]
    products: list[Tensor] = []

    def compute(start: int, stop: int) -> None:
        (coefficients_KTE,) = carry_rows(trace.forward.output, directions_KD[start:stop], [embedding_1TE])
        products.append((coefficients_KTE * embedding_1TE.detach()).sum(-1))

    _run_passes(trace, compute, len(directions_KD), backward)
    return torch.cat(products).mT


def _run_passes(trace: Trace, compute: Callable[[int, int], None], count: int, backward: str) -> None:
    lengths = [trace.forward.hidden_states[0].shape[1]] * count
    with trace.forward.tape.switch.use(backward):
        in_batches(lengths, compute, tokens=TOKENS_PER_PASS, label="tokens")
