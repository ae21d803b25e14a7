"""Speed and memory of the engine on a GPU, as multiples of one forward + backward in the same run.

    python benchmarks/gpu.py [--repeats 25] [--only WORD …] [--out FILE]

Medians over device events, warm, random weights and inputs; beside them how long the GPU itself was at work, which does
not depend on the processor that feeds it. Also checks that the GPU gives the CPU's numbers, that
a batch gives what its rows give, and that a long input goes block by block in bounded memory; `--only` leaves these
checks out. Rows of `explain` go the way of a user: passes are replayed (docs/decisions/replayed-passes.md), so that
their activations were allocated before and are not part of the memory ratio.
"""

import argparse
import copy
import statistics
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch
import transformers
from torch.profiler import ProfilerActivity, profile
from yardstick import FIFTEEN, Tensors, Work, batch, command, forward_backward

import clearhead
from clearhead.attribution.batch import read_gradients_only
from clearhead.attribution.method import Attribution, parse_method
from clearhead.engine.blockwise import capture_blockwise
from clearhead.engine.lrp.kernels.dispatch import kernels_for
from clearhead.engine.lrp.linear import POSITIVE
from clearhead.engine.memory import estimate_memory
from clearhead.model.inputs import as_inputs


def bert(dtype: torch.dtype) -> clearhead.Model:
    torch.manual_seed(0)
    config = transformers.BertConfig(num_labels=2)
    network = transformers.BertForSequenceClassification(config).eval().to("cuda", dtype)
    return clearhead.load(network, lm_head=transformers.BertForMaskedLM(config).eval().to("cuda", dtype))


def vit(dtype: torch.dtype) -> clearhead.Model:
    torch.manual_seed(0)
    network = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=10)).eval()
    return clearhead.load(network.to("cuda", dtype))


def texts(size: int, tokens: int) -> Tensors:
    return batch(size, tokens, "cuda")


def pictures(size: int, dtype: torch.dtype) -> Tensors:
    return {"pixel_values": torch.randn(size, 3, 224, 224, device="cuda", dtype=dtype)}


def plain(model: clearhead.Model, inputs: Tensors) -> None:
    """Forward + backward, to the word embeddings or to the pixels."""
    if "pixel_values" in inputs:
        leaf = inputs["pixel_values"].detach().clone().requires_grad_()
        logits = model.network.requires_grad_(False)(pixel_values=leaf).logits
        torch.autograd.grad(logits[:, 0].sum(), leaf)
    else:
        forward_backward(model, inputs)


def scores(model: clearhead.Model, inputs: Tensors, names: tuple[str, ...]) -> Work:
    ready = as_inputs(model, inputs)
    specs = [parse_method(name) for name in names]
    gradients_only = read_gradients_only(specs)

    def work() -> object:
        trace = clearhead.capture(model, ready, 0, gradients_only=gradients_only)
        return [spec(trace).relevance_BT for spec in specs]

    return work


def compared(model: clearhead.Model, inputs: Tensors, names: tuple[str, ...]) -> Work:
    size = next(iter(inputs.values())).shape[0]
    return lambda: clearhead.compare(model, inputs, names, 0, batch_size=size, check=False)


def milliseconds(work: Work) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    kept = work()
    end.record()
    torch.cuda.synchronize()
    del kept  # letting go of a thousand explanations takes time, too, but nobody waits for it
    return start.elapsed_time(end)


def peak(work: Work) -> float:
    """GiB above the level before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def kernels(work: Work) -> float:
    """Milliseconds that the GPU itself is at work: what is left of the time where the processor keeps up."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in seen.key_averages()) / 1e3


@dataclass(frozen=True)
class Row:
    """A line of the table: forward + backward, and ours."""

    name: str
    works: tuple[Work, Work]
    times: list[list[float]]
    memory: list[float]


def measured(name: str, model: clearhead.Model, inputs: Tensors, ours: Work, repeats: int) -> Row:
    """Times of interleaved rounds, so that a busy machine disturbs both alike."""
    works = (lambda: plain(model, inputs), ours)
    # Large batches are recorded at the ninth of a shape.
    for _ in range(10):
        works[0](), works[1]()
    memory = [peak(work) for work in works]
    rounds = [[milliseconds(work) for work in works] for _ in range(repeats)]
    row = Row(name, works, [list(column) for column in zip(*rounds, strict=True)], memory)
    print(name, *(f"{statistics.median(times):.1f}" for times in row.times), flush=True)
    return row


