"""The result of testing one explanation by hiding and showing what it calls the strongest."""

from collections.abc import Mapping
from dataclasses import dataclass

HOLDS = "holds"
WEAK = "weak"
FAILS = "fails"
MIN_GROUPS = 5
"""The groups of units that are hidden and shown one after the other; of fewer no order could be rare enough."""
UNCHECKED = "unchecked"
"""The diagnostic that says why an explanation has no check."""


@dataclass(frozen=True)
class Check:
    """What the explained score does when the strongest units are hidden, or shown alone, beside others.

    Units are the words of a text, the patches of an image, or both; their `kind` is "word", "token", "patch", for a
    model that reads them together "word or patch", for methods that score these as wholes "sentence" or "source".
    `strongest` names the `count` units that were hidden, in the order of their relevance (empty for an image alone).
    `score` is that of the whole input; `hidden` and `shown` are the scores without the strongest units and with nothing
    else, `hidden_random` and `shown_random` the means over groups of as many other units. `scale` says what the scores
    are: "probability", "logit", "log-prob" or "value".

    `p_value` is the chance that a random order of the units does as well as the explanation; `percentile` is the share
    of random orders that it beats. `passes` counts the perturbed inputs that were run, `seed` drew random orders where
    there are too many to try all.
    """

    verdict: str
    strongest: tuple[str, ...]
    count: int
    units: int
    kind: str
    scale: str
    score: float
    hidden: float
    hidden_random: float
    shown: float
    shown_random: float
    p_value: float
    percentile: float
    passes: int
    seed: int


def summarise_verdicts(counts: Mapping[str, int]) -> str:
    """Say how many explanations hold, by how many have each verdict; "" for fewer than two."""
    total = sum(counts.values())
    if total < 2:
        return ""
    others = f"{counts.get(WEAK, 0):,} weak, {counts.get(FAILS, 0):,} failed"
    holding = counts.get(HOLDS, 0)
    return f"Check: {holding:,} of {total:,} explanations hold ({100 * holding / total:.0f} %), {others}."
