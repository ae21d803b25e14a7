"""A CPU that announces AMX but traps on it is recognised before torch crashes."""

import pytest
import torch
from helpers.tiny_models import network

import clearhead
from clearhead.errors import UnsupportedModel
from clearhead.model import cpu_features

CPU = torch.device("cpu")
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.fixture
def amx(monkeypatch, tmp_path):
    """A machine whose CPU announces AMX; the probe has not run yet."""
    info = tmp_path / "cpuinfo"
    info.write_text("flags : avx512_bf16 amx_tile amx_bf16\n")
    monkeypatch.setattr(cpu_features, "CPU_INFO", info)
    monkeypatch.delenv(cpu_features.ISA_LIMIT, raising=False)
    cpu_features._dies_of_illegal_instruction.cache_clear()
    yield
    cpu_features._dies_of_illegal_instruction.cache_clear()


def test_a_trap_becomes_advice(amx, monkeypatch):
    monkeypatch.setattr(cpu_features, "PROBE", DIES)
    with pytest.raises(UnsupportedModel, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        cpu_features.require_bfloat16(torch.bfloat16, CPU)


def test_a_cpu_that_computes_is_let_through(amx, monkeypatch):
    monkeypatch.setattr(cpu_features, "PROBE", "pass")
    cpu_features.require_bfloat16(torch.bfloat16, CPU)
    assert cpu_features._dies_of_illegal_instruction.cache_info().misses == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_other_types_are_not_probed(amx, monkeypatch, dtype):
    monkeypatch.setattr(cpu_features, "PROBE", DIES)
    cpu_features.require_bfloat16(dtype, CPU)
    assert cpu_features._dies_of_illegal_instruction.cache_info().misses == 0


def test_nothing_is_probed_where_the_instruction_set_is_limited(amx, monkeypatch):
    monkeypatch.setattr(cpu_features, "PROBE", DIES)
    monkeypatch.setenv(cpu_features.ISA_LIMIT, "AVX512_CORE_BF16")
    cpu_features.require_bfloat16(torch.bfloat16, CPU)
    assert cpu_features._dies_of_illegal_instruction.cache_info().misses == 0


def test_loading_a_bfloat16_model_gives_the_advice(amx, monkeypatch):
    monkeypatch.setattr(cpu_features, "PROBE", DIES)
    with pytest.raises(UnsupportedModel, match="dtype='float32'"):
        clearhead.load(network("bert"), dtype="bfloat16")
    assert clearhead.load(network("bert"), dtype="float16").dtype == torch.float16
