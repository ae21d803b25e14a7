"""The first token of an answer, where decoders leave relevance that they do not need."""

from collections.abc import Sequence

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.model.text_units import find_larger_unit
from clearhead.views.text_spans import TextSpan, select_scored

Segments = Sequence[Sequence[TextSpan]]
"""The spans of prompt and answer."""


def has_sink(explanation: AnswerExplanation) -> bool:
    """Return whether the very first token has more relevance than any other, as an attention sink has.

    The tokens of an encoder see each other in both directions, and have no such place; those of a sentence or a source
    that was hidden as a whole have no relevance of their own.
    """
    if explanation.has_encoder or find_larger_unit(explanation):
        return False
    sizes = np.abs(explanation.relevance)
    return bool(sizes[0] > sizes[1:].max(initial=0.0))


def split_sink(explanation: AnswerExplanation, segments: Segments) -> tuple[TextSpan | None, list[TextSpan]]:
    """Return the word of a sink, None if there is none in the text, and all other words."""
    scored = select_scored(segments)
    # A special token is in no word.
    if not scored or explanation.special[0] or not has_sink(explanation):
        return None, scored
    return scored[0], scored[1:]
