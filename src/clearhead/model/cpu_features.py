"""CPUs that announce bfloat16 instructions which they cannot execute."""

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch

from clearhead.errors import UnsupportedModel

CPU_INFO = Path("/proc/cpuinfo")
ISA_LIMIT = "ONEDNN_MAX_CPU_ISA"
PROBE = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"


def require_bfloat16(dtype: torch.dtype, device: torch.device) -> None:
    """Raise UnsupportedModel if bfloat16 would kill the process on this CPU.

    Some virtual machines announce AMX but trap on it, so that torch dies with an illegal instruction, which no
    exception handler can catch.
    """
    if _would_trap(dtype, device):
        raise UnsupportedModel(
            "This CPU announces AMX instructions but cannot execute them, so torch would crash in bfloat16. Set the "
            f"environment variable {ISA_LIMIT}=AVX512_CORE_BF16 before Python starts, or use dtype='float32'."
        )


def _would_trap(dtype: torch.dtype, device: torch.device) -> bool:
    return dtype is torch.bfloat16 and device.type == "cpu" and _traps_on_amx()


def _traps_on_amx() -> bool:
    # With a limit on the instructions, torch does not use AMX at all.
    if ISA_LIMIT in os.environ or not _announces_amx():
        return False
    return _dies_of_illegal_instruction()


def _announces_amx() -> bool:
    try:
        return "amx_bf16" in CPU_INFO.read_text()
    except OSError:
        return False


@cache
def _dies_of_illegal_instruction() -> bool:
    """Multiply bfloat16 matrices in a child process, which may die in place of this one."""
    result = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False)
    return result.returncode == -signal.SIGILL
