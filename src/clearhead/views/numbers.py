"""Numbers as people read them: shares in per cent, probabilities, effects in the unit of what is explained."""

import math

PROBABILITY = "probability"
# A change of shares between two models: of hundredths, as a probability.
SHARE_CHANGE = "share-change"
# Names of the units that effects and scores are measured in; a value, as of a regression, has none.
UNIT_NAMES = {
    PROBABILITY: "points",
    SHARE_CHANGE: "points",
    "logit": "logits",
    "log-prob": "nats",
    "log-odds": "log-odds",
}
MINUS = "−"


def format_relevance(value: float) -> str:
    """Format a raw relevance with its sign and three digits."""
    # Neither +0 nor -0 would mean anything.
    if value == 0:
        return "0"
    return f"{value:+.3g}"


def format_percent(share: float) -> str:
    """Format a share of 1 as a percentage with one decimal."""
    # What is rounded to zero has no sign.
    percent = round(share * 100, 1) or 0.0
    return f"{percent:.1f} %".replace("-", MINUS)


def format_share(share: float, *, signed: bool) -> str:
    """Format a share of 1 in few digits, with its sign where shares have one."""
    return f"{_add_sign(round_percent(abs(share)), share, signed=signed)} %"


def format_effect(value: float, unit: str) -> str:
    """Format a change of the explained score with its sign and unit: a probability changes by points."""
    return join_unit(_add_sign(format_size(abs(value), unit), value, signed=True), unit)


def format_size(size: float, unit: str) -> str:
    """Format the size of an effect without its unit."""
    if unit in (PROBABILITY, SHARE_CHANGE):
        return round_percent(size)
    return _round_value(size)


def format_score(score: float, unit: str, *, is_contrast: bool = False) -> str:
    """Format a score of the model; the difference of two probabilities is in points, as it may be negative."""
    if unit != PROBABILITY:
        return _add_sign(_round_value(abs(score)), score, signed=False)
    if is_contrast:
        return format_effect(score, unit)
    return f"{round_percent(score)} %"


def join_unit(number: str, unit: str) -> str:
    """Return a number with the name of its unit, if it has one."""
    return " ".join(filter(None, [number, UNIT_NAMES.get(unit)]))


def _add_sign(size: str, value: float, *, signed: bool) -> str:
    """Return the rounded size of a value with its sign."""
    # What is rounded to zero has no sign.
    if size == "0":
        return size
    if value < 0:
        return f"{MINUS}{size}"
    return f"+{size}" if signed and value > 0 else size


def round_percent(share: float) -> str:
    """Return a share of 1 as a number of hundredths: whole ones from 10 on, below it one decimal or one digit."""
    if not math.isfinite(share):
        return "?"
    percent = share * 100
    # 9.95 would be rounded to 10.0.
    if percent >= 9.95:
        return f"{percent:.0f}"
    if percent >= 0.095:
        return f"{percent:.1f}".removesuffix(".0")
    return _round_small(percent)


def _round_small(percent: float) -> str:
    if percent < 0.0005:
        return "0"
    return f"{percent:.1g}"


def _round_value(size: float) -> str:
    # Three digits of a large number would need an exponent.
    if size >= 1000:
        return f"{size:.0f}"
    return f"{size:.3g}"
