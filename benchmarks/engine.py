"""Speed and memory of the engine on a CPU, as multiples of one forward + backward in the same run.

    python benchmarks/engine.py [--batch 8] [--tokens 128] [--threads 2] [--repeats 5] [--growth] [--out FILE]

The yardstick is forward + backward to the embeddings, without parameter gradients, by the model as it is. Rounds are
interleaved, so that a busy machine disturbs all rows alike; medians of ratios are reported.
"""

import argparse
import gc
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import psutil
import torch
import transformers
from captum.attr import LayerGradientXActivation, LayerIntegratedGradients

import clearhead

FIFTEEN = (
    *("raw-attention", "rollout", "grads", "att-grads", "attention-gradcam", "lrp", "partial-lrp", "trans-att"),
    *("cat", "att-cat", "layer-gradcam", "decoded-gradcam", "gradient", "gradient-x-input", "random"),
)


def bert(tokens: int) -> clearhead.Model:
    """BERT-base in shape, with random weights and a masked-LM head."""
    torch.manual_seed(0)
    config = transformers.BertConfig(num_labels=2, max_position_embeddings=max(512, tokens))
    network = transformers.BertForSequenceClassification(config).eval()
    return clearhead.load(network, lm_head=transformers.BertForMaskedLM(config).eval())


def batch(size: int, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(1000, 30000, (size, tokens), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def forward_backward(model: clearhead.Model, inputs: dict[str, torch.Tensor]) -> None:
    network = model.network.requires_grad_(False)
    words = network.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = network(inputs_embeds=words, attention_mask=inputs["attention_mask"]).logits
    torch.autograd.grad(logits[:, 0].sum(), words)


def captum_gradient(model: clearhead.Model, inputs: dict[str, torch.Tensor], steps: int | None) -> None:
    network = model.network

    def logits(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return network(input_ids=ids, attention_mask=mask).logits

    network.requires_grad_(True)
    layer = network.bert.embeddings
    arguments = {"target": 0, "additional_forward_args": (inputs["attention_mask"],)}
    if steps is None:
        LayerGradientXActivation(logits, layer).attribute(inputs["input_ids"], **arguments)
    else:
        size = len(inputs["input_ids"])
        LayerIntegratedGradients(logits, layer).attribute(
            inputs["input_ids"], n_steps=steps, internal_batch_size=size, **arguments
        )


def rows(model: clearhead.Model, inputs: dict[str, torch.Tensor]) -> dict[str, Callable[[], object]]:
    size = len(inputs["input_ids"])

    def compare(names: tuple[str, ...]) -> Callable[[], object]:
        return lambda: clearhead.compare(model, inputs, names, 0, batch_size=size)

    without = tuple(name for name in FIFTEEN if name not in ("lrp", "partial-lrp"))
    return {
        "forward + backward": lambda: forward_backward(model, inputs),
        "trans-att": compare(("trans-att",)),
        "att-cat": compare(("att-cat",)),
        "compare, all fifteen": compare(FIFTEEN),
        "compare, without lrp and partial-lrp": compare(without),
        "Captum LayerGradientXActivation": lambda: captum_gradient(model, inputs, None),
        "Captum LayerIntegratedGradients, 25 steps": lambda: captum_gradient(model, inputs, 25),
    }


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak(name: str, size: int, tokens: int) -> float:
    """Mebibytes that one run needs above the level before it, in a process of its own."""
    command = [sys.executable, __file__, "--peak", name, "--batch", str(size), "--tokens", str(tokens)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def own_peak(name: str, size: int, tokens: int) -> float:
    model = bert(tokens)
    rows(model, batch(1, 16))[name]()
    gc.collect()
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the kernel's high-water mark starts anew
    rows(model, batch(size, tokens))[name]()
    status = Path("/proc/self/status").read_text()
    highest = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return (highest * 1024 - before) / 2**20


def measured(work: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Ratios to the first row, round by round; the last row, which is slow, runs in the first round only."""
    names = list(work)
    for name in names[:-1]:
        work[name]()
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        for name in names if turn == 0 else names[:-1]:
            times[name].append(seconds(work[name]))
    return {name: [t / b for t, b in zip(times[name], times[names[0]], strict=False)] for name in names}


def table(ratios: dict[str, list[float]], size: int, tokens: int, base_seconds: float) -> str:
    peaks = {name: peak(name, size, tokens) for name in ratios}
    first = peaks["forward + backward"]
    lines = ["| work | × forward + backward | spread | peak memory × |", "|---|---|---|---|"]
    for name, values in ratios.items():
        spread = max(values) - min(values)
        lines.append(f"| {name} | {statistics.median(values):.2f} | {spread:.2f} | {peaks[name] / first:.2f} |")
    return "\n".join([*lines, "", f"One forward + backward took {base_seconds:.2f} s and {first:.0f} MiB."])


def growth(repeats: int) -> str:
    """How trans-att grows with tokens and batch, beside forward + backward."""
    lines = [
        "| batch | tokens | forward + backward s | trans-att s | ratio | trans-att peak MiB |",
        "|---|---|---|---|---|---|",
    ]
    for size, tokens in ((1, 128), (1, 256), (1, 512), (1, 1024), (1, 2048), (2, 128), (4, 128), (8, 128), (16, 128)):
        model, inputs = bert(tokens), batch(size, tokens)
        work = rows(model, inputs)
        one, two = work["forward + backward"], work["trans-att"]
        one(), two()
        base = statistics.median(seconds(one) for _ in range(repeats))
        ours = statistics.median(seconds(two) for _ in range(repeats))
        memory = peak("trans-att", size, tokens)
        lines.append(f"| {size} | {tokens} | {base:.2f} | {ours:.2f} | {ours / base:.2f} | {memory:.0f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("batch", 8), ("tokens", 128), ("threads", 2), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--growth", action="store_true", help="also measure how time and memory grow")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / f"{date.today()}-engine.md")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clearhead.methods()
    if options.peak:
        print(own_peak(options.peak, options.batch, options.tokens))
        return
    model, inputs = bert(options.tokens), batch(options.batch, options.tokens)
    work = rows(model, inputs)
    ratios = measured(work, options.repeats)
    text = table(ratios, options.batch, options.tokens, seconds(work["forward + backward"]))
    print(text, flush=True)
    parts = [
        f"# Engine on a CPU, {date.today()}",
        f"`python benchmarks/engine.py --batch {options.batch} --tokens {options.tokens} --threads {options.threads} "
        f"--repeats {options.repeats}{' --growth' if options.growth else ''}`",
        f"{platform.machine()}, {options.threads} threads, torch {torch.__version__}, "
        f"transformers {transformers.__version__}. BERT-base shape, random weights, float32.",
        text,
    ]
    if options.growth:
        parts += ["## Growth", growth(1)]
    options.out.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
