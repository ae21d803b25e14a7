"""What the pre-trained masked-LM head makes of hidden states."""

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
from clearhead.errors import BadInput, UnsupportedModel
from clearhead.model.model import Model, input_embedding

WIDE = 4096


@contextmanager
def decoding(lm: Any, hidden_BTD: Tensor) -> Iterator[None]:
    """Inside, the language model's encoder returns these hidden states to this thread, whatever it is called with."""
    from transformers.modeling_outputs import BaseModelOutput

    encoder = lm.base_model
    norm = next((getattr(encoder, name) for name in ("final_norm", "ln_f", "norm") if hasattr(encoder, name)), None)
    hidden_BTD = hidden_BTD if norm is None else norm(hidden_BTD)
    own = threading.get_ident()
    with NETWORK_LOCK:
        before, usual = encoder.__dict__.get("forward"), encoder.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            mine = threading.get_ident() == own
            return BaseModelOutput(last_hidden_state=hidden_BTD) if mine else usual(*args, **kwargs)

        encoder.__dict__["forward"] = forward
        try:
            yield
        finally:
            encoder.__dict__.pop("forward") if before is None else encoder.__dict__.update(forward=before)


class TokenMap(TorchFunctionMode):
    """On a GPU, makes products with a vocabulary of an odd size as fast as others, by zeros that are cut off."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not F.linear or kwargs or len(args[1]) < WIDE or len(args[1]) % 8 == 0 or not on_gpu(args[1]):
            return function(*args, **(kwargs or {}))
        x, weight, *bias = args
        rows = -len(weight) % 8
        shifts = [one if one is None else F.pad(one, (0, rows)) for one in bias]
        return F.linear(x, F.pad(weight, (0, 0, 0, rows)), *shifts)[..., : len(weight)]


def vocabulary_logits(model: Model, hidden_BTD: Tensor, input_ids_BT: Tensor) -> Tensor:
    """What the pre-trained masked-LM head makes of hidden states (B,T,V)."""
    if model.lm is None:
        raise UnsupportedModel(
            f"decoded-gradcam needs the masked-LM head that {model.name} was trained from. Load it with "
            "clearhead.load(…, lm_head=<masked-LM model or folder>)."
        )
    with decoding(model.lm, hidden_BTD.to(next(model.lm.parameters()).dtype)), torch.no_grad(), TokenMap():
        logits: Tensor = model.lm(input_ids=input_ids_BT).logits
    # Ids are below the size of the word table, so that most often there is no need to wait for their largest.
    words = input_embedding(model.network)
    if (words is None or len(words) > logits.shape[-1]) and int(input_ids_BT.max()) >= logits.shape[-1]:
        raise BadInput("The masked-LM head has a smaller vocabulary than the tokenizer: it belongs to another model.")
    return logits
