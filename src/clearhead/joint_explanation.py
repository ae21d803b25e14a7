"""The explanation of a model that reads several inputs together: a picture and words, or two texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.arrays import Array
from clearhead.check import Check
from clearhead.errors import BadInput, BadOption
from clearhead.explanation import Explanation
from clearhead.validation import require_integer

if TYPE_CHECKING:
    # clearhead.model.target imports torch, which views of saved explanations do without.
    from clearhead.model.target import Target


@dataclass(frozen=True, eq=False)
class JointExplanation:
    """Relevance of all inputs that a model read together, for one target; pure data.

    `explanations` has one Explanation per picture or text, in the order in which they were given, with the same target,
    label, method and model; their relevance is on one scale. `score` is what the model says and is explained.
    `chosen` is the index of the text that the target names. `pairs` has the relevance of each pair of tokens (tokens of
    the first × tokens of the second explanation), if the method has it. `diagnostics` are those of all inputs together.
    """

    explanations: tuple[Explanation, ...]
    score: float | None = None
    probability: float | None = None
    pairs: Array | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    chosen: int = 0
    check: Check | None = None

    def __post_init__(self) -> None:
        if not self.explanations:
            raise BadInput("A JointExplanation needs at least one explanation.")

    def __repr__(self) -> str:
        best = ", ".join(f"{name} {relevance:+.3g}" for name, relevance in self.top(3))
        return f"<JointExplanation of '{self.label}' by {self.method}: {best}>"

    def _repr_html_(self) -> str:
        from clearhead.views import joint_html

        return joint_html.fragment(self)

    # What all inputs share is read from the first of them, so that each fact is saved once.
    @property
    def target(self) -> "Target":
        return self.explanations[0].target

    @property
    def label(self) -> str:
        return self.explanations[0].label

    @property
    def method(self) -> str:
        return self.explanations[0].method

    @property
    def model(self) -> str:
        return self.explanations[0].model

    @property
    def options(self) -> Mapping[str, Any]:
        return self.explanations[0].options

    @property
    def changed_options(self) -> Mapping[str, Any] | None:
        return self.explanations[0].changed_options

    @property
    def source(self) -> Mapping[str, Any]:
        return self.explanations[0].source

    @property
    def is_wrong(self) -> bool | None:
        """Whether the prediction differs from the gold label; None if either is unknown."""
        return self.explanations[0].is_wrong

    @property
    def images(self) -> tuple[Explanation, ...]:
        return tuple(explanation for explanation in self.explanations if explanation.grid is not None)

    @property
    def texts(self) -> tuple[Explanation, ...]:
        return tuple(explanation for explanation in self.explanations if explanation.grid is None)

    @property
    def image(self) -> Explanation:
        """The explanation of the picture, or of the first of several."""
        return _require_first(self.images, "picture")

    @property
    def text(self) -> Explanation:
        """The explanation of the text that the target names, or of the first."""
        # Models that read several texts at once have a chosen one among them.
        return _require_first(self.texts[self.chosen :], "text")

    @property
    def strongest(self) -> float:
        """The largest absolute relevance of a token that is not special, over all inputs: the end of the scale."""
        values = [np.abs(explanation.relevance[~explanation.special]) for explanation in self.explanations]
        # NaN, of a method that failed on a token, must not become the end of the scale.
        return float(np.nan_to_num(np.concatenate(values)).max(initial=0.0))

    @property
    def shares(self) -> tuple[float, ...]:
        """How the absolute relevance divides among the inputs."""
        totals = np.array([np.abs(explanation.relevance).sum() for explanation in self.explanations])
        whole = float(totals.sum())
        # Relevance that is zero everywhere divides into nothing.
        if whole == 0:
            return (0.0,) * len(self.explanations)
        return tuple(map(float, totals / whole))

    def top(self, k: int = 10) -> list[tuple[str, float]]:
        """Return the k tokens with the highest relevance over all inputs, without special tokens."""
        require_integer("k", k, 0)
        ranked: list[tuple[str, float]] = []
        for explanation in self.explanations:
            ranked += explanation.top(k)
        # Stable, so that of equal tokens those of the first input come first.
        return sorted(ranked, key=lambda token: -token[1])[:k]

    def plot(self) -> Any:
        """Return the explanation as a Matplotlib figure, which can be saved as PDF; needs `clearhead[plots]`."""
        from clearhead.views import figure

        return figure.make_figure([self])

    def save(self, path: str | Path) -> Path:
        """Write .json or .safetensors atomically; `clearhead.read` reads it."""
        from clearhead.serialization import as_path, save

        return save(self, as_path(path))


def _require_first(explanations: tuple[Explanation, ...], name: str) -> Explanation:
    if not explanations:
        raise BadOption(f"This explanation has no {name}.")
    return explanations[0]
