"""Data sets from texts to words: explanations per second, and how much longer than the passes through the network.

    python benchmarks/dataset.py [--device cpu] [--threads 2] [--texts 2000] [--repeats 3] [--out FILE]

Texts are random words of the tokenizer's vocabulary, so that no data is needed. What is compared takes turns on the
same parts of the texts. "Words included" means that every explanation is made and asked for its words.
"""

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
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


def list_words(tokenizer: transformers.PreTrainedTokenizerFast) -> list[str]:
    """Return the words of the vocabulary that are a single token wherever they stand."""
    candidates = [token for token in sorted(tokenizer.get_vocab()) if token.isalpha() and token.islower()]
    encoded = tokenizer(candidates, add_special_tokens=False)["input_ids"]
    return [word for word, ids in zip(candidates, encoded, strict=True) if len(ids) == 1]


def write_texts(words: Sequence[str], count: int, shortest: int, longest: int) -> list[str]:
    chosen = random.Random(0)
    return [" ".join(chosen.choices(words, k=chosen.randint(shortest, longest))) for _ in range(count)]


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


def compare(first: Sequence[Work], second: Sequence[Work], repeats: int, device: str) -> tuple[float, float, float]:
    """Return the least seconds of all parts of two works, in turn, and the median ratio of the rounds."""
    for work in (first[0], second[0]):
        work()
    passes = [0.0] * repeats
    ours = [0.0] * repeats
    for turn in range(repeats):
        for base, work in zip(first, second, strict=True):
            passes[turn] += seconds(base, device)
            ours[turn] += seconds(work, device)
    return min(passes), min(ours), statistics.median(map(truediv, ours, passes))


def split(texts: Sequence[str], parts: int) -> Iterator[Sequence[str]]:
    size = -(-len(texts) // parts)
    for start in range(0, len(texts), size):
        yield texts[start : start + size]


def against_engine(model: clearhead.Model, texts: Sequence[str], method: str, repeats: int) -> str:
    """Return a line: texts to words against the engine's passes over the same batches."""
    spec = parse_method(method)
    parts = list(split(texts, PARTS[model.device.type]))
    batches = [list_batches(model, texts) for texts in parts]
    engine = [partial(run_engine, model, rows, spec) for rows in batches]
    ours = [partial(explain_words, model, texts, method) for texts in parts]
    passes, whole, ratio = compare(engine, ours, repeats, str(model.device))
    return report(f"{len(texts):,} short texts, {method}, words included", len(texts), whole, passes, ratio)


def against_plain(model: clearhead.Model, texts: Sequence[str], method: str, repeats: int) -> str:
    """Return a line: texts to words against a bare forward and backward pass of the same batches."""
    parts = list(split(texts, PARTS[model.device.type]))
    batches = [list_tensors(model, texts) for texts in parts]
    plain = [partial(run_plain, model, rows) for rows in batches]
    ours = [partial(explain_words, model, texts, method) for texts in parts]
    passes, whole, ratio = compare(plain, ours, repeats, str(model.device))
    name = f"BERT-base shape, bfloat16, {len(texts):,} × 128 tokens, {method}, against forward + backward"
    return report(name, len(texts), whole, passes, ratio)


def report(name: str, count: int, whole: float, passes: float, ratio: float) -> str:
    cells = f"| {name} | {count / whole:,.0f} | {whole:.2f} | {passes:.2f} | {ratio:.3f} |"
    print(cells, flush=True)
    return cells


def latency(model: clearhead.Model, text: str, method: str, repeats: int) -> str:
    """Return a line: the milliseconds of one explanation."""
    tensors = list_tensors(model, [text])
    device = str(model.device)
    works = [lambda: run_plain(model, tensors), lambda: explain_words(model, [text], method)]
    for work in works * 3:
        work()
    times = [[seconds(work, device) for work in works] for _ in range(repeats)]
    plain, ours = map(statistics.median, zip(*times, strict=True))
    cells = f"| one explanation, {method} | {1 / ours:.0f} | {ours:.4f} | {plain:.4f} | {ours / plain:.2f} |"
    print(cells, flush=True)
    return cells


def bert_base(tokenizer: transformers.PreTrainedTokenizerFast, device: str) -> clearhead.Model:
    """Return a network of BERT-base's shape, with random weights, that reads the tokenizer's texts."""
    torch.manual_seed(0)
    config = transformers.BertConfig(num_labels=2)
    network = transformers.BertForSequenceClassification(config).eval().to(device, torch.bfloat16)
    return clearhead.load(network, tokenizer)


def measure(model: clearhead.Model, device: str, count: int, repeats: int) -> list[str]:
    words = list_words(model.processor)
    short = write_texts(words, count, *SHORT)
    default = default_method(model)
    methods = ["att-cat", default] if device == "cpu" else ["att-cat", default, "trans-att"]
    lines = [against_engine(model, short, method, repeats) for method in methods]
    if device != "cpu":
        long = write_texts(words, count, LONG, LONG)
        lines.append(against_plain(bert_base(model.processor, device), long, default, repeats))
    lines.append(latency(model, short[0], default, 10 * repeats))
    return lines


def describe(options: argparse.Namespace, model: clearhead.Model) -> list[str]:
    """Return the head of the result file."""
    place = f"{options.threads} threads" if options.device == "cpu" else torch.cuda.get_device_name()
    shortest, longest = SHORT
    return [
        f"# Data sets, {date.today()}",
        "",
        f"`{command()}`",
        "",
        f"{place}, torch {torch.__version__}, transformers {transformers.__version__}; {model.name}, texts of "
        f"{shortest}–{longest} random words. Least seconds of {options.repeats} rounds, median ratio. The passes are "
        "those of the engine over the same batches, unless the row says forward + backward.",
        "",
        "| work | per second | seconds | passes, seconds | × passes |",
        "|---|---|---|---|---|",
    ]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--texts", type=int, help="default: 2,000 on a CPU, 20,000 on a GPU")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    count = options.texts or (2000 if options.device == "cpu" else 20000)
    model = clearhead.load(device=options.device)
    lines = measure(model, options.device, count, options.repeats)
    text = "\n".join([*describe(options, model), *lines, ""])
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
