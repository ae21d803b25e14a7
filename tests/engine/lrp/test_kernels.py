"""The fused kernels, run by Triton's interpreter on the CPU: the rules' own tests must hold with them as well."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_models import network, tensors
from torch import nn

import clearhead
from clearhead.engine.lm_head import TokenMap
from clearhead.engine.lrp import linear as layers
from clearhead.engine.lrp import rules
from clearhead.engine.lrp.context import RelevanceContext
from clearhead.engine.lrp.kernels import dispatch as fused

triton = pytest.importorskip("triton", reason="Triton comes with the development extra, on Linux alone")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource, CompiledKernel  # noqa: E402

from clearhead.engine.lrp.kernels import attention, elementwise, linear  # noqa: E402
from clearhead.engine.lrp.kernels.launch import Launch  # noqa: E402

ENGINE = Path(__file__).parents[1]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.mark.skipif(INTERPRETED, reason="this is the run inside the run")
@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("lrp/test_rules.py", ""),
        ("test_golden.py", "relevance or bert_methods"),
        ("test_families.py", "conserved or (padded and (bert or vit))"),
    ],
)
def test_again_with_fused_kernels(file, chosen):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
        "-o",
        "addopts=--import-mode=importlib",
        str(ENGINE / file),
        "-k",
        chosen,
    ]
    done = subprocess.run(
        [*command, str(Path(__file__))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=ENGINE.parents[1],
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


def shares(rule, back, relevance):
    """What a rule gives back plainly and by the kernels, and what each counted as lost."""
    found = []
    for devices in (set(), fused.DEVICES):
        flow = RelevanceContext(rule, relevance.shape[0], [relevance.new_zeros(relevance.shape[0], 1)])
        with pytest.MonkeyPatch.context() as patch, torch.no_grad():
            patch.setattr(fused, "DEVICES", devices)
            found.append((*back(relevance, flow), flow.dropped_B))
    return found


def drawn(*shape, kind=torch.float32):
    """Random numbers with some zeros among them, of which 0/0 comes."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return values.masked_fill(values.abs() < 0.05, 0.0).to(kind)


def compare(found, tolerance):
    for plain, fast in zip(*found, strict=True):
        assert plain.shape == fast.shape
        torch.testing.assert_close(fast, plain, rtol=tolerance, atol=tolerance * float(plain.abs().max()))


# The interpreter does not multiply bfloat16; numbers as small as these can be had in float16 as well.
KINDS = [(torch.float32, 1e-5), (torch.float16, 5e-3)]


@pytest.fixture(autouse=True)
def half_precision(monkeypatch):
    monkeypatch.setattr(fused, "DOTS", (torch.float32, torch.float16))


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
@pytest.mark.parametrize(("kind", "tolerance"), KINDS)
@pytest.mark.parametrize("tokens", [7, 300])
def test_products_of_a_linear_layer(tokens, kind, tolerance):
    x, weight, bias = drawn(2, tokens, 70, kind=kind).requires_grad_(), drawn(90, 70, kind=kind), drawn(90, kind=kind)
    x.data[0, 3], weight[5] = 0.0, 0.0
    _, back = rules.linear(nn.functional.linear(x, weight, bias), x, weight, bias)
    compare(shares(layers.POSITIVE, back, drawn(2, tokens, 90).abs()), tolerance)


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
@pytest.mark.parametrize(("kind", "tolerance"), KINDS)
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (70, 130)])
def test_products_of_attention(queries, keys, kind, tolerance):
    query, key, value = (drawn(2, 3, size, 24, kind=kind) + 2 for size in (queries, keys, keys))
    query[1, 2, 3] = 0.0
    attention = torch.softmax(drawn(2, 3, queries, keys), -1).to(kind)
    value[:, 1] = 0.0
    for one in (query, key, value, attention):
        one.requires_grad_()
    with torch.no_grad():
        product, weighed = attention @ value, attention.clone()
    _, back = rules.matmul(product, attention, value)
    compare(shares(layers.POSITIVE, back, drawn(2, queries, 3, 24).abs().transpose(1, 2)), tolerance)
    _, back = rules.weigh(weighed, query, key, 1.0, None)
    compare(shares(layers.POSITIVE, back, drawn(2, 3, queries, keys).abs()), tolerance)


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
@pytest.mark.parametrize("many", [0, 1024])
def test_shares_of_a_sum_in_many_parts(many, monkeypatch):
    monkeypatch.setattr(elementwise, "MANY", many)
    u, v = (drawn(2, size, 1000)[:, :7].contiguous().requires_grad_() for size in (7, 8))
    _, back = rules.add(u + v, u, v)
    compare(shares(layers.POSITIVE, back, drawn(2, 7, 1000)), 1e-4)


