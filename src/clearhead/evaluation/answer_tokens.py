"""Which tokens of a prompt metrics rank and remove, which of them people marked, and the units they form."""

from collections.abc import Iterator, Sequence

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.data.task import Example, Spans
from clearhead.errors import BadInput
from clearhead.evaluation.examples import explanation_for
from clearhead.evaluation.metric import ExplainedExample
from clearhead.evaluation.plausibility import marked_spans, marked_tokens
from clearhead.model.inputs import Encoded, collate
from clearhead.model.model import Model
from clearhead.perturbation.features import group_features
from clearhead.validation import require_choice

UNITS = ("token", "word", "sentence", "source")


def answer_explanation(case: ExplainedExample, key: str) -> AnswerExplanation:
    """Return the explanation of "answer", "steps" or "contrast"; raise BadInput if it is not of an answer."""
    explanation = explanation_for(case, key)
    if not isinstance(explanation, AnswerExplanation):
        raise BadInput(f"Example '{case.example.id}' is explained for a class, but this metric measures answers.")
    return explanation


def encoded_answer(case: ExplainedExample) -> Encoded:
    """Return the prompt with its answer that was explained."""
    if case.encoded is None:
        raise BadInput(f"Example '{case.example.id}' was not encoded: measure with clearhead.evaluate.")
    return case.encoded


def ranked_tokens(model: Model, explanation: AnswerExplanation, *, first: bool = False) -> Array:
    """Return which tokens are ranked and removed (T): those of the prompt that are not special.

    The first token of a decoder's input is left out, unless `first` is set: attention that has nothing to look for goes
    there, and some methods follow it.
    """
    is_ranked = (np.arange(len(explanation.tokens)) < explanation.prompt_length) & ~explanation.special
    if not first and not getattr(model.config, "is_encoder_decoder", False):
        is_ranked[0] = False
    return is_ranked


def evidence_tokens(case: ExplainedExample, explanation: AnswerExplanation) -> Array:
    """Return which tokens people marked (T), none for an example without marks."""
    if case.example.gold is None:
        return np.zeros(len(explanation.tokens), dtype=bool)
    return marked_tokens(explanation, _place_spans(case.example, marked_spans(case), explanation.prompt))


def _place_spans(example: Example, spans: Spans, prompt: str) -> Spans:
    """Return spans in the characters of the prompt as the model reads it, in which messages follow each other."""
    if isinstance(example.input, str):
        return spans
    starts = list(_find_messages(example.input, prompt))
    return tuple((0, starts[message] + start, starts[message] + end) for message, start, end in spans)


def _find_messages(messages: Sequence[dict[str, str]], rendered: str) -> Iterator[int]:
    """Yield where the content of each message starts in a rendered chat."""
    position = 0
    for message in messages:
        start = rendered.find(message["content"].strip(), position)
        # A template may change a content: then nothing can be marked in it, as in a place after the prompt.
        yield start if start >= 0 else len(rendered)
        position = max(position, start)


def number_units(model: Model, case: ExplainedExample, is_ranked: Array, unit: str) -> Array:
    """Return the unit of each token (T), from 1; 0 for tokens that are never removed."""
    require_choice("unit", unit, UNITS)
    if unit == "token":
        labels = np.arange(1, len(is_ranked) + 1)
    elif unit == "source":
        labels = _number_sources(case)
    else:
        (features,) = group_features(model, collate(model, [encoded_answer(case)]), unit)
        labels = features.labels.numpy()
    return _renumber(np.where(is_ranked, labels, 0))


def _renumber(labels: Array) -> Array:
    """Return labels without gaps, 0 for those that are 0."""
    # With a 0 in front, which may not occur otherwise.
    _, inverse = np.unique(np.append(0, labels), return_inverse=True)
    return np.asarray(inverse[1:])


def _number_sources(case: ExplainedExample) -> Array:
    """Return the number of the source in which each token starts, 0 outside of all sources."""
    item = encoded_answer(case).item
    sources = case.example.writing.sources if case.example.writing else ()
    if not sources or item.offsets is None or item.text is None:
        raise BadInput(f"Example '{case.example.id}' has no sources: add the column 'sources', or use unit=sentence.")
    labels = np.zeros(len(item.tokens), dtype=np.int64)
    for number, source in enumerate(sources, 1):
        labels[_starts_in_text(item.offsets, item.text[0].find(source), len(source))] = number
    return labels


def _starts_in_text(offsets: Sequence[tuple[int, ...]], position: int, length: int) -> Array:
    """Return which tokens start in these characters of the prompt."""
    starts = [offset[1] if offset[0] == 0 and offset[2] > offset[1] else -1 for offset in offsets]
    return (np.array(starts) >= position) & (np.array(starts) < position + length) & (position >= 0)


def sum_units(relevance: Array, labels: Array) -> Array:
    """Return the relevance of every unit: the sum over its tokens."""
    return np.bincount(labels, relevance, minlength=1)[1:]


def keep_units(labels: Array, present_KU: Array) -> Array:
    """Return which tokens are kept (K,T) if these units are present (K,U)."""
    # Column 0 stands for what is never removed.
    is_present = np.insert(np.asarray(present_KU, dtype=bool), 0, True, axis=1)
    return is_present[:, labels]
