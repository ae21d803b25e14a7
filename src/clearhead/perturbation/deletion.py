"""Delete tokens from the tensors of texts, and close the gaps."""

import torch
from torch import Tensor


def order_tokens(keep_NT: Tensor, decoder_start: int = 0) -> Tensor:
    """Return the order that brings kept tokens to the front: of the encoder's tokens, then of the decoder's."""
    in_decoder_T = torch.arange(keep_NT.shape[1], device=keep_NT.device) >= decoder_start
    # Stable, so that kept tokens stay in order.
    return torch.argsort(2 * in_decoder_T + ~keep_NT, dim=1, stable=True)


def delete_tokens(tensors: dict[str, Tensor], keep_NT: Tensor, order_NT: Tensor, pad: int) -> dict[str, Tensor]:
    """Delete tokens and close the gaps, in the order of `order_tokens`; of nothing one padding token is left."""
    # Attention masks, token types and embeddings are filled with 0.
    fillers = {"input_ids": pad}
    compacted = {}
    for name, tensor in tensors.items():
        compacted[name] = _compact(tensor, order_NT, keep_NT, fillers.get(name, 0))
    _attend_to_something(compacted["attention_mask"])
    return compacted


def _attend_to_something(mask_NT: Tensor) -> None:
    """Let rows of nothing but padding attend to their first token, in place."""
    # Attention over no token at all would be NaN.
    mask_NT[mask_NT.sum(1) == 0, 0] = 1


def _compact(tensor: Tensor, order_NT: Tensor, keep_NT: Tensor, filler: int) -> Tensor:
    """Move kept tokens to the front and fill the rest; tensors without a token axis stay."""
    if tensor.shape[:2] != keep_NT.shape:
        return tensor
    is_kept = _add_axes(keep_NT.gather(1, order_NT), tensor)
    return _reorder(tensor, order_NT).masked_fill(~is_kept, filler)


def _reorder(tensor: Tensor, order_NT: Tensor) -> Tensor:
    """Return the tokens of each row in an order of their positions."""
    index = _add_axes(order_NT, tensor).expand(tensor.shape)
    return tensor.gather(1, index)


def _add_axes(values_NT: Tensor, tensor: Tensor) -> Tensor:
    """Add an axis of size 1 for every axis that `tensor` has beyond rows and tokens (embeddings, say)."""
    trailing = (1,) * (tensor.dim() - 2)
    return values_NT.reshape(*values_NT.shape, *trailing)


def truncate_tokens(tensor: Tensor, tokens: int, width: int) -> Tensor:
    """Cut a tensor to a width; one without an axis of so many tokens stays."""
    if _has_token_axis(tensor, tokens):
        return tensor[:, :width]
    return tensor


def _has_token_axis(tensor: Tensor, tokens: int) -> bool:
    return tensor.dim() > 1 and tensor.shape[1] == tokens
