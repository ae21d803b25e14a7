"""What enters the decoder of a model that reads pictures: embeddings of words and image tokens, and positions."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import UnsupportedModel
from clearhead.model.language import keep_positions

# What a decoder takes that is known when a prompt is explained; anything else would be missing then.
DECODER_INPUTS = ("inputs_embeds", "attention_mask", "position_ids", "past_key_values", "cache_position")


class _DecoderReached(Exception):
    """Ends a forward pass where the decoder would begin, with its arguments."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


def embed_prompt(network: Any, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return the embeddings (T,D) of a prompt, and its positions (T,3) unless they are plain numbers.

    The network runs up to its decoder, which is not run.
    """
    arguments = _reach_decoder(network, tensors)
    _require_known(network, arguments)
    embeddings: Tensor = arguments["inputs_embeds"][0].clone()
    positions = arguments.get("position_ids")
    if _has_numbered_axes(network, positions):
        return embeddings, _find_positions(positions, len(embeddings))
    return embeddings, None


def _reach_decoder(network: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    handle = network.get_decoder().register_forward_pre_hook(_make_stop(), with_kwargs=True)
    try:
        _run_tower(network, tensors)
    except _DecoderReached as reached:
        return reached.arguments
    finally:
        handle.remove()
    raise UnsupportedModel(f"{type(network).__name__} does not run its decoder on a prompt with pictures.")


def _make_stop() -> Callable[..., None]:
    """Return a hook that ends a pass of this thread."""
    thread = threading.get_ident()

    def stop(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        # Another thread may be running the same network.
        if threading.get_ident() == thread:
            raise _DecoderReached(kwargs)

    return stop


def _run_tower(network: Any, tensors: Mapping[str, Tensor]) -> None:
    with torch.inference_mode(False), torch.no_grad(), keep_positions(network), evaluation_mode(network):
        network(**tensors, use_cache=False)


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Leave training mode, and return every module to the mode it was in."""
    training = [module for module in network.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _require_known(network: Any, arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if name not in DECODER_INPUTS and isinstance(value, Tensor | list | tuple):
            raise UnsupportedModel(
                f"{type(network).__name__} gives its decoder {name} besides the embeddings of words and image tokens, "
                "so relevance at these would not show all of the picture."
            )


def _has_numbered_axes(network: Any, positions: Tensor | None) -> bool:
    """Return whether positions have several numbers: time, row and column of a picture's patches."""
    if positions is not None:
        return positions.dim() == 3
    # A prompt without pictures, of a model that numbers axes.
    return hasattr(getattr(network, "model", network), "rope_deltas")


def _find_positions(positions: Tensor | None, length: int) -> Tensor:
    if positions is None:
        return torch.arange(length)[:, None].expand(-1, 3).contiguous()
    # Axes × samples × tokens in Transformers.
    return positions[:, 0].T.contiguous()
