"""Evidence planted into inputs so that it decides: what every kind of it has in common.

The model decides otherwise without the evidence, and nothing but the evidence differs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.attribution.batch_sizes import cut_rows, split_inputs
from clearhead.engine.context import eager_execution, eager_inference, frozen
from clearhead.errors import UnsupportedModel
from clearhead.model.inputs import Encoded, Inputs, Item, collate
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities, extract_logits

# By how much the planted class is to lead: a probability of 95 % against one other class.
MARGIN = 3.0
STEPS = 120
TRAINING_INPUTS = 16
ROWS = 32
MAX_TARGETS = 4
# Of the spread of the numbers that are trained, per step.
LEARNING_RATE = 0.2

WORD = "planted-word"

Location = int | tuple[float, float, float, float]
"""The index of a token, or left, top, right and bottom of a square as shares of the image."""


@dataclass(frozen=True)
class Planting:
    """Inputs with planted evidence, for a model that it decides.

    `targets` are the classes that the evidence speaks for, `locations` where it is; `decides` tells for which inputs
    the model decides for that class with the evidence, and otherwise without it; `words` which word it is, in texts.
    """

    model: Model
    inputs: Inputs
    targets: tuple[int, ...]
    locations: Sequence[Location]
    decides: Sequence[bool]
    words: Sequence[str] = ()

    def describe(self, row: int) -> dict[str, str]:
        """Return which word was planted into a text; nothing for images."""
        return {WORD: self.words[row]} if self.words else {}


def require_classes(model: Model) -> None:
    """Raise UnsupportedModel unless the classes of a model exclude each other."""
    if model.problem != "single-label" or model.classes < 2:
        raise UnsupportedModel(f"{model.name} has no two classes that exclude each other: evidence cannot be planted.")


def choose_targets(logits_NC: Tensor, most: int = MAX_TARGETS) -> tuple[int, ...]:
    """Return for each input the most likely of the other classes, among the few that come second most often."""
    predicted_N = logits_NC.argmax(1, keepdim=True)
    others_NC = logits_NC.scatter(1, predicted_N, -torch.inf)
    counts_C = torch.bincount(others_NC.argmax(1), minlength=logits_NC.shape[1])
    # Evidence is sought for every class: of hundreds it would take long.
    targets_K = counts_C.argsort(descending=True, stable=True)[:most]
    return tuple(targets_K[others_NC[:, targets_K].argmax(1)].tolist())


def list_rows(targets: Sequence[int], target: int) -> list[int]:
    """Return the indices of the inputs with this target."""
    return [row for row, other in enumerate(targets) if other == target]


def run_encoded(model: Model, encoded: Sequence[Encoded]) -> Tensor:
    """Return the logits of encoded inputs (N,C) on the CPU."""
    slices = cut_rows(model, [row.length for row in encoded], ROWS)
    return _run_batches(model, (collate(model, encoded[rows]) for rows in slices))


def run_inputs(model: Model, inputs: Inputs) -> Tensor:
    """Return the logits of a batch of any size (N,C) on the CPU."""
    return _run_batches(model, (batch.inputs for batch in split_inputs(model, inputs, ROWS)))


def _run_batches(model: Model, batches: Iterator[Inputs]) -> Tensor:
    logits = []
    with eager_inference(model.network, model.device):
        for batch in batches:
            logits.append(run_network(model, batch.tensors).float().cpu())
    return torch.cat(logits)


def run_network(model: Model, tensors: dict[str, Tensor]) -> Tensor:
    """Return the logits of the network (N,C)."""
    return extract_logits(model, model.network(**tensors))


def is_turned(before_NC: Tensor, after_NC: Tensor, targets: Sequence[int]) -> list[bool]:
    """Return which inputs are predicted as their target after, but not before."""
    targets_N = torch.tensor(targets)
    turned_N = (after_NC.argmax(1) == targets_N) & (before_NC.argmax(1) != targets_N)
    return list(turned_N.tolist())


def target_probability(logits: Tensor, target: int) -> Tensor:
    """Return the probability of one of several classes that exclude each other."""
    return class_probabilities(logits, "single-label")[..., target]


@dataclass(frozen=True)
class Training:
    """How evidence is trained: `run` maps its numbers to logits, `project` keeps them in their range.

    `spread` is the typical size of such numbers, which the steps are measured by.
    """

    model: Model
    target: int
    spread: float
    run: Callable[[Tensor], Tensor]
    project: Callable[[Tensor], Tensor]

    def train(self, start: Tensor) -> Tensor:
        """Return numbers for which every input leads by MARGIN for the target, or comes near."""
        with frozen(self.model.network), eager_execution(self.model.device):
            numbers = start.detach().clone().requires_grad_()
            optimiser = torch.optim.Adam([numbers], lr=LEARNING_RATE * self.spread)
            for _ in range(STEPS):
                shortfall_N = measure_shortfall(self.run(numbers), self.target)
                if not shortfall_N.any():
                    break
                self._step(optimiser, shortfall_N, numbers)
        return numbers.detach()

    def _step(self, optimiser: torch.optim.Optimizer, shortfall_N: Tensor, numbers: Tensor) -> None:
        (numbers.grad,) = torch.autograd.grad(shortfall_N.mean(), numbers)
        optimiser.step()
        with torch.no_grad():
            numbers.copy_(self.project(numbers))


def measure_lead(logits_NC: Tensor, target: int) -> Tensor:
    """Return by how much each row's target leads over the best other class (N)."""
    others_NC = logits_NC.clone()
    others_NC[:, target] = -torch.inf
    return logits_NC[:, target] - others_NC.amax(1)


def measure_shortfall(logits_NC: Tensor, target: int) -> Tensor:
    """Return by how much each row's target lacks a lead of MARGIN over the best other class (N)."""
    return (MARGIN - measure_lead(logits_NC, target)).clamp(min=0)


def list_content(item: Item) -> list[int]:
    """Return the indices of the tokens that are not special."""
    return np.flatnonzero(~np.array(item.special)).tolist()


def replace_token(row: Encoded, location: int, token: int) -> Encoded:
    """Return an encoded text with another token at one location."""
    ids = list(row.values["input_ids"])
    ids[location] = token
    return Encoded(row.item, {**row.values, "input_ids": ids})
