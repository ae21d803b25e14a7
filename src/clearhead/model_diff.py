"""Records of what changed between two models: the reasons of each, how far they agree, and what of it is noise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
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
    the class of the example in the task. `text` is None for images, and in snapshots without texts.
    """

    id: str
    digest: str
    prediction: str
    probability: float | None
    kind: str
    shares: Array
    spans: tuple[Span, ...] = ()
    grid: tuple[int, int] | None = None
    text: str | tuple[str, str] | None = None
    label: str | None = None
    blocks: Array | None = None

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words, as they stand in the text; empty if there is no text."""
        if self.text is None or self.kind != WORD:
            return ()
        texts = (self.text,) if isinstance(self.text, str) else self.text
        return tuple(texts[segment][start:end] for segment, start, end in self.spans)

    @property
    def ranks(self) -> Array:
        """The rank of each unit: 0 for the one that speaks most for the answer, ties by position."""
        ranks_U = np.empty(len(self.shares), dtype=np.int64)
        ranks_U[self.order] = np.arange(len(self.shares))
        return ranks_U

    @property
    def order(self) -> Array:
        """The indices of the units, the one that speaks most for the answer first."""
        # Stable: NumPy's default sort orders ties differently from one CPU to the next.
        return np.argsort(-self.shares, kind="stable")

    def top(self, k: int = 5) -> list[tuple[str, float]]:
        """Return the k words that speak most for the answer, with their shares; empty if there is no text."""
        if not self.words:
            return []
        return [(self.words[unit], float(self.shares[unit])) for unit in self.order[:k]]


@dataclass(frozen=True, eq=False)
class NoiseDraw:
    """How far a model's reasons moved from themselves by something that is no change, such as rounded weights.

    `shift_N` and `agreement_N` are those of each example, `largest_word_shift` that of the word that moved most over
    the examples, `changed` the number of examples with another answer, `block_agreement` the mean over examples by block.
    """

    name: str
    shift_N: Array
    agreement_N: Array
    largest_word_shift: float
    changed: int
    block_agreement: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Noise:
    """Draws of noise of one model, and what other methods say about the same model, for comparison."""

    draws: tuple[NoiseDraw, ...]
    methods: tuple[NoiseDraw, ...] = ()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The reasons of one model on all examples of a task.

    `checksum` is that of the model's weights, `task_digest` that of the inputs. `method` is as it is written,
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
