"""Records of what changed between two models: the reasons of each, how far they agree, and what of it is noise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import starmap
from typing import Any

import numpy as np

from clearhead.arrays import Array

SAME = "same reasons"
WITHIN_NOISE = "moved within noise"
MOVED = "moved"
WORD = "word"
TOKEN = "token"
PATCH = "patch"

Span = tuple[int, int, int]
"""The index of a text in a pair, and the first and last-but-one character of a unit in it."""


@dataclass(frozen=True, eq=False)
class Reasons:
    """What one model answers to one input, and why: the share that each unit has in the answer.

    `id` is the example's name in its task, `digest` a hash of the input. Units are words (single characters in scripts
    without blanks), tokens if the input has no text, or the patches of `grid`; `spans` has the characters of each
    word. A unit's share is its relevance for the predicted class, divided by the sum of all absolute relevances:
    negative if it speaks against the answer. `blocks` (blocks × units) has the shares by block of the model. `label` is
    the class of the example in the task. `text` is None for images, and in snapshots without texts. `was_cut` tells
    whether the text is longer than what the model read; snapshots do not keep it.
    """

    id: str
    digest: str
    prediction: str
    probability: float | None
    kind: str
    shares: Array
    spans: tuple[Span, ...] = ()
    grid: tuple[int, int] | None = None
    text: str | tuple[str, ...] | None = None
    label: str | None = None
    blocks: Array | None = None
    was_cut: bool = False

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words, as they stand in the text; empty if there is no text."""
        # Patches and tokens have no spans.
        if self.text is None:
            return ()
        return tuple(starmap(self._cut, self.spans))

    def _cut(self, segment: int, start: int, end: int) -> str:
        return self._texts[segment][start:end]

    @property
    def _texts(self) -> tuple[str, ...]:
        if isinstance(self.text, tuple):
            return self.text
        return (self.text or "",)

    @property
    def ranks(self) -> Array:
        """The rank of each unit: 0 for the one that speaks most for the answer, ties by position."""
        # The inverse of a permutation is the order of its entries.
        return np.argsort(self.order, kind="stable")

    @property
    def order(self) -> Array:
        """The indices of the units, the one that speaks most for the answer first."""
        # Stable: NumPy's default sort orders ties differently from one CPU to the next.
        return np.argsort(-self.shares, kind="stable")

    def top(self, k: int = 5) -> list[tuple[str, float]]:
        """Return the k words that speak most for the answer, with their shares; empty if there is no text."""
        return [self._word(unit) for unit in self.order[:k] if self.words]

    def _word(self, unit: int) -> tuple[str, float]:
        return self.words[unit], float(self.shares[unit])


@dataclass(frozen=True, eq=False)
class NoiseDraw:
    """How far a model's reasons moved from themselves by something that is no change, such as rounded weights.

    `shift_N` and `agreement_N` are those of each example, `largest_word_shift` that of the word that moved most over
    the examples, `changed` the number of examples with another answer. `block_agreement` is the mean over examples at
    each block.
    """

    name: str
    shift_N: Array
    agreement_N: Array
    largest_word_shift: float
    changed: int
    block_agreement: tuple[float, ...] = ()

    @property
    def mean_shift(self) -> float:
        return float(self.shift_N.mean())

    @property
    def mean_agreement(self) -> float:
        return float(self.agreement_N.mean())


