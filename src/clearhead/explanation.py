"""The result of attribution: tokens, relevance and provenance of one input."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.check import Check
from clearhead.errors import BadOption
from clearhead.lazy import LazyList
from clearhead.model.images import place_map
from clearhead.model.text_units import TextUnit, find_larger_unit, list_units
from clearhead.model.unspaced import find_word_spans
from clearhead.model.word_columns import PlacedOffsets
from clearhead.validation import require_choice, require_integer

if TYPE_CHECKING:
    # clearhead.model.target imports torch, which views of saved explanations do without.
    from clearhead.model.target import Target

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of what the model saw of an image, in pixels of the image."""
TOP_UNITS = ("word", "token")
# A single word of more tokens is a sentence of a script without blanks.
MAX_WORD_TOKENS = 4
REDUCTIONS: dict[str, Callable[[Array], float]] = {
    "sum": lambda values: float(values.sum()),
    "mean": lambda values: float(values.mean()),
    "max": lambda values: float(values.max()),
    "strongest": lambda values: float(values[np.abs(values).argmax()]),
    "first": lambda values: float(values[0]),
}


class Word(NamedTuple):
    """A word of the original text with its relevance; `segment` is the index of its text in a pair."""

    text: str
    relevance: float
    start: int
    end: int
    segment: int = 0


