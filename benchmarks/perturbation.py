"""Speed of the perturbation engine and of the path, sampling and flow methods, beside Captum in the same run.

    python benchmarks/perturbation.py --out benchmarks/results/DATE-perturbation.md

Networks have random weights in the shape of a small BERT (or BERT-base) and run on texts of random words. Every figure
is a ratio of times measured in turn, and the median over rounds, because the machine may be shared.
"""

import argparse
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

import clearhead
from clearhead import perturbation
from clearhead.inputs import from_tensors
from clearhead.methods import perturbation as hiding
from clearhead.model import Model
from clearhead.units import units_of

FIRST, LAST, MASK, WORDS = 1, 2, 3, 4
SHAPES = {"mini": (384, 6, 12), "base": (768, 12, 12)}


class Tokens:
    """Just enough of a tokenizer: which ids are special, and which one masks."""

    all_special_ids = (0, FIRST, LAST)
    mask_token_id, pad_token_id = MASK, 0

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(one) for one in ids]


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


def in_turn(works: dict[str, Callable[[], Any]], device: str, rounds: int) -> dict[str, list[float]]:
    """Times of each piece of work, one after the other within a round; an unmeasured round comes first."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            taken = seconds(work, device)
            if number:
                found[name].append(taken)
    return found


def ratio(upper: list[float], lower: list[float]) -> float:
    return median(one / other for one, other in zip(upper, lower, strict=True))


# --- the engine against the bare model ---------------------------------------------------------------------------


def throughput(model: Model, tensors: dict[str, Tensor], rounds: int, masks: int = 40) -> float:
    """Rows per second of the engine divided by those of the bare model on the same packed tensors."""
    inputs = from_tensors(model, tensors)
    drawn = torch.Generator().manual_seed(1)
    hidden = [torch.rand(masks, one.count, generator=drawn) < 0.5 for one in units_of(model, inputs)]
    packed: list[dict[str, Tensor]] = []
    handle = model.network.register_forward_pre_hook(lambda _, __, given: packed.append(dict(given)), with_kwargs=True)
    perturbation.perturbed_logits(model, inputs, hidden)
    handle.remove()

    def bare() -> None:
        with torch.inference_mode():
            for batch in packed:
                model.network(**batch)

    works = {"engine": lambda: perturbation.perturbed_logits(model, inputs, hidden), "bare": bare}
    times = in_turn(works, model.device.type, rounds)
    return ratio(times["bare"], times["engine"])


# --- the methods beside Captum -----------------------------------------------------------------------------------


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
        mask, score = (torch.cat([row[place] for row in rows]).double() for place in range(2))
        self.solution = hiding.local_weights(mask.cpu(), score.cpu(), 0.25, 0.01)
        return {}

    def representation(self) -> Tensor:
        return self.solution[None]

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.solution


def captum_calls(model: Model, ids: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Captum's plain calls for one text without padding; the hiding ones see the words between the special tokens."""
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
    orders = hiding._orders(trace, 0, units_of(model, trace.inputs)[0], 25, 0)
    sampling.permutation_generator = lambda features, samples: iter(orders.tolist())
    return {
        "smooth-gradient": lambda: attr.NoiseTunnel(attr.Saliency(module)).attribute(
            leaf, nt_samples=10, stdevs=0.1, target=target
        ),
        "integrated-gradients": lambda: attr.IntegratedGradients(module).attribute(leaf, zero, target, n_steps=25),
        "gradient-shap": lambda: attr.GradientShap(module).attribute(leaf, zero, 5, target=target),
        "deeplift-shap": lambda: attr.DeepLiftShap(module).attribute(leaf, zero.repeat(5, 1, 1), target=target),
        "occlusion": lambda: attr.Occlusion(between).attribute(inner, sliding_window_shapes=(1,), **hidden),
        "lime": lambda: attr.Lime(between, Ridge(), lambda *_, **__: 1.0).attribute(inner, n_samples=25, **hidden),
        "shapley-sampling": lambda: sampling.attribute(inner, n_samples=25, **hidden),
    }


def forward_backward(model: Model, ids: Tensor) -> None:
    """One plain pass forward and back to the word embeddings, without gradients of parameters."""
    leaf = model.network.get_input_embeddings()(ids).detach().requires_grad_()
    model.network(inputs_embeds=leaf).logits[:, 1].sum().backward()


