"""Forward passes from given input embeddings or pixels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clearhead.engine.batching import in_batches
from clearhead.engine.context import eager_execution, frozen
from clearhead.engine.forward import float_input
from clearhead.engine.lookups import InputLookups, WordLookups, list_lookups
from clearhead.engine.onednn import fast_linear_layers
from clearhead.engine.torch_calls import function_name
from clearhead.engine.trace import Trace
from clearhead.errors import UnsupportedModel
from clearhead.model.model import Model
from clearhead.model.outputs import finite_logits
from clearhead.model.target import explained_score

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 16384}
# Pixels of an image that count as one token: a patch of 16 × 16.
PIXELS_PER_TOKEN = 256


class EmbeddingOverride(TorchFunctionMode):
    """Replaces the results of the look-ups of words; every other call runs unchanged."""

    def __init__(self, lookups: InputLookups | WordLookups, embeddings: Tensor) -> None:
        super().__init__()
        self.lookups = lookups
        self.embeddings = embeddings

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function_name(function) != "embedding" or not self.lookups.is_next(args, kwargs):
            return function(*args, **kwargs)
        return self.lookups.arrange(self.embeddings, args, kwargs)


def logits_from(model: Model, tensors: dict[str, Tensor], leaf: Tensor) -> Tensor:
    """Return the logits of these inputs with `leaf` in place of their word embeddings or pixels."""
    name = float_input(tensors)
    if name is not None:
        return finite_logits(model, model.network(**{**tensors, name: leaf}))
    return _logits_from_embeddings(model, tensors, leaf)


def _logits_from_embeddings(model: Model, tensors: dict[str, Tensor], embeddings: Tensor) -> Tensor:
    # Not every network takes `inputs_embeds`, so embeddings are replaced where the network looks them up.
    lookups = list_lookups(model.network, tensors)
    with EmbeddingOverride(lookups, embeddings):
        logits = finite_logits(model, model.network(**tensors))
    _require_lookups(model, lookups)
    return logits


def _require_lookups(model: Model, lookups: InputLookups | WordLookups) -> None:
    # Otherwise the logits would be those of the input itself, whatever the embeddings.
    if not lookups.are_done:
        raise UnsupportedModel(f"{model.name} does not look its words up in a table: choose a perturbation method.")


@dataclass(frozen=True)
class Point:
    """A point in the input space of one sample; `make` builds its leaf, without batch axis, when it is needed."""

    sample: int
    make: Callable[[], Tensor]


def gradients_at(
    trace: Trace,
    points: Sequence[Point],
    receive: Callable[[int, Tensor, Tensor], None],
    *,
    batch: int | None = None,
) -> None:
    """Call receive(index, score, gradient of the score) for every point, in full batches."""

    def compute(start: int, stop: int) -> None:
        score_N, gradient = _score_and_gradient(trace, points[start:stop])
        # One by one: the gradients of all points may not fit into memory together.
        for row in range(stop - start):
            receive(start + row, score_N[row], gradient[row])

    device = trace.model.device
    with eager_execution(device), fast_linear_layers(device), frozen(trace.model.network):
        run_batches(trace, len(points), compute, batch)


def _score_and_gradient(trace: Trace, points: Sequence[Point]) -> tuple[Tensor, Tensor]:
    """Return the explained score at each point, and its gradient there."""
    leaf = _stack_points(points).detach().requires_grad_()
    # A copy, since a network may write into its embeddings (CTRL), which torch forbids for a leaf.
    score_N = _score_points(trace, points, leaf.clone())
    # Rows do not depend on each other, so the gradient of the sum holds the gradient of each score.
    (gradient,) = torch.autograd.grad(score_N.sum(), leaf)
    return score_N.detach(), gradient


def scores_at(trace: Trace, points: Sequence[Point], *, batch: int | None = None) -> Tensor:
    """Return the explained score at each point, without gradients."""
    scores: list[Tensor] = []

    def compute(start: int, stop: int) -> None:
        selected = points[start:stop]
        scores.append(_score_points(trace, selected, _stack_points(selected)))

    device = trace.model.device
    with eager_execution(device), fast_linear_layers(device), frozen(trace.model.network), torch.no_grad():
        run_batches(trace, len(points), compute, batch)
    return torch.cat(scores)


def _stack_points(points: Sequence[Point]) -> Tensor:
    return torch.stack([point.make() for point in points])


def _score_points(trace: Trace, points: Sequence[Point], leaf: Tensor) -> Tensor:
    return score_from(trace, [point.sample for point in points], leaf)


def score_from(trace: Trace, samples: Sequence[int], leaf: Tensor) -> Tensor:
    """Return the explained score of these samples, each computed from its row of `leaf`."""
    logits = logits_from(trace.model, _select_rows(trace, list(samples)), leaf)
    # Built anew: the seeds of the trace have other rows.
    return explained_score([trace.targets[sample] for sample in samples], logits)


def _select_rows(trace: Trace, samples: list[int]) -> dict[str, Tensor]:
    """Return the inputs of these samples, which may repeat."""
    return {name: value[samples] for name, value in trace.inputs.tensors.items()}


def run_batches(trace: Trace, count: int, compute: Callable[[int, int], None], batch: int | None) -> None:
    """Call compute(start, stop) over all points; inputs that cannot be padded run one at a time."""
    tokens = _token_budget(trace.model.device)
    if not trace.model.can_pad:
        batch = 1
    in_batches([_token_count(trace)] * count, compute, tokens=tokens, size=batch, label="passes")


def _token_budget(device: torch.device) -> int:
    return TOKENS_PER_BATCH.get(device.type, TOKENS_PER_BATCH["cpu"])


def _token_count(trace: Trace) -> int:
    """Return the length of an input; for an image what costs as much memory."""
    if trace.is_image:
        return _image_tokens(trace.leaf)
    return trace.leaf.shape[1]


def _image_tokens(pixels: Tensor) -> int:
    # An image smaller than a patch takes memory as well.
    return max(1, pixels.shape[-2:].numel() // PIXELS_PER_TOKEN)
