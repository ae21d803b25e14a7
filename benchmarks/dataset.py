"""Data sets from texts to words: explanations per second, and how much longer than the passes through the network.

    python benchmarks/dataset.py [--device cpu] [--threads 2] [--texts 2000] [--repeats 3] [--only ROW …] [--out FILE]

Texts are random words of the tokenizer's vocabulary, so that no data is needed. What is compared takes turns on the
same parts of the texts. "Words included" means that every explanation is made and asked for its words; "unread", that
the numbers of all explanations have arrived. Rows are printed as they are measured; on a GPU all of them take about two
minutes with --repeats 1.
"""

import argparse
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from operator import truediv
from pathlib import Path

import torch
import transformers
from yardstick import Tensors, Work, command, forward_backward, seconds

import clearhead
from clearhead.attribution.batch import read_gradients_only
from clearhead.attribution.batch_sizes import make_batches
from clearhead.attribution.method import MethodSpec, default_method, parse_method
from clearhead.model.inputs import Inputs, encode_all

SHORT = (6, 40)
LONG = 126
"""Words of a text of 128 tokens: two are special."""
PARTS = {"cpu": 4, "cuda": 1}
"""What is compared takes turns on so many parts of the texts; on a GPU a part would be too few batches."""
TEXTS = {"cpu": (2000, 64), "cuda": (20000, 20000)}
"""Short and long texts, unless others are asked for."""
WARM_UP = 4096
"""Long texts that are explained before the clock starts: enough batches of one shape to be recorded."""
LATENCY_ROUNDS = 10
"""Single explanations per round of the others."""
DEFAULT = "default"


@dataclass(frozen=True)
class Setup:
    """The models and texts of a run."""

    device: str
    short_count: int
    long_count: int
    repeats: int

    @cached_property
    def model(self) -> clearhead.Model:
        return clearhead.load(device=self.device)

    @cached_property
    def bert(self) -> clearhead.Model:
        return bert_base(self.model.processor, self.device)

    @cached_property
    def vocabulary(self) -> list[str]:
        return list_words(self.model.processor)

    @cached_property
    def short(self) -> list[str]:
        return write_texts(self.vocabulary, self.short_count, *SHORT)

    @cached_property
    def long(self) -> list[str]:
        return write_texts(self.vocabulary, self.long_count, LONG, LONG)


def list_words(tokenizer: transformers.PreTrainedTokenizerFast) -> list[str]:
    """Return the words of the vocabulary that are a single token wherever they stand."""
    candidates = [token for token in sorted(tokenizer.get_vocab()) if token.isalpha() and token.islower()]
    encoded = tokenizer(candidates, add_special_tokens=False)["input_ids"]
    return [word for word, ids in zip(candidates, encoded, strict=True) if len(ids) == 1]


def write_texts(words: Sequence[str], count: int, shortest: int, longest: int) -> list[str]:
    chosen = random.Random(0)
    return [" ".join(chosen.choices(words, k=chosen.randint(shortest, longest))) for _ in range(count)]


def explain_only(model: clearhead.Model, texts: Sequence[str], method: str) -> None:
    """Explain texts without reading any explanation."""
    clearhead.explain(model, list(texts), method, check=False)


def explain_words(model: clearhead.Model, texts: Sequence[str], method: str) -> None:
    """Explain texts and ask every explanation for its words, as a data set is read."""
    for explanation in clearhead.explain(model, list(texts), method, check=False):
        explanation.words()


def list_batches(model: clearhead.Model, texts: Sequence[str]) -> list[Inputs]:
    """Return the batches that the library makes of texts."""
    return [batch.inputs for batch in make_batches(model, encode_all(model, texts))]


def list_tensors(model: clearhead.Model, texts: Sequence[str]) -> list[Tensors]:
    return [batch.tensors for batch in list_batches(model, texts)]


def run_engine(model: clearhead.Model, batches: Sequence[Inputs], spec: MethodSpec) -> None:
    """Run only the passes through the network, and the method on them."""
    gradients_only = read_gradients_only([spec])
    for batch in batches:
        trace = clearhead.capture(model, batch, gradients_only=gradients_only)
        spec(trace).relevance_BT.cpu()


def run_plain(model: clearhead.Model, batches: Sequence[Tensors]) -> None:
    for tensors in batches:
        forward_backward(model, tensors)


