"""Methods over hidden states and their gradients."""

import torch
from torch import Tensor

from clearhead.attribution.attention import received
from clearhead.attribution.method import Attribution, method
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption, UnsupportedModel


def layer_of(trace: Trace, layer: int | None) -> int:
    """A hidden state by number (0 = embeddings); by default ⌈7L/12⌉, the best layer of the decoded paper."""
    last = len(trace.hidden_states) - 1
    if layer is None:
        return -(-7 * last // 12)
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer <= last:
        raise BadOption(f"layer={layer!r} is not a layer: this model has layers 0 (embeddings) … {last}.")
    return layer


def gradient_times_hidden(trace: Trace) -> list[Tensor]:
    """Σ_D ∇h ⊙ h for the embedding output and the output of every block (B,T)."""
    pairs = zip(trace.hidden_gradients, trace.hidden_states, strict=True)
    return [(gradient * hidden).sum(-1) for gradient, hidden in pairs]


def layer_saliency(trace: Trace, layer: int) -> Tensor:
    """Decoded layer saliency, Eq. 1."""
    return (trace.hidden_gradients[layer] * trace.hidden_states[layer]).sum(-1).clamp(min=0)


@method(paper="AttCAT, Eq. 10", signed=True, class_specific=True)
def cat(trace: Trace, *, hidden: str = "output") -> Attribution:
    """Gradient × feature of every block, summed over blocks; `hidden="input"` takes what the block received."""
    layers_BLT = torch.stack([trace.as_patches(scores) for scores in _impact(trace, hidden, "cat")], 1)
    return Attribution(layers_BLT.sum(1), layers_BLT)


@method(paper="AttCAT, Eq. 11–12", signed=True, class_specific=True)
def att_cat(trace: Trace, *, hidden: str = "output") -> Attribution:
    """Gradient × feature, weighted by the attention each token receives, summed over blocks.

    `hidden="input"` pairs a block's attention with what the block received, as the authors' code does.
    """
    trace.require_token_maps()
    pairs = zip(trace.attentions, _impact(trace, hidden, "att-cat"), strict=True)
    layers_BLT = torch.stack([received(trace, attention.mean(1)) * impact for attention, impact in pairs], 1)
    return Attribution(layers_BLT.sum(1), layers_BLT)


def _impact(trace: Trace, hidden: str, name: str) -> list[Tensor]:
    if hidden not in ("output", "input"):
        raise BadOption(f"hidden={hidden!r} is not a choice of '{name}'. Use 'output' or 'input'.")
    if hidden == "output":
        return gradient_times_hidden(trace)[1:]
    pairs = zip(trace.gradients.block_inputs, trace.block_inputs, strict=True)
    return [(gradient * state).sum(-1) for gradient, state in pairs]


@method(paper="Decoded layer saliency, Eq. 1", signed=False, class_specific=True)
def layer_gradcam(trace: Trace, *, layer: int | None = None) -> Attribution:
    """Grad-CAM of one layer's features at each position; layer 0 is the embedding output."""
    chosen = layer_of(trace, layer)
    scores_BT = layer_saliency(trace, chosen)
    if scores_BT.shape[1] != trace.hidden_states[0].shape[1]:
        raise UnsupportedModel(f"Layer {chosen} of {trace.model.name} no longer has the tokens of the input.")
    return Attribution(scores_BT)
