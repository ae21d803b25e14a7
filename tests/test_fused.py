"""The fused kernels, run by Triton's interpreter on the CPU: the rules' own tests must hold with them as well."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clearhead import fused

pytest.importorskip("triton", reason="Triton comes with the development extra, on Linux alone")

HERE = Path(__file__).parent
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.mark.skipif(INTERPRETED, reason="this is the run inside the run")
@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("test_rules.py", ""),
        ("test_golden.py", "relevance or bert_methods"),
        ("test_families.py", "conserved or (padded and (bert or vit))"),
    ],
)
def test_again_with_fused_kernels(file, chosen):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-o", "addopts=", str(HERE / file), "-k", chosen]
    done = subprocess.run(
        [*command, str(HERE / "test_fused.py")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=HERE.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
def test_the_kernels_are_in_use_and_relevance_is_conserved():
    assert fused.kernels_for(torch.ones(1)) is not None


def test_without_a_gpu_plain_torch_does_the_work():
    assert INTERPRETED or fused.kernels_for(torch.ones(1)) is None
