"""The type of number in which torch multiplies float32 values: its settings may allow one with fewer digits."""

from typing import Any

import torch
from torch import nn

from clearhead.engine.context import list_modules
from clearhead.engine.lrp.kernels.dispatch import allows_tf32
from clearhead.model.model import Model

TF32 = "tf32"
BFLOAT16 = "bfloat16"
PRECISIONS = {TF32: 2.0**-10, BFLOAT16: torch.finfo(torch.bfloat16).eps}
"""The distance from 1 to the next number of each narrower type."""
SETTINGS = {"tf32": TF32, "bf16": BFLOAT16}
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def find_product_type(model: Model) -> str | None:
    """Return the narrower type in which torch may multiply a model's float32 numbers, None if it uses float32."""
    if model.dtype is not torch.float32 or model.device.type not in ("cpu", "cuda"):
        return None
    return max(_list_allowed(model), key=PRECISIONS.__getitem__, default=None)


def _list_allowed(model: Model) -> list[str]:
    """Return the narrower types that torch's settings allow for the products of a model."""
    device = model.device.type
    settings = [_read_matrix_setting(device)]
    convolution = read_convolution_setting(device)
    # cuDNN convolves in tf32 unless it is told not to, as when a vision transformer cuts its image into patches.
    if convolution in SETTINGS and _has_convolutions(model.network):
        settings.append(convolution)
    return [SETTINGS[setting] for setting in settings if setting in SETTINGS]


def _has_convolutions(network: nn.Module) -> bool:
    return any(isinstance(module, CONVOLUTIONS) for module in list_modules(network))


def _read_matrix_setting(device: str) -> str:
    """Return in what type matrices are multiplied, as torch names it."""
    if device == "cuda":
        return "tf32" if allows_tf32() else "ieee"
    return _read_setting(torch.backends.mkldnn, "matmul") or _read_common_setting()


def read_convolution_setting(device: str) -> str:
    """Return in what type convolutions multiply, as torch names it."""
    if device == "cpu":
        return _read_setting(torch.backends.mkldnn, "conv") or "ieee"
    setting = _read_setting(torch.backends.cudnn, "conv")
    if setting is None:
        return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"
    return setting


def _read_setting(library: Any, operation: str) -> str | None:
    """Return the setting of one operation, None for versions of torch that have a common one only."""
    setting: str | None = getattr(getattr(library, operation, None), "fp32_precision", None)
    return setting


def _read_common_setting() -> str:
    return "bf16" if torch.get_float32_matmul_precision() == "medium" else "ieee"
