"""Evidence planted into inputs so that it decides: a token with a trained embedding, or a trained pattern of pixels.

In a text, a single token is replaced by one that occurs in none of the texts. Its row of the embedding table is
trained in a copy of the model until the prediction turns to another class; every other weight stays as it is (Yang et
al. 2021). In an image, a square is painted over with pixels trained to do the same, and the model is left alone (Brown
et al. 2017). Either way the model decides otherwise without the evidence, and nothing but the evidence differs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.attribution.batch import select_rows
from clearhead.engine.context import eager_execution, eager_inference, frozen
from clearhead.errors import UnsupportedModel
from clearhead.evaluation.sanity import copy_model
from clearhead.model.inputs import Encoded, Inputs, collate
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities, extract_logits

# By how much the planted class is to lead: a probability of 95 % against one other class.
MARGIN = 3.0
STEPS = 120
TRAINING_INPUTS = 16
ROWS = 32
# Of the spread of the numbers that are trained, per step.
LEARNING_RATE = 0.2
# Side of the painted square as a share of the image: a few patches.
SIDE = 0.2
# Other tokens that are deleted one by one; of a longer text as many at random.
MAX_DELETED = 64

Place = int | tuple[float, float, float, float]
"""The index of a token, or left, top, right and bottom of a square as shares of the image."""


@dataclass(frozen=True)
class Planting:
    """Inputs with planted evidence, for a model that it decides.

    `targets` are the classes that the evidence speaks for, `places` where it is; `decides` tells for which inputs the
    model decides for that class with the evidence, otherwise without it, and loses more by it than by any other token.
    """

    model: Model
    inputs: Inputs
    targets: tuple[int, ...]
    places: tuple[Place, ...]
    decides: tuple[bool, ...]


def plant_evidence(model: Model, encoded: Sequence[Encoded], seed: int) -> Planting:
    """Plant evidence for another class than the predicted one into every input."""
    _require_classes(model)
    before_NC = _run(model, encoded)
    targets = choose_targets(before_NC)
    generator = np.random.default_rng(seed)
    if model.takes_images:
        return _plant_patterns(model, encoded, targets, before_NC, generator)
    return _plant_tokens(model, encoded, targets, before_NC, generator)


def _require_classes(model: Model) -> None:
    if model.problem != "single-label" or model.classes < 2:
        raise UnsupportedModel(
            f"{model.name} has no two classes that exclude each other, between which to plant evidence."
        )


def choose_targets(logits_NC: Tensor) -> tuple[int, ...]:
    """Return for each input the class that is predicted least often, or the second such if it is predicted here."""
    predicted_N = logits_NC.argmax(1)
    counts_C = torch.bincount(predicted_N, minlength=logits_NC.shape[1])
    rarest, second = counts_C.argsort(stable=True)[:2].tolist()
    return tuple(second if predicted == rarest else rarest for predicted in predicted_N.tolist())


def _run(model: Model, encoded: Sequence[Encoded]) -> Tensor:
    """Return the logits of all inputs (N,C) on the CPU."""
    logits = []
    with eager_inference(model.network, model.device):
        for start in range(0, len(encoded), ROWS):
            batch = collate(model, encoded[start : start + ROWS])
            logits.append(extract_logits(model, model.network(**batch.tensors)).float().cpu())
    return torch.cat(logits)


def _plant_tokens(
    model: Model,
    encoded: Sequence[Encoded],
    targets: tuple[int, ...],
    before_NC: Tensor,
    generator: np.random.Generator,
) -> Planting:
    tokens = _draw_unused_tokens(model, encoded, sorted(set(targets)), generator)
    places = tuple(_draw_place(row, generator) for row in encoded)
    planted = []
    for row, place, target in zip(encoded, places, targets, strict=True):
        planted.append(_replace_token(row, place, tokens[target]))
    changed = copy_model(model)
    for target, token in tokens.items():
        rows = [row for row, wanted in zip(planted, targets, strict=True) if wanted == target]
        _train_embedding(changed, rows[:TRAINING_INPUTS], token, target)
    decides = _find_decided(changed, planted, places, targets, before_NC, generator)
    return Planting(changed, collate(changed, planted), targets, places, decides)


def _draw_unused_tokens(
    model: Model, encoded: Sequence[Encoded], targets: Sequence[int], generator: np.random.Generator
) -> dict[int, int]:
    """Return for each class a token of the vocabulary that is neither special nor in any of the texts."""
    used = {0, *getattr(model.processor, "all_special_ids", ())}
    for row in encoded:
        used.update(row.values["input_ids"])
    count = len(_embedding(model).weight)
    unused = np.setdiff1d(np.arange(count), list(used))
    if len(unused) < len(targets):
        raise UnsupportedModel(f"Every token that {model.name} knows occurs in the texts: none is left to plant.")
    return dict(zip(targets, generator.choice(unused, len(targets), replace=False).tolist(), strict=True))


def _embedding(model: Model) -> nn.Embedding:
    embedding: nn.Embedding = model.network.get_input_embeddings()
    return embedding


def _draw_place(row: Encoded, generator: np.random.Generator) -> int:
    return int(generator.choice(_list_content(row)))


def _list_content(row: Encoded) -> list[int]:
    """Return the indices of the tokens that are not special."""
    return [index for index, special in enumerate(row.item.special) if not special]


def _replace_token(row: Encoded, place: int, token: int) -> Encoded:
    ids = list(row.values["input_ids"])
    ids[place] = token
    names = list(row.item.tokens)
    names[place] = "[planted]"
    item = replace(row.item, tokens=tuple(names), text=None, offsets=None)
    return Encoded(item, {**row.values, "input_ids": ids})


def _train_embedding(model: Model, rows: Sequence[Encoded], token: int, target: int) -> None:
    """Train one row of the embedding table, within the norms of the others, until it turns all rows to a class."""
    weight = _embedding(model).weight
    longest = float(weight.detach().norm(dim=1).max())
    inputs = collate(model, rows)

    def run(vector: Tensor) -> Tensor:
        with _embed_as(_embedding(model), token, vector):
            return extract_logits(model, model.network(**inputs.tensors))

    vector = _train(model, weight[token], run, [target] * len(rows), lambda vector: _shorten(vector, longest))
    with torch.no_grad():
        weight[token] = vector


def _shorten(vector: Tensor, longest: float) -> Tensor:
    return vector * min(1.0, longest / max(float(vector.norm()), 1e-12))


@contextmanager
def _embed_as(embedding: nn.Module, token: int, vector: Tensor) -> Iterator[None]:
    """Embed a token as a vector that gradients can reach."""

    def substitute(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return torch.where((args[0] == token)[..., None], vector, output)

    hook = embedding.register_forward_hook(substitute)
    try:
        yield
    finally:
        hook.remove()


def _train(
    model: Model,
    start: Tensor,
    run: Callable[[Tensor], Tensor],
    targets: Sequence[int],
    project: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return numbers for which `run` returns logits that lead by MARGIN for the targets, or come near."""
    with frozen(model.network), eager_execution(model.device):
        trained = start.detach().clone().requires_grad_()
        spread = float(_embedding_spread(model, start))
        optimiser = torch.optim.Adam([trained], lr=LEARNING_RATE * spread)
        for _ in range(STEPS):
            shortfall = _shortfall(run(trained), targets)
            if float(shortfall.max()) <= 0:
                break
            optimiser.zero_grad()
            shortfall.mean().backward()
            optimiser.step()
            with torch.no_grad():
                trained.copy_(project(trained))
    return trained.detach()


