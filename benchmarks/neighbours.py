"""Clearhead beside Captum, transformers-interpret and inseq: the same model, inputs and target, in one process.

    python benchmarks/neighbours.py [--blocks 6] [--hidden 384] [--tokens 64] [--batch 8] [--threads 2] [--repeats 5]

A small BERT and a small GPT-2 with random weights. The yardstick is forward + backward of all inputs at once, to the
word embeddings, without parameter gradients. Rounds are interleaved; medians of ratios are reported. A neighbour that
is not installed, or fails, gets a row that says why; none of them is needed to run the others.
"""

import argparse
import importlib.metadata
import logging
import platform
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from yardstick import FIFTEEN, Tensors, apart, command, forward_backward, highest, in_turn, ratios

import clearhead

Scores = list[np.ndarray]
PAD, FIRST, LAST, WORDS = 0, 1, 2, 3
# The texts are of the language model's words, few enough that its head does not outweigh its blocks.
VOCABULARY, FEW = 30522, 1000
TARGET = 0
NEIGHBOURS = ("captum", "transformers-interpret", "inseq")
PLAIN, GRADIENT, PATH, SINGLE = "forward + backward", "gradient-x-input", "integrated-gradients", "one text per call"


@dataclass(frozen=True)
class Size:
    blocks: int
    hidden: int
    tokens: int
    batch: int
    steps: int


@dataclass(frozen=True)
class Row:
    """Work that gives one relevance per token of each input, and the method of Clearhead's that should give the same.

    With `scaled` both are divided by their norms before they are compared.
    """

    name: str
    work: Callable[[], Scores | None]
    at_a_time: int
    counterpart: str | None = None
    scaled: bool = False


Build = Callable[[], Iterable[Row]]


