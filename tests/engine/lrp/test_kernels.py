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
from clearhead.engine import balanced
from clearhead.engine.activation_ratios import find_kind, find_ratio
from clearhead.engine.lm_head import PadVocabulary
from clearhead.engine.lrp import rules
from clearhead.engine.lrp.context import RelevanceContext
from clearhead.engine.lrp.kernels import dispatch
from clearhead.engine.lrp.linear import POSITIVE
from clearhead.engine.lrp.saved import SavedTensors

triton = pytest.importorskip("triton", reason="Triton comes with the development extra, on Linux alone")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource, CompiledKernel  # noqa: E402

from clearhead.engine.lrp.kernels import attention, coefficients, elementwise, linear  # noqa: E402
from clearhead.engine.lrp.kernels.launch import Launch  # noqa: E402

ENGINE = Path(__file__).parents[1]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.mark.skipif(INTERPRETED, reason="this is the run inside the run")
@pytest.mark.parametrize(
    ("file", "selected"),
    [
        ("lrp/test_rules.py", ""),
        ("test_golden.py", "relevance or bert_methods"),
        ("test_families.py", "conserved or (padded and (bert or vit))"),
    ],
)
def test_again_with_fused_kernels(file, selected):
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
        selected,
    ]
    result = subprocess.run(
        [*command, str(Path(__file__))],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=ENGINE.parents[1],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-3000:]


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
def test_the_kernels_are_in_use_and_relevance_is_conserved():
    assert dispatch.kernels_for(torch.ones(1)) is not None


def test_without_a_gpu_plain_torch_does_the_work():
    assert INTERPRETED or dispatch.kernels_for(torch.ones(1)) is None


class InPlace(nn.Module):
    """An activation function whose result is changed after the fact."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def forward(self, hidden):
        wide = nn.functional.gelu(self.dense(hidden))
        wide += 0.7 * self.dense(hidden)
        return wide


def overwrite_activations(network):
    for layer in network.bert.encoder.layer:
        layer.intermediate = InPlace(layer.intermediate.dense)


def hook_activations(network):
    for layer in network.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn.register_forward_hook(lambda module, args, out: out * 1.5 - 0.2)


@pytest.mark.parametrize("change", [overwrite_activations, hook_activations, lambda network: None])
def test_recomputed_activations_are_those_of_the_forward_pass(change, monkeypatch):
    model = clearhead.load(network("bert"))
    change(model.network)
    saved = clearhead.explain(model, tensors("bert"), "trans-att", 0)
    monkeypatch.setattr(dispatch, "DEVICES", {"cpu"})
    recomputed = clearhead.explain(model, tensors("bert"), "trans-att", 0)
    for explanation, expected in zip(recomputed, saved, strict=True):
        np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-9, atol=1e-12)


def propagate(backward, relevance, devices):
    """Return the shares of the activations and what 0/0 dropped, with kernels on these devices."""
    batch = relevance.shape[0]
    context = RelevanceContext(POSITIVE, batch, [relevance.new_zeros(batch, 1)])
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(dispatch, "DEVICES", devices)
        return (*backward(relevance, context), context.dropped_B)


def assert_kernels_agree(backward, relevance, tolerance):
    """Compare what a rule gives by plain torch and by the kernels."""
    expected = propagate(backward, relevance, set())
    fused = propagate(backward, relevance, dispatch.DEVICES)
    for plain, by_kernel in zip(expected, fused, strict=True):
        assert plain.shape == by_kernel.shape
        largest = float(plain.abs().max())
        torch.testing.assert_close(by_kernel, plain, rtol=tolerance, atol=tolerance * largest)


def draw(*shape, dtype=torch.float32):
    """Return random numbers with some zeros among them, so that there is 0/0."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return values.masked_fill(values.abs() < 0.05, 0.0).to(dtype)


# The interpreter does not multiply bfloat16; these numbers are small enough for float16.
DTYPES = [(torch.float32, 1e-5), (torch.float16, 5e-3)]