def line(row: Row) -> str:
    """A row as text. The profiler slows every later launch down, so that it comes after all times are taken."""
    (first, second), ours = map(statistics.median, row.times), row.times[1]
    busy = [kernels(work) for work in row.works]
    cells = f"| {row.name} | {first:.1f} | {second:.1f} ({min(ours):.1f} … {max(ours):.1f}) | {second / first:.2f} | "
    cells += f"{busy[1]:.1f} | {busy[1] / busy[0]:.2f} | {row.memory[1] / row.memory[0]:.2f} |"
    print(cells, flush=True)
    return cells


def agreement() -> str:
    """Float64 on the GPU against the CPU, a batch against its rows, the blocks against the whole; conservation."""
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
    network = transformers.BertForSequenceClassification(config).double().eval()
    language = transformers.BertForMaskedLM(config).double().eval()
    ids = {"input_ids": torch.randint(1000, 30000, (4, 32))}
    ids["attention_mask"] = torch.ones_like(ids["input_ids"])
    ids["attention_mask"][1, 20:] = 0
    here = clearhead.load(network, lm_head=language)
    there = clearhead.load(network, device="cuda", lm_head=language)
    traces = [clearhead.capture(model, ids, 1) for model in (here, there)]
    device = max(_apart(parse_method(name)(traces[0]), parse_method(name)(traces[1])) for name in FIFTEEN)
    rows = [{name: value[row : row + 1] for name, value in ids.items()} for row in range(4)]
    alone = [parse_method("trans-att")(clearhead.capture(there, row, 1)).relevance_BT for row in rows]
    batch = _apart(Attribution(torch.cat(alone)), parse_method("trans-att")(traces[1]))
    blocks = _apart(parse_method("trans-att")(capture_blockwise(there, ids, 1)), parse_method("trans-att")(traces[1]))
    gap = max(diagnostics["conservation_gap"] for diagnostics in traces[1].conservation(POSITIVE))
    return (
        f"Float64, largest differences over the largest value: GPU and CPU over all fifteen methods {device:.1e}, a "
        f"batch and its rows {batch:.1e}, block by block and whole {blocks:.1e}; conservation gap {gap:.1e}. "
        f"Fused kernels: {'yes' if kernels_for(torch.ones(1, device='cuda')) else 'no'}."
    )


def _apart(ours: Attribution, reference: Attribution) -> float:
    """The largest difference over the largest value, leaving out the first token, which holds trans-att's identity."""
    first, second = (attribution.relevance_BT[:, 1:].double().cpu() for attribution in (ours, reference))
    return float((first - second).abs().max() / first.abs().max())


SENTENCES = (
    "a gorgeous , witty , seductive movie .",
    "the plot is nothing but boilerplate cliches from start to finish .",
    "it is not a bad film , but it never quite finds its feet .",
    "an utterly compelling portrait , told with patience and grace .",
)


def rounding(name: str, network: torch.nn.Module, inputs: Tensors, dtype: torch.dtype) -> str:
    """A row: how far trans-att in this type is from float64 on the same weights."""
    narrow = copy.deepcopy(network).to("cuda", dtype)
    model, exact = clearhead.load(narrow), clearhead.load(copy.deepcopy(narrow).double())
    attributions = [parse_method("trans-att")(clearhead.capture(loaded, inputs, 0)) for loaded in (model, exact)]
    gap = max(diagnostics["conservation_gap"] for diagnostics in attributions[0].diagnostics)
    mask = inputs["attention_mask"][:, 1:].bool().cpu()
    narrow_BT, exact_BT = (attribution.relevance_BT[:, 1:].double().cpu() for attribution in attributions)
    correlations = []
    for narrow_T, exact_T, real_T in zip(narrow_BT, exact_BT, mask, strict=True):
        correlation = torch.corrcoef(torch.stack([narrow_T[real_T], exact_T[real_T]]))[0, 1]
        correlations.append(float(correlation))
    dtype_name = str(dtype).removeprefix("torch.") + (" (tf32)" if _tf32(dtype) else "")
    error = _apart(attributions[1], attributions[0])
    return f"| {name} | {dtype_name} | {error:.1e} | {min(correlations):.4f} | {gap:.1e} |"


def _tf32(dtype: torch.dtype) -> bool:
    return dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32


