"""One scale for all inputs of a joint explanation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views.numbers import round_percent
from clearhead.views.scale import Scale, make_scale
from clearhead.views.text_spans import content_relevance, is_image, scored_spans


def list_members(joint: JointExplanation) -> list[Explanation]:
    """Return the explanations as they are drawn: pictures by patches, which are on one scale with words."""
    return [replace(explanation, pixels=None) for explanation in joint.explanations]


def share_scale(joint: JointExplanation) -> list[Scale]:
    """Return a scale for each input: shares of the relevance on all of them, and one meaning of colours.

    A picture has many patches and a text few words, so a colour stands for relevance per unit: the full colour is the
    largest such density of all inputs. Effects have fixed colours anyway.
    """
    members = list_members(joint)
    scales = list(map(make_scale, members))
    if _are_comparable(scales):
        return scales
    counts = list(map(_count_units, members))
    common = replace(_join_scales(scales), units=name_inputs(joint))
    density = _find_density(scales, counts)
    return [replace(common, full=density / count) for count in counts]


def _are_comparable(scales: Sequence[Scale]) -> bool:
    # Effects are in the unit of the score, which is the same for all inputs.
    return _add_totals(scales) == 0 or any(scale.is_effect for scale in scales)


def _add_totals(scales: Sequence[Scale]) -> float:
    return sum(scale.total for scale in scales)


def _find_density(scales: Sequence[Scale], counts: Sequence[int]) -> float:
    """Return the largest relevance per unit, which gets the full colour."""
    return max(scale.full * count for scale, count in zip(scales, counts, strict=True))


def _join_scales(scales: Sequence[Scale]) -> Scale:
    """Return the scale of all relevance together."""
    total = _add_totals(scales)
    positive = sum(scale.positive * scale.total for scale in scales) / total
    return replace(scales[0], total=total, signed=_has_sign(scales), positive=positive)


def _has_sign(scales: Sequence[Scale]) -> bool:
    # One signed input is enough: colours mean the same on all.
    return any(scale.signed for scale in scales)


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
    # Only two towers compare.
    if not scores:
        return f"Score {_format_number(joint.score or 0)}."
    if len(scores) < 2:
        return f"Similarity {_format_number(joint.score or 0)}."
    return f"Similarities: {_list_scores(scores)}."


def _list_scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"“{text}” {_format_number(score)}" for text, score in scores.items())


def _format_number(score: float) -> str:
    # With the minus sign of all other numbers.
    return f"{score:.4g}".replace("-", "−")
