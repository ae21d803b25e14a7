"""Over a whole corpus: which words speak for each class, and do classes share them?"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from clearhead.arrays import Array
from clearhead.data.read import read_task
from clearhead.data.task import Example
from clearhead.errors import BadInput, UnsupportedModel
from clearhead.evaluation.metric import Curves, ExplainedExample, Record, explanation_for, metric
from clearhead.model.model import Model
from clearhead.validation import require_integer

SWEEP = (5, 10, 20, 30, 40, 50, 75, 100)
DOCUMENTS = 50_000
PART = 1000


class Totals:
    """The weighted relevance of every token for every class, for any reweighting of the records."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.tokens = sorted({token for record in records for token in record["tokens"]})
        number = {token: place for place, token in enumerate(self.tokens)}
        self.classes = sorted({record["class"] for record in records})
        place = {one: where for where, one in enumerate(self.classes)}
        self.record = np.repeat(np.arange(len(records)), [len(one["tokens"]) for one in records])
        self.cell = np.array(
            [place[one["class"]] * len(self.tokens) + number[token] for one in records for token in one["tokens"]],
            dtype=np.int64,
        )
        self.relevance = np.array([value for one in records for value in one["relevance"]], dtype=np.float64)

    def under(self, weight_N: Array) -> tuple[Array, Array]:
        """Sums (classes × tokens), and which tokens occur for a class at all."""
        shape = (len(self.classes), len(self.tokens))
        weight = weight_N[self.record]
        sums = np.bincount(self.cell, weight * self.relevance, minlength=shape[0] * shape[1])
        seen = np.bincount(self.cell, weight, minlength=shape[0] * shape[1])
        return sums.reshape(shape), seen.reshape(shape) > 0

    def best(self, weight_N: Array, k: int) -> list[list[int]]:
        """For each class its k tokens with the highest sums, ties in alphabetical order."""
        sums, seen = self.under(weight_N)
        return [_best(row, there, k) for row, there in zip(sums, seen, strict=True)]


def _best(sum_V: Array, seen_V: Array, k: int) -> list[int]:
    found = np.flatnonzero(seen_V)
    return [int(one) for one in found[np.argsort(-sum_V[found], kind="stable")[:k]]]


def _common(best: Sequence[Sequence[int]], k: int) -> int:
    return sum(len(set(first[:k]) & set(second[:k])) for first, second in combinations(best, 2))


def _shares(count: int, classes: int, k: int) -> float:
    pairs = classes * (classes - 1) // 2
    return count / (pairs * k) if pairs else float("nan")


def _overlap(records: Sequence[Record], weights_RN: Array, *, k: int = 50) -> dict[str, Array]:
    totals = Totals(records)
    counts = [_common(totals.best(weight_N, k), k) for weight_N in weights_RN]
    shares = [_shares(count, len(totals.classes), k) for count in counts]
    return {"token-overlap": np.array(shares), "count": np.array(counts, dtype=np.float64)}


def _sweep(records: Sequence[Record], weights_RN: Array) -> Curves:
    totals = Totals(records)
    rows = [
        [_shares(_common(best, k), len(totals.classes), k) for k in SWEEP]
        for best in (totals.best(weight_N, SWEEP[-1]) for weight_N in weights_RN)
    ]
    return [float(k) for k in SWEEP], np.array(rows)


def word_lists(records: Sequence[Record], k: int = 50) -> dict[str, list[tuple[str, float]]]:
    """For each predicted class its k strongest tokens with their summed relevance: the material of a word cloud."""
    totals = Totals(records)
    weights = np.ones(len(records))
    sums, _ = totals.under(weights)
    return {
        name: [(totals.tokens[token], float(sums[place, token])) for token in best]
        for place, (name, best) in enumerate(zip(totals.classes, totals.best(weights, k), strict=True))
    }


@metric(
    paper="Decoded layer saliency, Sec. 3.2",
    better="lower",
    values=("token-overlap", "count"),
    summary=_overlap,
    curve=_sweep,
)
def token_overlap(
    model: Model,
    cases: list[ExplainedExample],
    *,
    k: int = 50,
    reference: str | None = None,
    text_column: str | None = None,
    documents: int = DOCUMENTS,
) -> list[Record]:
    """Share of tokens common to the top k of two predicted classes, over all pairs of classes; `count` is not divided.

    A token's relevances are summed over the examples predicted as the class, weighted by inverse document frequency in
    `reference`, a text file or table of at most `documents` documents (never the evaluated set); unweighted without.
    Where all examples are predicted as one class, there are no two to compare, and `token-overlap` is nan.
    """
    require_integer("k", k)
    require_integer("documents", documents)
    if model.takes_images or model.problem == "span":
        raise UnsupportedModel(f"token-overlap compares the words of classes, which {model.name} does not have.")
    weights = None if reference is None else inverse_frequencies(model, reference, text_column, documents)
    return [_record(case, weights) for case in cases]


def _record(case: ExplainedExample, weights: Any) -> Record:
    explanation = explanation_for(case, "prediction")
    real = np.flatnonzero(~explanation.special)
    tokens = [explanation.tokens[place] for place in real]
    weight = np.ones(len(real)) if weights is None else np.array([weights(token) for token in tokens])
    return {"class": explanation.label, "tokens": tokens, "relevance": (explanation.relevance[real] * weight).tolist()}


def inverse_frequencies(model: Model, reference: str, text_column: str | None, documents: int) -> Any:
    """A function token → log((1 + documents) / (1 + documents with it)), made once as long as the reference stays."""
    return _frequencies(ref(model), reference, text_column, documents, _state(str(reference)))


def _state(reference: str) -> tuple[tuple[int, ...], ...]:
    """Changes when a file, or one in a folder, does; empty for what is neither."""
    if not reference.strip():
        return ()
    path = Path(reference.removeprefix("hf:"))
    found = (one.stat() for one in (path, *sorted(path.rglob("*"))) if one.exists())
    return tuple((one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in found)


@lru_cache(maxsize=4)
def _frequencies(model: ReferenceType[Model], reference: str, text_column: str | None, documents: int, _: Any) -> Any:
    known = model()
    assert known is not None
    task = read_task(reference, text_column=text_column, limit=documents)
    texts = [_text(one, reference) for one in task.examples]
    seen: Counter[int] = Counter()
    for start in range(0, len(texts), PART):
        part = known.processor(texts[start : start + PART], add_special_tokens=False, truncation=False)
        for row in part["input_ids"]:
            seen.update(set(row))
    names = known.processor.convert_ids_to_tokens(list(seen))
    frequency, count = dict(zip(names, seen.values(), strict=True)), len(texts)
    return lambda token: float(np.log((1 + count) / (1 + frequency.get(token, 0))))


def _text(example: Example, reference: str) -> str:
    several = example.input if isinstance(example.input, tuple) else (example.input,)
    if not all(isinstance(one, str) for one in several):
        raise BadInput(f"reference='{reference}' holds pictures: give a text file or a table of texts.")
    return " ".join(several)