def tokenizer(*, special: bool) -> transformers.PreTrainedTokenizerFast:
    """Whole words w3, w4, …; with `special` between [CLS] and [SEP]. An unknown word would be padding."""
    words = {"[PAD]": PAD, "[CLS]": FIRST, "[SEP]": LAST, **{f"w{index}": index for index in range(WORDS, FEW)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="[PAD]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        ends = [("[CLS]", FIRST), ("[SEP]", LAST)]
        inner.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )


def texts(size: int, words: int) -> list[str]:
    ids = torch.randint(WORDS, FEW, (size, words), generator=torch.Generator().manual_seed(0))
    return [" ".join(f"w{word}" for word in row) for row in ids.tolist()]


def without_padding(network: Any) -> Any:
    """Padding's embedding is zero, so that a baseline of padding is a baseline of zeros."""
    with torch.no_grad():
        network.get_input_embeddings().weight[PAD] = 0
    return network.eval()


def ours(
    model: clearhead.Model, inputs: Tensors, *methods: Any, name: str, target: Any = TARGET, per_call: int | None = None
) -> Row:
    """Clearhead's row, for all inputs in one call or so many per call; what it gives is the first method's."""
    size = len(inputs["input_ids"])
    step = per_call or size

    def work() -> Scores:
        scores: Scores = []
        for start in range(0, size, step):
            chunk = {key: value[start : start + step] for key, value in inputs.items()}
            explained = clearhead.compare(model, chunk, methods, target, batch_size=step, check=False)
            first_method = next(iter(explained.values()))
            scores += [explanation.relevance for explanation in first_method]
        return scores

    return Row(f"Clearhead {name}", work, step)


def one_by_one(model: clearhead.Model, inputs: Tensors) -> None:
    for row in range(len(inputs["input_ids"])):
        forward_backward(model, {name: value[row : row + 1] for name, value in inputs.items()})


def classifier(size: Size) -> dict[str, Build]:
    """The rows by package, each built only when asked for."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        num_hidden_layers=size.blocks,
        num_attention_heads=size.hidden // 32,
        intermediate_size=4 * size.hidden,
        max_position_embeddings=max(512, size.tokens),
    )
    network = without_padding(transformers.BertForSequenceClassification(config))
    words = tokenizer(special=True)
    model = clearhead.load(network, words, lm_head=transformers.BertForMaskedLM(config).eval())
    samples = texts(size.batch, size.tokens - 2)
    inputs = dict(words(samples, return_tensors="pt", return_token_type_ids=False))
    # transformers-interpret gives the last token the second type, so all do.
    inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    inputs["token_type_ids"][:, -1] = 1
    versus = clearhead.Target(TARGET, versus=1 - TARGET)
    padded = (PATH, {"steps": size.steps, "baseline": "pad"})

    def clearheads() -> Iterable[Row]:
        yield Row(PLAIN, lambda: forward_backward(model, inputs), size.batch)
        yield Row(f"{PLAIN}, {SINGLE}", lambda: one_by_one(model, inputs), 1)
        yield from (ours(model, inputs, name, name=name) for name in ("trans-att", "att-cat", GRADIENT))
        yield ours(model, inputs, *FIFTEEN, name="compare, all fifteen")
        yield ours(model, inputs, (PATH, {"steps": size.steps}), name=PATH)
        yield ours(model, inputs, padded, name=f"{PATH}, {SINGLE}", target=versus, per_call=1)

    return {
        "Clearhead": clearheads,
        "Captum": lambda: captum_rows(network, inputs, size),
        "transformers-interpret": lambda: explainer_rows(network, words, samples, size),
    }


def captum_rows(network: Any, inputs: Tensors, size: Size) -> Iterable[Row]:
    from captum.attr import LayerGradientXActivation, LayerIntegratedGradients

    names = ("attention_mask", "token_type_ids")

    def logits(ids: torch.Tensor, *extra: torch.Tensor) -> torch.Tensor:
        return network(input_ids=ids, **dict(zip(names, extra, strict=True))).logits

    def work(method: Any, **options: Any) -> Callable[[], Scores]:
        return lambda: _summed(
            method(logits, network.requires_grad_(True).get_input_embeddings()).attribute(
                inputs["input_ids"],
                target=TARGET,
                additional_forward_args=tuple(inputs[name] for name in names),
                **options,
            )
        )

    path = {"n_steps": size.steps, "baselines": PAD}
    together = work(LayerIntegratedGradients, **path)
    stepwise = work(LayerIntegratedGradients, internal_batch_size=size.batch, **path)
    yield Row("Captum LayerGradientXActivation", work(LayerGradientXActivation), size.batch, GRADIENT)
    yield Row("Captum LayerIntegratedGradients, all steps in one pass", together, size.batch, PATH)
    yield Row("Captum LayerIntegratedGradients, one step per pass", stepwise, size.batch, PATH)


def _summed(product: torch.Tensor) -> Scores:
    return list(product.detach().sum(-1).numpy())


def explainer_rows(network: Any, words: Any, samples: list[str], size: Size) -> Iterable[Row]:
    from transformers_interpret import SequenceClassificationExplainer

    explainer = SequenceClassificationExplainer(network.requires_grad_(True), words)

    def work() -> Scores:
        network.requires_grad_(True)
        attributions = [explainer(text, index=TARGET, n_steps=size.steps) for text in samples]
        return [np.array([score for _, score in words_and_scores]) for words_and_scores in attributions]

    name = "transformers-interpret SequenceClassificationExplainer"
    yield Row(name, work, 1, f"{PATH}, {SINGLE}", scaled=True)


def language(size: Size) -> dict[str, Build]:
    """A GPT-2, and for Clearhead the same weights as a classifier of the next word: its logits are the same."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=FEW,
        n_embd=size.hidden,
        n_layer=size.blocks,
        n_head=size.hidden // 32,
        n_positions=max(512, size.tokens + 1),
        bos_token_id=FIRST,
        eos_token_id=LAST,
        pad_token_id=PAD,
        num_labels=FEW,
    )
    network = without_padding(transformers.GPT2LMHeadModel(config))
    next_word = transformers.GPT2ForSequenceClassification(config).eval()
    next_word.transformer, next_word.score = network.transformer, network.lm_head
    words = tokenizer(special=False)
    model = clearhead.load(next_word, words)
    samples = texts(size.batch, size.tokens)
    inputs = dict(words(samples, return_tensors="pt", return_token_type_ids=False))

    def clearheads() -> Iterable[Row]:
        yield Row(PLAIN, lambda: forward_backward(model, inputs), size.batch)
        yield Row(f"{PLAIN}, {SINGLE}", lambda: one_by_one(model, inputs), 1)
        for method, name in ((GRADIENT, GRADIENT), ((PATH, {"steps": size.steps}), PATH)):
            yield ours(model, inputs, method, name=name, target=WORDS)
            yield ours(model, inputs, method, name=f"{name}, {SINGLE}", target=WORDS, per_call=1)

    return {"Clearhead": clearheads, "inseq": lambda: inseq_rows(network, words, samples, size)}


def inseq_rows(network: Any, words: Any, samples: list[str], size: Size) -> Iterable[Row]:
    import inseq

    longer = [f"{text} w{WORDS}" for text in samples]

    def row(method: str, counterpart: str, **options: Any) -> Row:
        loaded = inseq.load_model(network.requires_grad_(True), method, tokenizer=words)

        def work() -> Scores:
            network.requires_grad_(True)
            output = loaded.attribute(samples, longer, attributed_fn="logit", show_progress=False, **options)
            return [_summed(text.target_attributions[: size.tokens, 0]) for text in output.sequence_attributions]

        return Row(f"inseq {method}", work, 1, counterpart)

    yield row("input_x_gradient", GRADIENT)
    yield row("integrated_gradients", PATH, n_steps=size.steps)


TABLES = {"A classifier (BERT)": classifier, "A language model (GPT-2)": language}


@dataclass(frozen=True)
class Results:
    """Rows that ran, what each of them gave, and for each package that did not run the reason."""

    rows: list[Row]
    scores: dict[str, Scores | None]
    refused: dict[str, str]


