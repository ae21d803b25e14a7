"""Two-tower models explained: both towers by the methods of single networks, the other side's embedding held.

The score of a pair is linear in either embedding, so the gradient of one tower with the other held is the gradient of
the whole model, and attention methods work on each tower by itself with the gradient of the score (Chefer et al., ICCV
2021, Section 3). Methods that divide a product among its factors give each tower half.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.attribution.method import MethodSpec
from clearhead.attribution.token_pairs import relate_tokens, require_pairs
from clearhead.errors import BadInput, BadOption
from clearhead.explanation import Comparison, Explanation, Explanations
from clearhead.joint_explanation import JointExplanation
from clearhead.model.inputs import open_image
from clearhead.model.model import Model
from clearhead.model.similarity import (
    embed_side,
    encode_one,
    encode_side,
    make_text_tower,
    make_tower,
    require_texts,
)
from clearhead.model.target import Target, TargetLike, explained_score, list_targets, resolve_target
from clearhead.model.two_towers import FIRST, SECOND, score_embeddings

CompareSide = Callable[..., Mapping[str, Any]]
"""`clearhead.compare` for one tower."""
SHARE = 0.5
"""What each of two factors gets of the relevance of their product."""
RULE_GAPS = ("conservation_gap", "dropped")
"""What relevance rules lose on the way."""
WORST = ("completeness_gap", *RULE_GAPS)
"""Diagnostics of which the worst of both sides counts."""


@dataclass(frozen=True)
class Pair:
    """A picture or text, and the texts that it is compared with; `is_choice` if they were given as a list."""

    first: Any
    texts: tuple[str, ...]
    is_choice: bool


@dataclass(frozen=True)
class ScoredPair:
    """A pair with the embedding of its first input, its scores, and what is explained of them."""

    pair: Pair
    embedding_D: Tensor
    logits_C: Tensor
    target: Target

    @property
    def label(self) -> str:
        """The text that is explained, or the one rather than the other."""
        texts = self.pair.texts
        if isinstance(self.target.versus, int):
            return f"{texts[self.target.number]} rather than {texts[self.target.versus]}"
        return texts[self.target.number]

    @property
    def explained(self) -> list[int]:
        """The texts that the explained score names."""
        if isinstance(self.target.versus, int):
            return [self.target.number, self.target.versus]
        return [self.target.number]

    @property
    def by_text(self) -> dict[str, float]:
        """The score of each text."""
        return dict(zip(self.pair.texts, self.logits_C.tolist(), strict=True))

    @property
    def score(self) -> float:
        return float(explained_score([self.target], self.logits_C[None].double())[0])


def is_pair(inputs: Any) -> bool:
    """Return whether this is one pair for a two-tower model, rather than a list of them."""
    return isinstance(inputs, tuple) and len(inputs) == 2 and not isinstance(inputs[0], tuple)


def compare_pairs(
    model: Model,
    inputs: Any,
    specs: Sequence[MethodSpec],
    target: TargetLike | Sequence[TargetLike],
    compare_side: CompareSide,
    *,
    overflow: str = "error",
    matrix: bool = False,
) -> Comparison:
    """Explain pairs by several methods: {method as written: JointExplanation, or list of them}.

    `matrix` adds the relevance of pairs of tokens.
    """
    if matrix:
        _require_all_pairs(specs)
    is_single = is_pair(inputs)
    pairs = _read_pairs(model, [inputs] if is_single else inputs)
    scored = _score_pairs(model, pairs, list_targets(target, len(pairs)), overflow)
    firsts = _explain_firsts(model, scored, specs, compare_side, overflow)
    texts = [_explain_texts(model, pair, specs, compare_side, overflow) for pair in scored]
    comparison = Comparison()
    for number, spec in enumerate(specs):
        joined: list[Any] = []
        for pair, first, own_texts in zip(scored, firsts, texts, strict=True):
            joint = _join(spec, pair, [first[number], *(text[number] for text in own_texts)])
            joined.append(_add_pairs(model, joint, pair, overflow) if matrix else joint)
        comparison[spec.text] = joined[0] if is_single else Explanations(joined)
    return comparison


def _require_all_pairs(specs: Sequence[MethodSpec]) -> None:
    for spec in specs:
        require_pairs(spec)


def _add_pairs(model: Model, joint: JointExplanation, scored: ScoredPair, overflow: str) -> JointExplanation:
    if scored.target.versus is not None:
        raise BadOption("Pairs of tokens are those of one text: leave out versus, or matrix=True.")
    text = scored.pair.texts[scored.target.number]
    pairs = relate_tokens(model, scored.pair.first, text, joint.method, overflow)
    # What the sum of all pairs leaves of the score: biases, and in AttnLRP the softmax.
    gap = abs(float(pairs.sum()) - joint.score) if joint.score is not None else None
    return replace(joint, pairs=pairs, diagnostics={**joint.diagnostics, "pairs_gap": gap})


def _read_pairs(model: Model, inputs: Any) -> list[Pair]:
    if not _is_list(inputs):
        raise _no_pair(model, inputs)
    return [_read_pair(model, source) for source in inputs]


def _is_list(inputs: Any) -> bool:
    # A text is a sequence, too.
    return isinstance(inputs, Sequence) and not isinstance(inputs, str) and len(inputs) > 0


def _read_pair(model: Model, source: Any) -> Pair:
    if not _is_pair(source):
        raise _no_pair(model, source)
    first, texts = source
    if model.network.takes_images:
        first = open_image(first)
    elif not isinstance(first, str):
        raise _no_pair(model, source)
    # A single text is a class of its own, without others to choose from.
    if isinstance(texts, str):
        return Pair(first, (texts,), is_choice=False)
    require_texts(texts)
    return Pair(first, tuple(texts), is_choice=True)


def _is_pair(source: Any) -> bool:
    return isinstance(source, tuple | list) and len(source) == 2


def _no_pair(model: Model, source: Any) -> BadInput:
    expected = (
        "(picture, text) or (picture, [texts])" if model.network.takes_images else "(text, text) or (text, [texts])"
    )
    described = source if isinstance(source, str | Path) else type(source).__name__
    return BadInput(f"{model.name} compares two inputs: give {expected}, or a list of such pairs, not {described!r}.")


def _score_pairs(model: Model, pairs: Sequence[Pair], targets: Sequence[TargetLike], overflow: str) -> list[ScoredPair]:
    """Return the pairs with their scores and resolved targets."""
    first_BD = embed_side(model, FIRST, [pair.first for pair in pairs], overflow)
    cache: dict[tuple[str, ...], Tensor] = {}
    scored = []
    for pair, embedding_D, target in zip(pairs, first_BD, targets, strict=True):
        # Many pictures are often compared with the same texts.
        if pair.texts not in cache:
            cache[pair.texts] = embed_side(model, SECOND, pair.texts, overflow)
        logits_C = score_embeddings(model.network, embedding_D[None], cache[pair.texts])[0].cpu()
        # Here and not in the towers: only all texts together tell which is the most similar.
        resolved = resolve_target(target, int(logits_C.argmax()), pair.texts)
        scored.append(ScoredPair(pair, embedding_D, logits_C, resolved))
    return scored


def _explain_firsts(
    model: Model, scored: Sequence[ScoredPair], specs: Sequence[MethodSpec], compare_side: CompareSide, overflow: str
) -> list[list[Explanation]]:
    """Return for each pair the explanations of its first input by each method."""
    explained: dict[int, list[Explanation]] = {}
    # Pictures that are compared with the same texts share batches.
    for texts, indices in _group_by_texts(scored).items():
        tower = make_tower(model, FIRST, embed_side(model, SECOND, texts, overflow), texts)
        sources = [scored[index].pair.first for index in indices]
        for batch in encode_side(model, FIRST, sources, overflow):
            chosen = [indices[row] for row in batch.indices]
            targets = [scored[index].target for index in chosen]
            comparison = compare_side(tower, batch.inputs, specs, targets)
            for row, index in enumerate(chosen):
                explained[index] = [comparison[spec.text][row] for spec in specs]
    return [explained[index] for index in range(len(scored))]


def _group_by_texts(scored: Sequence[ScoredPair]) -> dict[tuple[str, ...], list[int]]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, pair in enumerate(scored):
        groups.setdefault(pair.pair.texts, []).append(index)
    return groups


def _explain_texts(
    model: Model, scored: ScoredPair, specs: Sequence[MethodSpec], compare_side: CompareSide, overflow: str
) -> list[list[Explanation]]:
    """Return for each text that the score depends on its explanations by each method."""
    explained = []
    texts = scored.pair.texts
    for index in scored.explained:
        tower = make_text_tower(model, scored.embedding_D, texts, scored.logits_C, index)
        batch = encode_one(model, SECOND, texts[index], overflow)
        comparison = compare_side(tower, batch, specs, scored.target)
        explained.append([comparison[spec.text][0] for spec in specs])
    return explained


def _join(spec: MethodSpec, scored: ScoredPair, explanations: Sequence[Explanation]) -> JointExplanation:
    share = SHARE if spec.method.divides_products else 1.0
    # Of the first tower, whose classes are all texts that were given.
    probability = explanations[0].probability
    members = [_describe(explanation, scored, probability, share) for explanation in explanations]
    if scored.target.versus is not None:
        members[1:] = map(_forget_gaps, members[1:])
    return JointExplanation(
        tuple(members),
        score=scored.score,
        probability=probability,
        diagnostics=_join_diagnostics(members, scored),
    )


def _describe(explanation: Explanation, scored: ScoredPair, probability: float | None, share: float) -> Explanation:
    """Return an explanation of one side under the label of the pair, with its share of the relevance."""
    return replace(
        explanation,
        relevance=explanation.relevance * share,
        layers=_scale(explanation.layers, share),
        pixels=_scale(explanation.pixels, share),
        heads=_scale(explanation.heads, share),
        target=scored.target,
        label=scored.label,
        probability=probability,
    )


def _forget_gaps(text: Explanation) -> Explanation:
    """Return the explanation of a text of a contrast without its gaps."""
    # The score of the other text is held: its relevance reaches no word, which would count as lost.
    diagnostics = {name: value for name, value in text.diagnostics.items() if name not in RULE_GAPS}
    return replace(text, diagnostics=diagnostics)


def _scale(values: Any, share: float) -> Any:
    return None if values is None else values * share


def _join_diagnostics(members: Sequence[Explanation], scored: ScoredPair) -> dict[str, Any]:
    first = members[0].diagnostics
    joined = {name: first[name] for name in ("precision", "predicted", "predicted_probability") if name in first}
    joined |= {"score": scored.score, "scores": scored.by_text}
    for name in WORST:
        # A method may report a number on one side only.
        values = [member.diagnostics[name] for member in members if name in member.diagnostics]
        if values:
            joined[name] = max(values)
    return joined