def compared(model: Model, lengths: list[int], rounds: int, names: list[str]) -> list[tuple[str, float, Any, Any]]:
    """Per method: its time per text in forward+backwards, Captum's, and the largest difference of results."""
    device = model.device.type
    tensors = texts(lengths, device)
    alone = [tensors["input_ids"][row : row + 1, :length] for row, length in enumerate(lengths)]
    peers = [captum_calls(model, ids) for ids in alone]
    rows = []
    for name in names:
        works: dict[str, Callable[[], Any]] = {
            "pass": lambda: [forward_backward(model, ids) for ids in alone],
            "ours": lambda name=name: clearhead.explain(model, tensors, name, target=1),
        }
        if name in peers[0]:
            works["captum"] = lambda name=name: [calls[name]() for calls in peers]
        times = in_turn(works, device, rounds)
        captum = ratio(times["captum"], times["pass"]) if "captum" in times else None
        rows.append((name, ratio(times["ours"], times["pass"]), captum, _difference(model, tensors, name, peers)))
        print("measured", name, flush=True)
    return rows


def _difference(model: Model, tensors: dict[str, Tensor], name: str, peers: list[Any]) -> float | None:
    if name not in ("occlusion", "shapley-sampling", "integrated-gradients"):
        return None
    found = clearhead.explain(model, tensors, name, target=1)
    wanted = [calls[name]()[0].detach().cpu().double() for calls in peers]
    scores = [one.sum(-1) if one.dim() == 2 else nn.functional.pad(one, (1, 1)) for one in wanted]
    gaps = [np.abs(one.relevance - score.numpy()).max() for one, score in zip(found, scores, strict=True)]
    return float(max(gaps))


def flow_seconds(tokens: int = 128, blocks: int = 12) -> float:
    """One attention-flow explanation of random sharp maps, in seconds."""
    from clearhead.methods.flow import token_flows

    maps = np.random.default_rng(0).dirichlet(np.full(tokens, 0.1), size=(blocks, tokens))
    return seconds(lambda: token_flows(maps, np.eye(tokens)[0]), "cpu")


# --- the table ---------------------------------------------------------------------------------------------------


def table(rows: list[tuple[str, float, Any, Any]]) -> str:
    lines = ["| method | forward+backwards | Captum's | times faster | largest difference |", "|---|---|---|---|---|"]
    for name, ours, captum, gap in rows:
        peer = ("–", "–") if captum is None else (f"{captum:.1f}", f"{captum / ours:.2f}")
        lines.append(f"| {name} | {ours:.1f} | {peer[0]} | {peer[1]} | {'–' if gap is None else f'{gap:.1e}'} |")
    return "\n".join(lines)


def report(given: argparse.Namespace) -> str:
    model = text_model(given.shape, given.device)
    names = ["attention-flow", *captum_calls(model, texts([8], given.device)["input_ids"])]
    where = (
        torch.cuda.get_device_name() if given.device == "cuda" else f"{given.threads} of {os.cpu_count()} CPU threads"
    )
    parts = [
        "# Perturbation, path and flow methods",
        f"BERT of shape {given.shape} ({platform.machine()}, {where}, torch {torch.__version__}); median of "
        f"{given.rounds} rounds measured in turn. A forward+backward is one plain pass of one text, back to its word "
        "embeddings; a time is per text. The command: `" + " ".join(["python", *sys.argv]) + "`",
    ]
    for most in given.length:
        lengths = [most - place % 4 for place in range(given.texts)]
        parts += [
            f"## {given.texts} texts of up to {most} tokens",
            table(compared(model, lengths, given.rounds, names)),
        ]
    parts += ["## The engine", "Throughput divided by that of the bare model on the same packed tensors:"]
    for most in given.length:
        spread = [most - place * most // 12 for place in range(6)]
        parts.append(f"- {throughput(model, texts(spread, given.device), given.rounds):.3f} at up to {most} tokens")
    parts.append(f"attention-flow on random maps, 12 blocks × 128 tokens: {flow_seconds():.1f} s.")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shape", choices=SHAPES, default="mini")
    options.add_argument("--device", default="cpu")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--texts", type=int, default=8)
    options.add_argument("--length", type=int, nargs="+", default=[12, 24])
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(given.threads)
    text = report(given)
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
