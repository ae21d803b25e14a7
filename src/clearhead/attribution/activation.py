"""Methods over hidden states and their gradients."""

from collections.abc import Sequence
from itertools import starmap

import torch
from torch import Tensor

from clearhead.attribution.attention import received_attention
from clearhead.attribution.method import Attribution, always, method, without_heads
from clearhead.engine.backward import GRADIENT
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption, UnsupportedModel


def resolve_layer(trace: Trace, layer: int | None) -> int:
    """Return the index of a hidden state (0 = embeddings); by default ⌈7L/12⌉, the best layer of the decoded paper."""
    last = trace.forward.depth
    if layer is None:
        return _best_layer(last)
    _require_layer(layer, last)
    return layer


def _require_layer(layer: int, last: int) -> None:
    if not _is_index(layer, last):
        raise BadOption(f"Invalid layer={layer!r}: this model has layers 0 (embeddings) … {last}.")


def _best_layer(last: int) -> int:
    # The floor of a negative number is the ceiling of its opposite.
    return -(-7 * last // 12)


def _is_index(layer: int, last: int) -> bool:
    # True and False are integers in Python.
    return isinstance(layer, int) and not isinstance(layer, bool) and 0 <= layer <= last


def gradient_x_hidden(gradient_BTD: Tensor, hidden_BTD: Tensor) -> Tensor:
    """Return Σ_D ∇h ⊙ h (B,T)."""
    return (gradient_BTD * hidden_BTD).sum(-1)


def layer_saliency(trace: Trace, layer: int, backward: str) -> Tensor:
    """Return the saliency of a layer's positions: decoded layer saliency, Eq. 1."""
    return signed_saliency(trace, layer, backward).clamp(min=0)


def signed_saliency(trace: Trace, layer: int, backward: str) -> Tensor:
    """Return gradient × hidden state of a layer's positions (B,T)."""
    return gradient_x_hidden(trace.hidden_coefficients(backward)[layer], trace.hidden_states[layer])


@method(paper="AttCAT, Eq. 10", signed=True, class_specific=True, needs=("gradients",), blockwise=without_heads)
def cat(trace: Trace, *, hidden: str = "output", backward: str = GRADIENT, heads: bool = False) -> Attribution:
    """Gradient × feature of every block, summed over blocks; `hidden="input"` takes what the block received.

    `backward` replaces the gradient by the coefficients of a balanced backward pass; `heads` adds the relevance of
    every attention head.
    """
    impacts = _block_impacts(trace, hidden, backward, "cat")
    # Some vision models merge patches between blocks.
    layers = list(map(trace.as_patches, impacts))
    return _sum_blocks(layers, relevance_of_heads(trace, backward, heads))


def _sum_blocks(layers: list[Tensor], heads_BLH: Tensor | None) -> Attribution:
    """Return the sum over blocks, and the scores of every block beside it."""
    layers_BLT = torch.stack(layers, 1)
    return Attribution(layers_BLT.sum(1), layers_BLT, heads_BLH=heads_BLH)


def relevance_of_heads(trace: Trace, backward: str, heads: bool) -> Tensor | None:
    """Return the relevance of every attention head (B,L,H) if a method is asked for it."""
    if not heads:
        return None
    return trace.head_relevance(backward)


@method(paper="AttCAT, Eq. 11–12", signed=True, class_specific=True, needs=("attention", "gradients"))
def att_cat(trace: Trace, *, hidden: str = "output", backward: str = GRADIENT, heads: bool = False) -> Attribution:
    """Gradient × feature, weighted by the attention each token receives, summed over blocks.

    `hidden="input"` pairs a block's attention with what the block received, as the authors' code does. `backward`
    replaces the gradient by the coefficients of a balanced backward pass; `heads` adds the relevance of every head.
    """
    trace.require_token_maps()
    # Before the gradients: a block-by-block trace refuses attention maps with the reason.
    attentions = trace.attentions
    impacts = _block_impacts(trace, hidden, backward, "att-cat")
    layers = _weigh_impacts(trace, attentions, impacts)
    return _sum_blocks(layers, relevance_of_heads(trace, backward, heads))


def _weigh_impacts(trace: Trace, attentions: Sequence[Tensor], impacts: Sequence[Tensor]) -> list[Tensor]:
    layers = []
    for attention_BHTS, impact_BT in zip(attentions, impacts, strict=True):
        layers.append(received_attention(trace, attention_BHTS.mean(1)) * impact_BT)
    return layers


def _block_impacts(trace: Trace, hidden: str, backward: str, name: str) -> list[Tensor]:
    """Return gradient × feature at the output or at the input of every block (B,T)."""
    if hidden == "output":
        # Hidden state 0 is the embedding output, which no block has made.
        return list_impacts(trace.hidden_coefficients(backward)[1:], trace.hidden_states[1:])
    if hidden == "input":
        return list_impacts(trace.coefficients(backward).block_inputs, trace.block_inputs)
    raise BadOption(f"Invalid hidden={hidden!r} for '{name}'. Available: output, input.")


def list_impacts(gradients: Sequence[Tensor], states: Sequence[Tensor]) -> list[Tensor]:
    """Return gradient × feature of each pair of gradients and states."""
    return list(starmap(gradient_x_hidden, zip(gradients, states, strict=True)))


@method(
    paper="Decoded layer saliency, Eq. 1", signed=False, class_specific=True, needs=("gradients",), blockwise=always
)
def layer_gradcam(trace: Trace, *, layer: int | None = None, backward: str = GRADIENT) -> Attribution:
    """Grad-CAM of one layer's features at each position; layer 0 is the embedding output.

    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    index = resolve_layer(trace, layer)
    saliency_BT = layer_saliency(trace, index, backward)
    _require_tokens(trace, saliency_BT, index)
    return Attribution(saliency_BT)


def _require_tokens(trace: Trace, saliency_BT: Tensor, index: int) -> None:
    if not _has_input_tokens(trace, saliency_BT):
        raise UnsupportedModel(f"Layer {index} of {trace.model.name} no longer has the tokens of the input.")


def _has_input_tokens(trace: Trace, saliency_BT: Tensor) -> bool:
    # Some vision models merge patches between blocks.
    return saliency_BT.shape[1] == trace.forward.joint_states[0].shape[1]