@dataclass(frozen=True, eq=False)
class Noise:
    """Draws of noise in the weights of one model, the model in other precisions, and by other methods.

    Methods are only for comparison: a change of the model is not judged by them.
    """

    draws: tuple[NoiseDraw, ...]
    precisions: tuple[NoiseDraw, ...] = ()
    methods: tuple[NoiseDraw, ...] = ()

    @property
    def sources(self) -> tuple[NoiseDraw, ...]:
        """Everything that a change of the model is judged by."""
        return (*self.draws, *self.precisions)

    @property
    def shift_SN(self) -> Array:
        """The shift of each example by each source."""
        return np.stack([source.shift_N for source in self.sources])

    @property
    def largest_mean_shift(self) -> float:
        return max(source.mean_shift for source in self.sources)

    @property
    def mean_shift_D(self) -> Array:
        """The mean shift by each draw of noise in the weights."""
        return np.array([draw.mean_shift for draw in self.draws])


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The reasons of one model on all examples of a task.

    `checksum` is that of the model's weights, `task_digest` that of the inputs. `method` is its name,
    `options` are all its options. `versions` are those of the libraries that computed it.
    """

    model: str
    checksum: str
    labels: tuple[str, ...]
    task: str
    task_digest: str
    method: str
    options: Mapping[str, Any]
    examples: tuple[Reasons, ...] = field(repr=False)
    versions: Mapping[str, str] = field(default_factory=dict)
    noise: Noise | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def has_texts(self) -> bool:
        """Whether the texts of the examples were saved."""
        return any(example.text is not None for example in self.examples)


@dataclass(frozen=True)
class Agreement:
    """How far two models answer one input for the same reasons.

    `correlation` is Spearman's, over the shares of common units; `overlap` the part of the strongest units that both
    have, with the same sign; `shift` the part of the reasons that moved, half the sum of the differences of shares: 0
    for equal reasons, 1 if no unit has a share of the same sign in both.
    """

    correlation: float
    overlap: float
    shift: float


@dataclass(frozen=True, eq=False)
class ExampleDiff:
    """One input under both models; `threshold` is the shift that noise stays below."""

    first: Reasons
    second: Reasons
    agreement: Agreement
    threshold: float

    @property
    def shift(self) -> float:
        """The part of the reasons that moved."""
        return self.agreement.shift

    @property
    def has_same_answer(self) -> bool:
        return self.first.prediction == self.second.prediction

    @property
    def is_beyond_noise(self) -> bool:
        return self.shift > self.threshold


@dataclass(frozen=True)
class WordShift:
    """The mean share of a word in both models, over the examples that have it, and the interval of the difference.

    `p_corrected` is of a paired test, with Holm's correction for all tested words; None for words in too few examples.
    `is_beyond_noise` says that the test finds a difference, and that it is larger than that of any word by noise.
    """

    word: str
    examples: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_corrected: float | None
    is_beyond_noise: bool


@dataclass(frozen=True)
class ClassShift:
    """How often both models answer with a class, the interval of the difference, and the mean shift of its reasons.

    `shift` is over the examples that the first model answers with the class; None if there are none.
    """

    label: str
    first: int
    second: int
    difference: float
    low: float
    high: float
    p_corrected: float
    shift: float | None


@dataclass(frozen=True)
class BlockAgreement:
    """The mean rank correlation of the shares at a block of the first model, and the lowest of all draws of noise."""

    block: int
    correlation: float
    noise: float | None


@dataclass(frozen=True)
class Verdict:
    """Whether reasons moved, in a word (SAME, WITHIN_NOISE or MOVED) and in a sentence; and the numbers behind it.

    `bound` is the mean shift that noise stays below; `p` the chance that the excess over noise is none; `beyond` the
    number of examples that moved more than noise moves them, `same` that of the same answers.
    """

    outcome: str
    sentence: str
    shift: float
    bound: float
    p: float
    beyond: int
    examples: int
    same: int


@dataclass(frozen=True, eq=False)
class ModelDiff:
    """What changed between two models on one task.

    `rows` are sorted: those with the same answer first, and the reasons that moved most first. `words` are those that
    moved most first, `notes` say what could not be compared.
    """

    first: Snapshot
    second: Snapshot
    rows: tuple[ExampleDiff, ...]
    words: tuple[WordShift, ...]
    classes: tuple[ClassShift, ...]
    blocks: tuple[BlockAgreement, ...]
    noise: Noise | None
    verdict: Verdict
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<ModelDiff of {self.first.model} and {self.second.model}: {self.verdict.sentence}>"

    def _repr_html_(self) -> str:
        from clearhead.views import diff_html

        return diff_html.fragment(self)

    @property
    def correlation(self) -> float:
        """The mean rank correlation over all examples."""
        return float(np.mean([row.agreement.correlation for row in self.rows]))

    @property
    def overlap(self) -> float:
        """The mean overlap of the strongest units over all examples."""
        return float(np.mean([row.agreement.overlap for row in self.rows]))

    @property
    def shift(self) -> float:
        """The mean part of the reasons that moved."""
        return self.verdict.shift

    @property
    def unchanged(self) -> tuple[ExampleDiff, ...]:
        """The examples with the same answer."""
        return tuple(row for row in self.rows if row.has_same_answer)

    @property
    def changed(self) -> tuple[ExampleDiff, ...]:
        """The examples with another answer."""
        return tuple(row for row in self.rows if not row.has_same_answer)
