"""Captions that every view shares: numbers, methods, tooltips and diagnostics."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import starmap
from typing import Any

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation
from clearhead.views.text_spans import TextSpan, escape_hidden, special_tokens

# Characters of a label; answers may be long.
MAX_LABEL = 60
# Diagnostics that a reader of the view can judge; the others are in the JSON record.
DIAGNOSTICS = {
    "conservation_gap": "relevance conserved within {:.1g}",
    "identity_share": "identity path removed, {:.4g} of the total",
    "completeness_gap": "completeness gap {:.2g}",
    "left_behind": "{:.2g} of the relevance stays with positions and the class token",
    "samples": "{} samples",
    "seed": "seed {}",
    "windows": "{} windows stitched together",
    "chosen": "{}",
    "auto": "auto chose {}",
}


def format_relevance(value: float) -> str:
    """Format a relevance with its sign and three digits."""
    # Neither +0 nor -0 would mean anything.
    if value == 0:
        return "0"
    return f"{value:+.3g}"


def format_percent(share: float) -> str:
    """Format a share of 1 as a percentage."""
    return f"{share * 100:.1f} %"


def format_method(explanation: Explanation) -> str:
    """Format the method with the options that differ from its defaults."""
    options = _shown_options(explanation)
    if not options:
        return explanation.method
    return f"{explanation.method} ({_format_options(options)})"


def _format_options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _shown_options(explanation: Explanation) -> Mapping[str, Any]:
    # An explanation saved by an earlier version does not tell the defaults.
    if explanation.changed_options is None:
        return explanation.options
    return explanation.changed_options


def format_source(explanation: Explanation, *, method: bool = True) -> str:
    """Format where the numbers come from: the method, unless shown elsewhere, and the model."""
    sources = []
    if method:
        sources.append(format_method(explanation))
    if explanation.model:
        sources.append(explanation.model)
    return " · ".join(sources)


def format_probability(explanation: Explanation) -> str:
    """Format the probability as it follows the label, or "" if there is none."""
    certainty = format_certainty(explanation)
    return f" · {certainty}" if certainty else ""


def format_certainty(explanation: Explanation) -> str:
    """Format the probability, or "" if there is none; of several tokens of an answer it is the geometric mean."""
    if explanation.probability is None:
        return ""
    if not isinstance(explanation, AnswerExplanation) or len(explanation.explained) == 1:
        return format_percent(explanation.probability)
    # Through logarithms, because the product of many probabilities underflows.
    logarithms = [math.log(max(explanation.steps[step].probability, 1e-300)) for step in explanation.explained]
    return f"{format_percent(math.exp(math.fsum(logarithms) / len(logarithms)))} per token"


def format_label(explanation: Explanation) -> str:
    """Format what is explained; a long answer is cut."""
    if isinstance(explanation, AnswerExplanation):
        return clip(explanation.label)
    return explanation.label


def clip(text: str, length: int = MAX_LABEL) -> str:
    """Return a text on one line, cut to a length."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    return f"{line[: length - 1].rstrip()}…"


def format_headline(explanation: Explanation) -> str:
    """Format label, probability and method in one line."""
    label = escape_hidden(format_label(explanation))
    # Regression and some targets have no probability.
    if explanation.probability is not None:
        label += f" {format_certainty(explanation)}"
    return f"{label} · {format_method(explanation)}"


def format_word(span: TextSpan) -> str:
    """Format a word or token with its relevance."""
    return _format_token(span.text, span.relevance_or_zero)


def format_tokens(tokens: Iterable[tuple[str, float]]) -> list[str]:
    """Format each token with its relevance."""
    return list(starmap(_format_token, tokens))


def _format_token(token: str, relevance: float) -> str:
    return f"{escape_hidden(token)} {format_relevance(relevance)}"


def format_tooltip(span: TextSpan, count: int) -> str:
    """Format the tooltip of a word: its tokens, its relevance, and its rank among `count` words."""
    tokens = " ".join(span.tokens)
    return f"{tokens} · {format_relevance(span.relevance_or_zero)} · rank {span.rank} of {count}"


def format_diagnostics(explanation: Explanation) -> str:
    """Format the diagnostics, preceded by the prediction if another class is explained."""
    captions = []
    if _explains_another_class(explanation):
        captions.append(_format_prediction(explanation.diagnostics))
    captions += _format_known(explanation.diagnostics)
    return " · ".join(captions)


def format_notes(explanation: Explanation) -> list[str]:
    """Format special tokens and diagnostics, as far as there are any."""
    tokens = ", ".join(format_tokens(special_tokens(explanation)))
    notes = [format_diagnostics(explanation)]
    if tokens:
        notes.insert(0, f"Special tokens: {tokens}")
    return list(filter(None, notes))


def _format_known(diagnostics: Mapping[str, Any]) -> Iterator[str]:
    # The order is that of the table, whatever the order of the methods' diagnostics.
    for name, template in DIAGNOSTICS.items():
        value = diagnostics.get(name)
        if value is not None:
            yield template.format(value)


def _explains_another_class(explanation: Explanation) -> bool:
    diagnostics = explanation.diagnostics
    if diagnostics.get("predicted_probability") is None:
        return False
    predicted = diagnostics.get("predicted")
    return predicted is not None and not _is_prediction(explanation.label, predicted)


def _is_prediction(label: str, predicted: str) -> bool:
    # The label of a contrast is "cat rather than dog"; a class may also be called "cattle".
    return label == predicted or label.startswith(f"{predicted} rather than ")


def _format_prediction(diagnostics: Mapping[str, Any]) -> str:
    probability = format_percent(diagnostics["predicted_probability"])
    return f"the model predicts {escape_hidden(diagnostics['predicted'])}, {probability}"
