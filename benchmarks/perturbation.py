"""Speed of the perturbation engine and of the path, sampling and flow methods, beside Captum in the same run.

    python benchmarks/perturbation.py --out benchmarks/results/DATE-perturbation.md

Networks have random weights in the shape of a small BERT (or BERT-base) and run on texts of random words. Every figure
is a ratio of times measured in turn, and the median over rounds, because the machine may be shared. On a GPU:

    python benchmarks/perturbation.py --device cuda --shape base --length 24 128
"""

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from yardstick import command

import clearhead
from clearhead.attribution import perturbation
from clearhead.attribution.method import METHODS
from clearhead.model.inputs import from_tensors
from clearhead.model.model import Model
from clearhead.perturbation.features import group_features
from clearhead.perturbation.run import perturbed_logits

FIRST, LAST, MASK, WORDS = 1, 2, 3, 4
SHAPES = {"mini": (384, 6, 12), "base": (768, 12, 12)}
HIDING = ("occlusion", "lime", "shapley-sampling")
LIME_SAMPLES = 25
# Captum's plain calls run the network once per hidden set: no more than this many times for one figure.
PASSES = 300
PER_CALL = (8, 32, 128)


class Tokens:
    """Just enough of a tokenizer: which ids are special, and which one masks."""

    all_special_ids = (0, FIRST, LAST)
    mask_token_id = MASK
    pad_token_id = 0
    unk_token_id = None

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(token_id) for token_id in ids]


def text_model(shape: str, device: str) -> Model:
    torch.manual_seed(0)
    width, blocks, heads = SHAPES[shape]
    config = transformers.BertConfig(
        vocab_size=30522,
        hidden_size=width,
        num_hidden_layers=blocks,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        num_labels=2,
    )
    network = transformers.BertForSequenceClassification(config).eval().requires_grad_(False).to(device)
    return Model(network, Tokens(), name=shape)


def texts(lengths: list[int], device: str) -> dict[str, Tensor]:
    drawn = torch.Generator().manual_seed(0)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        inner = torch.randint(WORDS, 30522, (length - 2,), generator=drawn)
        ids[row, :length] = torch.cat([torch.tensor([FIRST]), inner, torch.tensor([LAST])])
    return {"input_ids": ids.to(device), "attention_mask": (ids != 0).long().to(device)}


