"""Alignment: does every word of a translation rest on the word of the source that people linked it with?"""

import re
from collections.abc import Sequence

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.data.task import Alignment, Example, Links
from clearhead.errors import BadInput
from clearhead.evaluation.answer_tokens import answer_explanation, ranked_tokens, require_matrix, stack_spans
from clearhead.evaluation.metric import ExplainedExample, Record, column, divide_or_nan, metric
from clearhead.model.model import Model

# What SentencePiece puts before the first token of a word.
WORD_MARK = "▁"
NO_WORD = -1


def _corpus_error(records: Sequence[Record], weights_RN: Array) -> dict[str, Array]:
    """Return 1 − (|A∩S| + |A∩P|) / (|A| + |S|) over the links of all sentences."""
    hits_R = _sum_records(records, weights_RN, "hits")
    links_R = _sum_records(records, weights_RN, "links")
    return {"alignment-error-rate": 1 - divide_or_nan(hits_R, links_R)}


def _sum_records(records: Sequence[Record], weights_RN: Array, name: str) -> Array:
    # Sums over the corpus instead of means of rates: a long sentence has more links, and counts more.
    total_R: Array = weights_RN @ column(records, name)
    return total_R


@metric(paper="Och & Ney 2003", better="lower", targets=("step-logits",), summary=_corpus_error)
def alignment_error_rate(model: Model, cases: list[ExplainedExample]) -> list[Record]:
    """Alignment error rate when each word of the answer is linked with its most relevant word of the prompt.

    The relevance of a word for a word is the sum over their tokens, of the logits: log-probabilities also contain what
    speaks for other tokens. Links of all sentences count alike.
    """
    return [_count_links(model, case) for case in cases]


def _count_links(model: Model, case: ExplainedExample) -> Record:
    """Return |A∩S| + |A∩P| as hits, |A| + |S| as links, and the error rate of this sentence alone."""
    gold = _require_alignment(case.example)
    links = align_words(model, answer_explanation(case, "step-logits"), case.example)
    hits = _count_hits(links, gold)
    total = len(links) + len(gold.sure)
    return {"alignment-error-rate": 1 - hits / total, "hits": hits, "links": total}


def _count_hits(links: Links, gold: Alignment) -> int:
    # Sure links are possible links too, so that a sure one counts twice.
    return len(links & gold.sure) + len(links & gold.possible)


def _require_alignment(example: Example) -> Alignment:
    if example.writing is None or example.writing.alignment is None:
        raise BadInput(f"Example '{example.id}' has no alignment of words, which this metric compares with.")
    return example.writing.alignment


def align_words(model: Model, explanation: AnswerExplanation, example: Example) -> Links:
    """Return for every word of the answer the link with its most relevant word of the prompt."""
    source_T = _number_ranked(model, explanation)
    answer_N = _number_answer(explanation)
    assert example.writing is not None
    _check_words(example, example.input, source_T)
    _check_words(example, example.writing.answer or "", answer_N)
    return _link_words(_sum_words(require_matrix(explanation), answer_N, source_T), answer_N)


def _link_words(relevance_WV: Array, answer_N: Array) -> Links:
    # A word without a token of its own, if there is one, has no step that could be explained.
    words = np.unique(answer_N[answer_N >= 0])
    sources = relevance_WV.argmax(1)[words]
    return frozenset(zip(sources.tolist(), words.tolist(), strict=True))


def _check_words(example: Example, text: str, numbers: Array) -> None:
    """Raise BadInput if the tokens do not form words that people aligned."""
    if not 0 <= numbers.max(initial=NO_WORD) < len(text.split()):
        raise BadInput(f"The tokens of example '{example.id}' do not form the words that were aligned: {text!r}.")


def _number_ranked(model: Model, explanation: AnswerExplanation) -> Array:
    """Return the number of the word, from 0, of each token that is ranked; −1 for the others."""
    return np.where(ranked_tokens(model, explanation), _number_prompt(explanation), NO_WORD)


def _number_prompt(explanation: AnswerExplanation) -> Array:
    """Return the number of the word, from 0, of each token; −1 for tokens of the answer."""
    if explanation.offsets is None:
        return _number_marked(explanation.tokens)
    spans = stack_spans(explanation.offsets)
    # Tokens of the answer get an empty span.
    in_prompt = spans[:, 1:] * (spans[:, :1] == 0)
    return _number_words(explanation.prompt, in_prompt)


def _number_marked(tokens: Sequence[str]) -> Array:
    """Return the words of a tokenizer without offsets, by its marks."""
    is_start = [token.startswith(WORD_MARK) for token in tokens]
    return np.cumsum(is_start) - 1


def _number_answer(explanation: AnswerExplanation) -> Array:
    """Return the number of the word, from 0, of each step of the answer."""
    offsets = [(step.start, step.end) for step in explanation.steps]
    return _number_words(explanation.answer, np.array(offsets))


def _number_words(text: str, offsets: Array) -> Array:
    """Return the number of the word in which each token starts, −1 for tokens without characters."""
    ends = list(map(re.Match.end, re.finditer(r"\S+", text)))
    numbers = np.searchsorted(ends, offsets[:, 0], side="right")
    return np.where(offsets[:, 1] > offsets[:, 0], numbers, NO_WORD)


def _sum_words(matrix_NT: Array, answer_N: Array, source_T: Array) -> Array:
    """Return the relevance of every word of the prompt for every word of the answer; −inf for words without tokens."""
    in_answer_WN = _is_word(answer_N)
    in_source_VT = _is_word(source_T)
    relevance_WV = in_answer_WN @ matrix_NT @ in_source_VT.T
    # A word whose tokens are not ranked must lose even against words of negative relevance.
    return np.where(in_source_VT.any(1), relevance_WV, -np.inf)


def _is_word(numbers: Array) -> Array:
    """Return which tokens belong to each word, as 0 and 1 (words × tokens)."""
    words = np.arange(numbers.max() + 1)
    # As numbers, because a product with them sums over the tokens of each word.
    return np.asarray(numbers == words[:, None], dtype=np.float64)
