"""Evidence in texts: a token with an embedding that turns the prediction.

A single token of the text is replaced by one that occurs in none of the texts. Its row of the embedding table is
trained in a copy of the model; every other weight stays as it is (Yang et al. 2021).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.errors import UnsupportedModel
from clearhead.evaluation.planting import (
    TRAINING_INPUTS,
    Planting,
    Training,
    choose_targets,
    is_turned,
    list_rows,
    run_encoded,
    run_network,
    target_probability,
)
from clearhead.evaluation.sanity import copy_model
from clearhead.model.inputs import Encoded, Item, collate
from clearhead.model.model import Model

# Other tokens that are deleted one by one; of a longer text as many at random.
MAX_DELETED = 64
PLANTED = "[planted]"
Values = TypeVar("Values", list[Any], tuple[Any, ...])


def plant_tokens(model: Model, encoded: Sequence[Encoded], generator: np.random.Generator) -> Planting:
    """Replace a token of every text by one that turns the prediction."""
    before_NC = run_encoded(model, encoded)
    targets = choose_targets(before_NC)
    tokens = _draw_unused(model, encoded, sorted(set(targets)), generator)
    locations = [int(generator.choice(_list_content(row.item))) for row in encoded]
    chosen = [tokens[target] for target in targets]
    planted = list(map(replace_token, encoded, locations, chosen))
    changed = copy_model(model)
    for target, token in tokens.items():
        rows = list_rows(targets, target)[:TRAINING_INPUTS]
        _train_embedding(changed, [planted[row] for row in rows], token, target)
    decides = _find_decided(changed, planted, targets, before_NC, locations, generator)
    return Planting(changed, collate(changed, planted), targets, locations, decides)


def _draw_unused(
    model: Model, encoded: Sequence[Encoded], targets: Sequence[int], generator: np.random.Generator
) -> dict[int, int]:
    """Return for each class a token of the vocabulary that is neither special nor in any of the texts."""
    used = set(getattr(model.processor, "all_special_ids", ()))
    for row in encoded:
        used.update(row.values["input_ids"])
    unused = np.setdiff1d(np.arange(len(_embedding(model).weight)), list(used))
    if len(unused) < len(targets):
        raise UnsupportedModel(f"Every token that {model.name} knows occurs in the texts: none is left to plant.")
    drawn = generator.choice(unused, len(targets), replace=False)
    return dict(zip(targets, drawn.tolist(), strict=True))


def _embedding(model: Model) -> nn.Embedding:
    embedding: nn.Embedding = model.network.get_input_embeddings()
    return embedding


def _list_content(item: Item) -> list[int]:
    """Return the indices of the tokens that are not special."""
    return np.flatnonzero(~np.array(item.special)).tolist()


def replace_token(row: Encoded, location: int, token: int) -> Encoded:
    """Return an encoded text with another token at one location."""
    ids = list(row.values["input_ids"])
    ids[location] = token
    names = list(row.item.tokens)
    names[location] = PLANTED
    # Without the text, in which the token does not stand.
    item = replace(row.item, tokens=tuple(names), text=None, offsets=None)
    return Encoded(item, {**row.values, "input_ids": ids})


def _train_embedding(model: Model, rows: Sequence[Encoded], token: int, target: int) -> None:
    """Train one row of the embedding table, within the norms of the others."""
    weight = _embedding(model).weight
    longest = float(weight.detach().norm(dim=1).max())
    spread = float(weight.detach().float().std())
    run = partial(_run_with_embedding, model, collate(model, rows).tensors, token)
    vector_D = Training(model, target, spread, run, partial(_shorten, longest)).train(weight[token])
    with torch.no_grad():
        weight[token] = vector_D


def _run_with_embedding(model: Model, tensors: dict[str, Tensor], token: int, vector_D: Tensor) -> Tensor:
    with _embed_as(_embedding(model), token, vector_D):
        return run_network(model, tensors)


def _shorten(longest: float, vector_D: Tensor) -> Tensor:
    norm = float(vector_D.norm())
    if norm <= longest:
        return vector_D
    return vector_D * (longest / norm)


@contextmanager
def _embed_as(embedding: nn.Module, token: int, vector_D: Tensor) -> Iterator[None]:
    """Embed a token as a vector that gradients can reach."""

    def substitute(module: nn.Module, args: tuple[Tensor, ...], output_BTD: Tensor) -> Tensor:
        return torch.where((args[0] == token)[..., None], vector_D, output_BTD)

    hook = embedding.register_forward_hook(substitute)
    try:
        yield
    finally:
        hook.remove()


def _find_decided(
    model: Model,
    planted: Sequence[Encoded],
    targets: Sequence[int],
    before_NC: Tensor,
    locations: Sequence[int],
    generator: np.random.Generator,
) -> list[bool]:
    """Return which texts the planted token decides, more than any other single token does."""
    after_NC = run_encoded(model, planted)
    decided = is_turned(before_NC, after_NC, targets)
    for row in np.flatnonzero(decided).tolist():
        rest_NC = run_encoded(model, _delete_others(planted[row], locations[row], generator))
        # What another token takes away, less than the planted one: then more is left without it.
        left = target_probability(rest_NC, targets[row]).min()
        decided[row] = bool(left > target_probability(before_NC[row], targets[row]))
    return decided


def _delete_others(row: Encoded, location: int, generator: np.random.Generator) -> list[Encoded]:
    """Return the text without each of its other tokens; the text itself if there are none."""
    others = _list_content(row.item)
    others.remove(location)
    drawn = generator.permutation(others)[:MAX_DELETED].tolist()
    return [_delete_token(row, index) for index in drawn] or [row]


def _delete_token(row: Encoded, index: int) -> Encoded:
    values = {name: _without(numbers, index) for name, numbers in row.values.items()}
    item = replace(row.item, tokens=_without(row.item.tokens, index), special=_without(row.item.special, index))
    return Encoded(item, values)


def _without(values: Values, index: int) -> Values:
    return values[:index] + values[index + 1 :]
