"""Plausibility: do the most relevant words match those that people marked?"""

import re
from collections.abc import Sequence

import numpy as np

from clearhead.arrays import Array
from clearhead.data.task import Spans
from clearhead.errors import BadInput, UnsupportedModel
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, explanation_for, mean_curve, metric
from clearhead.explanation import Explanation
from clearhead.model.model import Model
from clearhead.perturbation.ranking import rank_features
from clearhead.validation import require_integer

TOP = tuple(range(10, 90, 10))


def _spans(case: ExplainedExample) -> Spans:
    gold = case.example.gold
    if not isinstance(gold, tuple) or (gold and not isinstance(gold[0], tuple)):
        raise BadInput(f"Example '{case.example.id}' has no marked words, which this metric compares with.")
    return gold


def _top_curve(records: Sequence[Record], weights_RN: Array) -> Curves:
    return [float(k) for k in TOP], mean_curve(records, weights_RN, "f1")


@metric(paper="TransAtt, Sec. 4; ERASER", better="higher", targets=("label",), curve=_top_curve)
def token_f1(
    model: Model, cases: list[ExplainedExample], *, target: str = "label", beyond: bool = True
) -> list[Record]:
    """F1 of the 10, 20 … 80 most relevant words against the words that people marked, averaged over the eight.

    A word is what stands between blanks, its relevance the highest of its sub-words. `beyond=False` leaves out marked
    words that lie past the part of the text the model took.
    """
    return [_token_f1(explanation_for(case, target), _spans(case), beyond) for case in cases]


def _token_f1(explanation: Explanation, spans: Spans, beyond: bool) -> Record:
    words = explanation.words("max")
    marked = np.array([_touches(spans, word.segment, word.start, word.end) for word in words], dtype=bool)
    total = _words_touched(explanation, spans) if beyond else int(marked.sum())
    if not total or not words:
        return {"token-f1": None, "f1": None}
    rank_N = rank_features(np.array([word.relevance for word in words]))
    hits = [int(marked[rank_N < k].sum()) for k in TOP]
    f1 = [2 * hit / (min(k, len(words)) + total) for k, hit in zip(TOP, hits, strict=True)]
    return {"token-f1": float(np.mean(f1)), "f1": f1}


def _touches(spans: Spans, segment: int, start: int, end: int) -> bool:
    return any(own == segment and first < end and start < last for own, first, last in spans)


def _words_touched(explanation: Explanation, spans: Spans) -> int:
    """Marked words of the whole text, also of the part that the model did not take."""
    texts = explanation.text if isinstance(explanation.text, tuple) else (explanation.text or "",)
    return sum(_touches(spans, segment, *word) for segment, text in enumerate(texts) for word in _word_spans(text))


def _word_spans(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


# --- question answering -------------------------------------------------------------------------------------------


def _k_curve(records: Sequence[Record], weights_RN: Array) -> Curves:
    counts = mean_curve(records, weights_RN, "counts")
    return [float(k) for k in range(1, counts.shape[1] + 1)], counts


@metric(
    paper="AttCAT, Precision@K", better="higher", values=("count", "share"), targets=("start", "end"), curve=_k_curve
)
def precision_at_k(model: Model, cases: list[ExplainedExample], *, k: int = 20) -> list[Record]:
    """How many tokens of the right answer are among the K most relevant, start and end explanations added.

    `share` divides by min(K, tokens of the answer). Questions without an answer, or whose answer the model did not
    get to see, take no part.
    """
    require_integer("k", k)
    if model.problem != "span":
        raise UnsupportedModel(f"precision-at-k needs a question-answering model, which {model.name} is not.")
    return [_precision(case, k) for case in cases]


def _precision(case: ExplainedExample, k: int) -> Record:
    start, end = explanation_for(case, "start"), explanation_for(case, "end")
    real = ~start.special
    answer = _answer_tokens(start, _spans(case)[:1])[real]
    if not answer.any():
        return {"count": None, "share": None, "counts": None}
    rank_N = rank_features((start.relevance + end.relevance)[real])
    counts = np.cumsum(np.bincount(np.minimum(rank_N[answer], k), minlength=k + 1)[:k])
    total = float(counts[-1])
    return {"count": total, "share": total / min(k, int(answer.sum())), "counts": counts.astype(float).tolist()}


def _answer_tokens(explanation: Explanation, spans: Spans) -> Array:
    """Which tokens overlap a marked span."""
    if explanation.offsets is None:
        raise BadInput("Answers are found by their characters, which needs a fast tokenizer.")
    found = [
        _touches(spans, offset[0] if len(offset) == 3 else 0, offset[-2], offset[-1]) and offset[-1] > offset[-2]
        for offset in explanation.offsets
    ]
    return np.array(found, dtype=bool) & ~explanation.special
