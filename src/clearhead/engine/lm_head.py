"""Decodes hidden states with the pre-trained masked-LM head, or with a language model's own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clearhead.engine.context import NETWORK_LOCK
from clearhead.engine.lrp.kernels.dispatch import on_gpu
from clearhead.errors import Argument, BadInput, UnsupportedModel
from clearhead.model.model import Model, input_embedding

FINAL_NORM_NAMES = ("final_norm", "final_layer_norm", "ln_f", "norm")
# Smaller products are not worth a padded copy of their weight.
MIN_PADDED_ROWS = 4096


@contextmanager
def _encoder_replaced(lm: Any, hidden_BTD: Tensor) -> Iterator[None]:
    """Let the language model's encoder return these hidden states to the calling thread."""
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

    encoder = lm.base_model
    # Decoders also read a cache of their base model's output, which is None here.
    result = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=_apply_final_norm(encoder, hidden_BTD))
    caller = threading.get_ident()
    # The replaced method is visible to all threads, so only one may replace it at a time.
    with NETWORK_LOCK:
        usual_forward = encoder.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            # Other threads may run the language model meanwhile.
            if threading.get_ident() != caller:
                return usual_forward(*args, **kwargs)
            return result

        with _attribute_replaced(encoder, "forward", forward):
            yield


def _apply_final_norm(encoder: Any, hidden_BTD: Tensor) -> Tensor:
    """Apply the norm that some encoders have after the last block."""
    # OPT's blocks and norm are those of a decoder inside of the base model.
    norm = _find_final_norm(getattr(encoder, "decoder", encoder))
    if norm is None:
        return hidden_BTD
    return norm(hidden_BTD)  # type: ignore[no-any-return]


def _find_final_norm(encoder: Any) -> Any:
    for name in FINAL_NORM_NAMES:
        if hasattr(encoder, name):
            return getattr(encoder, name)
    return None


@contextmanager
def _attribute_replaced(instance: Any, name: str, value: Any) -> Iterator[None]:
    """Set an instance attribute, and restore or delete it at the end."""
    # An instance attribute hides the method of the class, which shows again once the attribute is deleted.
    attributes = instance.__dict__
    had_attribute = name in attributes
    previous = attributes.get(name)
    attributes[name] = value
    try:
        yield
    finally:
        if had_attribute:
            attributes[name] = previous
        else:
            del attributes[name]


class PadVocabulary(TorchFunctionMode):
    """Pads products with a vocabulary of odd size to a multiple of 8, which is much faster on a GPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not F.linear or kwargs or not _needs_padding(args[1]):
            return function(*args, **(kwargs or {}))
        return _padded_linear(*args)


def _needs_padding(weight: Tensor) -> bool:
    return len(weight) >= MIN_PADDED_ROWS and len(weight) % 8 != 0 and on_gpu(weight)


def _padded_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute F.linear with rows of zeros added to the weight; their outputs are cut off."""
    rows = len(weight)
    added = -rows % 8
    if bias is not None:
        bias = F.pad(bias, (0, added))
    # Rows of the weight are independent, so the other outputs stay the same.
    out = F.linear(x, F.pad(weight, (0, 0, 0, added)), bias)
    return out[..., :rows]


def vocabulary_logits(model: Model, hidden_BTD: Tensor, input_ids_BT: Tensor) -> Tensor:
    """Return the logits of hidden states over the vocabulary (B,T,V)."""
    lm = _require_lm(model)
    # The head may be loaded in another precision than the classifier.
    hidden_BTD = hidden_BTD.to(next(lm.parameters()).dtype)
    with _encoder_replaced(lm, hidden_BTD), torch.no_grad(), PadVocabulary():
        logits_BTV: Tensor = lm(input_ids=input_ids_BT).logits
    _check_vocabulary(model, input_ids_BT, logits_BTV.shape[-1])
    return logits_BTV


def _require_lm(model: Model) -> Any:
    if model.writes:
        return _require_decoder(model)
    _require_masked_lm(model)
    return model.lm


def _require_masked_lm(model: Model) -> None:
    if model.lm is None:
        raise UnsupportedModel(
            f"decoded-gradcam needs the masked-LM head that {model.name} was trained from: give its folder as ",
            Argument("lm_head"),
            " when the model is loaded.",
        )


def _require_decoder(model: Model) -> Any:
    """Return the language model itself, whose head reads the states of all tokens."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedModel(
            f"decoded-gradcam cannot decode the encoder of {model.name}: the language-model head reads its decoder."
        )
    return model.network.language_model


def _check_vocabulary(model: Model, input_ids_BT: Tensor, vocabulary_size: int) -> None:
    """Raise BadInput if the masked-LM head does not have every token of the input."""
    # Ids are below the size of the embedding table, so most often there is no need to wait for the device.
    if _has_few_words(model, vocabulary_size):
        return
    if int(input_ids_BT.max()) >= vocabulary_size:
        raise BadInput("The masked-LM head has a smaller vocabulary than the tokenizer: it belongs to another model.")


def _has_few_words(model: Model, vocabulary_size: int) -> bool:
    """Return whether the embedding table is no larger than the vocabulary of the head."""
    words_VD = input_embedding(model.network)
    return words_VD is not None and len(words_VD) <= vocabulary_size
