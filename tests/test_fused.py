"""The fused kernels, run by Triton's interpreter on the CPU: the rules' own tests must hold with them as well."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import network, tensors
from torch import nn

import clearhead
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


class InPlace(nn.Module):
    """An activation function whose result is changed after the fact."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def forward(self, hidden):
        wide = nn.functional.gelu(self.dense(hidden))
        wide += 0.7 * self.dense(hidden)
        return wide


def overwritten(network):
    for layer in network.bert.encoder.layer:
        layer.intermediate = InPlace(layer.intermediate.dense)


def hooked(network):
    for layer in network.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn.register_forward_hook(lambda module, given, out: out * 1.5 - 0.2)


@pytest.mark.parametrize("change", [overwritten, hooked, lambda network: None])
def test_what_is_made_again_is_what_was(change, monkeypatch):
    explained = clearhead.load(network("bert"))
    change(explained.network)
    kept = clearhead.explain(explained, tensors("bert"), "trans-att", 0)
    monkeypatch.setattr(fused, "DEVICES", {"cpu"})
    again = clearhead.explain(explained, tensors("bert"), "trans-att", 0)
    for one, other in zip(again, kept, strict=True):
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=1e-9, atol=1e-12)
