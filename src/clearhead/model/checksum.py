"""Checksum of a model's weights, by which a model is recognised wherever it was loaded from."""

import hashlib
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from clearhead.model.model import Model
from clearhead.model.placement import weight_versions

# By network, with the versions of the weights that were hashed.
_checksums: WeakKeyDictionary[Any, tuple[list[tuple[int, int]], str]] = WeakKeyDictionary()


def weights_checksum(model: Model) -> str:
    """Return the SHA-256 of the names, shapes and values of all weights; computed once per network and training step.

    Values are hashed in float32, so that a float64 copy of a float32 model is the same model.
    """
    versions = weight_versions(model)
    cached_versions, checksum = _checksums.get(model.network, (None, ""))
    if cached_versions != versions:
        checksum = _hash_weights(model)
        _checksums[model.network] = (versions, checksum)
    return checksum


def count_weights(model: Model) -> int:
    """Return the number of weights, which tells most models apart without reading them."""
    return sum(parameter.numel() for parameter in model.network.parameters())


def _hash_weights(model: Model) -> str:
    digest = hashlib.sha256()
    for name, weight in model.network.named_parameters():
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(_weight_bytes(weight))
    return digest.hexdigest()


def _weight_bytes(weight: Tensor) -> Any:
    values = weight.detach()
    if values.is_floating_point():
        values = values.float()
    # As bytes without a copy: NumPy has no type for some integers of quantised models.
    return values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
