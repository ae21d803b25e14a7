"""Prompts of language models: their answers, what of an answer is explained, and what the page shows of it."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from clearhead.answer_explanation import AnswerExplanation, Focus
from clearhead.attribution.answers import AnswerOptions, choose_target
from clearhead.errors import BadInput, TooLong
from clearhead.model.answer_inputs import answer_prompt, encode_prompt, tokenise_answer
from clearhead.model.batches import Answer
from clearhead.model.inputs import Encoded
from clearhead.model.model import Model, max_tokens
from clearhead.model.sources import find_sources
from clearhead.model.target import AnswerTarget
from clearhead.views import answers
from clearhead.web.limits import Limits
from clearhead.web.schemas import InputRequest

DEFAULT_NEW_TOKENS = 32


def encode_request(model: Model, request: InputRequest, limits: Limits) -> Encoded:
    """Return the prompt of a request with its answer, which the model writes unless it is given."""
    try:
        return _encode(model, request, limits)
    except TooLong as error:
        # The advice for other texts, to read their first part only, does not hold for prompts.
        raise BadInput(f"{error.fact} Shorten the prompt or the answer.") from error


def _encode(model: Model, request: InputRequest, limits: Limits) -> Encoded:
    prompt = encode_prompt(model, request.prompt)
    _check_length("prompt", prompt.item.tokens, limits.max_prompt_tokens)
    generation = {"max_new_tokens": _limit_new_tokens(model, request, prompt.length)}
    encoded = answer_prompt(model, prompt, request.answer, generation)
    _check_length("answer", _get_answer(encoded).tokens, limits.max_answer_tokens)
    sources = find_sources(prompt.item, request.prompt, None)
    return replace(encoded, item=replace(encoded.item, sources=sources))


def _limit_new_tokens(model: Model, request: InputRequest, prompt_length: int) -> int:
    """Return how many tokens the model may write: a decoder no more than it has positions for after the prompt."""
    count = request.max_new_tokens or DEFAULT_NEW_TOKENS
    limit = max_tokens(model)
    if limit is None or model.is_encoder_decoder:
        return count
    return max(1, min(count, limit - prompt_length))


def _check_length(name: str, tokens: Sequence[str], limit: int) -> None:
    if len(tokens) > limit:
        raise BadInput(f"The {name} has {len(tokens)} tokens; this server takes at most {limit}. Shorten it.")


def make_target(model: Model, encoded: Encoded, request: InputRequest) -> AnswerTarget:
    """Return what of the answer a request asks about; a short foil is compared with the beginning of the answer."""
    foil = _read_foil(request)
    prompt = encode_prompt(model, request.prompt)
    focus: Focus = request.answer_focus
    if foil is not None and focus is None:
        focus = _find_counterpart(model, prompt, _get_answer(encoded), foil)
    return choose_target(model, prompt, encoded, foil, AnswerOptions(focus=focus))


def _get_answer(encoded: Encoded) -> Answer:
    assert encoded.item.answer is not None
    return encoded.item.answer


def _read_foil(request: InputRequest) -> str | None:
    _refuse_classes(request)
    _refuse_words(request)
    if isinstance(request.versus, int):
        raise BadInput(f"Invalid versus={request.versus}: give the words that the answer is compared with.")
    return request.versus


def _refuse_words(request: InputRequest) -> None:
    if request.output_focus is not None:
        raise BadInput("Invalid focus: of an answer give its characters as two numbers, start and end.")


def _refuse_classes(request: InputRequest) -> None:
    if request.target is not None or request.span is not None:
        raise BadInput("A language model has no classes and no spans: leave out target and span.")


def _find_counterpart(model: Model, prompt: Encoded, answer: Answer, foil: str) -> Focus:
    """Return the characters of as many tokens as a foil has; None if the answer has no more."""
    ids = tokenise_answer(model, prompt, foil, name="foil")
    if len(ids) >= len(answer.ids):
        return None
    start, _ = answer.offsets[0]
    _, end = answer.offsets[len(ids) - 1]
    # Tokens of blanks have no characters.
    return (start, end) if start < end else None


def describe_answer(explanation: AnswerExplanation) -> dict[str, Any]:
    """Return what the page shows of an answer besides the record of docs/json.md."""
    return {
        "start": answers.name_start(explanation),
        "words": [asdict(word) for word in answers.list_words(explanation)],
        "groups": [asdict(share) for share in answers.list_shares(explanation)],
        "sink": answers.format_sink(explanation),
        "sources": [asdict(source) for source in explanation.sources],
    }
