"""The explanation: one relevance per token, with where it came from, and its way to disk and back."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.errors import BadOption
from clearhead.model.images import place_map
from clearhead.validation import require_integer

if TYPE_CHECKING:
    # clearhead.model.target imports torch, which views of saved explanations do without.
    from clearhead.model.target import Target

REDUCTIONS: dict[str, Callable[[Array], float]] = {
    "sum": lambda values: float(values.sum()),
    "mean": lambda values: float(values.mean()),
    "max": lambda values: float(values.max()),
    "strongest": lambda values: float(values[np.abs(values).argmax()]),
    "first": lambda values: float(values[0]),
}


@dataclass(frozen=True)
class Word:
    """A word of the original text with its relevance; `segment` counts the texts of a pair."""

    text: str
    relevance: float
    start: int
    end: int
    segment: int = 0


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a model gave one input its score: relevance per token, and the provenance of the numbers.

    `relevance` has one number per token without padding; `special` marks class, separator and register tokens;
    `offsets` point into `text`. Images have a `grid` of patches instead of a text. `changed_options` are the `options`
    that differ from the method's defaults; None if the defaults are unknown, as in files of earlier versions.
    """

    tokens: tuple[str, ...]
    relevance: Array
    special: Array
    target: "Target"
    label: str
    method: str
    text: str | tuple[str, str] | None = None
    offsets: tuple[tuple[int, ...], ...] | None = None
    layers: Array | None = None
    grid: tuple[int, int] | None = None
    pixels: Array | None = None
    image: Image.Image | None = None
    box: tuple[float, float, float, float] | None = None
    probability: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    changed_options: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        best = ", ".join(f"{token} {value:+.3g}" for token, value in self.top(3))
        return f"<Explanation of '{self.label}' by {self.method}: {best}>"

    def _repr_html_(self) -> str:
        from clearhead.views import notebook

        return notebook.fragment(self)

    def top(self, k: int = 10) -> list[tuple[str, float]]:
        """The k tokens with the highest relevance, special tokens left out; ties by position."""
        require_integer("k", k, 0)
        order = np.lexsort((np.arange(len(self.relevance)), -self.relevance))
        kept = [place for place in order if not self.special[place]][:k]
        return [(self.tokens[place], float(self.relevance[place])) for place in kept]

    def words(self, reduction: str = "sum") -> list[Word]:
        """Words between blanks with the relevance of their sub-words: sum, mean, max, strongest or first."""
        if not isinstance(reduction, str) or reduction not in REDUCTIONS:
            raise BadOption(f"reduction={reduction!r} is not a choice. Use one of {', '.join(REDUCTIONS)}.")
        if self.text is None or self.offsets is None:
            raise BadOption("This explanation has no original text, so it has no words: use its tokens.")
        segments = self.text if isinstance(self.text, tuple) else (self.text,)
        return [
            Word(match.group(), REDUCTIONS[reduction](self.relevance[places]), *match.span(), number)
            for number, segment in enumerate(segments)
            for match in re.finditer(r"\S+", segment)
            if len(places := self._tokens_within(number, *match.span()))
        ]

    def _tokens_within(self, segment: int, start: int, end: int) -> list[int]:
        return [
            place
            for place, offset in enumerate(self.offsets or ())
            if not self.special[place]
            and offset[-1] > offset[-2]
            and (len(offset) == 2 or offset[0] == segment)
            and start <= offset[-2] < end
        ]

    def heatmap(self) -> Array:
        """Relevance over the original picture (rows × columns), NaN where the model did not look."""
        if self.grid is None or self.box is None:
            raise BadOption("Only the explanation of an image has a heat map.")
        source = self.relevance[~self.special].reshape(self.grid) if self.pixels is None else self.pixels
        left, top, right, bottom = self.box
        width, height = self.image.size if self.image is not None else (round(right), round(bottom))
        return place_map(source, (left, top, right, bottom), width, height)

    def save(self, path: str | Path) -> Path:
        """Writes .json or .safetensors, whole or not at all; `clearhead.read` brings it back."""
        from clearhead.serialization import as_path, save

        return save(self, as_path(path))


def copy_with(one: Explanation, **changes: Any) -> Explanation:
    """The same with other values: `dataclasses.replace` for thousands of them, without setting every field anew."""
    found = object.__new__(Explanation)
    found.__dict__.update(one.__dict__, **changes)
    return found


# --- on disk ---------------------------------------------------------------------------------------------------


class Explanations(list[Explanation]):
    """What `explain` answers for many inputs."""

    def _repr_html_(self) -> str:
        from clearhead.views import notebook

        return notebook.listing(self)


class Comparison(dict[str, Any]):
    """What `compare` answers: by the method as spelled, an explanation, or a list with one per input."""

    def _repr_html_(self) -> str:
        from clearhead.views import notebook

        return notebook.comparison(self)
