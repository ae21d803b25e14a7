"""Rows of a mask that hide a candidate in one input, and as many other units beside it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array


@dataclass(frozen=True, eq=False)
class HiddenUnit:
    """Probabilities of all classes for the inputs with a candidate (E × C): with it, without it, without others."""

    before_EC: Array
    hidden_EC: Array
    control_EC: Array

    def select(self, is_chosen_E: Array) -> "HiddenUnit":
        """Return the probabilities of some of the inputs."""
        return HiddenUnit(self.before_EC[is_chosen_E], self.hidden_EC[is_chosen_E], self.control_EC[is_chosen_E])


@dataclass(frozen=True)
class HiddenInput(ABC):
    """An input by its number in the data set, and the number of its words or patches."""

    number: int
    units: int

    @property
    @abstractmethod
    def kept(self) -> Mapping[int, Array]:
        """By the number of each candidate in the input, the units that stay when it is hidden (U)."""

    def mask(self) -> Tensor:
        """Return a row with everything, then two for each candidate: without it, and without as many others."""
        return torch.from_numpy(np.stack(list(self._rows())))

    def _rows(self) -> Iterator[Array]:
        # The first row is the input as it is, which all candidates are compared with.
        yield np.ones(self.units, dtype=bool)
        for candidate, keep_U in self.kept.items():
            yield keep_U
            yield self._draw_control(keep_U, candidate)

    def _draw_control(self, keep_U: Array, candidate: int) -> Array:
        # A seed for each input and candidate, so that results do not depend on batches.
        generator = np.random.default_rng([self.number, candidate])
        others = np.flatnonzero(keep_U)
        # Of a background as large as half the picture there are not as many others.
        count = min(len(others), len(keep_U) - len(others))
        control_U = np.ones(len(keep_U), dtype=bool)
        control_U[generator.choice(others, count, replace=False)] = False
        return control_U

    def split_rows(self, probability_RC: Array) -> Iterator[tuple[int, Array]]:
        """Yield each candidate with its three rows of the mask: before, hidden, control."""
        # In the order of _rows.
        for index, candidate in enumerate(self.kept):
            yield candidate, probability_RC[[0, 2 * index + 1, 2 * index + 2]]


def collect_hidden(outputs: Iterable[tuple[HiddenInput, Array]]) -> dict[int, HiddenUnit]:
    """Return by the number of each candidate the probabilities of its inputs, from those of the rows of their masks."""
    rows: dict[int, list[Array]] = {}
    for hidden, probability_RC in outputs:
        for candidate, probability_3C in hidden.split_rows(probability_RC):
            rows.setdefault(candidate, []).append(probability_3C)
    return {number: HiddenUnit(*np.stack(entries, axis=1)) for number, entries in sorted(rows.items())}