def seconds(work: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turn(
    works: dict[str, Callable[[], Any]], device: str, rounds: int, cold: str | None = None
) -> dict[str, list[float]]:
    """Times of each piece of work, one after the other within a round.

    An unmeasured round comes first, for all but the `cold` one, whose kernels the others have warmed.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            if not number and name == cold:
                continue
            duration = seconds(work, device)
            if number:
                times[name].append(duration)
    return times


def ratio(upper: list[float], lower: list[float]) -> float:
    return median(numerator / denominator for numerator, denominator in zip(upper, lower, strict=True))


@dataclass(frozen=True)
class Speed:
    """The engine beside the bare model, and the bare model row by row beside packed."""

    throughput: float
    bound: float
    single: float
    packed: float

    def __str__(self) -> str:
        return (
            f"{self.throughput:.3f} of the bare model's throughput; row by row the bare model takes {self.single:.0f} "
            f"µs per token, packed {self.packed:.0f} µs, so packing the same rows can gain {self.bound:.1f}× at most"
        )


def speed(model: Model, tensors: dict[str, Tensor], rounds: int, masks: int = 40, rows: int = 24) -> Speed:
    """Random masks of several texts; row by row only some of the packed rows are run."""
    inputs = from_tensors(model, tensors)
    drawn = torch.Generator().manual_seed(1)
    hidden = [torch.rand(masks, features.count, generator=drawn) < 0.5 for features in group_features(model, inputs)]
    packed: list[dict[str, Tensor]] = []
    handle = model.network.register_forward_pre_hook(
        lambda _, __, kwargs: packed.append(dict(kwargs)), with_kwargs=True
    )
    perturbed_logits(model, inputs, hidden)
    handle.remove()
    alone = _some_rows(packed, rows)

    def bare(batches: list[dict[str, Tensor]]) -> None:
        with torch.inference_mode():
            for batch in batches:
                model.network(**batch)

    works = {
        "engine": lambda: perturbed_logits(model, inputs, hidden),
        "bare": lambda: bare(packed),
        "alone": lambda: bare(alone),
    }
    times = in_turn(works, model.device.type, rounds)
    packed_tokens, single_tokens = _tokens(packed), _tokens(alone)
    bound = ratio(times["alone"], times["bare"]) * packed_tokens / single_tokens
    single, together = median(times["alone"]) / single_tokens, median(times["bare"]) / packed_tokens
    return Speed(ratio(times["bare"], times["engine"]), bound, 1e6 * single, 1e6 * together)


def _some_rows(batches: list[dict[str, Tensor]], count: int) -> list[dict[str, Tensor]]:
    """Rows from all batches, each alone and without its padding, as a plain call would run them."""
    rows = []
    for batch in batches:
        for row in range(_size(batch)):
            length = int(batch["attention_mask"][row].sum())
            rows.append({name: value[row : row + 1, :length] for name, value in batch.items()})
    return rows[:: max(1, len(rows) // count)]


def _size(batch: dict[str, Tensor]) -> int:
    return len(batch["input_ids"])


def _tokens(batches: list[dict[str, Tensor]]) -> int:
    return sum(int(batch["attention_mask"].sum()) for batch in batches)


class FromEmbeddings(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, embeddings: Tensor) -> Tensor:
        logits: Tensor = self.network(inputs_embeds=embeddings).logits
        return logits


class Ridge:
    """The least any interpretable model for Captum's Lime must do."""

    def fit(self, train_data: Any, **_: Any) -> dict[str, float]:
        rows = list(train_data)
        mask, score = (torch.cat([row[column] for row in rows]).double() for column in range(2))
        self.solution = perturbation.local_weights(mask.cpu(), score.cpu(), 0.25, 0.01)
        return {}

    def representation(self) -> Tensor:
        return self.solution[None]

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.solution


def captum_calls(model: Model, ids: Tensor, samples: int) -> dict[str, Callable[..., Tensor]]:
    """Captum's calls for one text without padding; the hiding ones see the words between the special tokens.

    Those also take how many hidden sets they may put into one call of the network: 1, as by default, is the plain call.
    """
    from captum import attr

    network, target = model.network, 1
    leaf = network.get_input_embeddings()(ids).detach()
    module = FromEmbeddings(network)
    first, last = ids[:, :1], ids[:, -1:]

    def between(inner: Tensor) -> Tensor:
        rows = torch.cat([first.expand(len(inner), -1), inner, last.expand(len(inner), -1)], 1)
        shares: Tensor = network(input_ids=rows).logits.double().softmax(-1)
        return shares

    zero, inner = torch.zeros_like(leaf), ids[:, 1:-1]
    hidden = {"target": target, "baselines": MASK}
    sampling = attr.ShapleyValueSampling(between)
    trace = clearhead.capture(model, {"input_ids": ids}, target)
    orders = perturbation._draw_orders(trace, 0, group_features(model, trace.inputs)[0], samples, 0)
    sampling.permutation_generator = lambda features, samples: iter(orders.tolist())
    return {
        "smooth-gradient": lambda: attr.NoiseTunnel(attr.Saliency(module)).attribute(
            leaf, nt_samples=10, stdevs=0.1, target=target
        ),
        "integrated-gradients": lambda: attr.IntegratedGradients(module).attribute(leaf, zero, target, n_steps=25),
        "gradient-shap": lambda: attr.GradientShap(module).attribute(leaf, zero, 5, target=target),
        "deeplift-shap": lambda: attr.DeepLiftShap(module).attribute(leaf, zero.repeat(5, 1, 1), target=target),
        "occlusion": lambda per=1: attr.Occlusion(between).attribute(
            inner, sliding_window_shapes=(1,), perturbations_per_eval=per, **hidden
        ),
        "lime": lambda per=1: attr.Lime(between, Ridge(), lambda *_, **__: 1.0).attribute(
            inner, n_samples=LIME_SAMPLES, perturbations_per_eval=per, **hidden
        ),
        "shapley-sampling": lambda per=1: sampling.attribute(
            inner, n_samples=samples, perturbations_per_eval=per, **hidden
        ),
    }


def forward_backward(model: Model, ids: Tensor) -> None:
    """One plain pass forward and back to the word embeddings, without gradients of parameters."""
    leaf = model.network.get_input_embeddings()(ids).detach().requires_grad_()
    model.network(inputs_embeds=leaf).logits[:, 1].sum().backward()


@dataclass(frozen=True)
class Row:
    """One method: times per text in forward+backwards, and how far its results are from Captum's."""

    name: str
    ours: float
    captum: float | None = None
    packed: float | None = None
    per_call: int | None = None
    gap: float | None = None
    rows: str = ""

    def __str__(self) -> str:
        plain = ("–", "–") if self.captum is None else (f"{self.captum:.1f}", f"{self.captum / self.ours:.2f}")
        best = ("–", "–")
        if self.packed is not None:
            best = (f"{self.packed:.1f} ({self.per_call})", f"{self.packed / self.ours:.2f}")
        gap = "–" if self.gap is None else f"{self.gap:.1e}"
        return f"| {' | '.join([self.name, f'{self.ours:.1f}', *plain, *best, self.rows or '–', gap])} |"


@dataclass(frozen=True)
class Setting:
    """Texts together for us, one by one for Captum."""

    model: Model
    tensors: dict[str, Tensor]
    alone: list[Tensor]
    peers: list[dict[str, Callable[..., Tensor]]]
    samples: int
    rounds: int

    @property
    def device(self) -> str:
        return self.model.device.type


def make_setting(model: Model, lengths: list[int], rounds: int) -> Setting:
    tensors = texts(lengths, model.device.type)
    alone = [tensors["input_ids"][row : row + 1, :length] for row, length in enumerate(lengths)]
    samples = max(1, min(25, PASSES // (max(lengths) - 2)))
    return Setting(model, tensors, alone, [captum_calls(model, ids, samples) for ids in alone], samples, rounds)


def compare(setting: Setting, name: str) -> Row:
    """One method beside Captum's, in turn with a plain pass."""
    options = _options(setting, name)
    results: dict[str, Any] = {}

    def ours() -> None:
        results["ours"] = clearhead.explain(setting.model, setting.tensors, name, target=1, check=False, **options)

    works: dict[str, Callable[[], Any]] = {
        "pass": lambda: [forward_backward(setting.model, ids) for ids in setting.alone],
        "ours": ours,
    }
    if name not in setting.peers[0]:
        times = in_turn(works, setting.device, setting.rounds)
        return Row(name, ratio(times["ours"], times["pass"]))
    each = _passes(setting, name)
    count = max(1, sum(total <= PASSES for total in np.cumsum(each)))

    def captum() -> None:
        results["captum"] = [calls[name]() for calls in setting.peers[:count]]

    works["captum"] = captum
    per_call = _best(setting, name) if name in HIDING else None
    if per_call is not None:
        works["packed"] = lambda: [calls[name](per_call) for calls in setting.peers[:count]]
    times = in_turn(works, setting.device, setting.rounds, cold="captum" if name in HIDING else None)
    tokens = [passes * ids.shape[1] for passes, ids in zip(each, setting.alone, strict=True)]
    scale = sum(tokens) / sum(tokens[:count])
    packed = scale * ratio(times["packed"], times["pass"]) if "packed" in times else None
    return Row(
        name,
        ratio(times["ours"], times["pass"]),
        scale * ratio(times["captum"], times["pass"]),
        packed,
        per_call,
        _difference(results["ours"], results["captum"], name),
        f"{_distinct(setting, name)} : {sum(each)}" if name in HIDING else "",
    )


def _passes(setting: Setting, name: str) -> list[int]:
    """How often Captum runs the network for each text."""
    units = [ids.shape[1] - 2 for ids in setting.alone]
    if name == "occlusion":
        return [count + 1 for count in units]
    return [{"lime": LIME_SAMPLES, "shapley-sampling": setting.samples * count + 1}.get(name, 1) for count in units]


def _distinct(setting: Setting, name: str) -> int:
    """How many rows we run for all texts, the pass of the trace included."""
    rows: list[int] = []
    handle = setting.model.network.register_forward_pre_hook(
        lambda _, __, kwargs: rows.append(_size(kwargs)), with_kwargs=True
    )
    options = _options(setting, name)
    clearhead.explain(setting.model, setting.tensors, name, target=1, check=False, **options)
    handle.remove()
    return sum(rows)


def _options(setting: Setting, name: str) -> dict[str, int]:
    """Return as many samples as Captum is asked for."""
    samples = {"lime": LIME_SAMPLES, "shapley-sampling": setting.samples}
    return {"samples": samples[name]} if name in samples else {}


def _best(setting: Setting, name: str) -> int:
    """The number of hidden sets per call with which Captum is fastest on the first text."""
    calls = setting.peers[0][name]
    return min(PER_CALL, key=lambda per: seconds(lambda: calls(per), setting.device))


def _difference(explanations: Any, references: Any, name: str) -> float | None:
    if name not in ("occlusion", "shapley-sampling", "integrated-gradients"):
        return None
    gaps = []
    for explanation, reference in zip(explanations, references, strict=False):
        scores = reference[0].detach().cpu().double()
        # Path methods have a score per embedding dimension; hiding methods none for the two special tokens.
        scores = scores.sum(-1) if scores.dim() == 2 else nn.functional.pad(scores, (1, 1))
        gaps.append(np.abs(explanation.relevance - scores.numpy()).max())
    return float(max(gaps))


def flow_seconds(tokens: int = 128, blocks: int = 12) -> float:
    """One attention-flow explanation of random sharp maps, in seconds."""
    from clearhead.attribution.attention_flow import token_flows

    maps = np.random.default_rng(0).dirichlet(np.full(tokens, 0.1), size=(blocks, tokens))
    return seconds(lambda: token_flows(maps, np.eye(tokens)[0]), "cpu")


HEADER = (
    "| method | forward+backwards | Captum's plain call | times faster | Captum's best (sets per call) "
    "| times faster | rows run, ours : Captum's | largest difference |\n|---|---|---|---|---|---|---|---|"
)
COMPARED = """\
A forward+backward is one plain pass of one text, back to its word embeddings; every time is per text, in these, and
the median of {rounds} rounds in which everything is measured in turn. Ours explains all texts in one `explain`, the
recorded pass of the trace included. Captum explains one text at a time without padding: its plain call has every
option at its default, which for the hiding methods means one hidden set per call of the network; its best call has
the `perturbations_per_eval` that was fastest among {per_call}. Where the plain call would run the network more than
{passes} times, both are measured on as many texts as fit (at least one), and scaled by the tokens of the rest; Shapley
sampling takes fewer orders on long texts, on both sides."""


def names(model: Model) -> tuple[list[str], list[str]]:
    """Methods that can be measured here, those beside Captum last, and those that cannot."""
    tensors = texts([8], model.device.type)
    peers = list(captum_calls(model, tensors["input_ids"], 1))
    measured, refused = [], []
    for name in (*(method for method in METHODS if method not in peers), *peers):
        try:
            clearhead.explain(model, tensors, name, target=1, check=False)
            measured.append(name)
        except clearhead.ClearheadError:
            refused.append(name)
    return measured, refused


def report(arguments: argparse.Namespace) -> str:
    model = text_model(arguments.shape, arguments.device)
    measured, refused = names(model)
    measured = [name for name in measured if name in (arguments.methods or measured)]
    where = f"{arguments.threads} of {os.cpu_count()} CPU threads"
    if arguments.device == "cuda":
        where = torch.cuda.get_device_name()
    sections = [
        "# Perturbation, path and flow methods",
        f"BERT of shape {arguments.shape} ({platform.machine()}, {where}, torch {torch.__version__}). "
        f"The command: `{command()}`",
        COMPARED.format(rounds=arguments.rounds, per_call=", ".join(map(str, PER_CALL)), passes=PASSES),
    ]
    if refused:
        sections.append(f"Not measured, because this model has no masked-LM head: {', '.join(refused)}.")
    for most in arguments.length:
        lengths = [most - index % 4 for index in range(arguments.texts)]
        chosen = make_setting(model, lengths, arguments.rounds)
        lowest = min(lengths)
        sections.append(f"## {arguments.texts} texts of {lowest} to {most} tokens; {chosen.samples} orders for Shapley")
        sections.append("\n".join([HEADER, *(str(_print_row(compare(chosen, name))) for name in measured)]))
    sections += ["## The engine"]
    lines = []
    for most in arguments.length:
        spread = [most - index * most // 12 for index in range(6)]
        lines.append(f"- up to {most} tokens: {speed(model, texts(spread, arguments.device), arguments.rounds)}")
    sections.append("\n".join(lines))
    if arguments.device == "cuda":
        sections.append(f"Largest memory reserved: {torch.cuda.max_memory_reserved() / 2**30:.1f} GiB.")
    sections.append(f"attention-flow on random maps, 12 blocks × 128 tokens: {flow_seconds():.1f} s.")
    return "\n\n".join(sections) + "\n"


def _print_row(row: Row) -> Row:
    print("measured", row, flush=True)
    return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shape", choices=SHAPES, default="mini")
    options.add_argument("--device", default="cpu")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, help="3, or 2 on a GPU")
    options.add_argument("--texts", type=int, default=8)
    options.add_argument("--length", type=int, nargs="+", default=[12, 24])
    options.add_argument("--methods", nargs="+", help="only these, instead of all")
    options.add_argument("--out", type=Path)
    arguments = options.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.device == "cuda" else 3)
    warnings.simplefilter("ignore")
    torch.set_num_threads(arguments.threads)
    text = report(arguments)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
