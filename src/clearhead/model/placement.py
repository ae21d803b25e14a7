"""Device and dtype of a model: copies that leave the original untouched."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadOption, first_line
from clearhead.model.model import Model


def place_model(model: Model, device: Any, dtype: Any) -> Model:
    """Return the model on a device and in a dtype: the model itself if it is there already, else a copy."""
    target_device = _choose_device(model, device)
    target_dtype = _choose_dtype(model, dtype)
    if _is_same_device(target_device, model.device) and target_dtype == model.dtype:
        return model
    return _move_model(model, target_device, target_dtype)


def _choose_device(model: Model, device: Any) -> torch.device:
    if device is None:
        return model.device
    return _parse_device(device)


def _choose_dtype(model: Model, dtype: Any) -> torch.dtype:
    if dtype is None:
        return model.dtype
    return _parse_dtype(dtype)


def with_precision(model: Model, precision: str | None) -> Model:
    """Return the model in another floating-point dtype; the copy is cached with the model."""
    if precision is None or _parse_dtype(precision) == model.dtype:
        return model
    return _cached_copy(model, precision, partial(_copy_model, model, model.device, _parse_dtype(precision)))


def with_perturbed_weights(model: Model, size: float) -> Model:
    """Return the model with its biases and norms multiplied by 1 ± `size`; the copy is cached with the model.

    Rounding errors are as large if `size` is the precision of the model's numbers: what this changes, rounding may
    change too. The large weights are those of the original.
    """
    return _cached_copy(model, f"perturbed by {size}", partial(_perturb_model, model, size))


def _cached_copy(model: Model, name: str, make_copy: Callable[[], Model]) -> Model:
    versions = weight_versions(model)
    # A copy of weights that have been trained further since is stale.
    cached_versions, converted = model.copies.get(name, (None, model))
    if cached_versions != versions:
        converted = make_copy()
        model.copies[name] = (versions, converted)
    return converted


def _perturb_model(model: Model, size: float) -> Model:
    # The memo of deepcopy says which tensors are taken as they are.
    shared = {id(weight): weight for weight in _iterate_weights(model) if not _is_vector(weight)}
    with torch.inference_mode(False), torch.no_grad():
        network = copy.deepcopy(model.network, shared)
        generator = torch.Generator().manual_seed(0)
        for weight in filter(_is_vector, network.parameters()):
            sign = torch.randint(2, weight.shape, generator=generator) * 2 - 1
            weight.mul_(1 + size * sign.to(weight))
    return replace(model, network=network, copies={})


def _is_vector(weight: Tensor) -> bool:
    return weight.dim() == 1 and weight.is_floating_point()


def _move_model(model: Model, device: torch.device, dtype: torch.dtype) -> Model:
    try:
        return _copy_model(model, device, dtype)
    # torch without CUDA raises AssertionError, a missing or full GPU RuntimeError.
    except (RuntimeError, AssertionError) as error:
        raise BadOption(f"The model cannot be moved to '{device}': {first_line(error)}") from error


def _is_same_device(target: torch.device, current: torch.device) -> bool:
    # "cuda" without an index means any GPU, also the one where the model is.
    return target.type == current.type and target.index in (None, current.index)


def _parse_device(name: Any) -> torch.device:
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise BadOption(f"Invalid device '{name}': use cpu, cuda, cuda:1 …, or mps.") from error
    _refuse_meta(device)
    return device


def _refuse_meta(device: torch.device) -> None:
    # torch accepts it as a device, but its tensors have no values.
    if device.type == "meta":
        raise BadOption("Invalid device 'meta', on which nothing is computed: use cpu, cuda, cuda:1 …, or mps.")


def _parse_dtype(name: str | torch.dtype) -> torch.dtype:
    dtype = _find_dtype(name)
    # Only floating-point weights have gradients.
    if dtype is None or not dtype.is_floating_point:
        raise BadOption(
            f"Invalid dtype '{name}', not a floating-point type: use float32, float64, float16 or bfloat16."
        )
    return dtype


def _find_dtype(name: str | torch.dtype) -> torch.dtype | None:
    # torch has many attributes that are no dtypes: "nn" must not pass.
    dtype: Any = name
    if isinstance(name, str):
        dtype = getattr(torch, name, None)
    if isinstance(dtype, torch.dtype):
        return dtype
    return None


def _copy_model(model: Model, device: torch.device, dtype: torch.dtype) -> Model:
    # Tensors created under inference_mode could never have gradients.
    with torch.inference_mode(False):
        network = _copy_network(model.network, device, dtype)
        lm = _copy_network(model.lm, device, dtype)
    return replace(model, network=network, lm=lm, copies={})


def _copy_network(network: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if network is None:
        return None
    return copy.deepcopy(network).to(device, dtype)


def weight_versions(model: Model) -> list[tuple[int, int]]:
    """Return address and version of every weight, which change when the model is trained further."""
    return [(weight.data_ptr(), weight_version(weight)) for weight in _iterate_weights(model)]


def weight_version(weight: Tensor) -> int:
    """Return a number that changes when a weight is written to."""
    # Tensors of inference mode have no version counter: reading it raises.
    if weight.is_inference():
        return 0
    return weight._version


def _iterate_weights(model: Model) -> Iterator[Tensor]:
    for network in (model.network, model.lm):
        if network is not None:
            yield from network.parameters()
            yield from network.buffers()
