"""From an explanation to the shares of words or patches, which do not depend on a tokenizer."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.data.task import Example, input_digest
from clearhead.drift.snapshot_file import round_shares
from clearhead.errors import ClearheadError
from clearhead.explanation import Explanation
from clearhead.model.coverage import READ_SHARE
from clearhead.model.target import class_index
from clearhead.model_diff import PATCH, TOKEN, WORD, Reasons, Span

# Thai, Lao, Burmese, Khmer, kana and Han: scripts without blanks, in which tokenizers cut words differently.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
UNIT = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


@dataclass(frozen=True, eq=False)
class _Units:
    """The units of an explanation, and the weight of each token in them (tokens × units)."""

    kind: str
    weight_TU: Array
    spans: tuple[Span, ...] = ()

    def shares(self, relevance: Array) -> Array:
        """Return the shares of the units in the relevance of tokens, along the last axis."""
        relevance_U = relevance @ self.weight_TU
        total = np.abs(relevance_U).sum(axis=-1, keepdims=True)
        # Where nothing has relevance, nothing has a share.
        return round_shares(relevance_U / np.where(total > 0, total, 1.0))

    def blocks(self, layers_LT: Array | None) -> Array | None:
        """Return the shares at each block, if the method has relevance by block."""
        if layers_LT is None:
            return None
        return self.shares(layers_LT)


def extract_reasons(
    explanation: Explanation, example: Example, labels: Sequence[str], pattern: re.Pattern[str] = UNIT
) -> Reasons:
    """Return the shares of an explanation's units; `pattern` matches the words of a text."""
    units = _make_units(explanation, pattern)
    return Reasons(
        id=example.id,
        digest=input_digest(example),
        prediction=_name_prediction(explanation),
        probability=_round_probability(explanation.probability),
        kind=units.kind,
        shares=units.shares(explanation.relevance),
        spans=units.spans,
        grid=explanation.grid,
        text=_read_text(explanation),
        label=_name_label(example, labels),
        blocks=units.blocks(explanation.layers),
        was_cut=READ_SHARE in explanation.diagnostics,
    )


def _make_units(explanation: Explanation, pattern: re.Pattern[str]) -> _Units:
    if explanation.grid is not None:
        return _Units(PATCH, _select_content(explanation))
    if explanation.text is None or explanation.offsets is None:
        return _Units(TOKEN, _select_content(explanation))
    return _make_words(explanation, pattern)


def _select_content(explanation: Explanation) -> Array:
    """Return weights by which every token that is not special is a unit."""
    return np.eye(len(explanation.tokens))[:, ~explanation.special]


def _name_prediction(explanation: Explanation) -> str:
    if isinstance(explanation, AnswerExplanation):
        return explanation.answer
    return explanation.label


def _round_probability(probability: float | None) -> float | None:
    if probability is None:
        return None
    # More digits than another computer gets.
    return round(float(probability), 6)


def _name_label(example: Example, labels: Sequence[str]) -> str | None:
    """Return an example's label as the model calls it, where it has such a class: by name, without case, or number."""
    if example.label is None:
        return None
    try:
        return labels[class_index(example.label, labels)]
    except ClearheadError:
        return str(example.label)


def _read_text(explanation: Explanation) -> str | tuple[str, ...] | None:
    # Two models may write different answers to the same prompt.
    if isinstance(explanation, AnswerExplanation):
        return explanation.prompt
    return explanation.text


def _list_texts(explanation: Explanation) -> tuple[str, ...]:
    text = _read_text(explanation) or ""
    if isinstance(text, tuple):
        return text
    return (text,)


def _make_words(explanation: Explanation, pattern: re.Pattern[str]) -> _Units:
    """Return the words that have tokens: the end of a truncated text has none."""
    texts = _list_texts(explanation)
    spans = list(_find_spans(texts, pattern))
    weight_TU = _weigh_tokens(explanation, number_characters(texts, spans), len(spans))
    units = np.flatnonzero(weight_TU.any(axis=0))
    return _Units(WORD, weight_TU[:, units], tuple(spans[unit] for unit in units))


def _weigh_tokens(explanation: Explanation, numbers: Sequence[Array], count: int) -> Array:
    """Return which share of each token's characters belongs to each of `count` words."""
    weight_TU = np.zeros((len(explanation.tokens), count))
    for token, offset in enumerate(_word_offsets(explanation)):
        # Special tokens that stand in the text, such as those of a chat template, are no words.
        if not explanation.special[token]:
            weight_TU[token] = _weigh_characters(offset, numbers, count)
    return weight_TU


def _weigh_characters(offset: tuple[int, ...], numbers: Sequence[Array], count: int) -> Array:
    # Offsets of a single text do not name it.
    segment, start, end = (0, *offset)[-3:]
    units = numbers[segment][start:end]
    count_U: Array = np.bincount(units[units >= 0], minlength=count)
    # A token of nothing but blanks belongs to no word.
    share_U: Array = count_U / max(1, count_U.sum())
    return share_U


def _word_offsets(explanation: Explanation) -> Sequence[tuple[int, ...]]:
    """Return the offsets of the tokens that are explained by: of a language model those of the prompt."""
    # Only the explanation of an answer has a prompt.
    count = getattr(explanation, "prompt_length", None)
    return (explanation.offsets or ())[:count]


def _find_spans(texts: Sequence[str], pattern: re.Pattern[str]) -> Iterator[Span]:
    for segment, text in enumerate(texts):
        for match in pattern.finditer(text):
            yield segment, *match.span()


def number_characters(texts: Sequence[str], spans: Sequence[Span]) -> list[Array]:
    """Return for each character of each text the number of its word, -1 for blanks."""
    numbers = [np.full(len(text), -1) for text in texts]
    for number, (segment, start, end) in enumerate(spans):
        numbers[segment][start:end] = number
    return numbers