def typed(kernel, kind):
    """The types of a kernel's arguments: numbers of tokens and the like, relevance in float32, the rest in `kind`."""
    numbers = {"rows", "queries", "keys", "heads", "channels", "stride", "n", "parts"}
    wide = {"relevance", "lost", "share", "to_map", "to_value", "to_query", "to_key"}
    capitals = [name for name in kernel.arg_names if name.isupper()]
    types = {name: "i32" if name in numbers else "*fp32" if name in wide else f"*{kind}" for name in kernel.arg_names}
    return {**types, **dict.fromkeys(capitals, "constexpr")}


def compiled(kernel, kind, constants, architecture, **options):
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, typed(kernel, kind), places)
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
@pytest.mark.parametrize("kind", ["fp32", "bf16"])
@pytest.mark.parametrize(("channels", "architecture"), [(32, 90), (128, 80)])
def test_the_products_compile_for_gpus(kind, channels, architecture):
    heads = {"PRECISION": "tf32", "TILES": 2, "TILE": attention.TILE, "CHANNELS": channels}
    layer = {"PRECISION": "tf32", "OUT": 48, "IN": 40, "SPLIT": kind == "bf16"}
    tiles = linear.plan(torch.empty(1024 if kind == "bf16" else 8, 40, dtype=getattr(torch, NAMES[kind])))
    blocks = {name: tiles.pop(name) for name in ("ROWS", "COLUMNS", "DEPTH")}
    for kernel in (linear._per_unit, linear._to_inputs):
        assert compiled(kernel.kernel, kind, {**layer, **blocks}, architecture, **tiles).asm["ptx"]
    for name in ("_mixed_maps", "_mixed_values", "_weighed_queries", "_weighed_keys"):
        assert compiled(getattr(attention, name).kernel, kind, heads, architecture, num_warps=4).asm["ptx"]


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
@pytest.mark.parametrize("parts", [0, 64])
def test_the_shares_of_a_sum_compile_for_gpus(parts):
    blocks = {"PARTS": parts, "BLOCK": elementwise.BLOCK}
    assert compiled(elementwise._branch_shares.kernel, "fp32", blocks, 90, num_warps=elementwise.WARPS).asm["ptx"]


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
def test_sums_of_exponentials_compile_for_gpus():
    assert compiled(elementwise._log_sum.kernel, "fp32", {"WIDTH": 30522, "BLOCK": 4096}, 90, num_warps=8).asm["ptx"]


NAMES = {"fp32": "float32", "bf16": "bfloat16"}


def test_a_kernel_that_cannot_run_leaves_the_work_to_torch(caplog):
    def unfit(_, value):
        if value.shape[-1] > 64:
            raise RuntimeError("out of resources")
        return value

    for _ in range(2):
        assert fused.try_kernel(unfit, None, torch.ones(128)) is None
    assert caplog.text.count("out of resources") == 1
    assert len(fused.try_kernel(unfit, None, torch.ones(64))) == 64


class Compiled(CompiledKernel):
    """What Triton would have compiled: it notes what it is launched with."""

    def __init__(self):
        self.launched = []

    def __getitem__(self, grid):
        return lambda *given: self.launched.append((grid, *given))


class Kernel:
    """A kernel of Triton's as Launch sees it."""

    arg_names = ("x", "size", "WIDTH")

    def __init__(self):
        self.compiled = []

    def __getitem__(self, grid):
        return lambda *args, **constants: self.compiled.append(Compiled()) or self.compiled[-1]


def test_a_kernel_is_found_again_by_all_that_it_was_compiled_for():
    kernel, x = Kernel(), torch.zeros(64)
    launch = Launch(kernel)
    for width in (8, 8, 16):
        launch((2, 1), x, 5, WIDTH=width, num_warps=4)
    for values, size, grid in ((x, 6, (2, 1)), (x.double(), 5, (2, 1)), (x[1:], 5, (2, 1)), (x, 5, (3, 1))):
        launch(grid, values, size, WIDTH=8, num_warps=4)
    assert [one.launched for one in kernel.compiled] == [[((2, 1, 1), x.data_ptr(), 5, 8)], [], [], [], [], []]


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
def test_sums_of_exponentials():
    logits = 30 * drawn(2, 5, 9000)[..., :8999]
    torch.testing.assert_close(fused.kernels_for(logits).log_sum(logits), logits.logsumexp(-1))


def test_a_vocabulary_of_an_odd_size(monkeypatch):
    monkeypatch.setattr(fused, "DEVICES", {"cpu"})
    x, weight, bias = drawn(2, 3, 8), drawn(4099, 8), drawn(4099)
    for shift in ((), (bias,), (None,)):
        with TokenMap():
            found = nn.functional.linear(x, weight, *shift)
        assert found.stride(1) % 8 == 0
        torch.testing.assert_close(found, nn.functional.linear(x, weight, *shift))
