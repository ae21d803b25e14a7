"""Whether this machine computes in half precision, found out in a child process, since a CPU may die trying."""

import subprocess
import sys
from functools import cache

import pytest


def require_half_precision(dtype: str) -> None:
    """Skip the test if torch cannot multiply matrices of this type on this machine."""
    reason = _failure(dtype)
    if reason is not None:
        pytest.skip(reason)


@cache
def _failure(dtype: str) -> str | None:
    code = f"import torch; x = torch.ones(64, 64, dtype=torch.{dtype}); torch.nn.functional.linear(x, x)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return None
    last_line = (result.stderr.strip().splitlines() or ["no message"])[-1]
    return (
        f"torch cannot compute in {dtype} here (exit code {result.returncode}: {last_line}); where the CPU announces "
        "AMX but traps on it, set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
    )
