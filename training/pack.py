"""Writes weights small: int8 per row for the big matrices, float16 for the rest, a checksum per file."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

BIG = 16_384
"""From this many elements on a matrix is stored as int8."""


def quantise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """int8 rows and the float32 scale of each row (its largest magnitude / 127)."""
    scale = matrix.float().abs().amax(dim=1).clamp_min(1e-12) / 127
    return (matrix.float() / scale[:, None]).round().to(torch.int8), scale


def write_weights(state: dict[str, Tensor], path: Path) -> None:
    """Stores `name` as int8 with `name.scale` beside it, or as float16."""
    stored: dict[str, Tensor] = {}
    for name, value in state.items():
        value = value.detach().cpu().contiguous()
        if value.ndim == 2 and value.numel() >= BIG:
            stored[name], stored[f"{name}.scale"] = quantise(value)
        else:
            stored[name] = value.half()
    save_file(stored, path)


def write_checksums(zoo: Path) -> None:
    """Writes the sha256 of every file a model is loaded from to `checksums.json`."""
    found = [*zoo.glob("*/*.safetensors"), *zoo.glob("*/*.json")]
    files = [file for file in found if file.parent.name != "examples"]
    sums = {file.relative_to(zoo).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    (zoo / "checksums.json").write_text(json.dumps(dict(sorted(sums.items())), indent=1) + "\n")