def tried(builds: dict[str, Build]) -> Results:
    """Builds and runs every row once; whatever a neighbour raises is its reason."""
    rows: list[Row] = []
    scores: dict[str, Scores | None] = {}
    refused: dict[str, str] = {}
    for package, build in builds.items():
        try:
            for row in build():
                scores[row.name] = row.work()
                rows.append(row)
        except Exception as error:
            if package == "Clearhead":
                raise
            refused[package] = " ".join(f"{type(error).__name__}: {error}".replace("|", "/").split())
    return Results(rows, scores, refused)


def own_peak(model_kind: str, name: str, size: Size) -> float:
    """Mebibytes for one row, whose code a small model has warmed."""
    _quiet()
    _row(model_kind, name, replace(size, blocks=1, tokens=8, batch=1, steps=2)).work()
    return highest(_row(model_kind, name, size).work)


def _row(model_kind: str, name: str, size: Size) -> Row:
    for build in TABLES[model_kind](size).values():
        with suppress(Exception):
            for row in build():
                if row.name == name:
                    return row
    raise LookupError(name)


def difference(results: Results, row: Row) -> str:
    """Largest difference from Clearhead's row over its largest value."""
    mine, theirs = results.scores.get(f"Clearhead {row.counterpart}"), results.scores[row.name]
    if mine is None or theirs is None:
        return "–"
    gaps = []
    for ours, peer in zip(mine, theirs, strict=True):
        if row.scaled:
            ours, peer = _scaled(ours, peer)
        gaps.append(float(np.abs(ours - peer).max() / np.abs(ours).max()))
    return f"{max(gaps):.0e}"


def _scaled(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return ours / np.linalg.norm(ours), theirs / np.linalg.norm(theirs)


def table(model_kind: str, size: Size, repeats: int) -> str:
    results = tried(TABLES[model_kind](size))
    times = in_turn({row.name: row.work for row in results.rows}, repeats)
    multiples = ratios(times)
    peaks = {row.name: apart(own_peak, model_kind, row.name, size) for row in results.rows}
    lines = [
        "| work | texts at a time | × forward + backward | spread | peak memory × | largest difference |",
        "|---|---|---|---|---|---|",
    ]
    for row in results.rows:
        values = multiples[row.name]
        spread, memory = max(values) - min(values), peaks[row.name] / peaks[PLAIN]
        cells = (f"{median(values):.2f}", f"{spread:.2f}", f"{memory:.2f}", difference(results, row))
        lines.append(f"| {row.name} | {row.at_a_time} | {' | '.join(cells)} |")
    lines += [f"| {package} | – | {reason} | – | – | – |" for package, reason in results.refused.items()]
    plain = f"One forward + backward took {1000 * median(times[PLAIN]):.0f} ms and {peaks[PLAIN]:.0f} MiB."
    print("\n".join([*lines, plain]), flush=True)
    return "\n".join([f"## {model_kind}", "", *lines, "", plain])


NOTES = """\
Every figure is for the same {batch} texts of {tokens} tokens, whether they go together or one by one. Path methods take
{steps} steps of Gauss–Legendre from a baseline of zeros. The largest difference is from Clearhead's row of the same
method, over its largest value. The spread is between the rounds.

- transformers-interpret takes one text per call, explains the probability instead of a logit, keeps the special tokens
  in its baseline, and divides by the norm. Beside it stands `integrated-gradients` on one text per call, from the same
  baseline, of the contrast of the two classes; both are divided by their norms for the difference.
- inseq explains generation only, so it has no row for a classifier. It explains the logit of one given next word, of
  {few:,}; for Clearhead the same GPT-2 is a classifier of the next word with the same logits. inseq is given all texts
  in one call, but for a decoder and a given next word it runs them one by one.
- Peak memory is measured in a process of its own for each row."""


def version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} (not installed)"


def _quiet() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"blocks": 6, "hidden": 384, "tokens": 64, "batch": 8, "steps": 25}
    for name, default in {**sizes, "threads": 2, "repeats": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    results = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, default=results / f"{date.today()}-neighbours.md")
    options = parser.parse_args()
    _quiet()
    torch.set_num_threads(options.threads)
    size = Size(*(getattr(options, name) for name in sizes))
    sections = [
        f"# Clearhead and its neighbours on a CPU, {date.today()}",
        f"`{command()}`",
        f"{platform.machine()}, CPU threads: {options.threads}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, {', '.join(map(version, NEIGHBOURS))}. Random weights, "
        f"{size.blocks} blocks, hidden size {size.hidden}, float32; {options.repeats} interleaved rounds.",
        NOTES.format(batch=size.batch, tokens=size.tokens, steps=size.steps, few=FEW),
        *(table(model_kind, size, options.repeats) for model_kind in TABLES),
    ]
    options.out.write_text("\n\n".join(sections) + "\n")


if __name__ == "__main__":
    main()
