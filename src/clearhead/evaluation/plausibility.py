"""Plausibility: do the most relevant words match those that people marked?"""

import re
from collections.abc import Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.data.task import Example, Spans
from clearhead.errors import BadInput, UnsupportedModel
from clearhead.evaluation.examples import explanation_for
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, mean_curve, metric
from clearhead.explanation import Explanation, Word
from clearhead.model.model import Model
from clearhead.perturbation.features import Span, as_segments, as_span
from clearhead.perturbation.ranking import rank_features
from clearhead.validation import require_integer

TOP_KS = tuple(range(10, 90, 10))


def marked_spans(case: ExplainedExample) -> Spans:
    """Return the spans of an example; raise BadInput if it has none."""
    gold = case.example.gold
    # The box of a mosaic's image is a tuple as well, but of numbers.
    if not isinstance(gold, tuple) or (gold and not isinstance(gold[0], tuple)):
        raise _no_marked_words(case.example)
    return gold


def _no_marked_words(example: Example) -> BadInput:
    return BadInput(f"Example '{example.id}' has no marked words, which this metric compares with.")


def _f1_curve(records: Sequence[Record], weights_RN: Array) -> Curves:
    return list(map(float, TOP_KS)), mean_curve(records, weights_RN, "f1")


@metric(paper="TransAtt, Sec. 4; ERASER", better="higher", targets=("label",), curve=_f1_curve, is_share=True)
def token_f1(
    model: Model, cases: list[ExplainedExample], *, target: str = "label", beyond: bool = True
) -> list[Record]:
    """F1 of the 10, 20 … 80 most relevant words against the words that people marked, averaged over the eight.

    Words are separated by blanks, a word's relevance is the highest of its sub-words. `beyond=False` leaves out marked
    words past the part of the text that the model took.
    """
    return [_measure_f1(explanation_for(case, target), marked_spans(case), beyond) for case in cases]


def _measure_f1(explanation: Explanation, spans: Spans, beyond: bool) -> Record:
    words = explanation.words("max")
    is_marked = _are_marked(words, spans)
    total = int(is_marked.sum())
    if beyond:
        total = _count_marked_words(explanation, spans)
    # Nothing marked, or nothing to choose: F1 has no meaning, and the record is ignored.
    if not total or not words:
        return {"token-f1": None, "f1": None}
    f1 = _f1_scores(words, is_marked, total)
    return {"token-f1": float(np.mean(f1)), "f1": f1}


def _f1_scores(words: Sequence[Word], is_marked: Array, total: int) -> list[float]:
    """Return the F1 of the top k words for each k, against `total` marked words."""
    rank_N = _rank_words(words)
    return [_f1_score(rank_N, is_marked, total, k) for k in TOP_KS]


def _rank_words(words: Sequence[Word]) -> Array:
    return rank_features(np.array([word.relevance for word in words]))


def _are_marked(words: Sequence[Word], spans: Spans) -> Array:
    # The dtype is given for a text without words, which would be an array of floats.
    return np.array([_is_marked(word, spans) for word in words], dtype=bool)


def _is_marked(word: Word, spans: Spans) -> bool:
    return _touches(spans, word.segment, word.start, word.end)


def _f1_score(rank_N: Array, is_marked: Array, total: int, k: int) -> float:
    """Return the F1 of the top k words against `total` marked words."""
    hits = int(is_marked[rank_N < k].sum())
    # F1 = 2 · hits / (words chosen + words marked); a short text has fewer than k words to choose.
    return 2 * hits / (min(k, len(rank_N)) + total)


def _touches(spans: Spans, segment: int, start: int, end: int) -> bool:
    # Ends are exclusive: spans that only meet do not touch.
    for marked_segment, marked_start, marked_end in spans:
        if marked_segment == segment and marked_start < end and start < marked_end:
            return True
    return False


def _count_marked_words(explanation: Explanation, spans: Spans) -> int:
    """Count the marked words of the whole text, also of the part that the model did not take."""
    # The text itself, not the explanation's words, which end where the model truncated it.
    segments = enumerate(as_segments(explanation.text or ""))
    return sum(_count_touched(text, segment, spans) for segment, text in segments)


def _count_touched(text: str, segment: int, spans: Spans) -> int:
    return sum(_touches(spans, segment, *match.span()) for match in re.finditer(r"\S+", text))


def _count_curve(records: Sequence[Record], weights_RN: Array) -> Curves:
    counts_RK = mean_curve(records, weights_RN, "counts")
    ks = range(1, counts_RK.shape[1] + 1)
    return list(map(float, ks)), counts_RK


@metric(
    paper="AttCAT, Precision@K",
    better="higher",
    values=("count", "share"),
    targets=("start", "end"),
    curve=_count_curve,
)
def precision_at_k(model: Model, cases: list[ExplainedExample], *, k: int = 20) -> list[Record]:
    """How many tokens of the right answer are among the K most relevant, start and end explanations added.

    `share` divides by min(K, tokens of the answer). Questions without an answer, or whose answer was truncated, are
    ignored.
    """
    require_integer("k", k)
    _require_answers(model)
    return [_measure_precision(case, k) for case in cases]


def _require_answers(model: Model) -> None:
    if model.problem != "span":
        raise UnsupportedModel(f"precision-at-k needs a question-answering model, which {model.name} is not.")


def _measure_precision(case: ExplainedExample, k: int) -> Record:
    rank_A = _answer_ranks(case)
    if not len(rank_A):
        return {"count": None, "share": None, "counts": None}
    counts = _count_hits(rank_A, k)
    share = counts[-1] / min(k, len(rank_A))
    return {"count": counts[-1], "share": share, "counts": counts}


def _answer_ranks(case: ExplainedExample) -> Array:
    """Return the ranks of the answer's tokens among those that are not special."""
    start = explanation_for(case, "start")
    # The first gold answer only, as in the paper.
    in_answer = marked_tokens(start, marked_spans(case)[:1])
    return _rank_tokens(case)[in_answer[~start.special]]


def _rank_tokens(case: ExplainedExample) -> Array:
    """Rank the tokens that are not special by the sum of the start's and the end's explanation."""
    # Added, because an answer is found by its start and its end.
    start = explanation_for(case, "start")
    end = explanation_for(case, "end")
    return rank_features((start.relevance + end.relevance)[~start.special])


def _count_hits(rank_A: Array, k: int) -> list[float]:
    """Return how many answer tokens are among the 1, 2 … k most relevant."""
    # Ranks from k on fall into one more bin, which is cut off.
    hits = np.bincount(np.minimum(rank_A, k), minlength=k + 1)[:k]
    counts: list[float] = np.cumsum(hits).astype(float).tolist()
    return counts


def marked_tokens(explanation: Explanation, spans: Spans) -> Array:
    """Return which tokens overlap a marked span."""
    is_marked = [_overlaps(spans, as_span(offset)) for offset in _require_offsets(explanation)]
    return np.array(is_marked, dtype=bool) & ~explanation.special


def _require_offsets(explanation: Explanation) -> Sequence[tuple[int, ...]]:
    if explanation.offsets is None:
        raise BadInput("Answers are found by their characters, which needs a fast tokenizer.")
    return explanation.offsets


def _overlaps(spans: Spans, token: Span) -> bool:
    # Special tokens have empty offsets, at position 0 as a rule, where an answer may begin.
    return token[2] > token[1] and _touches(spans, *token)
