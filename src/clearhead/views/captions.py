"""The words that every view uses for numbers, methods and diagnostics."""

from typing import Any

from clearhead.attribution.method import METHODS
from clearhead.explanation import Explanation
from clearhead.views.text_spans import Piece, visible

DIAGNOSTICS = {
    "conservation_gap": "relevance conserved within {:.1g}",
    "completeness_gap": "completeness gap {:.2g}",
    "left_behind": "{:.2g} of the relevance stays with positions and the class token",
    "samples": "{} samples",
    "seed": "seed {}",
    "windows": "{} windows stitched together",
}


def number(value: float) -> str:
    """A relevance with its sign and three digits."""
    return "0" if value == 0 else f"{value:+.3g}"


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def spelling(explanation: Explanation) -> str:
    """The method with the options that differ from its defaults."""
    usual = METHODS[explanation.method].options if explanation.method in METHODS else {}
    given = [f"{key}={value}" for key, value in explanation.options.items() if usual.get(key) != value]
    return explanation.method + (f" ({', '.join(given)})" if given else "")


def headline(explanation: Explanation) -> str:
    """Label, probability and method in one line."""
    probability = "" if explanation.probability is None else f" {percent(explanation.probability)}"
    return f"{visible(explanation.label)}{probability} · {spelling(explanation)}"


def tip(piece: Piece, count: int) -> str:
    """What a pointer over a word tells: its tokens, its relevance, its rank."""
    return f"{' '.join(piece.tokens)} · {number(piece.relevance or 0.0)} · rank {piece.rank} of {count}"


def diagnostics_caption(explanation: Explanation) -> str:
    """What the explanation says of itself, for people."""
    found = explanation.diagnostics
    said = [_said(text, found[key]) for key, text in DIAGNOSTICS.items() if found.get(key) is not None]
    predicted, share = found.get("predicted"), found.get("predicted_probability")
    explained = explanation.label == predicted or explanation.label.startswith(f"{predicted} rather than ")
    if predicted is not None and share is not None and not explained:
        said.insert(0, f"the model predicts {visible(predicted)}, {percent(share)}")
    return " · ".join(said)


def _said(text: str, value: Any) -> str:
    return text.format(value)