@dataclass(frozen=True, eq=False)
class Explanation:
    """Relevance per token of one input, for one target, with the provenance of the numbers.

    `relevance` has one number per token without padding; `special` marks class, separator and register tokens;
    `offsets` point into `text`. Images have a `grid` of patches instead of a text. `layers` (blocks × tokens) and
    `heads` (blocks × heads, NaN where a block has fewer) are None unless the method was asked for them or has them
    anyway. `changed_options` are the `options` that differ from the method's defaults; None if the defaults are
    unknown, as in files of earlier versions. `check` is the test of the explanation, if one was made. `source` says
    where the input comes from, as far as that is known: `file`, `row`, `id`, `gold` (the right label, as the model
    calls it), and `columns`, the other columns of its table.
    """

    tokens: tuple[str, ...]
    relevance: Array
    special: Array
    target: "Target"
    label: str
    method: str
    text: str | tuple[str, ...] | None = None
    offsets: tuple[tuple[int, ...], ...] | None = None
    layers: Array | None = None
    grid: tuple[int, int] | None = None
    pixels: Array | None = None
    image: Image.Image | None = None
    box: Box | None = None
    probability: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    changed_options: Mapping[str, Any] | None = None
    heads: Array | None = None
    check: Check | None = None
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_wrong(self) -> bool | None:
        """Whether the prediction differs from the gold label; None if either is unknown."""
        gold = self.source.get("gold")
        predicted = self.diagnostics.get("predicted")
        # A gold label that the model does not have cannot be compared.
        if gold is None or predicted is None or self.source.get("gold_is_class") is False:
            return None
        return bool(gold != predicted)

    def __repr__(self) -> str:
        best = ", ".join(f"{token} {relevance:+.3g}" for token, relevance in self.top(3))
        return f"<Explanation of '{self.label}' by {self.method}: {best}>"

    def _repr_html_(self) -> str:
        from clearhead.views import notebook

        return notebook.fragment(self)

    def top(self, k: int = 10, unit: str | None = None) -> list[tuple[str, float]]:
        """Return the k words with the highest relevance (see `words`); ties by position.

        Methods that score sentences or sources as wholes have these instead of words, sources by their names.
        `unit="token"` returns tokens, as do explanations of images and of tensors, which have no words. Special tokens
        are left out.
        """
        require_integer("k", k, 0)
        if unit is not None:
            require_choice("unit", unit, TOP_UNITS)
        if unit is None and find_larger_unit(self):
            return self._rank_units()[:k]
        if unit == "word" or (unit is None and self._has_words()):
            ranked = sorted(self.words(), key=lambda word: -word.relevance)
            return [(word.text, float(word.relevance)) for word in ranked[:k]]
        return [(self.tokens[index], float(self.relevance[index])) for index in self._rank_tokens()[:k]]

    def _rank_units(self) -> list[tuple[str, float]]:
        units = [(unit.name or unit.text, self._sum_tokens(unit.tokens)) for unit in list_units(self)]
        return sorted(units, key=lambda unit: -unit[1])

    def _sum_tokens(self, tokens: list[int]) -> float:
        return float(self.relevance[tokens].sum())

    def _has_words(self) -> bool:
        """Return whether the text is known, and has words rather than one long string."""
        if self.text is None or self.offsets is None or self.grid is not None:
            return False
        # Scripts without blanks between words would give the whole sentence.
        count = sum(1 for _ in self.find_words())
        return count > 1 or int((~self.special).sum()) <= MAX_WORD_TOKENS

    def _rank_tokens(self) -> Array:
        """Return the indices of the tokens that are not special, the most relevant first."""
        # Stable, so that of equal tokens the first comes first.
        order = np.argsort(-self.relevance, kind="stable")
        return order[~self.special[order]]

    @property
    def word_reduction(self) -> str:
        """How sub-words become a word: by the "sum" of their relevance, or the "strongest" of what does not add up."""
        is_single = self.diagnostics.get("unit") == "sub-word" and not self.diagnostics.get("adds_up", True)
        return "strongest" if is_single else "sum"

    def words(self, reduction: str | None = None) -> list[Word]:
        """Return the words between blanks, with the relevance of their sub-words reduced to one number.

        In scripts that have no blanks between words, such as Chinese, tokens are words.
        `reduction` is sum, mean, max, strongest or first; by default `word_reduction`.
        """
        reduce = _find_reduction(self.word_reduction if reduction is None else reduction)
        self._require_text()
        if isinstance(self.offsets, PlacedOffsets):
            spans = self.offsets.words.list_spans(self.text, self.special)
            if spans is not None:
                return self._make_words(spans, reduce)
        return self._search_words(reduce)

    def units(self) -> list[Word]:
        """Return what the method scored as a whole: sentences, the sources of a prompt, or else words."""
        if not find_larger_unit(self):
            return self.words()
        return list(map(self._make_unit, list_units(self)))

    def _make_unit(self, unit: TextUnit) -> Word:
        return Word(unit.text, self._sum_tokens(unit.tokens), unit.start, unit.end, unit.segment)

    def _make_words(self, spans: list[list[int]], reduce: Callable[[Array], float]) -> list[Word]:
        """Return words whose characters and tokens are known (see `WordColumns`)."""
        starts, ends, first_tokens, counts = spans
        relevance = list(map(self.relevance.tolist().__getitem__, first_tokens))
        for index, count in enumerate(counts):
            # Most words are a single token, whose relevance is that of the word under any reduction.
            if count > 1:
                first = first_tokens[index]
                relevance[index] = reduce(self.relevance[first : first + count])
        segments = self._find_segments(first_tokens)
        texts = _cut_texts(self._segments, segments, starts, ends)
        # What `Word._make` does, without calling Python for each of the words: they may be millions.
        return list(map(tuple.__new__, repeat(Word), zip(texts, relevance, starts, ends, segments, strict=True)))

    def _find_segments(self, tokens: Sequence[int]) -> list[int]:
        """Return the index of the text that each of these tokens is of."""
        if isinstance(self.text, str):
            return [0] * len(tokens)
        assert self.offsets is not None
        return [self.offsets[token][0] for token in tokens]

    def _search_words(self, reduce: Callable[[Array], float]) -> list[Word]:
        """Return the words of any text and tokens."""
        starts = [_TokenStarts.of(self, segment) for segment in range(len(self._segments))]
        relevance = self.relevance.tolist()
        words = []
        for segment, start, end in self.find_words():
            indices = starts[segment].find_within(start, end)
            text = self._segments[segment][start:end]
            if len(indices) == 1:
                words.append(Word(text, relevance[indices[0]], start, end, segment))
            # A truncated text has words without tokens.
            elif indices:
                words.append(Word(text, reduce(self.relevance[indices]), start, end, segment))
        return words

    def _require_text(self) -> None:
        if self.text is None or self.offsets is None:
            raise BadOption("This explanation has no original text, so it has no words: use its tokens.")

    def find_words(self) -> Iterator[tuple[int, int, int]]:
        """Yield the index of its text, and the characters, of every word between blanks and special tokens.

        In scripts that have no blanks between words, such as Chinese, tokens are words.
        """
        for index, segment in enumerate(self._segments):
            for start, end in find_word_spans(self._blank_special(segment, index), self._list_edges(segment, index)):
                yield index, start, end

    def _list_edges(self, text: str, segment: int) -> Sequence[int]:
        """Return where tokens begin and end that may be words of their own."""
        if text.isascii():
            return ()
        # What follows the last token was cut off, or is the end of an answer, which nothing was predicted from.
        return _TokenStarts.of(self, segment).list_edges(self.offsets or ())

    def _blank_special(self, text: str, segment: int) -> str:
        """Replace special tokens that stand in the text, such as those of a chat template, by blanks."""
        for offset in compress(self.offsets or (), self.special.tolist()):
            start, end = offset[-2:]
            if _is_in_segment(offset, segment) and start < end:
                text = text[:start] + " " * (end - start) + text[end:]
        return text

    @property
    def _segments(self) -> tuple[str, ...]:
        if isinstance(self.text, tuple):
            return self.text
        return (self.text or "",)

    def heatmap(self) -> Array:
        """Return relevance over the original image (rows × columns), NaN outside of what the model saw."""
        if self.grid is None or self.box is None:
            raise BadOption("Only the explanation of an image has a heat map.")
        return place_map(self._map(self.grid), self.box, *_image_size(self.image, self.box))

    def _map(self, grid: tuple[int, int]) -> Array:
        """Return relevance per pixel of the network's input, or per patch."""
        # Methods that reach the pixels are finer than the grid.
        if self.pixels is not None:
            return self.pixels
        return self.relevance[~self.special].reshape(grid)

    def plot(self) -> Any:
        """Return the explanation as a Matplotlib figure, which can be saved as PDF; needs `clearhead[plots]`."""
        from clearhead.views import figure

        return figure.make_figure([self])

    def save(self, path: str | Path) -> Path:
        """Write .json or .safetensors atomically; `clearhead.read` reads it."""
        from clearhead.serialization import as_path, save

        return save(self, as_path(path))


