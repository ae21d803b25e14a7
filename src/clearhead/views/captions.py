"""Captions that every view shares: labels, methods, words with their numbers, and tooltips."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation
from clearhead.views.numbers import format_percent
from clearhead.views.scale import Scale
from clearhead.views.text_spans import TextSpan, escape_hidden

# Characters of a label; answers may be long.
MAX_LABEL = 60
# What tells the inputs of a page apart.
IDENTITY = {"id": "id {}", "file": "{}", "row": "row {}", "gold": "gold {}"}


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
    """Format where numbers and input come from: method, unless shown elsewhere, model, file, row, id and gold label."""
    sources = []
    if method:
        sources.append(format_method(explanation))
    if explanation.model:
        sources.append(explanation.model)
    return " · ".join([*sources, *_list_identity(explanation)])


def _list_identity(explanation: Explanation) -> Iterator[str]:
    """Yield what is known of where the input comes from, and of its gold label."""
    for name, template in IDENTITY.items():
        value = explanation.source.get(name)
        if value is not None:
            yield escape_hidden(template.format(value))
    if explanation.is_wrong:
        yield "✗ wrong"


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


def format_word(scale: Scale, span: TextSpan) -> str:
    """Format a word or token with its share or effect."""
    return f"{escape_hidden(name_span(span))} {scale.format(span.relevance_or_zero)}"


def name_span(span: TextSpan) -> str:
    """Return a word or token as it stands in the text, a sentence or source on one line, cut if it is long."""
    return clip(span.name) or span.text


def format_tooltip(scale: Scale, span: TextSpan, count: int) -> str:
    """Format the tooltip of a word: its tokens, its share or effect, and its rank among `count` words."""
    name = clip(span.name) or " ".join(span.tokens)
    return f"{name} · {scale.format(span.relevance_or_zero)} · rank {span.rank} of {count}"