def roundings() -> str:
    """What precision does to trans-att, on a trained network and on random weights."""
    trained = clearhead.load(device="cuda")
    tokens = dict(trained.processor(list(SENTENCES), return_tensors="pt", padding=True).to("cuda"))
    cases = (
        ("sst2-minilm, trained", trained.network, tokens),
        ("BERT-base, random", bert(torch.float32).network, texts(4, 128)),
    )
    rows = ["| network | type | largest difference | least correlation | conservation gap |", "|---|---|---|---|---|"]
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        for dtype in (torch.float32, torch.bfloat16) if tf32 else (torch.float32,):
            rows += [rounding(name, network, inputs, dtype) for name, network, inputs in cases]
    return "trans-att against float64 on the same weights; differences over the largest value.\n\n" + "\n".join(rows)


def long_input(name: str, tokens: int) -> str:
    """A method on one long text, block by block: time, measured peak memory and what was predicted."""
    torch.manual_seed(0)
    config = transformers.BertConfig(num_labels=2, max_position_embeddings=tokens)
    model = clearhead.load(transformers.BertForSequenceClassification(config).eval().to("cuda"))
    ready = as_inputs(model, texts(1, tokens))
    estimate = estimate_memory(model, ready)

    def work() -> object:
        return parse_method(name)(capture_blockwise(model, ready, 0)).relevance_BT

    work()
    most, duration = peak(work), milliseconds(work) / 1e3
    return (
        f"{name}, BERT-base, {tokens:,} tokens, batch 1, block by block: {duration:.2f} s, peak {most:.1f} GiB "
        f"(predicted {estimate.blockwise / 2**30:.1f}; as a whole {estimate.whole / 2**30:.0f})."
    )


def make_checks() -> list[str]:
    """Return what the report says besides the table."""
    checks = [agreement(), roundings(), *(long_input(name, 8192) for name in ("trans-att", "attn-lrp"))]
    print("\n".join(checks), flush=True)
    return checks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / f"{date.today()}-gpu.md")
    parser.add_argument("--only", nargs="*", default=[], help="rows whose names contain one of these words")
    options = parser.parse_args()
    clearhead.methods()
    sections = [] if options.only else make_checks()
    float32, bfloat16, once = torch.float32, torch.bfloat16, ("trans-att",)
    without = tuple(name for name in FIFTEEN if name not in ("lrp", "partial-lrp"))
    model, many, single = bert(float32), texts(128, 128), texts(1, 128)
    repeats = options.repeats
    base = "BERT-base, 128 tokens, batch 128, tf32"
    half, picture = bert(bfloat16), vit(float32)
    seen = pictures(64, float32)
    cases = [
        (f"trans-att, {base}", model, many, scores(model, many, once), repeats),
        ("attn-lrp, the same", model, many, scores(model, many, ("attn-lrp",)), repeats),
        ("attn-lrp by `explain`, the same", model, many, compared(model, many, ("attn-lrp",)), repeats),
        ("balanced-cat by `explain`, the same", model, many, compared(model, many, ("balanced-cat",)), repeats),
        ("all fifteen, the same", model, many, scores(model, many, FIFTEEN), repeats),
        ("without lrp and partial-lrp, the same", model, many, scores(model, many, without), repeats),
        ("`compare` of all fifteen: 1,920 explanations", model, many, compared(model, many, FIFTEEN), repeats),
        ("`compare` without lrp and partial-lrp", model, many, compared(model, many, without), repeats),
        ("trans-att, batch 1: one explanation", model, single, compared(model, single, once), 4 * repeats),
        ("balanced-cat by `explain`, batch 1", model, single, compared(model, single, ("balanced-cat",)), 4 * repeats),
        ("trans-att, batch 128, bf16", half, many, scores(half, many, once), repeats),
        ("attn-lrp, batch 128, bf16", half, many, scores(half, many, ("attn-lrp",)), repeats),
        ("attn-lrp by `explain`, batch 128, bf16", half, many, compared(half, many, ("attn-lrp",)), repeats),
        ("balanced-cat by `explain`, batch 128, bf16", half, many, compared(half, many, ("balanced-cat",)), repeats),
        ("trans-att, ViT-base 224, batch 64, tf32", picture, seen, scores(picture, seen, once), repeats),
    ]
    words = options.only or [""]
    rows = [measured(*case) for case in cases if any(word in case[0] for word in words)]
    head = [
        "| work | forward + backward ms | ours ms (least … most) | ratio | GPU at work ms | ratio | memory ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    title = f"# Engine on a GPU, {date.today()}\n\n`{command()}`, "
    title += f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}, "
    title += "random weights."
    options.out.write_text("\n\n".join([title, *sections, "\n".join([*head, *map(line, rows)])]) + "\n")


if __name__ == "__main__":
    main()
