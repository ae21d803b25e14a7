"""From an explanation to the shares of words or patches, which do not depend on a tokenizer."""

import re
from collections.abc import Sequence

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.data.task import Example, input_digest
from clearhead.drift.snapshot_file import round_shares
from clearhead.explanation import Explanation
from clearhead.model_diff import PATCH, TOKEN, WORD, Reasons, Span

# Thai, Lao, Burmese, Khmer, kana and Han: scripts without blanks, in which tokenizers cut words differently.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
UNIT = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def extract_reasons(explanation: Explanation, example: Example, labels: Sequence[str]) -> Reasons:
    """Return the shares of an explanation's units."""
    kind = _choose_kind(explanation)
    spans: tuple[Span, ...] = ()
    if kind == WORD:
        weight_TU, spans = _weigh_words(explanation)
    else:
        weight_TU = np.eye(len(explanation.tokens))[:, ~explanation.special]
    return Reasons(
        id=example.id,
        digest=input_digest(example),
        prediction=_name_prediction(explanation),
        probability=_round_probability(explanation.probability),
        kind=kind,
        shares=_make_shares(explanation.relevance @ weight_TU),
        spans=spans,
        grid=explanation.grid,
        text=_read_text(explanation),
        label=_name_label(example, labels),
        blocks=_make_blocks(explanation.layers, weight_TU),
    )


def _choose_kind(explanation: Explanation) -> str:
    if explanation.grid is not None:
        return PATCH
    if explanation.text is None or explanation.offsets is None:
        return TOKEN
    return WORD


def _name_prediction(explanation: Explanation) -> str:
    if isinstance(explanation, AnswerExplanation):
        return explanation.answer
    return explanation.label


def _round_probability(probability: float | None) -> float | None:
    # Six digits are more than any computer gets again.
    return None if probability is None else round(float(probability), 6)


def _name_label(example: Example, labels: Sequence[str]) -> str | None:
    """Return the name of an example's label, which may be the number of a class."""
    if isinstance(example.label, int) and example.label < len(labels):
        return labels[example.label]
    return None if example.label is None else str(example.label)


def _read_text(explanation: Explanation) -> str | tuple[str, str] | None:
    # Two models may write different answers to the same prompt.
    if isinstance(explanation, AnswerExplanation):
        return explanation.prompt
    return explanation.text


def _weigh_words(explanation: Explanation) -> tuple[Array, tuple[Span, ...]]:
    """Return the part of each token that belongs to each word (tokens × words), and the words' characters."""
    text = _read_text(explanation) or ""
    texts = (text,) if isinstance(text, str) else text
    spans = _find_units(texts)
    unit_of_character = _number_characters(texts, spans)
    weight_TU = np.zeros((len(explanation.tokens), len(spans)))
    for token, offset in enumerate(_word_offsets(explanation)):
        segment, start, end = (0, *offset)[-3:]
        units = unit_of_character[segment][start:end]
        units = units[units >= 0]
        # A token of nothing but blanks belongs to no word.
        if not explanation.special[token] and len(units):
            weight_TU[token] = np.bincount(units, minlength=len(spans)) / len(units)
    # The end of a truncated text has no tokens.
    has_tokens_U = weight_TU.any(axis=0)
    return weight_TU[:, has_tokens_U], tuple(spans[unit] for unit in np.flatnonzero(has_tokens_U))


def _word_offsets(explanation: Explanation) -> Sequence[tuple[int, ...]]:
    """Return the offsets of the tokens that are explained by: of a language model those of the prompt."""
    offsets = explanation.offsets or ()
    if isinstance(explanation, AnswerExplanation):
        return offsets[: explanation.prompt_length]
    return offsets


def _find_units(texts: Sequence[str]) -> list[Span]:
    spans: list[Span] = []
    for segment, text in enumerate(texts):
        spans.extend((segment, *match.span()) for match in UNIT.finditer(text))
    return spans


def _number_characters(texts: Sequence[str], spans: Sequence[Span]) -> list[Array]:
    """Return for each character of each text the number of its unit, -1 for blanks."""
    numbers = [np.full(len(text), -1, dtype=np.int64) for text in texts]
    for unit, (segment, start, end) in enumerate(spans):
        numbers[segment][start:end] = unit
    return numbers


def _make_shares(relevance: Array) -> Array:
    """Divide by the sum of absolute values, along the last axis."""
    total = np.abs(relevance).sum(axis=-1, keepdims=True)
    # Where nothing has relevance, nothing has a share.
    return round_shares(relevance / np.where(total > 0, total, 1.0))


def _make_blocks(layers_LT: Array | None, weight_TU: Array) -> Array | None:
    if layers_LT is None:
        return None
    return _make_shares(layers_LT @ weight_TU)
