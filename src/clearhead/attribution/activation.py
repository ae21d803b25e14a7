"""Methods over hidden states and their gradients."""

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
        return -(-7 * last // 12)
    # True and False are integers in Python.
    is_integer = isinstance(layer, int) and not isinstance(layer, bool)
    if not is_integer or not 0 <= layer <= last:
        raise BadOption(f"Invalid layer={layer!r}: this model has layers 0 (embeddings) … {last}.")
    return layer


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
    layers = [trace.as_patches(impact_BT) for impact_BT in impacts]
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
    layers = []
    for attention_BHTS, impact_BT in zip(attentions, impacts, strict=True):
        layers.append(received_attention(trace, attention_BHTS.mean(1)) * impact_BT)
    return _sum_blocks(layers, relevance_of_heads(trace, backward, heads))


def _block_impacts(trace: Trace, hidden: str, backward: str, name: str) -> list[Tensor]:
    """Return gradient × feature at the output or at the input of every block (B,T)."""
    if hidden == "output":
        # Hidden state 0 is the embedding output, which no block has made.
        return _impacts(trace.hidden_coefficients(backward)[1:], trace.hidden_states[1:])
    if hidden == "input":
        return _impacts(trace.coefficients(backward).block_inputs, trace.block_inputs)
    raise BadOption(f"Invalid hidden={hidden!r} for '{name}'. Available: output, input.")


def _impacts(gradients: list[Tensor], states: list[Tensor]) -> list[Tensor]:
    return [gradient_x_hidden(gradient, state) for gradient, state in zip(gradients, states, strict=True)]


@method(
    paper="Decoded layer saliency, Eq. 1", signed=False, class_specific=True, needs=("gradients",), blockwise=always
)
def layer_gradcam(trace: Trace, *, layer: int | None = None, backward: str = GRADIENT) -> Attribution:
    """Grad-CAM of one layer's features at each position; layer 0 is the embedding output.

    `backward` replaces the gradient by the coefficients of a balanced backward pass.
    """
    index = resolve_layer(trace, layer)
    saliency_BT = layer_saliency(trace, index, backward)
    # Some vision models merge patches between blocks.
    if saliency_BT.shape[1] != trace.hidden_states[0].shape[1]:
        raise UnsupportedModel(f"Layer {index} of {trace.model.name} no longer has the tokens of the input.")
    return Attribution(saliency_BT)
