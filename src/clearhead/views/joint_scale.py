"""One scale and one legend for all inputs of a joint explanation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views.numbers import round_percent
from clearhead.views.scale import MEASURES, SHARE, Scale, make_scale, name_one, spread_effects
from clearhead.views.text_spans import content_relevance, is_image, scored_spans

MAX_MULTIPLE = 4.0
"""The multiple of an even share that has the full colour at most: a text of few words has no larger ones."""
ORDINALS = ("first", "second", "third")


@dataclass(frozen=True)
class InputScale(Scale):
    """The scale of one input; `meaning` says for all inputs what numbers and full colours are."""

    meaning: str = ""

    # A patch and a word may have different numbers at the ends of the legend: its caption tells them.
    lowest = ""
    highest = ""

    @property
    def caption(self) -> str:
        return self.meaning


@dataclass(frozen=True)
class Member:
    """An input with the scale that it has by itself, and how many patches or words it has."""

    scale: Scale
    count: int

    @property
    def unit(self) -> str:
        return name_one(self.scale.units)


def list_members(joint: JointExplanation) -> list[Explanation]:
    """Return the explanations as they are drawn: pictures by patches, which are on one scale with words."""
    return [replace(explanation, pixels=None) for explanation in joint.explanations]


def share_scale(joint: JointExplanation) -> list[InputScale]:
    """Return a scale for each input, with one unit, one meaning of colours and one legend for all.

    Effects are in the unit of the score. Other relevance is in shares: of each input's own relevance where two towers
    are compared, since how relevance divides between towers has no meaning; else of the relevance on all inputs. A
    picture has many patches and a text few words, so colours are multiples of an even share.
    """
    members = list(map(_make_member, list_members(joint)))
    if _have_one_effect(members):
        return _share_effects(members, is_tower=is_comparison(joint))
    if is_comparison(joint):
        return _share_each(members)
    return _share_all(members, name_inputs(joint))


def is_comparison(joint: JointExplanation) -> bool:
    """Return whether the inputs are those of two towers, which have a score for each text."""
    return bool(joint.diagnostics.get("scores"))


def _make_member(explanation: Explanation) -> Member:
    scale = make_scale(explanation)
    if _has_regions(explanation):
        scale = replace(scale, units="regions")
    return Member(scale, _count_units(explanation))


def _have_one_effect(members: Sequence[Member]) -> bool:
    # Explanations of earlier versions have a unit of their own for each input.
    measures = {member.scale.measure for member in members}
    return len(measures) == 1 and SHARE not in measures


def _share_effects(members: Sequence[Member], *, is_tower: bool) -> list[InputScale]:
    """Return scales on which the full colour is one effect, divided among the units of an input if they are many."""
    limit = max(member.scale.full * spread_effects(member.count) for member in members)
    fulls = [limit / spread_effects(member.count) for member in members]
    measure = MEASURES.get(members[0].scale.measure, "similarity" if is_tower else "the unit of the prediction")
    meaning = f"Effects in {measure}{_describe_scores(members)}. Full colour: {_name_per_unit(members, fulls)}."
    return [_join(member, meaning, full=full) for member, full in zip(members, fulls, strict=True)]


def _join(member: Member, meaning: str, **changes: Any) -> InputScale:
    return InputScale(**{**vars(member.scale), "meaning": meaning, **changes})


def _describe_scores(members: Sequence[Member]) -> str:
    """Return the scores that the effects on each input lead from, and the one that all lead to."""
    first = members[0].scale
    if first.prediction is None:
        return ""
    bases = list(_list_bases(members))
    if not bases:
        return f", of {first.format_score(first.prediction)}"
    return f": {', '.join(bases)} → {first.format_score(first.prediction)}"


def _list_bases(members: Sequence[Member]) -> Iterable[str]:
    for index, member in enumerate(members):
        if member.scale.base is not None:
            yield member.scale.format_base(_name_hidden(members, index))


def _name_hidden(members: Sequence[Member], index: int) -> str:
    """Return the unit of an input, and which input it is of where several have such units."""
    unit = members[index].unit
    same = [number for number, member in enumerate(members) if member.unit == unit]
    if len(same) == 1:
        return unit
    return f"{unit} of the {ORDINALS[same.index(index)]} text"


def _share_each(members: Sequence[Member]) -> list[InputScale]:
    """Return scales of shares of each input's own relevance."""
    totals = [member.scale.total for member in members]
    return _share_relevance(members, totals, "Shares of the relevance on each input", inputs=1)