@pytest.fixture(autouse=True)
def half_precision(monkeypatch):
    monkeypatch.setattr(dispatch, "DOT_DTYPES", (torch.float32, torch.float16))


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("tokens", [7, 300])
def test_products_of_a_linear_layer(tokens, dtype, tolerance):
    x = draw(2, tokens, 70, dtype=dtype).requires_grad_()
    weight = draw(90, 70, dtype=dtype)
    bias = draw(90, dtype=dtype)
    x.data[0, 3] = 0.0
    weight[5] = 0.0
    out = nn.functional.linear(x, weight, bias)
    _, backward = rules.linear(SavedTensors(), out, x, weight, bias)
    assert_kernels_agree(backward, draw(2, tokens, 90).abs(), tolerance)


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (70, 130)])
def test_products_of_attention(queries, keys, dtype, tolerance):
    query, key, value = (draw(2, 3, size, 24, dtype=dtype) + 2 for size in (queries, keys, keys))
    query[1, 2, 3] = 0.0
    attention = torch.softmax(draw(2, 3, queries, keys), -1).to(dtype)
    value[:, 1] = 0.0
    for tensor in (query, key, value, attention):
        tensor.requires_grad_()
    with torch.no_grad():
        product = attention @ value
        weights = attention.clone()
    _, backward = rules.matmul(SavedTensors(), product, attention, value)
    assert_kernels_agree(backward, draw(2, queries, 3, 24).abs().transpose(1, 2), tolerance)
    _, backward = rules.attention_weights(SavedTensors(), weights, query, key, 1.0, None)
    assert_kernels_agree(backward, draw(2, 3, queries, keys).abs(), tolerance)


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
@pytest.mark.parametrize("maximum", [0, 1024])
def test_shares_of_a_sum_with_many_partial_sums(maximum, monkeypatch):
    monkeypatch.setattr(elementwise, "MAX_PARTIAL_SUMS", maximum)
    u, v = (draw(2, size, 1000)[:, :7].contiguous().requires_grad_() for size in (7, 8))
    _, backward = rules.add(SavedTensors(), u + v, u, v)
    assert_kernels_agree(backward, draw(2, 7, 1000), 1e-4)


def by_torch(rule, x, coefficient):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "DEVICES", set())
        return rule(x, coefficient)