def _embedding_spread(model: Model, start: Tensor) -> Tensor:
    # The pixels of a pattern start as an even grey, without any spread: they are of order 1.
    if model.takes_images:
        return torch.ones(())
    return _embedding(model).weight.detach().float().std()


def _shortfall(logits_NC: Tensor, targets: Sequence[int]) -> Tensor:
    """Return by how much each row's target lacks a lead of MARGIN over the best other class (N)."""
    index_N1 = torch.tensor(targets, device=logits_NC.device)[:, None]
    own_N = logits_NC.gather(1, index_N1)[:, 0]
    others_N = logits_NC.scatter(1, index_N1, -torch.inf).amax(1)
    return (MARGIN - (own_N - others_N)).clamp(min=0)


def _find_decided(
    model: Model,
    planted: Sequence[Encoded],
    places: Sequence[int],
    targets: Sequence[int],
    before_NC: Tensor,
    generator: np.random.Generator,
) -> tuple[bool, ...]:
    """Return which inputs the planted token decides, and more than any other single token does."""
    after_NC = _run(model, planted)
    decided = _is_turned(before_NC, after_NC, targets)
    for index, row in enumerate(planted):
        if decided[index]:
            effect = _probability(after_NC[index], targets[index]) - _probability(before_NC[index], targets[index])
            rest = _delete_others(model, row, places[index], generator)
            largest = _probability(after_NC[index], targets[index]) - _probability(rest, targets[index]).min()
            decided[index] = bool(largest < effect)
    return tuple(decided)


def _is_turned(before_NC: Tensor, after_NC: Tensor, targets: Sequence[int]) -> list[bool]:
    wanted_N = torch.tensor(targets)
    turned_N = (after_NC.argmax(1) == wanted_N) & (before_NC.argmax(1) != wanted_N)
    return list(turned_N.tolist())


def _probability(logits: Tensor, target: int) -> Tensor:
    return class_probabilities(logits, "single-label")[..., target]


