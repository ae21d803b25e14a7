"""Relevance of pairs of tokens for the score of a two-tower model.

Under a balanced backward pass the embedding of an input is a sum over its tokens, x̂ = Σ_i x̂_i with
x̂_i[d] = Σ_D h₀[i] ⊙ c_d[i], where c_d are the coefficients of dimension d at the embedding output. The score is linear
in both embeddings, so it is a sum over pairs of tokens, R_ij = scale · ⟨x̂_i, ŷ_j⟩, but for what biases hold back.
Moeller et al. (EMNLP 2023, arXiv 2310.05703) have the same form with integrated Jacobians in the place of coefficients.
"""

from typing import Any

import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.method import MethodSpec
from clearhead.engine.backward import ATTN_LRP, BALANCED, GRADIENT
from clearhead.engine.batching import in_batches
from clearhead.engine.step_gradients import carry_rows
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

    Takes one backward pass per dimension of the embedding, and one per token of the text.
    """
    backward = BACKWARDS[method]
    text_SD = _divide_embedding(model, SECOND, text, backward, overflow)
    # Of the other embedding only what lies along the text's tokens is needed, which are fewer than dimensions.
    pairs_TS = _divide_embedding(model, FIRST, first, backward, overflow, directions_KD=text_SD)
    pairs: Array = (model.network.read_scale() * pairs_TS).cpu().numpy()
    return pairs


def _divide_embedding(
    model: Model, side: int, source: Any, backward: str, overflow: str, *, directions_KD: Tensor | None = None
) -> Tensor:
    """Return what each token contributes to the embedding of an input, along each direction, or dimension (T,K)."""
    inputs = encode_one(model, side, source, overflow)
    with torch.no_grad():
        width = model.network.embed(side, inputs.tensors).shape[-1]
    units_DD = torch.eye(width, dtype=model.dtype, device=model.device)
    # The tower compared with each unit vector answers with the embedding itself, scaled.
    tower = make_tower(model, side, units_DD / model.network.read_scale(), list(map(str, range(width))))
    # Only coefficients are read: no attention maps, and nothing that relevance needs.
    trace = capture(tower, inputs, 0, gradients_only=True)
    return _contract(trace, units_DD if directions_KD is None else directions_KD, backward)


def _contract(trace: Trace, directions_KD: Tensor, backward: str) -> Tensor:
    """Return activation × coefficient at the embedding output for each direction of the output (T,K)."""
    # Where attn-lrp and cp-lrp read the relevance of words, so that rows add up to theirs.
    embedding_1TD = trace.forward.hidden_states[0]
    products: list[Tensor] = []

    def compute(start: int, stop: int) -> None:
        (coefficients_KTE,) = carry_rows(trace.forward.output, directions_KD[start:stop], [embedding_1TD])
        products.append((coefficients_KTE * embedding_1TD.detach()).sum(-1))

    lengths = [embedding_1TD.shape[1]] * len(directions_KD)
    with trace.forward.tape.switch.use(backward):
        in_batches(lengths, compute, tokens=TOKENS_PER_PASS, label="dimensions")
    return torch.cat(products).mT
