"""The network run from other values at its leaf: the word embeddings, or the pixels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clearhead.engine.batching import in_batches
from clearhead.engine.context import eager_execution, frozen
from clearhead.engine.recorder import function_name
from clearhead.engine.trace import Trace
from clearhead.errors import UnsupportedModel
from clearhead.model.model import Model, input_embedding
from clearhead.model.outputs import finite_logits
from clearhead.model.target import make_seeds

TOKENS = {"cpu": 1024, "cuda": 16384}
PIXELS_PER_TOKEN = 256


class Replacing(TorchFunctionMode):
    """Answers the first look-up in the word table with a given leaf; everything else runs as it is."""

    def __init__(self, words: Tensor | None, leaf: Tensor) -> None:
        super().__init__()
        self.words, self.leaf = words, leaf
        self.done = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.done and function_name(function) == "embedding":
            weight = args[1] if len(args) > 1 else kwargs.get("weight")
            if weight is self.words:
                self.done = True
                return self.leaf
        return function(*args, **kwargs)


def logits_from(model: Model, tensors: dict[str, Tensor], leaf: Tensor) -> Tensor:
    """The logits of these inputs with `leaf` in place of their word embeddings, given embeddings or pixels."""
    name = next((name for name in ("pixel_values", "inputs_embeds") if name in tensors), None)
    if name is not None:
        return finite_logits(model, model.network(**{**tensors, name: leaf}))
    replacing = Replacing(input_embedding(model.network), leaf)
    with replacing:
        logits = finite_logits(model, model.network(**tensors))
    if not replacing.done:
        raise UnsupportedModel(f"{model.name} does not look its words up in a table: choose a perturbation method.")
    return logits


@dataclass(frozen=True)
class Point:
    """A place in the input space of one sample; `make` builds its leaf (without batch axis) when it is needed."""

    sample: int
    make: Callable[[], Tensor]


def gradients_at(
    trace: Trace,
    points: Sequence[Point],
    receive: Callable[[int, Tensor, Tensor], None],
    *,
    batch: int | None = None,
) -> None:
    """Calls receive(number of the point, its score, the gradient of the score there), points in full batches."""
    model = trace.model

    def compute(start: int, stop: int) -> None:
        leaf = torch.stack([point.make() for point in points[start:stop]]).detach().requires_grad_()
        score_N = score_from(trace, [point.sample for point in points[start:stop]], leaf)
        (gradient,) = torch.autograd.grad(score_N.sum(), leaf)
        for place in range(stop - start):
            receive(start + place, score_N[place].detach(), gradient[place])

    with eager_execution(model.device), frozen(model.network):
        _in_batches(trace, len(points), compute, batch)


def scores_at(trace: Trace, points: Sequence[Point], *, batch: int | None = None) -> Tensor:
    """The explained score at each point, without gradients."""
    found: list[Tensor] = []

    def compute(start: int, stop: int) -> None:
        leaf = torch.stack([point.make() for point in points[start:stop]])
        found.append(score_from(trace, [point.sample for point in points[start:stop]], leaf))

    with eager_execution(trace.model.device), frozen(trace.model.network), torch.no_grad():
        _in_batches(trace, len(points), compute, batch)
    return torch.cat(found)


def score_from(trace: Trace, samples: Sequence[int], leaf: Tensor) -> Tensor:
    """The explained score of these samples, each with its own row of `leaf`."""
    rows = list(samples)
    tensors = {name: value[rows] for name, value in trace.inputs.tensors.items()}
    logits = logits_from(trace.model, tensors, leaf)
    parts = [sign * seed for sign, seed in make_seeds([trace.targets[row] for row in rows], logits.detach())]
    return (logits * torch.stack(parts).sum(0)).flatten(1).sum(1)


def _in_batches(trace: Trace, count: int, compute: Callable[[int, int], None], batch: int | None) -> None:
    shape = trace.leaf.shape
    length = max(1, shape[-1] * shape[-2] // PIXELS_PER_TOKEN) if trace.is_image else shape[1]
    size = batch if trace.model.can_pad else 1
    in_batches([length] * count, compute, tokens=TOKENS.get(trace.model.device.type, 1024), size=size, label="passes")