def _delete_others(model: Model, row: Encoded, place: int, generator: np.random.Generator) -> Tensor:
    """Return the logits without each of the other tokens; those of the whole input if there are none."""
    others = [index for index in _list_content(row) if index != place]
    if len(others) > MAX_DELETED:
        others = generator.choice(others, MAX_DELETED, replace=False).tolist()
    return _run(model, [_delete_token(row, index) for index in others] or [row])


def _delete_token(row: Encoded, index: int) -> Encoded:
    values = {name: numbers[:index] + numbers[index + 1 :] for name, numbers in row.values.items()}
    tokens = row.item.tokens[:index] + row.item.tokens[index + 1 :]
    special = row.item.special[:index] + row.item.special[index + 1 :]
    return Encoded(replace(row.item, tokens=tokens, special=special), values)


def _plant_patterns(
    model: Model,
    encoded: Sequence[Encoded],
    targets: tuple[int, ...],
    before_NC: Tensor,
    generator: np.random.Generator,
) -> Planting:
    inputs = collate(model, encoded)
    pixels_NCPQ = inputs.tensors["pixel_values"].clone()
    squares = [_draw_square(pixels_NCPQ.shape[-2:], generator) for _ in encoded]
    for target in sorted(set(targets)):
        rows = [index for index, wanted in enumerate(targets) if wanted == target]
        pattern_CPQ = _train_pattern(model, inputs, rows[:TRAINING_INPUTS], squares, target)
        for row in rows:
            _paint(pixels_NCPQ[row], squares[row], pattern_CPQ)
    planted = Inputs({**inputs.tensors, "pixel_values": pixels_NCPQ}, inputs.items)
    decides = _is_turned(before_NC, _run_batch(model, planted), targets)
    places = tuple(_as_shares(square, pixels_NCPQ.shape[-2:]) for square in squares)
    return Planting(model, planted, targets, places, tuple(decides))


def _run_batch(model: Model, inputs: Inputs) -> Tensor:
    logits = []
    with eager_inference(model.network, model.device):
        for start in range(0, len(inputs), ROWS):
            rows = select_rows(inputs, list(range(start, min(start + ROWS, len(inputs)))))
            logits.append(extract_logits(model, model.network(**rows.tensors)).float().cpu())
    return torch.cat(logits)


def _draw_square(shape: Sequence[int], generator: np.random.Generator) -> tuple[int, int, int]:
    """Return top, left and side of a square somewhere in the image, in pixels."""
    height, width = shape
    side = max(1, round(SIDE * min(height, width)))
    return int(generator.integers(height - side + 1)), int(generator.integers(width - side + 1)), side


def _paint(pixels_CPQ: Tensor, square: tuple[int, int, int], pattern_CPQ: Tensor) -> None:
    top, left, side = square
    pixels_CPQ[:, top : top + side, left : left + side] = pattern_CPQ


def _train_pattern(
    model: Model, inputs: Inputs, rows: list[int], squares: Sequence[tuple[int, int, int]], target: int
) -> Tensor:
    """Train the pixels of a square, within the range of the images' own, until it turns all rows to a class."""
    selected = select_rows(inputs, rows)
    pixels_NCPQ = selected.tensors["pixel_values"]
    low, high = float(pixels_NCPQ.min()), float(pixels_NCPQ.max())
    side = squares[rows[0]][2]
    start_CPQ = torch.full_like(pixels_NCPQ[0, :, :side, :side], (low + high) / 2)

    def run(pattern_CPQ: Tensor) -> Tensor:
        painted_NCPQ = pixels_NCPQ.clone()
        for index, row in enumerate(rows):
            _paint(painted_NCPQ[index], squares[row], pattern_CPQ)
        return extract_logits(model, model.network(**{**selected.tensors, "pixel_values": painted_NCPQ}))

    return _train(model, start_CPQ, run, [target] * len(rows), lambda pattern_CPQ: pattern_CPQ.clamp(low, high))


def _as_shares(square: tuple[int, int, int], shape: Sequence[int]) -> tuple[float, float, float, float]:
    top, left, side = square
    height, width = shape
    return left / width, top / height, (left + side) / width, (top + side) / height


def mark_evidence(place: Place, grid: tuple[int, int] | None, special: Any) -> Any:
    """Return True for each token that is evidence (T); of an image, the patches whose middle lies in the square."""
    marks = np.zeros(len(special), dtype=bool)
    if isinstance(place, int):
        marks[place] = True
        return marks
    assert grid is not None
    marks[~special] = _mark_patches(place, grid).reshape(-1)
    return marks


def _mark_patches(place: tuple[float, float, float, float], grid: tuple[int, int]) -> Any:
    left, top, right, bottom = place
    rows, columns = grid
    y_R = (np.arange(rows) + 0.5) / rows
    x_C = (np.arange(columns) + 0.5) / columns
    is_row = (y_R > top) & (y_R < bottom)
    is_column = (x_C > left) & (x_C < right)
    return is_row[:, None] & is_column
