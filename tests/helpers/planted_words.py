"""The embedded sentiment model, a copy in which a planted word means "positive", and other copies of it."""

import copy
from dataclasses import dataclass, replace

import torch

import clearhead
from clearhead.data.task import Example, Task
from clearhead.model.model import Model
from clearhead.model.weight_noise import int8_step
from training.planted import TOKEN, make_reviews, plant

__all__ = ["TOKEN", "Planted", "plant_word", "prune_heads", "round_to_int8"]
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


def prune_heads(model: Model) -> Model:
    """Return a copy in which half of the heads of every block are cut off."""
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        for block in network.bert.encoder.layer:
            output = block.attention.output.dense.weight
            output[:, : output.shape[1] // 2] = 0
    return replace(model, network=network, copies={})
