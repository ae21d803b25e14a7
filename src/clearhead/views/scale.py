"""The scale of an explanation: what its numbers mean, how they read, and which of them gets the full colour.

Every view takes both from here, so that an explanation has the same numbers and colours in all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.views.color import color_step
from clearhead.views.numbers import (
    PROBABILITY,
    SHARE_CHANGE,
    format_effect,
    format_score,
    format_share,
    format_size,
    join_unit,
    round_percent,
)
from clearhead.views.sink import split_sink
from clearhead.views.text_spans import (
    content_relevance,
    default_level,
    has_negative_text,
    is_image,
    scored_spans,
    split_segments,
)

SHARE = "share"
# The effect of the full colour: half of the certainty, or what changes an even chance to 88 %.
LIMITS = {PROBABILITY: 0.5, SHARE_CHANGE: 0.5, "logit": 2.0, "log-prob": 2.0, "log-odds": 2.0}
# The limit is that of one unit in twenty: of more units several can be expected to share an effect.
UNITS_PER_LIMIT = 20
# A heat map has a few outliers; scaled to the largest value everything else would look empty.
FULL_COLOR_PERCENTILE = 98
MEASURES = {
    PROBABILITY: "points of probability",
    SHARE_CHANGE: "points of all relevance",
    "logit": "logits",
    "log-prob": "nats of log-probability",
    "log-odds": "log-odds",
}


@dataclass(frozen=True)
class Scale:
    """What the numbers of an explanation mean.

    `measure` is "share", or the unit of effects: "probability", "logit", "log-prob", "log-odds" or "value". `full` is
    the relevance of the full colour, `total` that of all words or patches, `positive` its share that speaks for the
    label. `base` and `prediction` are the scores that effects lead from and to; the first is that of a baseline
    (`has_baseline`), or of the input with everything hidden. `units` says what has the relevance.
    """

    measure: str
    full: float
    total: float
    units: str
    signed: bool
    positive: float = 1.0
    base: float | None = None
    prediction: float | None = None
    is_contrast: bool = False
    has_baseline: bool = False

    @property
    def is_effect(self) -> bool:
        return self.measure != SHARE

    def format(self, relevance: float) -> str:
        """Format the relevance of a unit as a share of all relevance, or as an effect."""
        if self.is_effect:
            return format_effect(relevance, self.measure)
        return format_share(self.find_share(relevance), signed=self.signed)

    def format_distance(self, relevance: float) -> str:
        """Format the size of a relevance, without a sign."""
        if self.is_effect:
            return join_unit(format_size(abs(relevance), self.measure), self.measure)
        return f"{round_percent(abs(self.find_share(relevance)))} %"

    def find_share(self, relevance: float) -> float:
        """Return a relevance as a share of all; 0 where there is none."""
        if not self.total > 0:
            return 0.0
        return relevance / self.total

    def find_step(self, relevance: float | None) -> int:
        """Return the step of the colour scale, −9 … 9."""
        return color_step(relevance, self.full)

    @property
    def highest(self) -> str:
        """What the full colour for the label stands for."""
        return self.format(self.full)

    @property
    def lowest(self) -> str:
        """What the full colour against the label stands for."""
        return self.format(-self.full)

    @property
    def column(self) -> str:
        """The heading of a column of numbers."""
        return "effect" if self.is_effect else "share"

    @property
    def caption(self) -> str:
        """What the numbers are, in a sentence."""
        if self.is_effect:
            return f"Effects in {self._name_measure()}{self._describe_prediction()}."
        return f"Shares of all relevance on {self.units}{self._describe_sides()}."

    def _name_measure(self) -> str:
        return MEASURES.get(self.measure, "the unit of the prediction")

    def _describe_sides(self) -> str:
        if not self.signed:
            return ""
        return f": {round_percent(self.positive)} % for, {round_percent(1 - self.positive)} % against"

    def _describe_prediction(self) -> str:
        if self.prediction is None:
            return ""
        if self.base is None:
            return f", of {self.format_score(self.prediction)}"
        return f": {self.format_base(name_one(self.units))} → {self.format_score(self.prediction)}"

    def format_base(self, unit: str) -> str:
        """Format the score that effects lead from, and say of what it is the score."""
        score = self.format_score(self.base or 0.0)
        # The baselines of paths replace special tokens, too, and rarely by [MASK].
        if self.has_baseline:
            return f"{score} at the baseline"
        return f"{score} with every {unit} hidden"

    def format_score(self, score: float) -> str:
        """Format a score that effects lead from or to."""
        return format_score(score, self.measure, is_contrast=self.is_contrast)


def name_one(units: str) -> str:
    """Return the name of one of some units."""
    return units.removesuffix("es" if units == "patches" else "s")


def spread_effects(count: int) -> float:
    """Return among how many units the effect of the full colour is divided."""
    return max(1.0, count / UNITS_PER_LIMIT)


def make_scale(explanation: Explanation) -> Scale:
    """Return the scale of an explanation, by its words, or by its tokens where the script has no blanks between words.

    The tokens of those words are on it too, so that switching between them changes no colour's meaning.
    """
    relevance = _list_relevance(explanation)
    scale = _scale_shares(explanation, relevance)
    effect = read_effect(explanation)
    if effect is None:
        return scale
    return _scale_effects(scale, effect, len(relevance))


def read_effect(explanation: Explanation) -> Mapping[str, Any] | None:
    """Return unit, base and prediction of a method whose relevance is an effect on the score; None for others."""
    return find_effect(explanation.diagnostics)


def find_effect(diagnostics: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return unit, base and prediction of the effects that diagnostics tell of; None if there are none."""
    effect = diagnostics.get("effect")
    # Explanations of earlier versions have the size of the effect only.
    return effect if isinstance(effect, Mapping) else None


