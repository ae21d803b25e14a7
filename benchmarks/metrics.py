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


def examples(arguments: argparse.Namespace) -> list[Example]:
    if arguments.data is not None:
        return list(read_task(arguments.data, limit=arguments.limit).examples)
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.normal(19.5, 8.8, size=arguments.limit or 872).round(), 2, 47).astype(int)
    return [
        Example(str(index), " ".join(f"w{word}" for word in generator.integers(0, WORDS, length)), 0)
        for index, length in enumerate(lengths)
    ]


def network(samples: list[Example], device: str) -> Model:
    """A BERT that knows every word of the texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(0)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {f"w{index}" for index in range(WORDS)}
    for sample in samples:
        vocabulary.update(sample.input.split())
    words = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate([*special, *sorted(vocabulary)])}, "[UNK]")
    )
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
    batches: list[dict[str, Any]] = []
    handle = model.network.register_forward_pre_hook(
        lambda _, __, kwargs: batches.append(dict(kwargs)), with_kwargs=True
    )
    yield batches
    handle.remove()


def cost(model: Model, cases: list[ExplainedExample], metric: str, chunks: int) -> dict[str, float]:
    """The metric on each part of the texts, and at once the bare passes on the tensors it packed."""
    device, measure = model.device.type, parse_metric(metric)
    rows, pairs = 0, []
    for chunk in range(chunks):
        own = cases[chunk::chunks]
        with packed(model) as batches:
            ours = seconds(lambda own=own: measure.measure(model, own), device)
        pairs.append((ours, seconds(lambda batches=batches: bare(model, batches), device)))
        rows += sum(len(batch["input_ids"]) for batch in batches)
        print(metric, "part", chunk, pairs[-1], flush=True)
    ours, alone = (sum(times) for times in zip(*pairs, strict=True))
    return {"rows": rows, "ours": ours, "bare": alone, "ratio": median(own / plain for own, plain in pairs)}


def bare(model: Model, batches: list[dict[str, Any]]) -> None:
    with torch.inference_mode():
        for batch in batches:
            model.network(**batch)


def growth(model: Model, samples: list[Example], counts: list[int]) -> list[tuple[int, float, float]]:
    """Seconds and peak memory (MiB) of `evaluate` on ever more examples."""
    rows = []
    for count in counts:
        repeated = [
            Example(f"{index}", f"{samples[index % len(samples)].input} w{index % WORDS}", 0) for index in range(count)
        ]
        task = clearhead.data.task.Task("growth", repeated)
        duration = seconds(
            lambda task=task: clearhead.evaluate(model, task, ["raw-attention"], ["aopc"], samples=100),
            model.device.type,
        )
        rows.append((count, duration, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    return rows


def report(arguments: argparse.Namespace) -> str:
    samples = examples(arguments)
    if arguments.model:
        model = clearhead.load(arguments.model, device=arguments.device)
    else:
        model = network(samples, arguments.device)
    spelling = parse_method("raw-attention")
    cases = explain_examples(model, samples, [spelling], ["prediction"]).cases[spelling.text]
    where = f"{arguments.threads} of {os.cpu_count()} threads"
    if arguments.device == "cuda":
        where = torch.cuda.get_device_name()
    lines = [
        "# What measuring costs",
        f"{model.name}; {len(cases)} texts; {platform.machine()}, {where}, torch {torch.__version__}; "
        f"{arguments.parts} parts measured in turn, the ratio is their median. The command: `{command()}`",
        "| metric | distinct rows | bare passes s | metric s | ratio |\n|---|---|---|---|---|",
    ]
    for metric in arguments.metrics:
        costs = cost(model, cases, metric, arguments.parts)
        lines[-1] += (
            f"\n| {metric} | {costs['rows']:.0f} | {costs['bare']:.2f} | {costs['ours']:.2f} | {costs['ratio']:.3f} |"
        )
        print("measured", metric, costs, flush=True)
    if arguments.growth:
        rows = growth(model, samples, arguments.growth)
        body = "\n".join(f"| {count} | {duration:.2f} | {memory:.0f} |" for count, duration, memory in rows)
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
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    text = report(arguments)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
