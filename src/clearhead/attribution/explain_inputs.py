"""Explanations of listed inputs: encoded in chunks, explained in batches, the next of which is made meanwhile."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from clearhead.attribution.batch import AttributionRequest, explain_batches
from clearhead.attribution.batch_result import TARGET, BatchResult, CollectedResults
from clearhead.attribution.batch_sizes import Batch, make_batches, split_inputs
from clearhead.attribution.method import MethodSpec
from clearhead.attribution.windows import explain_windows
from clearhead.engine.context import gc_paused
from clearhead.engine.streams import LAUNCHES, prefetch
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded, EncodedRows, Inputs, encode_chunks
from clearhead.model.model import Model, max_tokens
from clearhead.model.target import list_targets

ByMethod = tuple[Sequence[Sequence[Explanation]], Iterator[Batch]]
"""The explanations of all inputs by each method, and the inputs in batches, which a check goes through again."""
MAX_KEPT_INPUTS = 64
"""Inputs whose batches are kept for their checks."""


def explain_inputs(
    model: Model,
    inputs: Any,
    specs: Sequence[MethodSpec],
    target: Any,
    batch_size: int | None,
    overflow: str,
) -> ByMethod:
    """Return for each method the explanations of all inputs, in order, and the batches of inputs."""
    # Not only within a batch: full collections between batches would look through all that is in memory each time.
    with gc_paused():
        if isinstance(inputs, Inputs):
            return _explain_tensors(model, inputs, specs, target, batch_size)
        return _explain_raw(model, inputs, specs, target, batch_size, overflow)


def _explain_tensors(
    model: Model, inputs: Inputs, specs: Sequence[MethodSpec], target: Any, batch_size: int | None
) -> ByMethod:
    request = AttributionRequest(model, specs, list_targets(target, len(inputs)))
    results = CollectedResults(len(inputs))
    results.add_all(explain_batches(request, split_inputs(model, inputs, batch_size)))
    return results.by_method(len(specs)), split_inputs(model, inputs, batch_size)


def _explain_raw(
    model: Model,
    inputs: Sequence[Any],
    specs: Sequence[MethodSpec],
    target: Any,
    batch_size: int | None,
    overflow: str,
) -> ByMethod:
    request = AttributionRequest(model, specs, list_targets(target, len(inputs)))
    results = CollectedResults(len(inputs))
    long: dict[int, Encoded] = {}
    batches = _encode_batches(model, inputs, batch_size, overflow, long)
    if len(inputs) <= MAX_KEPT_INPUTS:
        # To encode a sentence again takes a noticeable part of the time that a check takes.
        batches = list(batches)
    results.add_all(explain_batches(request, iter(batches)))
    for index, row in long.items():
        results.add(_explain_long(request, index, row, batch_size))
    if not isinstance(batches, list):
        batches = _make_batches(model, encode_chunks(model, inputs, overflow=overflow), batch_size, {})
    return results.by_method(len(specs)), iter(batches)


def _encode_batches(
    model: Model, inputs: Sequence[Any], batch_size: int | None, overflow: str, long: dict[int, Encoded]
) -> Iterable[Batch]:
    """Return the batches of all inputs, the next of which is encoded while one is explained."""
    encoded = encode_chunks(model, inputs, overflow=overflow, pause=LAUNCHES.wait)
    chunks = prefetch(encoded, model.device, "encoding")
    return _make_batches(model, chunks, batch_size, long)


def _make_batches(
    model: Model, chunks: Iterator[tuple[int, EncodedRows]], batch_size: int | None, long: dict[int, Encoded]
) -> Iterator[Batch]:
    """Yield the batches of all chunks; add the inputs that are too long for the model to `long`."""
    for start, encoded in chunks:
        too_long, short = _split_by_length(model, encoded)
        long.update({start + index: encoded[index] for index in too_long})
        for batch in make_batches(model, encoded, batch_size, short):
            yield Batch([start + index for index in batch.indices], batch.inputs)


def _explain_long(request: AttributionRequest, index: int, row: Encoded, batch_size: int | None) -> BatchResult:
    (target,) = request.targets_at([index])
    explanations = explain_windows(request.model, row, target, request.specs, batch_size)
    return BatchResult([index], [{TARGET: [explanation]} for explanation in explanations])


def _split_by_length(model: Model, encoded: EncodedRows) -> tuple[list[int], list[int]]:
    """Return the indices of the inputs that are too long for the model, and of the others."""
    limit = max_tokens(model)
    is_long = encoded.lengths > (sys.maxsize if limit is None else limit)
    return np.flatnonzero(is_long).tolist(), np.flatnonzero(~is_long).tolist()
