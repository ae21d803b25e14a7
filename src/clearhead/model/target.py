"""The output of the model, or the contrast of two outputs, that is explained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import Argument, BadInput
from clearhead.registry import unknown_name
from clearhead.validation import as_integer

LOG_PROB = "log-prob"
LOGIT = "logit"
SCALES = (LOG_PROB, LOGIT)
# Of the first token of an entity; some schemes mark it only where two entities meet.
ENTITY_PREFIXES = ("B-", "I-")


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


@dataclass(frozen=True, eq=False)
class AnswerTarget(Target):
    """What is explained of a language model's answer: some of its steps, together.

    `steps` are indices of the answer's tokens and `tokens` their ids. With a `foil`, the ids of as many other tokens,
    the difference of logits is explained; otherwise `scale` says whether log-probabilities or logits are.
    """

    steps: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    foil: tuple[int, ...] | None = None
    scale: str = LOG_PROB

    def _key(self) -> object:
        return (self.steps, self.tokens, self.foil, self.scale)


TargetLike = Target | int | str | None


def contrast_targets(target: Any, versus: Any) -> Any:
    """Return targets that are contrasted with other classes; either is one for all inputs, or a list."""
    if isinstance(target, list) or isinstance(versus, list):
        return _contrast_each(target, versus)
    return _make_contrast(target, versus)


def _contrast_each(target: Any, versus: Any) -> list[Target]:
    count = len(versus) if isinstance(versus, list) else len(target)
    pairs = list_targets(target, count), list_targets(versus, count)
    return [_make_contrast(*pair) for pair in zip(*pairs, strict=True)]


def _make_contrast(target: Any, versus: Any) -> Target:
    if isinstance(target, Target):
        if target.versus is not None or target.span is not None:
            raise BadInput(f"{target} says already what is contrasted: leave out 'versus'.")
        target = target.index
    return Target(target, versus=versus)


SignedSeed = tuple[int, Tensor]
Span = tuple[int | None, int | None]
# Row and class, or row, side (0 start, 1 end) and token of a span.
Index = tuple[int, ...]


def resolve_target(target: TargetLike, predicted: int, labels: Sequence[str]) -> Target:
    """Replace labels by class indices and None by the prediction; raise BadInput if the model has no such class."""
    target = _as_target(target)
    _require_no_span(target)
    index = _index_or_prediction(target, predicted, labels)
    if target.versus is None:
        return Target(index)
    return _contrast(index, class_index(target.versus, labels), labels)


def _require_no_span(target: Target) -> None:
    if target.span is not None:
        raise BadInput("A span target needs a question-answering model; give a class index or label instead.")


def _index_or_prediction(target: Target, predicted: int, labels: Sequence[str]) -> int:
    if target.index is None:
        return predicted
    return class_index(target.index, labels)


def list_targets(target: Any, count: int) -> list[TargetLike]:
    """Return one target per input, from one target for all or a list."""
    if not isinstance(target, list | tuple):
        return [target] * count
    if len(target) != count:
        raise _wrong_target_count(len(target), count)
    return list(target)


def _wrong_target_count(targets: int, inputs: int) -> BadInput:
    return BadInput(f"{targets} targets were given for {inputs} inputs: give one for all, or one for each.")


def _contrast(index: int, versus: int, labels: Sequence[str]) -> Target:
    # Compared as indices: a label and its number may name the same class.
    if index == versus:
        raise _contrast_with_itself(labels[index])
    return Target(index, versus)


def _contrast_with_itself(label: str) -> BadInput:
    message = f"Class '{label}' cannot be contrasted with itself: choose another "
    return BadInput(message, Argument("versus"), ".")


def class_index(name: Any, labels: Sequence[str]) -> int:
    """Return the index of a class given by index or label."""
    if isinstance(name, str):
        return _find_label(name, labels)
    index = _parse_index(name)
    _validate_class(index, len(labels))
    return index


def _parse_index(name: Any) -> int:
    index = as_integer(name)
    if index is None:
        raise BadInput(f"Invalid target {name!r}: give a class index, a label or a Target.")
    return index


def _validate_class(index: int, classes: int) -> None:
    if classes == 0:
        raise BadInput(f"Invalid target {index}: the model's config names no classes. Set config.id2label.")
    if not 0 <= index < classes:
        raise BadInput(f"Invalid target {index}: this model has classes 0 … {classes - 1}.")


def resolve_span(target: TargetLike, logits_2T: Tensor) -> Target:
    """Validate a span target against the logits of the real tokens; None becomes the most probable span."""
    target = _as_target(target)
    _require_no_class(target)
    if target.span is None:
        return Target(span=_best_span(logits_2T))
    return Target(span=_parse_span(target.span, logits_2T.shape[-1]))


def _require_no_class(target: Target) -> None:
    # The logits of a span are tokens: a class index would silently name a token.
    if target.index is not None or target.versus is not None:
        target_argument, versus = Argument("target"), Argument("versus")
        raise BadInput(
            *("This model answers with a span, not with a class: leave out ", target_argument, " and ", versus),
            " to explain its own, or give Target(span=(start, end)) in Python.",
        )


def span_sides(span: Span) -> list[tuple[int, int]]:
    """Return the positions that a span names, each with its side: 0 start, 1 end."""
    return [(side, position) for side, position in enumerate(span) if position is not None]


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
    if isinstance(targets[0], AnswerTarget):
        return _make_answer_seeds(targets, logits)
    first, second = _collect_indices(targets)
    signed = ((1, first), (_second_sign(targets), second))
    # Without contrasts and spans there is no second pass to pay for.
    return [(sign, _one_hot(indices, logits)) for sign, indices in signed if indices]


def _collect_indices(targets: Sequence[Target]) -> tuple[list[Index], list[Index]]:
    """Return the indices that the first and the second pass start from."""
    first: list[Index] = []
    second: list[Index] = []
    for row, target in enumerate(targets):
        indices = _seed_indices(row, target)
        first += indices[:1]
        second += indices[1:]
    return first, second


def _make_answer_seeds(targets: Sequence[Any], logits_BNV: Tensor) -> list[SignedSeed]:
    """Return the seeds of answers: their tokens, and what these are contrasted with.

    The gradient of log p is that of the token's logit minus the mean of all logits under the model's distribution.
    """
    chosen: list[tuple[int, ...]] = []
    foils: list[tuple[int, ...]] = []
    for row, target in enumerate(targets):
        chosen += _step_indices(row, target.steps, target.tokens)
        foils += _step_indices(row, target.steps, target.foil or ())
    seeds = [(1, _one_hot(chosen, logits_BNV))]
    if foils:
        seeds.append((-1, _one_hot(foils, logits_BNV)))
    elif targets[0].scale == LOG_PROB:
        seeds.append((-1, _distribution_at(chosen, logits_BNV)))
    return seeds


def _step_indices(row: int, steps: Sequence[int], tokens: Sequence[int]) -> list[tuple[int, ...]]:
    # Without a foil there are no tokens.
    return [(row, step, token) for step, token in zip(steps, tokens, strict=False)]


def _distribution_at(indices: list[tuple[int, ...]], logits_BNV: Tensor) -> Tensor:
    """Return the model's distribution at the steps of some tokens, zero elsewhere."""
    explained_BN = torch.zeros(logits_BNV.shape[:2], dtype=torch.bool)
    for row, step, _ in indices:
        explained_BN[row, step] = True
    explained_BN1 = explained_BN[..., None].to(logits_BNV.device)
    return logits_BNV.detach().softmax(-1) * explained_BN1