def _share_all(members: Sequence[Member], units: str) -> list[InputScale]:
    """Return scales of shares of the relevance on all inputs."""
    total = sum(member.scale.total for member in members)
    positive = sum(member.scale.positive * member.scale.total for member in members) / (total or 1.0)
    whole = Scale(SHARE, 0.0, total, units, _has_sign(members), positive)
    meaning = whole.caption.removesuffix(".")
    return _share_relevance(members, [total] * len(members), meaning, inputs=len(members))


def _share_relevance(
    members: Sequence[Member], totals: Sequence[float], meaning: str, *, inputs: int
) -> list[InputScale]:
    """Return scales on which the full colour is a multiple of an even share.

    An even share is the relevance of a unit if all that share the total, and all units of each, had as much.
    """
    shared = [_count_total(member, total) for member, total in zip(members, totals, strict=True)]
    evens = [member.scale.total / (inputs * member.count) for member in shared]
    multiple = _find_multiple(members, evens)
    whole = f"{meaning}. Full colour: {multiple:.2g} times an even share, which is {_name_per_unit(shared, evens)}."
    signed = _has_sign(members)
    return [
        _join(member, whole, full=multiple * even, signed=signed) for member, even in zip(shared, evens, strict=True)
    ]


def _count_total(member: Member, total: float) -> Member:
    """Return an input whose numbers are shares of a total."""
    return replace(member, scale=replace(member.scale, measure=SHARE, total=total, signed=False))


def _find_multiple(members: Sequence[Member], evens: Sequence[float]) -> float:
    """Return how many even shares the full colour is: as many as the strongest unit has, up to a limit."""
    # An input without any relevance has no even share either.
    multiples = [member.scale.full / even for member, even in zip(members, evens, strict=True) if even > 0]
    return min(MAX_MULTIPLE, max(multiples, default=1.0))


def _has_sign(members: Sequence[Member]) -> bool:
    # One signed input is enough: colours mean the same on all.
    return any(member.scale.signed for member in members)


def _name_per_unit(members: Sequence[Member], values: Sequence[float]) -> str:
    """Return the sizes of a value of each input, with the names of the units that have it."""
    units: dict[str, dict[str, None]] = {}
    for member, value in zip(members, values, strict=True):
        units.setdefault(member.scale.format_distance(value), {})[member.unit] = None
    return ", ".join(f"{number} per {' or '.join(names)}" for number, names in units.items())


def _count_units(explanation: Explanation) -> int:
    # An input of special tokens alone has none.
    units = content_relevance(explanation) if is_image(explanation) else scored_spans(explanation)
    return max(1, len(units))


def name_inputs(joint: JointExplanation) -> str:
    """Return what the inputs are."""
    if joint.images:
        return "picture and text"
    return "regions and text" if any(map(_has_regions, joint.explanations)) else "both texts"


def describe_shares(joint: JointExplanation) -> str:
    """Return how the relevance divides among the inputs, in a sentence."""
    named = map(_name_share, joint.explanations, joint.shares)
    return f"Of all relevance, special tokens included: {', '.join(named)}."


def _name_share(explanation: Explanation, share: float) -> str:
    return f"{round_percent(share)} % on {_name_input(explanation)}"


def _name_input(explanation: Explanation) -> str:
    if is_image(explanation):
        return "the picture"
    if explanation.text is None:
        return "the regions" if _has_regions(explanation) else "the text"
    return f"“{explanation.text}”"


def _has_regions(explanation: Explanation) -> bool:
    """Return whether the tokens are regions of a picture, which have no text."""
    return explanation.text is None and explanation.tokens[:1] == ("region 0",)


def describe_score(joint: JointExplanation) -> str:
    """Return the explained score and what the other texts get, in a sentence."""
    scores = joint.diagnostics.get("scores", {})
    if not is_comparison(joint):
        return f"Score {_format_number(joint.score or 0)}."
    if len(scores) < 2:
        return f"Similarity {_format_number(joint.score or 0)}."
    return f"Similarities: {_list_scores(scores)}."


def _list_scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"“{text}” {_format_number(score)}" for text, score in scores.items())


def _format_number(score: float) -> str:
    # With the minus sign of all other numbers.
    return f"{score:.4g}".replace("-", "−")
