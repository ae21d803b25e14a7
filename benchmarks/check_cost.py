"""What the check costs: one sentence after the other is explained with its check and without, in turns.

    python benchmarks/check_cost.py [--model clearhead/sst2-minilm bert-base] [--device cpu] [--texts 12] \\
        [--data dev.tsv] [--repeats 15] [--threads 1] [--out FILE]

bert-base has the shape of BERT-base, random weights and the tokenizer of the embedded models. Sentences are those of
`--data`, spread evenly over it, or random words. Medians over the repeats, warm: of the time that passes, but with one
thread of the time of the processor, which other work on the machine changes less.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

import torch
import transformers
from dataset import list_words, write_texts
from precision import spread
from yardstick import Work, command

import clearhead
from clearhead.data.read import read_task

EMBEDDED = "clearhead/sst2-minilm"
BERT_BASE = "bert-base"
WORDS = (6, 34)
WARM_UP = 4
"""Rounds that are not measured: networks are packed, or recorded, when an input's shape comes again."""
HEAD = ["| model | words | without, ms | with check, ms | ratio |", "|:--|--:|--:|--:|--:|"]


@dataclass(frozen=True)
class Cost:
    """Median milliseconds of a sentence of so many words."""

    words: int
    without: float
    checked: float

    @property
    def ratio(self) -> float:
        return self.checked / self.without

    def describe(self, name: str) -> str:
        return f"| {name} | {self.words} | {self.without:.1f} | {self.checked:.1f} | {self.ratio:.2f} |"


def load_model(name: str, device: str) -> clearhead.Model:
    if name != BERT_BASE:
        return clearhead.load(name, device=device)
    tokenizer = clearhead.load(EMBEDDED).processor
    torch.manual_seed(0)
    config = transformers.BertConfig(num_labels=2, vocab_size=len(tokenizer))
    network = transformers.BertForSequenceClassification(config).eval()
    return clearhead.load(network, tokenizer, device=device)


def read_texts(model: clearhead.Model, file: Path | None, count: int) -> list[str]:
    """Return sentences, the shortest first."""
    if file is None:
        texts = write_texts(list_words(model.processor), count, *WORDS)
    else:
        texts = spread([example.input for example in read_task(file).examples], count)
    return sorted(texts, key=count_words)


def count_words(text: str) -> int:
    return len(text.split())


def choose_clock(device: str) -> Callable[[], float]:
    if device == "cpu":
        return time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def read_clock() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return read_clock


def measure_text(model: clearhead.Model, text: str, device: str, repeats: int) -> Cost:
    works: list[Work] = [partial(clearhead.explain, model, text, check=check) for check in (False, True)]
    clock = choose_clock(device)
    for _ in range(WARM_UP):
        for work in works:
            work()
    times: list[list[float]] = [[], []]
    gc.collect()
    for _ in range(repeats):
        for work, own in zip(works, times, strict=True):
            start = clock()
            work()
            own.append(1e3 * (clock() - start))
    return Cost(count_words(text), *map(statistics.median, times))


def measure_model(name: str, options: argparse.Namespace) -> list[str]:
    """Return the rows of a model, and one of the medians over its sentences."""
    model = load_model(name, options.device)
    costs = []
    for text in read_texts(model, options.data, options.texts):
        costs.append(measure_text(model, text, options.device, options.repeats))
        print(costs[-1].describe(name), flush=True)
    return [*(cost.describe(name) for cost in costs), summarise(name, costs)]


def summarise(name: str, costs: Sequence[Cost]) -> str:
    medians = [statistics.median(values) for values in zip(*map(_list_times, costs), strict=True)]
    row = f"| {name} | median | {medians[0]:.1f} | {medians[1]:.1f} | {medians[2]:.2f} |"
    print(row, flush=True)
    return row


def _list_times(cost: Cost) -> tuple[float, float, float]:
    return cost.without, cost.checked, cost.ratio


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=[EMBEDDED])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--texts", type=int, default=12)
    parser.add_argument("--data", type=Path, help="a file of sentences; by default they are random words")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def describe(options: argparse.Namespace) -> str:
    device = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, threads: {options.threads}"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return f"# Cost of the check, {date.today()}\n\n`{command()}`, {device}, {versions}.\n"


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    lines = [describe(options), *HEAD]
    for name in options.model:
        lines += measure_model(name, options)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