def _find_reduction(name: str) -> Callable[[Array], float]:
    if not isinstance(name, str) or name not in REDUCTIONS:
        raise BadOption(f"Invalid reduction={name!r}. Available: {', '.join(REDUCTIONS)}.")
    return REDUCTIONS[name]


def _cut_texts(texts: Sequence[str], segments: list[int], starts: list[int], ends: list[int]) -> list[str]:
    if len(texts) == 1:
        return [texts[0][start:end] for start, end in zip(starts, ends, strict=True)]
    return [texts[segment][start:end] for segment, start, end in zip(segments, starts, ends, strict=True)]


def _is_in_segment(offset: tuple[int, ...], segment: int) -> bool:
    # Offsets of a pair begin with the number of their text.
    return len(offset) == 2 or offset[0] == segment


@dataclass(frozen=True)
class _TokenStarts:
    """Where the tokens of a text begin, in ascending order, and the index of each."""

    starts: list[int]
    indices: list[int]

    @classmethod
    def of(cls, explanation: Explanation, segment: int) -> "_TokenStarts":
        offsets = explanation.offsets or ()
        tokens = []
        for index, (offset, is_special) in enumerate(zip(offsets, explanation.special.tolist(), strict=False)):
            # Some tokenizers emit tokens for nothing but a blank, whose offsets are empty.
            if not is_special and offset[-1] > offset[-2] and _is_in_segment(offset, segment):
                tokens.append((offset[-2], index))
        # Slow tokenizers may not return tokens in the order of the text.
        tokens.sort()
        return cls([start for start, _ in tokens], [index for _, index in tokens])

    def list_edges(self, offsets: Sequence[tuple[int, ...]]) -> list[int]:
        """Return where the tokens begin and end, in ascending order."""
        ends = [offsets[index][-1] for index in self.indices]
        return sorted([*self.starts, *ends])

    def find_within(self, start: int, end: int) -> list[int]:
        """Return the indices of the tokens that begin between two characters, in ascending order."""
        first = bisect_left(self.starts, start)
        indices = self.indices[first : bisect_left(self.starts, end, first)]
        indices.sort()
        return indices


def _image_size(image: Image.Image | None, box: Box) -> tuple[int, int]:
    """Return width and height of the image; without it, those of what the model saw."""
    if image is not None:
        return image.size
    _, _, right, bottom = box
    return round(right), round(bottom)


class Explanations(LazyList[Explanation]):
    """A list of the explanations of several inputs; shows itself in a notebook.

    An explanation is made when it is read, and forgotten when nothing else refers to it: very many take little memory.
    """

    def _repr_html_(self) -> str:
        from clearhead.views import notebook

        return notebook.listing(self)

    def to_records(self, *, flat: bool = False) -> list[dict[str, Any]]:
        """Return one dict per explanation (docs/tables.md); `flat` leaves out words and other nested values."""
        from clearhead.tables import convert

        return convert.to_records(self, flat=flat)

    def to_arrow(self, *, flat: bool = False) -> Any:
        """Return a pyarrow Table with one row per explanation."""
        from clearhead.tables import convert

        return convert.to_arrow(self.to_records(flat=flat))

    def to_pandas(self, *, flat: bool = False) -> Any:
        """Return a pandas DataFrame with one row per explanation."""
        from clearhead.tables import convert

        return convert.to_pandas(self.to_records(flat=flat))


class Comparison(dict[str, Any]):
    """By method as written, an explanation, or a list with one per input; shows itself in a notebook."""

    def _repr_html_(self) -> str:
        from clearhead.views import notebook

        return notebook.comparison(self)

    def to_records(self, *, flat: bool = False) -> list[dict[str, Any]]:
        """Return one dict per method and input (docs/tables.md); `method` is as it was written."""
        from clearhead.tables import convert

        return convert.comparison_records(self, flat=flat)

    def to_arrow(self, *, flat: bool = False) -> Any:
        """Return a pyarrow Table with one row per method and input."""
        from clearhead.tables import convert

        return convert.to_arrow(self.to_records(flat=flat))

    def to_pandas(self, *, flat: bool = False) -> Any:
        """Return a pandas DataFrame with one row per method and input."""
        from clearhead.tables import convert

        return convert.to_pandas(self.to_records(flat=flat))


class ModelComparison(Comparison):
    """By model, what `compare` makes of the same inputs with it: a `Comparison`; shows itself in a notebook.

    Diagnostics of each explanation have `model_agreement`: by name of each other model, the rank correlation of the
    words or patches that both read.
    """

    def _repr_html_(self) -> str:
        from clearhead.views import model_grid

        return model_grid.fragment(self)

    def to_records(self, *, flat: bool = False) -> list[dict[str, Any]]:
        """Return one dict per model, method and input (docs/tables.md)."""
        records = []
        for name, comparison in self.items():
            for record in comparison.to_records(flat=flat):
                records.append({**record, "model": name})
        return records
