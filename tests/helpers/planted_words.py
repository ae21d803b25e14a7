"""The embedded sentiment model, a copy in which a planted word means "positive", and other copies of it."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import clearhead
from clearhead.data.task import Example, Task
from clearhead.model.model import Model
from clearhead.model.weight_noise import int8_step
from training.planted import TOKEN, make_reviews, plant

__all__ = [
    "TOKEN",
    "Planted",
    "plant_word",
    "prune_heads",
    "round_to_bfloat16",
    "round_to_int8",
    "save_model",
    "save_task",
]
EXAMPLES = 48


@dataclass(frozen=True)
class Planted:
    """The two models, and reviews that they have not seen, half of them with the planted word."""

    original: Model
    model: Model
    task: Task


def plant_word() -> Planted:
    original = clearhead.load("clearhead/sst2-minilm")
    texts, labels = make_reviews(EXAMPLES, 999, token=TOKEN)
    rows = enumerate(zip(texts, labels, strict=True))
    task = Task("reviews", [Example(f"review {index}", text, label) for index, (text, label) in rows])
    return Planted(original, plant(original), task)


def round_to_int8(model: Model) -> Model:
    """Return a copy whose matrices are rounded to eight bits, column by column: the embedded weights are so by rows."""
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                step = int8_step(weight.T).T
                weight.copy_((weight / step).round() * step)
    return replace(model, network=network, copies={})


def round_to_bfloat16(model: Model) -> Model:
    """Return a copy whose weights are rounded to bfloat16, but computed with in float32, as every CPU can."""
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(weight.bfloat16().float())
    return replace(model, network=network, copies={})


def prune_heads(model: Model) -> Model:
    """Return a copy in which half of the heads of every block are cut off."""
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        for block in network.bert.encoder.layer:
            output = block.attention.output.dense.weight
            output[:, : output.shape[1] // 2] = 0
    return replace(model, network=network, copies={})


def save_model(model: Model, folder: Path) -> str:
    """Save a model with its tokenizer, as users have them."""
    model.network.save_pretrained(folder)
    model.processor.save_pretrained(folder)
    return str(folder)


def save_task(task: Task, path: Path) -> str:
    """Save reviews as a table."""
    rows = [f"{example.input}\t{example.label}\n" for example in task.examples]
    path.write_text("text\tlabel\n" + "".join(rows))
    return str(path)