def explained_score(targets: Sequence[Target], logits: Tensor) -> Tensor:
    """Return the score that is explained, for each row of logits, differentiably.

    It is linear in the logits, but for the log-probability of an answer.
    """
    first = targets[0]
    if isinstance(first, AnswerTarget) and first.foil is None and first.scale == LOG_PROB:
        seed = _make_answer_seeds(targets, logits.detach())[0][1]
        return (logits.log_softmax(-1) * seed).flatten(1).sum(1)
    direction = _sum_seeds(make_seeds(targets, logits.detach()))
    return (logits * direction).flatten(1).sum(1)


def _sum_seeds(seeds: Sequence[SignedSeed]) -> Tensor:
    total = seeds[0][0] * seeds[0][1]
    for sign, seed in seeds[1:]:
        total = total + sign * seed
    return total


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
    """Return the index of a label, ignoring case only if no label has the same case.

    An entity may be named without the mark of its first token: PER for B-PER.
    """
    indices = _positions_of(name, labels) or _positions_ignoring_case(name, labels)
    for prefix in ENTITY_PREFIXES:
        indices = indices or _positions_ignoring_case(prefix + name, labels)
    if not indices:
        raise unknown_name("label", name, list(labels))
    if len(indices) > 1:
        raise _ambiguous_label(name, indices)
    return indices[0]


def _ambiguous_label(name: str, indices: Sequence[int]) -> BadInput:
    # Nothing keeps a config from giving two classes the same name.
    choices = ", ".join(map(str, indices))
    return BadInput(f"{len(indices)} classes are called '{name}': give the index of one of them ({choices}).")


def _positions_of(name: str, labels: Sequence[str]) -> list[int]:
    return [index for index, label in enumerate(labels) if label == name]


def _positions_ignoring_case(name: str, labels: Sequence[str]) -> list[int]:
    return _positions_of(name.casefold(), [label.casefold() for label in labels])


def _validate_span(span: Span, tokens: int, original: Any) -> None:
    """Raise BadInput unless the span lies within the tokens; `original` is the span as it was given."""
    if span == (None, None):
        raise BadInput("A span target needs a start, an end, or both.")
    if not _is_within(span, tokens):
        raise BadInput(f"Span {original} lies outside the {tokens} tokens of the input.")
    if _is_reversed(*span):
        raise BadInput(f"Span {original} ends before it starts: give (start, end).")


def _is_within(span: Span, tokens: int) -> bool:
    return all(0 <= position < tokens for _, position in span_sides(span))


def _is_reversed(start: int | None, end: int | None) -> bool:
    return start is not None and end is not None and end < start


def _parse_span(span: Any, tokens: int) -> Span:
    """Return start and end as plain integers, of which one may be None; raise BadInput if the span is invalid."""
    _require_pair(span)
    start, end = (_parse_position(position, span) for position in span)
    _validate_span((start, end), tokens, span)
    return start, end


def _require_pair(span: Any) -> None:
    if not isinstance(span, tuple | list) or len(span) != 2:
        raise BadInput(f"Span {span!r} is not a pair of token positions: give (start, end).")


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


def _seed_indices(row: int, target: Target) -> list[Index]:
    """Return the indices into the logits of a resolved target: one, or two for a contrast or a whole span."""
    if target.span is not None:
        return [(row, *side) for side in span_sides(target.span)]
    return [(row, index) for index in (target.number, target.versus) if isinstance(index, int)]


def _one_hot(indices: list[Index], logits: Tensor) -> Tensor:
    """Return zeros in the shape of the logits with a one at each index."""
    # Filled on the CPU, whatever the default device is, and copied once: no indexed write has to wait for a GPU.
    seed = torch.zeros_like(logits, device="cpu")
    seed[tuple(torch.tensor(indices, device="cpu").mT)] = 1
    return seed.to(logits.device)
