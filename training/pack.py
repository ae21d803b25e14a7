"""Write weights compactly: int8 rows for large matrices, float16 for the rest, a checksum per file."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

# Smaller matrices are stored as float16.
MIN_INT8_ELEMENTS = 16_384


def quantise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 rows and the float32 scale of each row (its largest magnitude / 127)."""
    scale = matrix.float().abs().amax(dim=1).clamp_min(1e-12) / 127
    return (matrix.float() / scale[:, None]).round().to(torch.int8), scale


def write_weights(state: dict[str, Tensor], path: Path) -> None:
    """Write each weight as int8 with its `name.scale`, or as float16."""
    stored: dict[str, Tensor] = {}
    for name, value in state.items():
        value = value.detach().cpu().contiguous()
        if value.ndim == 2 and value.numel() >= MIN_INT8_ELEMENTS:
            stored[name], stored[f"{name}.scale"] = quantise(value)
        else:
            stored[name] = value.half()
    save_file(stored, path)


def write_checksums(zoo: Path) -> None:
    """Write the SHA-256 of every file a model is loaded from to `checksums.json`."""
    candidates = [*zoo.glob("*/*.safetensors"), *zoo.glob("*/*.json")]
    files = [file for file in candidates if file.parent.name != "examples"]
    sums = {file.relative_to(zoo).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    (zoo / "checksums.json").write_text(json.dumps(dict(sorted(sums.items())), indent=1) + "\n")