NORMS = {
    "LayerNorm": lambda weight: balanced.layer_norm_rule(1, weight, 1e-5),
    "RMSNorm": lambda weight: balanced.rms_norm_rule(1, weight, 1e-6),
}
HALF_ROUNDING = {torch.float32: 1e-6, torch.float16: 2**-9, torch.bfloat16: 2**-6}


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
@pytest.mark.parametrize("dtype", HALF_ROUNDING)
@pytest.mark.parametrize("is_weighted", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_coefficients_behind_a_norm(norm, is_weighted, dtype, monkeypatch):
    # Far from zero, where a variance of squares would lose its digits.
    x = draw(2, 3, 70, dtype=dtype) + 20
    weight = draw(70, dtype=dtype) if is_weighted else None
    coefficient = draw(2, 3, 71, dtype=dtype)[..., :70].contiguous()
    rule = NORMS[norm](weight)
    launched = count_launches(monkeypatch, "norm_coefficient")
    fused = rule(x, coefficient)
    assert len(launched) == 1
    assert fused.dtype == dtype
    exact = by_torch(NORMS[norm](None if weight is None else weight.double()), x.double(), coefficient.double())
    tolerance = HALF_ROUNDING[dtype]
    torch.testing.assert_close(fused.double(), exact, rtol=tolerance, atol=tolerance * float(exact.abs().max()))


def find_activation_rule(name, options):
    ratio = find_ratio(name, getattr(nn.functional, name), (None,), options)
    return balanced.activation_rule(ratio, find_kind(name, (None,), options))


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("call", [("gelu", {}), ("gelu", {"approximate": "tanh"}), ("silu", {})], ids=str)
def test_coefficients_behind_an_activation_function(call, dtype, monkeypatch):
    x = torch.cat([3 * draw(2, 1500), torch.zeros(2, 1), torch.full((2, 1), -30.0)], 1).to(dtype)
    coefficient = draw(2, 1502, dtype=dtype)
    launched = count_launches(monkeypatch, "activation_coefficient")
    rule = find_activation_rule(*call)
    fused = rule(x, coefficient)
    assert len(launched) == 1
    exact = by_torch(rule, x.double(), coefficient.double())
    torch.testing.assert_close(fused.double(), exact, rtol=HALF_ROUNDING[dtype], atol=1e-6)


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
@pytest.mark.parametrize("method", ["attn-lrp", "cp-lrp", "balanced-cat"])
def test_balanced_passes_agree_with_torch(method, monkeypatch):
    model = clearhead.load(network("bert", dtype=torch.float32))
    launched = count_launches(monkeypatch, "norm_coefficient")
    fused = clearhead.explain(model, tensors("bert"), method, 0)
    assert launched
    monkeypatch.setattr(dispatch, "DEVICES", set())
    for explanation, expected in zip(fused, clearhead.explain(model, tensors("bert"), method, 0), strict=True):
        largest = np.abs(expected.relevance).max()
        np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
def test_coefficients_that_no_kernel_takes_are_left_to_torch(monkeypatch):
    x = draw(4, 6, dtype=torch.float16)
    transposed = draw(6, 4, dtype=torch.float16).t()
    launched = count_launches(monkeypatch, "norm_coefficient") + count_launches(monkeypatch, "activation_coefficient")
    balanced.layer_norm_rule(1, None, 1e-5)(x, transposed)
    balanced.layer_norm_rule(2, None, 1e-5)(x, x)
    balanced.layer_norm_rule(1, None, 1e-5)(x.double(), x.double())
    find_activation_rule("gelu", {})(x.float(), x.float())
    find_activation_rule("relu", {})(x, x)
    assert launched == []


def count_launches(monkeypatch, name):
    """Return a list that gets an entry for each call of a kernel."""
    library = dispatch.kernels_for(torch.ones(1))
    kernel = getattr(library, name)
    launched = []

    def call(*args, **options):
        launched.append(name)
        return kernel(*args, **options)

    monkeypatch.setattr(library, name, call)
    return launched


def argument_types(kernel, dtype):
    """Return the types of a kernel's arguments: counts are integers, relevance is float32, the rest is `dtype`."""
    numbers = {"rows", "queries", "keys", "heads", "channels", "stride", "n", "count"}
    factors = {"epsilon"}
    wide = {"relevance", "dropped", "share", "to_map", "to_value", "to_query", "to_key"}
    types = dict.fromkeys(kernel.arg_names, f"*{dtype}")
    for name in types:
        if name.isupper():
            types[name] = "constexpr"
        elif name in numbers:
            types[name] = "i32"
        elif name in factors:
            types[name] = "fp32"
        elif name in wide:
            types[name] = "*fp32"
    return types


def compile_kernel(kernel, dtype, constants, architecture, **options):
    indexed = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, argument_types(kernel, dtype), indexed)
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("channels", "architecture"), [(32, 90), (128, 80)])
def test_the_products_compile_for_gpus(dtype, channels, architecture):
    heads = {"PRECISION": "tf32", "TILES": 2, "TILE": attention.TILE, "CHANNELS": channels}
    layer = {"PRECISION": "tf32", "OUT": 48, "IN": 40, "SPLIT": dtype == "bf16"}
    tiles = linear.plan_tiles(torch.empty(1024 if dtype == "bf16" else 8, 40, dtype=getattr(torch, NAMES[dtype])))
    blocks = {name: tiles.pop(name) for name in ("ROWS", "COLUMNS", "DEPTH")}
    for kernel in (linear._scale_per_unit, linear._share_inputs):
        assert compile_kernel(kernel.kernel, dtype, {**layer, **blocks}, architecture, **tiles).asm["ptx"]
    for name in ("_share_attention", "_share_values", "_share_queries", "_share_keys"):
        assert compile_kernel(getattr(attention, name).kernel, dtype, heads, architecture, num_warps=4).asm["ptx"]


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
@pytest.mark.parametrize("count", [0, 64])
def test_the_shares_of_a_sum_compile_for_gpus(count):
    blocks = {"COUNT": count, "BLOCK": elementwise.BLOCK}
    assert compile_kernel(elementwise._split_sum.kernel, "fp32", blocks, 90, num_warps=elementwise.WARPS).asm["ptx"]


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
def test_sums_of_exponentials_compile_for_gpus():
    constants = {"WIDTH": 30522, "BLOCK": 4096}
    assert compile_kernel(elementwise._log_sum.kernel, "fp32", constants, 90, num_warps=8).asm["ptx"]


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("is_centred", [True, False])
def test_coefficients_behind_a_norm_compile_for_gpus(dtype, is_centred):
    constants = {"WIDTH": 768, "CENTRED": is_centred, "WEIGHTED": is_centred, "BLOCK": 1024}
    assert compile_kernel(coefficients._norm_coefficient.kernel, dtype, constants, 90, num_warps=8).asm["ptx"]


@pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")
@pytest.mark.parametrize("kind", ["none", "tanh", "silu"])
@pytest.mark.parametrize("architecture", [80, 90])
def test_coefficients_behind_an_activation_function_compile_for_gpus(kind, architecture):
    constants = {"KIND": kind, "BLOCK": elementwise.BLOCK}
    kernel = coefficients._activation_coefficient.kernel
    assert compile_kernel(kernel, "bf16", constants, architecture, num_warps=8).asm["ptx"]


NAMES = {"fp32": "float32", "bf16": "bfloat16"}


def test_a_kernel_that_cannot_run_leaves_the_work_to_torch(caplog):
    def unfit(_, value):
        if value.shape[-1] > 64:
            raise RuntimeError("out of resources")
        return value

    for _ in range(2):
        assert dispatch.try_kernel(unfit, None, torch.ones(128)) is None
    assert caplog.text.count("out of resources") == 1
    assert len(dispatch.try_kernel(unfit, None, torch.ones(64))) == 64


def test_a_full_gpu_is_no_reason_to_do_without_a_kernel():
    def launch(_, value, *, is_full):
        if is_full:
            # What Triton says when it cannot load a kernel.
            raise RuntimeError("Triton Error [CUDA]: out of memory")
        return value

    with pytest.raises(torch.OutOfMemoryError, match="Triton Error"):
        dispatch.try_kernel(launch, None, torch.ones(8), is_full=True)
    assert len(dispatch.try_kernel(launch, None, torch.ones(8), is_full=False)) == 8


def test_the_trial_of_the_kernels_is_repeated_when_there_is_memory(monkeypatch):
    full = True

    def on_device_of(tensor):
        if full:
            raise torch.OutOfMemoryError("CUDA out of memory")
        # As where no compiler is installed.
        raise RuntimeError("no compiler")

    monkeypatch.setattr(dispatch, "on_device_of", on_device_of)
    load = dispatch._load_kernels.__wrapped__
    with pytest.raises(torch.OutOfMemoryError):
        load(torch.device("cpu"))
    full = False
    assert load(torch.device("cpu")) is None


class Compiled(CompiledKernel):
    """What Triton would have compiled: it notes what it is launched with."""

    def __init__(self):
        self.launched = []

    def __getitem__(self, grid):
        return lambda *args: self.launched.append((grid, *args))


class Kernel:
    """A kernel of Triton's as Launch sees it."""

    arg_names = ("x", "size", "WIDTH")

    def __init__(self):
        self.compiled = []

    def __getitem__(self, grid):
        return lambda *args, **constants: self.compiled.append(Compiled()) or self.compiled[-1]


def test_a_compiled_kernel_is_cached_by_all_that_it_depends_on():
    kernel, x = Kernel(), torch.zeros(64)
    launch = Launch(kernel)
    for width in (8, 8, 16):
        launch((2, 1), x, 5, WIDTH=width, num_warps=4)
    for values, size, grid in ((x, 6, (2, 1)), (x.double(), 5, (2, 1)), (x[1:], 5, (2, 1)), (x, 5, (3, 1))):
        launch(grid, values, size, WIDTH=8, num_warps=4)
    launches = [compiled.launched for compiled in kernel.compiled]
    assert launches == [[((2, 1, 1), x.data_ptr(), 5, 8)], [], [], [], [], []]


@pytest.mark.skipif(not INTERPRETED, reason="the kernels run on the CPU by Triton's interpreter alone")
def test_sums_of_exponentials():
    logits = 30 * draw(2, 5, 9000)[..., :8999]
    torch.testing.assert_close(dispatch.kernels_for(logits).log_sum(logits), logits.logsumexp(-1))


def test_a_vocabulary_of_an_odd_size(monkeypatch):
    monkeypatch.setattr(dispatch, "DEVICES", {"cpu"})
    x, weight, bias = draw(2, 3, 8), draw(4099, 8), draw(4099)
    for shift in ((), (bias,), (None,)):
        with PadVocabulary():
            logits = nn.functional.linear(x, weight, *shift)
        assert logits.stride(1) % 8 == 0
        torch.testing.assert_close(logits, nn.functional.linear(x, weight, *shift))
