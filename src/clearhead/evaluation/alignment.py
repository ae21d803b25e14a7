"""Alignment: does every word of a translation rest on the word of the source that people linked it with?"""

import re
from collections.abc import Sequence

import numpy as np

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.data.task import Alignment, Example, Links
from clearhead.errors import BadInput
from clearhead.evaluation.answer_faithfulness import require_matrix
from clearhead.evaluation.answer_tokens import answer_explanation, ranked_tokens
from clearhead.evaluation.metric import ExplainedExample, Record, column, divide_or_nan, metric
from clearhead.model.model import Model
from clearhead.perturbation.features import as_span

COUNTS = ("sure-hits", "possible-hits", "links", "sure-links")
# What SentencePiece puts before the first token of a word.
WORD_MARK = "▁"
OUTSIDE = -1


def _corpus_error(records: Sequence[Record], weights_RN: Array) -> dict[str, Array]:
    """Return 1 − (|A∩S| + |A∩P|) / (|A| + |S|) over all links of all sentences."""
    sure_R, possible_R, links_R, gold_R = (weights_RN @ np.nan_to_num(column(records, name)) for name in COUNTS)
    return {"alignment-error-rate": 1 - divide_or_nan(sure_R + possible_R, links_R + gold_R)}


@metric(paper="Och & Ney 2003", better="lower", targets=("steps",), summary=_corpus_error)
def alignment_error_rate(model: Model, cases: list[ExplainedExample]) -> list[Record]:
    """Alignment error rate when each word of the answer is linked with its most relevant word of the prompt.

    The relevance of a word for a word is the sum over their tokens. Links of all sentences count alike.
    """
    return [_measure_links(model, case) for case in cases]


def _measure_links(model: Model, case: ExplainedExample) -> Record:
    gold = _require_alignment(case.example)
    links = align_words(model, answer_explanation(case, "steps"), case.example)
    counts = (len(links & gold.sure), len(links & gold.possible), len(links), len(gold.sure))
    error = 1 - (counts[0] + counts[1]) / (counts[2] + counts[3])
    return {"alignment-error-rate": error, **dict(zip(COUNTS, counts, strict=True))}


def _require_alignment(example: Example) -> Alignment:
    if example.writing is None or example.writing.alignment is None:
        raise BadInput(f"Example '{example.id}' has no alignment of words, which this metric compares with.")
    return example.writing.alignment


def align_words(model: Model, explanation: AnswerExplanation, example: Example) -> Links:
    """Return for every word of the answer the link with its most relevant word of the prompt."""
    source_T = _number_prompt_words(explanation)
    source_T[~ranked_tokens(model, explanation)] = OUTSIDE
    answer_N = _number_characters(explanation.answer, [(step.start, step.end) for step in explanation.steps])
    _check_words(example, source_T, answer_N)
    relevance_WV = _sum_words(require_matrix(explanation), answer_N, source_T)
    best_W = relevance_WV.argmax(1)
    return frozenset((int(source), answer) for answer, source in enumerate(best_W) if answer in answer_N)


def _check_words(example: Example, source_T: Array, answer_N: Array) -> None:
    """Raise BadInput if the words of the tokens are not those that people aligned."""
    assert example.writing is not None
    counts = (len(example.input.split()), len((example.writing.answer or "").split()))
    if (source_T.max() >= counts[0]) or (answer_N.max() >= counts[1]) or source_T.max() == OUTSIDE:
        raise BadInput(
            f"The tokens of example '{example.id}' do not form the {counts[0]} and {counts[1]} words that were aligned."
        )


def _number_prompt_words(explanation: AnswerExplanation) -> Array:
    """Return the number of the word, from 0, of each token of the prompt."""
    if explanation.offsets is None:
        return _number_marked_words(explanation)
    spans = [as_span(offset) for offset in explanation.offsets]
    in_prompt = [(start, end) if segment == 0 else (0, 0) for segment, start, end in spans]
    return _number_characters(explanation.prompt, in_prompt)


def _number_marked_words(explanation: AnswerExplanation) -> Array:
    """Return the words of a tokenizer without offsets, by its marks."""
    is_start = [token.startswith(WORD_MARK) for token in explanation.tokens]
    return np.cumsum(is_start) - 1


def _number_characters(text: str, offsets: Sequence[tuple[int, int]]) -> Array:
    """Return the number of the word in which each token starts, −1 for tokens without characters."""
    ends = np.array([match.end() for match in re.finditer(r"\S+", text)])
    numbers = [np.searchsorted(ends, start, side="right") if end > start else OUTSIDE for start, end in offsets]
    return np.array(numbers, dtype=np.int64)


def _sum_words(matrix_NT: Array, answer_N: Array, source_T: Array) -> Array:
    """Return the relevance of every word of the prompt for every word of the answer; −inf for words without tokens."""
    relevance_WV = np.full((answer_N.max() + 1, source_T.max() + 1), -np.inf)
    relevance_WV[:, np.unique(source_T[source_T >= 0])] = 0
    rows, columns = np.nonzero((answer_N[:, None] >= 0) & (source_T[None, :] >= 0))
    np.add.at(relevance_WV, (answer_N[rows], source_T[columns]), matrix_NT[rows, columns])
    return relevance_WV
