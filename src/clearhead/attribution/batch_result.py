"""The explanations of a batch: by method and target, in columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.attribution.assemble import ExplanationBuilder
from clearhead.explanation import Explanation
from clearhead.lazy import Interleaved

TARGET = "target"
"""The name of the only target set of a request that does not expand its targets."""
InputResult = list[dict[str, Explanation]]
"""For each method the explanations of one input by target name; empty if the method refused the model."""


@dataclass(frozen=True, eq=False)
class BatchResult(Sequence[InputResult]):
    """For each method the explanations of a batch by target name; `indices` are those of the inputs in the run."""

    indices: Sequence[int]
    methods: Sequence[Mapping[str, Sequence[Explanation]]]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, row: Any) -> Any:
        number = range(len(self))[row]
        return [_select_row(columns, number) for columns in self.methods]


def _select_row(columns: Mapping[str, Sequence[Explanation]], row: int) -> dict[str, Explanation]:
    return {name: explanations[row] for name, explanations in columns.items()}


@dataclass(frozen=True)
class StartedBatch:
    """A batch that the methods were run on, while the numbers may still be on their way from the GPU.

    `builders` has for each set of targets their names, and the builder of each method by its index.
    """

    indices: Sequence[int]
    count: int
    builders: Sequence[tuple[Sequence[str], Mapping[int, ExplanationBuilder]]]

    def collect(self) -> BatchResult:
        """Wait for the numbers of all methods."""
        methods: list[dict[str, Sequence[Explanation]]] = [{} for _ in range(self.count)]
        for names, builders in self.builders:
            for index, builder in builders.items():
                # Equal targets under several names share one explanation.
                methods[index].update(dict.fromkeys(names, builder.build()))
        return BatchResult(self.indices, methods)


class CollectedResults:
    """The explanations of all inputs of a run, which come batch by batch; for requests with a single target set."""

    def __init__(self, count: int) -> None:
        self._batches: list[BatchResult] = []
        self._batch_N = np.zeros(count, np.int32)
        self._row_N = np.zeros(count, np.int32)

    def add(self, result: BatchResult) -> None:
        self._batch_N[result.indices] = len(self._batches)
        self._row_N[result.indices] = np.arange(len(result))
        self._batches.append(result)

    def add_all(self, results: Iterable[BatchResult]) -> None:
        for result in results:
            self.add(result)

    def by_method(self, methods: int) -> list[Sequence[Explanation]]:
        """Return for each method the explanations of all inputs, in order."""
        return list(map(self._list_explanations, range(methods)))

    def _list_explanations(self, method: int) -> Sequence[Explanation]:
        parts = [batch.methods[method][TARGET] for batch in self._batches]
        return Interleaved(parts, self._batch_N, self._row_N)


def single_target(result: InputResult) -> list[Explanation]:
    """Return one explanation per method from the result of a request that does not expand its targets."""
    return [explanations[TARGET] for explanations in result]
