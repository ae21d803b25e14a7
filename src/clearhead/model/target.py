"""The output of the model, or the contrast of two outputs, that is explained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import Argument, BadInput
from clearhead.registry import unknown_name
from clearhead.validation import as_integer


@dataclass(frozen=True, eq=False)
class Target:
    """What is explained: a class, a class against another (`versus`), or an answer span.

    `index` and `versus` are class indices or labels; `span` is (start, end) positions of tokens without padding,
    either of which may be None to explain the other alone. Without any of them the prediction is explained.

    >>> Target(2, versus=0).index
    2
    """

    index: int | str | None = None
    versus: int | str | None = None
    span: tuple[int | None, int | None] | None = None

    @property
    def number(self) -> int:
        """The class index of a resolved target."""
        assert isinstance(self.index, int)
        return self.index

    def _key(self) -> object:
        # A plain class target hashes and compares like its index.
        if self.versus is None and self.span is None:
            return self.index
        return (self.index, self.versus, self.span)

    def __eq__(self, other: object) -> bool:
        """Compare with a Target or, for a plain class target, with its index: `explanation.target == 1`."""
        if isinstance(other, Target):
            return self._key() == other._key()
        return self._key() == other

    def __hash__(self) -> int:
        return hash(self._key())


TargetLike = Target | int | str | None
SignedSeed = tuple[int, Tensor]


def resolve_target(target: TargetLike, predicted: int, labels: Sequence[str]) -> Target:
    """Replace labels by class indices and None by the prediction; raise BadInput if the model has no such class."""
    target = _as_target(target)
    if target.span is not None:
        raise BadInput("A span target needs a question-answering model; give a class index or label instead.")
    index = predicted
    if target.index is not None:
        index = class_index(target.index, labels)
    if target.versus is None:
        return Target(index)
    return _contrast(index, class_index(target.versus, labels), labels)


def _contrast(index: int, versus: int, labels: Sequence[str]) -> Target:
    # Compared as indices: a label and its number may name the same class.
    if index == versus:
        message = f"Class '{labels[index]}' cannot be contrasted with itself: choose another "
        raise BadInput(message, Argument("versus"), ".")
    return Target(index, versus)


def class_index(name: Any, labels: Sequence[str]) -> int:
    """Return the index of a class given by index or label."""
    if isinstance(name, str):
        return _find_label(name, labels)
    index = as_integer(name)
    if index is None:
        raise BadInput(f"Invalid target {name!r}: give a class index, a label or a Target.")
    if not 0 <= index < len(labels):
        raise BadInput(f"Invalid target {index}: this model has classes 0 … {len(labels) - 1}.")
    return index


def resolve_span(target: TargetLike, logits_2T: Tensor) -> Target:
    """Validate a span target against the logits of the real tokens; None becomes the most probable span."""
    target = _as_target(target)
    if target.index is not None or target.versus is not None:
        raise BadInput("This model answers with a span: give Target(span=(start, end)), or None for its own.")
    if target.span is None:
        return Target(span=_best_span(logits_2T))
    span = _parse_span(target.span)
    _validate_span(span, logits_2T.shape[-1], target.span)
    return Target(span=span)


def shift_span(target: Target, positions: Mapping[int, int]) -> Target:
    """Map span positions between padded and unpadded indices."""
    if target.span is None:
        return target
    start, end = target.span
    return Target(span=(_shift_position(start, positions), _shift_position(end, positions)))


def _shift_position(position: int | None, positions: Mapping[int, int]) -> int | None:
    if position is None:
        return None
    return positions[position]


def make_seeds(targets: Sequence[Target], logits: Tensor) -> list[SignedSeed]:
    """Return (sign, one-hot seed) pairs to start backward passes from: one for classes, two for a contrast or a span.

    The gradient is that of Σ sign · ⟨seed, logits⟩; relevance is Σ sign · (the pass from that seed), because
    one pass started at +1 and −1 would carry a total of zero, which the add rule cannot normalise.
    """
    first: list[tuple[int, ...]] = []
    second: list[tuple[int, ...]] = []
    for row, target in enumerate(targets):
        indices = _seed_indices(row, target)
        first += indices[:1]
        second += indices[1:]
    seeds = []
    if first:
        seeds.append((1, _one_hot(first, logits)))
    # Without contrasts and spans there is no second pass to pay for.
    if second:
        seeds.append((_second_sign(targets), _one_hot(second, logits)))
    return seeds


def _second_sign(targets: Sequence[Target]) -> int:
    """Return −1 for contrasts, which subtract their second class; a span adds its end to its start."""
    if any(target.versus is not None for target in targets):
        return -1
    return 1


def target_score(seeds: Sequence[SignedSeed], logits: Tensor) -> Tensor:
    """Return Σ sign · ⟨seed, logits⟩ of each row: the score that is explained."""
    terms = [sign * (seed * logits).flatten(1).sum(1) for sign, seed in seeds]
    return torch.stack(terms).sum(0)


def _as_target(target: TargetLike) -> Target:
    if isinstance(target, Target):
        return target
    return Target(target)


def _find_label(name: str, labels: Sequence[str]) -> int:
    """Return the index of a label, ignoring case only if no label has the same case."""
    indices = _positions_of(name, labels)
    if not indices:
        folded_labels = [label.casefold() for label in labels]
        indices = _positions_of(name.casefold(), folded_labels)
    if not indices:
        raise unknown_name("label", name, list(labels))
    if len(indices) > 1:
        choices = ", ".join(map(str, indices))
        raise BadInput(f"{len(indices)} classes are called '{name}': give the index of one of them ({choices}).")
    return indices[0]


def _positions_of(name: str, labels: Sequence[str]) -> list[int]:
    return [index for index, label in enumerate(labels) if label == name]


def _validate_span(span: tuple[int | None, int | None], tokens: int, original: Any) -> None:
    """Raise BadInput unless the span lies within the tokens; `original` is the span as it was given."""
    start, end = span
    if not _is_position(start, tokens) or not _is_position(end, tokens):
        raise BadInput(f"Span {original} lies outside the {tokens} tokens of the input.")
    if start is not None and end is not None and end < start:
        raise BadInput(f"Span {original} ends before it starts: give (start, end).")


def _is_position(position: int | None, tokens: int) -> bool:
    # None stands for the side that is not explained.
    return position is None or 0 <= position < tokens


def _parse_span(span: Any) -> tuple[int | None, int | None]:
    """Return start and end as plain integers, of which one may be None."""
    if not isinstance(span, tuple | list) or len(span) != 2:
        raise BadInput(f"Span {span!r} is not a pair of token positions: give (start, end).")
    start, end = (_parse_position(position, span) for position in span)
    if start is None and end is None:
        raise BadInput("A span target needs a start, an end, or both.")
    return start, end


def _parse_position(position: Any, span: Any) -> int | None:
    if position is None:
        return None
    index = as_integer(position)
    if index is None:
        raise BadInput(f"Invalid span {span!r}: token positions are integers or None.")
    return index


def _best_span(logits_2T: Tensor) -> tuple[int, int]:
    """Return the most probable (start, end) with start ≤ end."""
    start_T, end_T = logits_2T
    # Start and end are independent: the sum of their logits orders the pairs like the product of probabilities.
    scores_TT = start_T[:, None] + end_T[None, :]
    allowed_TT = torch.ones_like(scores_TT, dtype=torch.bool).triu()
    best = int(scores_TT.masked_fill(~allowed_TT, -torch.inf).argmax())
    return divmod(best, logits_2T.shape[-1])


def _seed_indices(row: int, target: Target) -> list[tuple[int, ...]]:
    """Return the indices into the logits of a resolved target: one, or two for a contrast or a whole span."""
    if target.span is not None:
        return [(row, side, position) for side, position in enumerate(target.span) if position is not None]
    indices: list[tuple[int, ...]] = [(row, target.number)]
    if isinstance(target.versus, int):
        indices.append((row, target.versus))
    return indices


def _one_hot(indices: list[tuple[int, ...]], logits: Tensor) -> Tensor:
    """Return zeros in the shape of the logits with a one at each index."""
    # Filled on the CPU, whatever the default device is, and copied once: no indexed write has to wait for a GPU.
    seed = torch.zeros_like(logits, device="cpu")
    seed[tuple(torch.tensor(indices, device="cpu").mT)] = 1
    return seed.to(logits.device)
