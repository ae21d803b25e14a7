"""Layer saliency decoded onto input tokens by the pre-trained language-model head."""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.attribution.activation import layer_saliency, resolve_layer, signed_saliency
from clearhead.attribution.method import Attribution, method
from clearhead.engine.backward import GRADIENT, check_backward
from clearhead.engine.lm_head import vocabulary_logits
from clearhead.engine.lrp.kernels.dispatch import kernels_for, on_device_of
from clearhead.engine.trace import Trace
from clearhead.errors import UnsupportedModel
from clearhead.validation import require_choice, require_integer


def _gradient_norm(trace: Trace, layer: int, backward: str) -> Tensor:
    return trace.hidden_coefficients(backward)[layer].square().sum(-1).sqrt()


def _hidden_norm(trace: Trace, layer: int, backward: str) -> Tensor:
    return trace.hidden_states[layer].square().sum(-1).sqrt()


LAYER_SCORES: dict[str, Callable[[Trace, int, str], Tensor]] = {
    "gradcam": layer_saliency,
    "gradient-x-hidden": signed_saliency,
    "gradient": _gradient_norm,
    "norm": _hidden_norm,
}


@method(paper="Decoded layer saliency, Alg. 1", signed=False, class_specific=True, needs=("gradients",))
def decoded_gradcam(
    trace: Trace,
    *,
    layer: int | None = None,
    top: int | None = None,
    score: str = "gradcam",
    backward: str = GRADIENT,
) -> Attribution:
    """Scores of a layer's positions, shared among the input tokens that the language-model head decodes them to.

    `layer` is the hidden state, `top` keeps the τ best tokens of every position, `score` is the layer score α.
    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    check_backward(backward)
    _require_text(trace)
    _check_options(score, top)
    index = resolve_layer(trace, layer)
    ids_BT = _require_ids(trace)
    share_BST = _decode_shares(trace, index, ids_BT, top)
    alpha_BS = LAYER_SCORES[score](trace, index, backward) * trace.query_BT
    return _show_repeats(trace, ids_BT, torch.einsum("bs,bst->bt", alpha_BS, share_BST))


def _show_repeats(trace: Trace, ids_BT: Tensor, tokens_BT: Tensor) -> Attribution:
    # Repeats of a token show what its first occurrence got.
    return Attribution(tokens_BT.gather(1, first_occurrence(ids_BT, trace.query_BT)) * trace.query_BT)


def _require_text(trace: Trace) -> None:
    if trace.is_image:
        raise UnsupportedModel("decoded-gradcam decodes onto words, so it needs a text model.")


def _check_options(score: str, top: int | None) -> None:
    require_choice("score", score, tuple(LAYER_SCORES), " for 'decoded-gradcam'")
    if top is not None:
        require_integer("top", top)


def _require_ids(trace: Trace) -> Tensor:
    ids_BT = trace.inputs.tensors.get("input_ids")
    if ids_BT is None:
        raise UnsupportedModel("decoded-gradcam needs input_ids: embeddings alone name no words.")
    return ids_BT


def first_occurrence(ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return for each position where its token first occurs among the real tokens."""
    # As integers: argmax of booleans is not implemented; among equals it returns the first.
    return (_is_same_token(ids_BT) & mask_BT[:, None]).int().argmax(-1)


def _is_same_token(ids_BT: Tensor) -> Tensor:
    return ids_BT[..., None] == ids_BT[:, None]


def _decode_shares(trace: Trace, layer: int, ids_BT: Tensor, top: int | None) -> Tensor:
    """Return the probability that position s decodes to the token first seen at t; zero for repeats and padding."""
    distinct_BT = _is_first_occurrence(ids_BT, trace.query_BT)
    share_BST = _token_probabilities(trace, layer, ids_BT) * distinct_BT[:, None]
    if top is None:
        return share_BST
    return _keep_top(share_BST, top)


def _is_first_occurrence(ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return which real tokens have not occurred before in their input."""
    positions_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
    return (first_occurrence(ids_BT, mask_BT) == positions_T) & mask_BT


def _token_probabilities(trace: Trace, layer: int, ids_BT: Tensor) -> Tensor:
    """Return the probability that position s decodes to the token at t (B,S,T)."""
    # Not the trace's own hidden states, which repeat one input for each of many targets.
    hidden_BSD = trace.forward.hidden_states[layer].detach()
    return _decode(trace, hidden_BSD, ids_BT[: len(hidden_BSD)]).expand(len(ids_BT), -1, -1)


def _decode(trace: Trace, hidden_BSD: Tensor, ids_BT: Tensor) -> Tensor:
    logits_BSV = vocabulary_logits(trace.model, hidden_BSD, ids_BT)
    # A softmax over the vocabulary would be as large as the logits, so only the input's tokens are normalised.
    return (_token_logits(logits_BSV, ids_BT) - _log_sum(logits_BSV)[..., None]).exp()


def _token_logits(logits_BSV: Tensor, ids_BT: Tensor) -> Tensor:
    """Return the logits of the input's tokens at every position (B,S,T)."""
    return torch.take_along_dim(logits_BSV, ids_BT[:, None], 2)


def _keep_top(share_BST: Tensor, top: int) -> Tensor:
    """Set all but the largest shares of every position to zero."""
    # A short input has fewer tokens than are asked for.
    best = share_BST.topk(min(top, share_BST.shape[-1]), -1)
    return torch.zeros_like(share_BST).scatter(2, best.indices, best.values)


def _log_sum(logits_BSV: Tensor) -> Tensor:
    """Return the logarithm of the summed exponentials over the vocabulary (B,S)."""
    kernels = kernels_for(logits_BSV)
    if not kernels:
        return logits_BSV.logsumexp(-1)
    with on_device_of(logits_BSV):
        return kernels.log_sum(logits_BSV)  # type: ignore[no-any-return]