def _scale_shares(explanation: Explanation, relevance: Array) -> Scale:
    sizes = np.abs(relevance)
    total = float(sizes.sum())
    return Scale(
        measure=SHARE,
        full=_find_full(explanation, sizes),
        total=total,
        units=name_units(explanation),
        signed=_is_signed(explanation),
        positive=_find_positive_share(relevance, total),
        is_contrast=explanation.target.versus is not None,
        has_baseline="baseline" in explanation.diagnostics,
    )


def _find_positive_share(values: Array, total: float) -> float:
    return float(values[values > 0].sum()) / (total or 1.0)


def _scale_effects(scale: Scale, effect: Mapping[str, Any], count: int) -> Scale:
    """Return a scale whose full colour is a fixed effect, so that small effects look small."""
    full = find_full_effect(effect, count) or scale.full
    return replace(
        scale, measure=effect["unit"], full=full, base=effect.get("base"), prediction=effect.get("prediction")
    )


def find_full_effect(effect: Mapping[str, Any], count: int) -> float:
    """Return the effect of the full colour among so many units; 0 if nothing is known to compare it with."""
    # Values have no limits; compared with the prediction itself an effect can be judged all the same.
    known = [abs(effect[name]) for name in ("base", "prediction") if effect.get(name) is not None]
    limit: float = LIMITS.get(effect["unit"]) or max(known, default=0.0) / 2
    return limit / spread_effects(count)


def name_units(explanation: Explanation) -> str:
    """Return what has the relevance: "words", "tokens" or "patches"."""
    if is_image(explanation):
        return "patches"
    return f"{default_level(explanation)}s"


def _list_relevance(explanation: Explanation) -> Array:
    """Return the finite relevance of words or patches; the sink of an answer is no word."""
    values: Array = np.asarray(_list_values(explanation), dtype=float)
    finite: Array = values[np.isfinite(values)]
    return finite


def _list_values(explanation: Explanation) -> Sequence[float] | Array:
    if is_image(explanation):
        return content_relevance(explanation)
    if isinstance(explanation, AnswerExplanation):
        _, spans = split_sink(explanation, split_segments(explanation))
    else:
        spans = scored_spans(explanation)
    return [span.relevance_or_zero for span in spans]


def _find_full(explanation: Explanation, sizes: Array) -> float:
    if is_image(explanation):
        return _find_percentile(sizes)
    return float(sizes.max(initial=0.0))


def _find_percentile(sizes: Array) -> float:
    if not sizes.size:
        return 0.0
    # The percentile is 0 if fewer than two in a hundred patches have any relevance; then the largest value is used.
    return float(np.percentile(sizes, FULL_COLOR_PERCENTILE) or sizes.max())


def _is_signed(explanation: Explanation) -> bool:
    """Return whether anything speaks against the label."""
    if is_image(explanation):
        return bool((_finest_relevance(explanation) < 0).any())
    return has_negative_text(explanation) or _has_negative_steps(explanation)


def _has_negative_steps(explanation: Explanation) -> bool:
    """Return whether the matrix of an answer, whose rows views show too, has relevance against one of its steps."""
    matrix = getattr(explanation, "matrix", None)
    return matrix is not None and bool((matrix < 0).any())


def _finest_relevance(explanation: Explanation) -> Array:
    """Return the relevance of pixels, or of patches if the method has no pixels."""
    if explanation.pixels is None:
        return content_relevance(explanation)
    return explanation.pixels


def scale_pixels(explanation: Explanation, scale: Scale) -> Scale:
    """Return the scale of the finest map over an image: that of its pixels if the method has them."""
    pixels = explanation.pixels
    if pixels is None:
        return scale
    sizes = np.abs(pixels[np.isfinite(pixels)])
    # So many pixels lie in a patch: numbers are those of an area as large as one.
    area = max(1.0, pixels.size / max(1, int((~explanation.special).sum())))
    full = _find_percentile(sizes)
    if scale.is_effect:
        # Fixed, so that effects of nothing look like it; but effects of single pixels cancel, and may be far larger.
        full = max(full, scale.full / area)
    return replace(scale, full=full, total=float(sizes.sum()) / area)


def share_scales(explanations: Sequence[Explanation]) -> list[Scale]:
    """Return scales on which the same share has the same colour; effects have fixed colours anyway."""
    scales = list(map(make_scale, explanations))
    highest = max((scale.find_share(scale.full) for scale in scales if not scale.is_effect), default=0.0)
    return [_limit_share(scale, highest) for scale in scales]


def _limit_share(scale: Scale, share: float) -> Scale:
    """Return a scale whose full colour is a share; that of an effect stays as it is."""
    if scale.is_effect:
        return scale
    return replace(scale, full=share * scale.total)


def scale_values(values: Array, units: str) -> Scale:
    """Return the scale of shares of any numbers, such as those of attention heads; NaN does not count."""
    sizes = np.abs(np.nan_to_num(values))
    full, total = float(sizes.max(initial=0.0)), float(sizes.sum())
    return Scale(SHARE, full, total, units, bool((values < 0).any()), _find_positive_share(values, total))
