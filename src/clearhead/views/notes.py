"""Notes below an explanation: what lies on special tokens, the error bar, and diagnostics."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from clearhead.explanation import Explanation
from clearhead.model.coverage import READ_SHARE, UNKNOWN_SHARE, UNKNOWN_TOKEN
from clearhead.views.numbers import format_percent, format_share
from clearhead.views.text_spans import escape_hidden, special_tokens
from clearhead.views.trust import format_error, format_unchecked

MAX_SPECIAL_TOKENS = 6
CUT_NOTE = "Only {} of the text was read; the rest was cut off."
UNKNOWN_NOTE = "{} of the tokens are unknown to the model, which reads {} in their place."
# Diagnostics that a reader of the view can judge; the others are in the JSON record.
DIAGNOSTICS = {
    "identity_share": "identity path removed, {:.4g} of the total",
    "left_behind": "{:.2g} of the relevance stays with positions and the class token",
    "samples": "{} samples",
    "seed": "seed {}",
    "windows": "{} windows stitched together",
    "chosen": "{}",
    "auto": "auto chose {}",
}
SINGULAR = {"1 samples": "1 sample"}


def format_notes(explanation: Explanation) -> list[str]:
    """Format what was not read, special tokens, error bar and diagnostics, as far as there are any."""
    notes = [format_special(explanation), *format_trust(explanation)]
    return [*format_coverage(explanation), *filter(None, notes)]


def format_trust(explanation: Explanation) -> list[str]:
    """Format why there is no check, the error bar and diagnostics, each of which may be empty."""
    return [format_unchecked(explanation), format_error(explanation), format_diagnostics(explanation)]


def format_reliability(explanation: Explanation) -> list[str]:
    """Format why there is no check and the error bar, for views that compare methods."""
    return list(filter(None, [format_unchecked(explanation), format_error(explanation)]))


def format_coverage(explanation: Explanation) -> list[str]:
    """Format how much of the text was cut off, and how much of it the model does not know."""
    diagnostics = explanation.diagnostics
    notes = []
    if READ_SHARE in diagnostics:
        notes.append(CUT_NOTE.format(format_percent(diagnostics[READ_SHARE])))
    if UNKNOWN_SHARE in diagnostics:
        share = format_percent(diagnostics[UNKNOWN_SHARE])
        notes.append(UNKNOWN_NOTE.format(share, escape_hidden(diagnostics[UNKNOWN_TOKEN])))
    return notes


def format_special(explanation: Explanation) -> str:
    """Format the shares of all relevance that lie on special tokens, which words and patches share the rest of."""
    tokens = _list_special(explanation)
    if not tokens:
        return ""
    shares = [f"{escape_hidden(token)} {format_share(share, signed=False)}" for token, share in tokens]
    rest = len(shares) - MAX_SPECIAL_TOKENS
    if rest > 0:
        shares[MAX_SPECIAL_TOKENS:] = [f"{rest} more"]
    return (
        f"Not counted: {', '.join(shares)} of all relevance, as {escape_hidden(_name_method(explanation))} defines it."
    )


def _name_method(explanation: Explanation) -> str:
    """Return the method that the relevance comes from: that which auto chose, whose score is the first."""
    scores = explanation.diagnostics.get("auto_scores") or [explanation.method]
    return str(next(iter(scores)))


def _list_special(explanation: Explanation) -> list[tuple[str, float]]:
    """Return the tokens outside of the text that have any relevance, with their shares of all."""
    sizes = np.abs(explanation.relevance)
    total = float(sizes[np.isfinite(sizes)].sum()) or 1.0
    tokens = []
    for token, relevance in special_tokens(explanation):
        # Methods that hide words never hide special tokens.
        if relevance:
            tokens.append((token, relevance / total))
    return tokens


def format_diagnostics(explanation: Explanation) -> str:
    """Format the diagnostics, preceded by the prediction if another class is explained."""
    captions = []
    if explains_another_class(explanation.label, explanation.diagnostics):
        captions.append(_format_prediction(explanation.diagnostics))
    captions += _format_known(explanation.diagnostics)
    captions += filter(None, [explanation.diagnostics.get("focus", {}).get("note")])
    return " · ".join(captions)


def _format_known(diagnostics: Mapping[str, Any]) -> Iterator[str]:
    # The order is that of the table, whatever the order of the methods' diagnostics.
    for name, template in DIAGNOSTICS.items():
        value = diagnostics.get(name)
        if value is not None:
            yield _as_singular(template.format(value))


def _as_singular(caption: str) -> str:
    return SINGULAR.get(caption, caption)


def explains_another_class(label: str, diagnostics: Mapping[str, Any]) -> bool:
    """Return whether a label is not that of the prediction, by the diagnostics of its explanation."""
    if diagnostics.get("predicted_probability") is None:
        return False
    predicted = diagnostics.get("predicted")
    return predicted is not None and not _is_prediction(_name_class(label, diagnostics), predicted)


def _name_class(label: str, diagnostics: Mapping[str, Any]) -> str:
    """Return the label without the part of the output that it belongs to."""
    focus = diagnostics.get("focus", {})
    return label.removesuffix(f" {focus.get('name', '')}")


def _is_prediction(label: str, predicted: str) -> bool:
    # The label of a contrast is "cat rather than dog"; a class may also be called "cattle".
    return label == predicted or label.startswith(f"{predicted} rather than ")


def _format_prediction(diagnostics: Mapping[str, Any]) -> str:
    probability = format_percent(diagnostics["predicted_probability"])
    return f"the model predicts {escape_hidden(diagnostics['predicted'])}, {probability}"
