"""What measuring costs: AOPC against the bare forward passes it needs, and how time and memory grow with the data.

    python benchmarks/metrics.py --data sst2/dev.tsv --out benchmarks/results/DATE-metrics.md

The network is a BERT with random weights in the shape of MiniLM, or the model that --model names. The bare passes run
the same packed tensors under inference_mode; both are measured in turn on parts of the data, and the figure is the
median of the ratios.
Without --data the texts are random words, as many per text as SST-2's development set has.
"""

import argparse
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from yardstick import command

import clearhead
from clearhead.attribution.method import parse_method
from clearhead.data.read import read_task
from clearhead.data.task import Example
from clearhead.evaluation.explained import explain_examples
from clearhead.evaluation.metric import ExplainedExample, parse_metric
from clearhead.model.model import Model

WORDS = 5000


def examples(given: argparse.Namespace) -> list[Example]:
    if given.data is not None:
        return list(read_task(given.data, limit=given.limit).examples)
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.normal(19.5, 8.8, size=given.limit or 872).round(), 2, 47).astype(int)
    return [
        Example(str(place), " ".join(f"w{one}" for one in generator.integers(0, WORDS, length)), 0)
        for place, length in enumerate(lengths)
    ]


def network(several: list[Example], device: str) -> Model:
    """A BERT that knows every word of the texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(0)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    known = sorted({word for one in several for word in one.input.split()} | {f"w{place}" for place in range(WORDS)})
    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate([*special, *known])}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=512, **names)
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, num_labels=2
    )
    body = transformers.BertForSequenceClassification(config).eval().requires_grad_(False).to(device)
    return Model(body, tokenizer, name="BERT of MiniLM's shape, random weights")


def seconds(work: Callable[[], Any], device: str) -> float:
    """On a GPU the time on the wall, on a CPU that others share the time this process computed."""
    if device != "cuda":
        start = time.process_time()
        work()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


@contextmanager
def packed(model: Model) -> Iterator[list[dict[str, Any]]]:
    """The tensors that the network is called with inside."""
    found: list[dict[str, Any]] = []
    handle = model.network.register_forward_pre_hook(lambda _, __, given: found.append(dict(given)), with_kwargs=True)
    yield found
    handle.remove()


def cost(model: Model, cases: list[ExplainedExample], metric: str, parts: int) -> dict[str, float]:
    """The metric on each part of the texts, and at once the bare passes on the tensors it packed."""
    device, measure = model.device.type, parse_metric(metric)
    rows, pairs = 0, []
    for part in range(parts):
        own = cases[part::parts]
        with packed(model) as batches:
            ours = seconds(lambda own=own: measure.measure(model, own), device)
        pairs.append((ours, seconds(lambda batches=batches: bare(model, batches), device)))
        rows += sum(len(batch["input_ids"]) for batch in batches)
        print(metric, "part", part, pairs[-1], flush=True)
    ours, alone = (sum(times) for times in zip(*pairs, strict=True))
    return {"rows": rows, "ours": ours, "bare": alone, "ratio": median(one / other for one, other in pairs)}


def bare(model: Model, batches: list[dict[str, Any]]) -> None:
    with torch.inference_mode():
        for batch in batches:
            model.network(**batch)


def growth(model: Model, several: list[Example], counts: list[int]) -> list[tuple[int, float, float]]:
    """Seconds and peak memory (MiB) of `evaluate` on ever more examples."""
    found = []
    for count in counts:
        repeated = [
            Example(f"{place}", f"{several[place % len(several)].input} w{place % WORDS}", 0) for place in range(count)
        ]
        task = clearhead.data.task.Task("growth", repeated)
        taken = seconds(
            lambda task=task: clearhead.evaluate(model, task, ["raw-attention"], ["aopc"], samples=100),
            model.device.type,
        )
        found.append((count, taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    return found


def report(given: argparse.Namespace) -> str:
    several = examples(given)
    model = clearhead.load(given.model, device=given.device) if given.model else network(several, given.device)
    spelling = parse_method("raw-attention")
    cases = explain_examples(model, several, [spelling], ["prediction"]).cases[spelling.text]
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"{given.threads} of {os.cpu_count()} threads"
    lines = [
        "# What measuring costs",
        f"{model.name}; {len(cases)} texts; {platform.machine()}, {where}, torch {torch.__version__}; "
        f"{given.parts} parts measured in turn, the ratio is their median. The command: `{command()}`",
        "| metric | distinct rows | bare passes s | metric s | ratio |\n|---|---|---|---|---|",
    ]
    for metric in given.metrics:
        found = cost(model, cases, metric, given.parts)
        lines[-1] += (
            f"\n| {metric} | {found['rows']:.0f} | {found['bare']:.2f} | {found['ours']:.2f} | {found['ratio']:.3f} |"
        )
        print("measured", metric, found, flush=True)
    if given.growth:
        rows = growth(model, several, given.growth)
        body = "\n".join(f"| {count} | {taken:.2f} | {memory:.0f} |" for count, taken, memory in rows)
        lines += [
            "`evaluate` on ever more examples (raw-attention, aopc); memory is the process's peak so far:",
            "| examples | s | MiB |\n|---|---|---|\n" + body,
        ]
    return "\n\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path)
    options.add_argument("--model")
    options.add_argument("--limit", type=int)
    options.add_argument("--device", default="cpu")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--parts", type=int, default=8)
    options.add_argument("--metrics", nargs="+", default=["aopc"])
    options.add_argument("--growth", type=int, nargs="*", default=[])
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    text = report(given)
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
