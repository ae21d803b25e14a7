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

    `index` and `versus` are class numbers or labels; `span` is (start, end) positions of tokens without padding,
    either of which may be None to explain the other alone. Without any of them the prediction is meant.

    >>> Target(2, versus=0).index
    2
    """

    index: int | str | None = None
    versus: int | str | None = None
    span: tuple[int | None, int | None] | None = None

    @property
    def number(self) -> int:
        """The class number of a resolved target."""
        assert isinstance(self.index, int)
        return self.index

    def _key(self) -> object:
        plain = self.versus is None and self.span is None
        return self.index if plain else (self.index, self.versus, self.span)

    def __eq__(self, other: object) -> bool:
        """A plain class target equals its index, so `explanation.target == 1` reads as one expects."""
        return self._key() == (other._key() if isinstance(other, Target) else other)

    def __hash__(self) -> int:
        return hash(self._key())


TargetLike = Target | int | str | None


def resolve_target(target: TargetLike, predicted: int, labels: Sequence[str]) -> Target:
    """The same target with numbers for labels and the prediction for None, checked against the model."""
    wanted = target if isinstance(target, Target) else Target(target)
    if wanted.span is not None:
        raise BadInput("A span target needs a question-answering model; give a class index or label instead.")
    index = predicted if wanted.index is None else class_index(wanted.index, labels)
    versus = None if wanted.versus is None else class_index(wanted.versus, labels)
    if index == versus:
        found = f"Class '{labels[index]}' cannot be contrasted with itself: choose another "
        raise BadInput(found, Argument("versus"), ".")
    return Target(index, versus)


def class_index(name: Any, labels: Sequence[str]) -> int:
    """The number of a class given by number or label."""
    if isinstance(name, str):
        return _labelled(name, labels)
    number = as_integer(name)
    if number is None:
        raise BadInput(f"Target {name!r} is neither the number nor the label of a class, nor a Target.")
    if not 0 <= number < len(labels):
        raise BadInput(f"Target {number} is not a class of this model, which has classes 0 … {len(labels) - 1}.")
    return number


def _labelled(name: str, labels: Sequence[str]) -> int:
    for spell in (str, str.casefold):
        places = [place for place, label in enumerate(labels) if spell(label) == spell(name)]
        if len(places) == 1:
            return places[0]
        if places:
            numbers = ", ".join(map(str, places))
            raise BadInput(f"{len(places)} classes are called '{name}': give the number of one of them ({numbers}).")
    raise unknown_name("label", name, list(labels))


def resolve_span(target: TargetLike, logits_2T: Tensor) -> Target:
    """The same span, or the best one for None, checked against the input; the logits are those of real tokens."""
    wanted = target if isinstance(target, Target) else Target(target)
    if wanted.index is not None or wanted.versus is not None:
        raise BadInput("This model answers with a span: give Target(span=(start, end)), or None for its own.")
    if wanted.span is None:
        return Target(span=_best_span(logits_2T))
    start, end = _ends(wanted.span)
    if any(place is not None and not 0 <= place < logits_2T.shape[-1] for place in (start, end)):
        raise BadInput(f"Span {wanted.span} lies outside the {logits_2T.shape[-1]} tokens of the input.")
    if start is not None and end is not None and end < start:
        raise BadInput(f"Span {wanted.span} ends before it starts: give (start, end).")
    return Target(span=(start, end))


def _ends(span: Any) -> tuple[int | None, int | None]:
    """Start and end as plain numbers, at least one of which there must be."""
    if not isinstance(span, tuple | list) or len(span) != 2:
        raise BadInput(f"Span {span!r} is not a pair of token positions: give (start, end).")
    start, end = (None if place is None else as_integer(place) for place in span)
    if any(place is not None and found is None for place, found in zip(span, (start, end), strict=True)):
        raise BadInput(f"Span {span!r} holds something else than whole numbers and None: give positions of tokens.")
    if start is end is None:
        raise BadInput("A span target needs a start, an end, or both.")
    return start, end


def shift_span(target: Target, places: Mapping[int, int]) -> Target:
    """The same span with each position told otherwise: that of a real token among all of its row, or back."""
    if target.span is None:
        return target
    start, end = (None if place is None else places[place] for place in target.span)
    return Target(span=(start, end))


def _best_span(logits_2T: Tensor) -> tuple[int, int]:
    """The most probable pair with start ≤ end."""
    pairs_TT = logits_2T[0][:, None] + logits_2T[1][None, :]
    allowed = torch.ones_like(pairs_TT, dtype=torch.bool).triu()
    best = int(pairs_TT.masked_fill(~allowed, -torch.inf).argmax())
    return divmod(best, logits_2T.shape[-1])


def make_seeds(targets: Sequence[Target], logits: Tensor) -> list[tuple[int, Tensor]]:
    """One-hot starting points with their signs: one per class, two for a contrast or a span.

    The gradient is that of Σ sign · ⟨seed, logits⟩; relevance is Σ sign · (the pass from that seed), because
    one pass started at +1 and −1 would carry a total of zero, which the add rule cannot normalise.
    """
    first: list[tuple[int, ...]] = []
    second: list[tuple[int, ...]] = []
    sign = 1
    for row, target in enumerate(targets):
        if target.span is not None:
            places = [(row, place, position) for place, position in enumerate(target.span) if position is not None]
            for seed, place in zip((first, second), places, strict=False):
                seed.append(place)
        else:
            first.append((row, target.number))
            if isinstance(target.versus, int):
                second.append((row, target.versus))
                sign = -1
    return [(sign, _ones_at(places, logits)) for sign, places in ((1, first), (sign, second)) if places]


def _ones_at(places: list[tuple[int, ...]], like: Tensor) -> Tensor:
    seed = torch.zeros_like(like, device="cpu")
    seed[tuple(torch.tensor(places, device="cpu").mT)] = 1
    return seed.to(like.device)


def target_score(seeds: Sequence[tuple[int, Tensor]], logits: Tensor) -> Tensor:
    """Σ sign · ⟨seed, logits⟩ of each row: the number that is explained."""
    return torch.stack([sign * (seed * logits).flatten(1).sum(1) for sign, seed in seeds]).sum(0)