def split(texts: Sequence[str], parts: int) -> Iterator[Sequence[str]]:
    size = -(-len(texts) // parts)
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


def time_in_turn(works: Sequence[Sequence[Work]], repeats: int, device: str) -> list[list[float]]:
    """Return the seconds of each work in every round; the works take turns on their parts."""
    times = [[0.0] * repeats for _ in works]
    for turn in range(repeats):
        for parts in zip(*works, strict=True):
            for number, work in enumerate(parts):
                times[number][turn] += seconds(work, device)
    return times


def report(name: str, count: int, times: Sequence[float], base: Sequence[float]) -> str:
    """Print and return a line: the least seconds, those of what it is compared with, and the median ratio."""
    least = min(times)
    ratio = statistics.median(map(truediv, times, base))
    cells = f"| {name} | {count / least:,.0f} | {least:.4g} | {min(base):.4g} | {ratio:.3f} |"
    print(cells, flush=True)
    return cells


def measure_short(setup: Setup, method: str) -> list[str]:
    """Return lines: texts to words, and texts to numbers, against the engine's passes over the same batches."""
    model = setup.model
    method = name_method(model, method)
    parts = list(split(setup.short, PARTS[model.device.type]))
    batches = [list_batches(model, texts) for texts in parts]
    engine = [partial(run_engine, model, rows, parse_method(method)) for rows in batches]
    unread = [partial(explain_only, model, texts, method) for texts in parts]
    words = [partial(explain_words, model, texts, method) for texts in parts]
    # Kernels are chosen for each shape.
    engine[0]()
    unread[0]()
    passes, *times = time_in_turn([engine, words, unread], setup.repeats, setup.device)
    count = len(setup.short)
    title = f"{count:,} short texts, {method}"
    names = (f"{title}, words included", f"{title}, unread")
    return [report(name, count, row, passes) for name, row in zip(names, times, strict=True)]


def measure_bert(setup: Setup) -> list[str]:
    """Return lines: texts to words, and texts to numbers, against bare forward and backward passes of the batches."""
    model = setup.bert
    method = name_method(model, DEFAULT)
    tensors = list_tensors(model, setup.long)
    plain = partial(run_plain, model, tensors)
    unread = partial(explain_only, model, setup.long, method)
    words = partial(explain_words, model, setup.long, method)
    run_plain(model, tensors[:2])
    explain_only(model, setup.long[:WARM_UP], method)
    passes, *times = time_in_turn([[plain], [unread], [words]], setup.repeats, setup.device)
    count = len(setup.long)
    title = f"BERT-base shape, bfloat16, {count:,} × 128 tokens, {method}, against forward + backward"
    names = (f"{title}, unread", f"{title}, words included")
    return [report(name, count, row, passes) for name, row in zip(names, times, strict=True)]


def measure_latency(setup: Setup, shape: str, method: str) -> list[str]:
    """Return a line: one explanation, words included, against a forward and backward pass."""
    model, text = (setup.model, setup.short[0]) if shape == "embedded" else (setup.bert, setup.long[0])
    method = name_method(model, method)
    plain = partial(run_plain, model, list_tensors(model, [text]))
    ours = partial(explain_words, model, [text], method)
    for work in (plain, ours) * 5:
        work()
    passes, times = time_in_turn([[plain], [ours]], LATENCY_ROUNDS * setup.repeats, setup.device)
    typical = [statistics.median(times)]
    return [report(f"one explanation, {shape}, {method}", 1, typical, [statistics.median(passes)])]


def name_method(model: clearhead.Model, method: str) -> str:
    return default_method(model) if method == DEFAULT else method


def bert_base(tokenizer: transformers.PreTrainedTokenizerFast, device: str) -> clearhead.Model:
    """Return a network of BERT-base's shape, with random weights, that reads the tokenizer's texts."""
    torch.manual_seed(0)
    config = transformers.BertConfig(num_labels=2)
    network = transformers.BertForSequenceClassification(config).eval().to(device, torch.bfloat16)
    return clearhead.load(network, tokenizer)


Row = Callable[[Setup], list[str]]
BERT = "BERT-base shape"
ROWS: dict[str, Row] = {
    "att-cat": partial(measure_short, method="att-cat"),
    "default": partial(measure_short, method=DEFAULT),
    "trans-att": partial(measure_short, method="trans-att"),
    "latency": partial(measure_latency, shape="embedded", method=DEFAULT),
    "latency-trans-att": partial(measure_latency, shape="embedded", method="trans-att"),
    "bert": measure_bert,
    "bert-latency": partial(measure_latency, shape=BERT, method=DEFAULT),
    "bert-latency-trans-att": partial(measure_latency, shape=BERT, method="trans-att"),
}
CPU_ROWS = ("att-cat", "default", "latency")
"""Rows of a CPU unless others are asked for: the others take it very long."""


def describe(options: argparse.Namespace, model: clearhead.Model) -> list[str]:
    """Return the head of the result file."""
    processor = f"{options.threads} threads" if options.device == "cpu" else torch.cuda.get_device_name()
    shortest, longest = SHORT
    return [
        f"# Data sets, {date.today()}",
        "",
        f"`{command()}`",
        "",
        f"{processor}, torch {torch.__version__}, transformers {transformers.__version__}; {model.name}, texts of "
        f"{shortest}–{longest} random words. Least seconds of {options.repeats} rounds, median ratio. The passes are "
        "those of the engine over the same batches; in rows of BERT-base's shape and of one explanation, forward + "
        "backward. Unread: the numbers have arrived, but no explanation was asked for its words.",
        "",
        "| work | per second | seconds | passes, seconds | × passes |",
        "|---|---|---|---|---|",
    ]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=sorted(TEXTS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--texts", type=int, help="short texts; default: 2,000 on a CPU, 20,000 on a GPU")
    parser.add_argument("--long-texts", type=int, help="texts of 128 tokens; default: 64 on a CPU, 20,000 on a GPU")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(ROWS), help="rows; default: all, on a CPU some")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def choose_rows(options: argparse.Namespace) -> Sequence[str]:
    if options.only:
        return list(options.only)
    return CPU_ROWS if options.device == "cpu" else list(ROWS)


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    short, long = TEXTS[options.device]
    setup = Setup(options.device, options.texts or short, options.long_texts or long, options.repeats)
    head = describe(options, setup.model)
    print("\n".join(head), flush=True)
    lines = list(head)
    for name in choose_rows(options):
        lines += ROWS[name](setup)
        # After every row, so that a run that is stopped leaves what it has measured.
        if options.out:
            options.out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
