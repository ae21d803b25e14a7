"""TODO."""

import copy
from dataclasses import replace
from typing import Any

import torch

from clearhead.errors import BadOption
from clearhead.model.model import Model


def place_model(model: Model, device: Any, dtype: Any) -> Model:
    wanted_dtype = _parse_dtype(dtype) if dtype is not None else model.dtype
    wanted_device = _parse_device(device) if device is not None else model.device
    same_device = wanted_device.type == model.device.type and wanted_device.index in (
        None,
        model.device.index,
    )
    if same_device and wanted_dtype == model.dtype:
        return model
    try:
        return _copy_model(model, wanted_device, wanted_dtype)
    except (RuntimeError, AssertionError) as error:
        raise BadOption(f"The model cannot be put on '{device}': {str(error).splitlines()[0]}") from error


def _parse_device(name: Any) -> torch.device:
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise BadOption(f"'{name}' is not a device. Use cpu, cuda, cuda:1 …, or mps.") from error
    if device.type == "meta":
        raise BadOption("Nothing is computed on 'meta'. Use cpu, cuda, cuda:1 …, or mps.")
    return device


def _copy_model(model: Model, device: torch.device, dtype: torch.dtype) -> Model:
    with torch.inference_mode(False):
        lm = None if model.lm is None else copy.deepcopy(model.lm).to(device, dtype)
        network = copy.deepcopy(model.network).to(device, dtype)
    return replace(model, network=network, lm=lm, copies={})


def _parse_dtype(name: str | torch.dtype) -> torch.dtype:
    found = getattr(torch, name, None) if isinstance(name, str) else name
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise BadOption(f"'{name}' is not a floating type. Use float32, float64, float16 or bfloat16.")
    return found


def with_precision(model: Model, precision: str | None) -> Model:
    """The same model in another floating type; the copy is made once and kept with the model."""
    if precision is None or _parse_dtype(precision) == model.dtype:
        return model
    stamp, known = _stamp(model), model.copies.get(precision)
    if known is None or known[0] != stamp:
        known = model.copies[precision] = (stamp, _copy_model(model, model.device, _parse_dtype(precision)))
    return known[1]


def _stamp(model: Model) -> list[tuple[int, int]]:
    """Where every weight lies and how often it was written to: a model that is trained on is another one."""
    networks = [one for one in (model.network, model.lm) if one is not None]
    weights = [one for network in networks for one in (*network.parameters(), *network.buffers())]
    return [(one.data_ptr(), 0 if one.is_inference() else one._version) for one in weights]
