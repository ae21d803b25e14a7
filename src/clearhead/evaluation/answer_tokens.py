"""Which tokens of a prompt metrics rank and remove, and which of them people marked."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.data.task import Spans
from clearhead.errors import BadInput, UnsupportedModel
from clearhead.evaluation.examples import explanation_for
from clearhead.evaluation.metric import ExplainedExample
from clearhead.evaluation.plausibility import marked_spans, marked_tokens
from clearhead.model.inputs import Encoded
from clearhead.model.model import Model
from clearhead.perturbation.features import as_span


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


def require_matrix(explanation: AnswerExplanation) -> Array:
    """Return the relevance of every token for every step (steps × tokens); raise UnsupportedModel without it."""
    if explanation.matrix is None:
        raise UnsupportedModel("This metric measures the steps of answers: explain them with matrix=True.")
    return explanation.matrix


def ranked_tokens(model: Model, explanation: AnswerExplanation, *, first: bool = False) -> Array:
    """Return which tokens are ranked and removed (T): those of the prompt that are not special.

    The first token of a decoder's input is left out, unless `first` is set: attention that has nothing to look for goes
    there, and some methods follow it.
    """
    is_ranked_T = _is_in_prompt(explanation) & ~explanation.special
    if not first and not _has_encoder(model):
        is_ranked_T[0] = False
    return is_ranked_T


def _is_in_prompt(explanation: AnswerExplanation) -> Array:
    return np.arange(len(explanation.tokens)) < explanation.prompt_length


def _has_encoder(model: Model) -> bool:
    # The tokens of an encoder see each other in both directions, so its first one is a word like any other.
    return bool(getattr(model.config, "is_encoder_decoder", False))


def stack_spans(offsets: Sequence[tuple[int, ...]]) -> Array:
    """Return segment, start and end of each token (T,3); segment 0 is the prompt, 1 the answer."""
    return np.array(list(map(as_span, offsets)))


def evidence_tokens(case: ExplainedExample, explanation: AnswerExplanation) -> Array:
    """Return which tokens people marked (T), none for an example without marks."""
    if case.example.gold is None:
        return np.zeros(len(explanation.tokens), dtype=bool)
    return marked_tokens(explanation, _place_spans(case, explanation.prompt))


def _place_spans(case: ExplainedExample, prompt: str) -> Spans:
    """Return the marked spans in the characters of the prompt as the model reads it."""
    spans = marked_spans(case)
    if isinstance(case.example.input, str):
        return spans
    # The spans of a chat count from the start of a message.
    starts = list(_find_messages(case.example.input, prompt))
    return tuple(_shift_span(starts[message], start, end) for message, start, end in spans)


def _shift_span(first: int, start: int, end: int) -> tuple[int, int, int]:
    # A rendered chat is a single text, whose segment is 0.
    return 0, first + start, first + end


def _find_messages(messages: Sequence[Mapping[str, str]], rendered: str) -> Iterator[int]:
    """Yield where the content of each message starts in a rendered chat."""
    position = 0
    for message in messages:
        position = _find_content(message["content"].strip(), rendered, position)
        yield position


def _find_content(content: str, rendered: str, position: int) -> int:
    start = rendered.find(content, position)
    # A template may change a content: behind the end of the prompt no token is marked for it.
    if start < 0:
        return len(rendered)
    return start
