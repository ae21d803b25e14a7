"""The attribution loop: batch inputs, guard memory, trace once, run every method, assemble explanations."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import torch

from clearhead.attribution.assemble import ExplanationBuilder, start_explanations
from clearhead.attribution.batch_result import TARGET, BatchResult, InputResult, StartedBatch, single_target
from clearhead.attribution.batch_sizes import Batch
from clearhead.attribution.method import METHODS, MethodSpec
from clearhead.engine.blockwise import BlockwiseTrace, capture_blockwise
from clearhead.engine.context import collect_young_cycles, gc_paused
from clearhead.engine.memory import fits_in_memory
from clearhead.engine.memory_errors import is_out_of_memory
from clearhead.engine.output_trace import capture_outputs
from clearhead.engine.replay import capture_replayed, forget_replays, hold_replays
from clearhead.engine.streams import LAUNCHES, prefetch
from clearhead.engine.trace import Trace, capture
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.model.target import Target, TargetLike
from clearhead.validation import require_integer

TargetSets = Mapping[tuple[Target, ...], Sequence[str]]
"""Targets to explain from one trace, each with one target per row, and the names they are returned under."""


def only_captured_targets(trace: Trace, indices: Sequence[int]) -> TargetSets:
    """Explain a trace for the targets that it was captured for."""
    return {trace.targets: [TARGET]}


class TraceCache(Protocol):
    """Keeps the trace of a single input between requests, so that several requests share its forward pass."""

    def get(self) -> Trace | None:
        """Return the kept trace, whatever its target."""

    def add(self, trace: Trace) -> None:
        """Keep a trace instead of those before."""

    def retarget(self, targets: Sequence[TargetLike]) -> Trace:
        """Return the kept trace for other targets."""

    def clear(self) -> None:
        """Forget all traces, because their memory is needed."""


@dataclass(frozen=True)
class AttributionRequest:
    """What the loop computes for every input.

    `targets` has one target per input of the run; without it predictions are explained. `expand_targets` maps a trace
    and the indices of its inputs to all targets that are explained from this trace. A method that refuses the model
    raises; with `refused`, its reason is noted there and the other methods go on. A request about a single input may
    have a `cache` that keeps its trace for other requests.
    """

    model: Model
    specs: Sequence[MethodSpec]
    targets: Sequence[TargetLike] | None = None
    expand_targets: Callable[[Trace, Sequence[int]], TargetSets] = only_captured_targets
    refused: dict[str, str] | None = None
    cache: TraceCache | None = None

    @property
    def active_specs(self) -> dict[int, MethodSpec]:
        """The methods that have not refused the model, by their index in `specs`."""
        # Looked up for every batch: a method may refuse a later one, and is not run again afterwards.
        refused = self.refused or {}
        return {index: spec for index, spec in enumerate(self.specs) if spec.text not in refused}

    def targets_at(self, indices: Sequence[int]) -> list[TargetLike]:
        if self.targets is None:
            return [None] * len(indices)
        return [self.targets[index] for index in indices]


def validate_request(specs: Sequence[MethodSpec], batch_size: int | None) -> None:
    """Raise BadOption unless there is a method and the batch size is a positive integer or None."""
    _require_methods(specs)
    if batch_size is not None:
        require_integer("batch_size", batch_size, is_flag=True)


def _require_methods(specs: Sequence[MethodSpec]) -> None:
    if not specs:
        raise BadOption(f"No method was given. Available: {', '.join(METHODS)}.")


def attribute_batches(request: AttributionRequest, batches: Iterator[Batch]) -> Iterator[tuple[int, InputResult]]:
    """Yield the index of every input and its explanations, batch by batch."""
    for result in explain_batches(request, batches):
        yield from zip(result.indices, result, strict=True)


def explain_batches(request: AttributionRequest, batches: Iterator[Batch]) -> Iterator[BatchResult]:
    """Yield the explanations of batches, in columns; a batch that did not fit into memory comes in parts."""
    started: list[StartedBatch] = []
    # The next batch is collated and sent to the GPU while this one is explained.
    for batch in prefetch(batches, request.model.device, "inputs"):
        collect_young_cycles()
        # The numbers of the last batch are read when the GPU has the kernels of this one.
        finished = started
        with LAUNCHES.started(request.model.device):
            started = start_batch(request, batch)
        yield from map(StartedBatch.collect, finished)
    yield from map(StartedBatch.collect, started)


def attribute_batch(request: AttributionRequest, batch: Batch) -> list[InputResult]:
    """Trace a batch, run every method on the trace, and return the explanations of each input (see `start_batch`)."""
    return list(chain.from_iterable(started.collect() for started in start_batch(request, batch)))


def start_batch(request: AttributionRequest, batch: Batch) -> list[StartedBatch]:
    """Trace a batch and run every method on the trace, without waiting for the numbers.

    A batch that does not fit into memory is halved; a single input that does not fit is traced block by block if all
    methods work that way, and as a whole otherwise.
    """
    # What a cached trace takes is no longer free, so its input need not fit a second time.
    if has_cached_trace(request) or fits_in_memory(request.model, batch.inputs):
        try:
            return [_start(request, batch, blockwise=False)]
        except (RuntimeError, MemoryError) as error:
            # The estimate was too low: go on as if it had said so.
            if not is_out_of_memory(error):
                raise
        # Outside of the handler, where the traceback no longer keeps the trace alive.
        _free_memory(request)
    if len(batch) == 1:
        return [_start_large_input(request, batch)]
    first, second = batch.halve()
    return start_batch(request, first) + start_batch(request, second)


def _start_large_input(request: AttributionRequest, batch: Batch) -> StartedBatch:
    """Explain a single input that does not fit into memory by estimate or by experience."""
    try:
        return _start(request, batch, blockwise=_is_blockwise(request))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise _too_large(request.model) from error


def _too_large(model: Model) -> BadInput:
    return BadInput(
        f"An input does not fit into the memory of {model.device}, even by itself: use a shorter input, another "
        f"device, or methods that work block by block: {', '.join(list_blockwise_methods())}."
    )


def _free_memory(request: AttributionRequest) -> None:
    # Collections are paused, and what failed may have left cycles that hold tensors.
    gc.collect()
    if request.cache is not None:
        request.cache.clear()
    forget_replays()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _is_blockwise(request: AttributionRequest) -> bool:
    return can_go_blockwise(request.model, request.active_specs.values())


def has_cached_trace(request: AttributionRequest) -> bool:
    """Return whether the cache of a request has a trace that its methods can read."""
    if request.cache is None:
        return False
    trace = request.cache.get()
    if isinstance(trace, BlockwiseTrace):
        return _is_blockwise(request)
    return trace is not None


def trace_batch(request: AttributionRequest, batch: Batch) -> Trace:
    """Return the trace that the methods of a request would get, without running them."""
    fits = has_cached_trace(request) or fits_in_memory(request.model, batch.inputs)
    return _trace(request, batch, blockwise=not fits and _is_blockwise(request))


def _trace(request: AttributionRequest, batch: Batch, *, blockwise: bool) -> Trace:
    """Capture a batch, or take the trace that the cache of the request has kept."""
    targets = request.targets_at(batch.indices)
    if request.cache is None:
        return _trace_uncached(request, batch, targets, blockwise=blockwise)
    if not has_cached_trace(request):
        # For the prediction: an invalid target must not cost the forward pass, which other requests can use.
        request.cache.add(capture_batch(request.model, batch.inputs, [None], blockwise=blockwise))
    return request.cache.retarget(targets)


def _trace_uncached(
    request: AttributionRequest, batch: Batch, targets: Sequence[TargetLike], *, blockwise: bool
) -> Trace:
    specs = request.active_specs.values()
    gradients_only = read_gradients_only(specs)
    try:
        trace = capture_batch(request.model, batch.inputs, targets, blockwise=blockwise, gradients_only=gradients_only)
    except UnsupportedModel:
        # Many networks cannot be recorded, but hiding parts of the input works with all of them.
        if not needs_outputs_only(specs):
            raise
        return capture_outputs(request.model, batch.inputs, targets)
    # An image without blocks has no patches, so that it is cut into cells.
    if _needs_no_blocks(trace, specs):
        return capture_outputs(request.model, batch.inputs, targets)
    return trace


def _needs_no_blocks(trace: Trace, specs: Iterable[MethodSpec]) -> bool:
    return trace.is_image and not trace.forward.has_blocks and needs_outputs_only(specs)


def read_gradients_only(specs: Iterable[MethodSpec]) -> bool:
    """Return whether no method reads attention maps or relevance, which a trace then need not keep."""
    return not any(spec.needs & {"attention", "relevance"} for spec in specs)


def explain_batch(
    model: Model,
    inputs: Inputs,
    targets: Sequence[TargetLike],
    specs: Sequence[MethodSpec],
) -> list[list[Explanation]]:
    """Explain one batch and return for each input its explanations in the order of the methods."""
    request = AttributionRequest(model, specs, targets)
    results = attribute_batch(request, Batch(range(len(inputs)), inputs))
    return [single_target(result) for result in results]


def capture_batch(
    model: Model,
    inputs: Inputs,
    targets: Sequence[TargetLike],
    *,
    blockwise: bool = False,
    gradients_only: bool = False,
) -> Trace:
    """Trace a batch, block by block if that is asked for and the network's blocks follow each other."""
    if blockwise:
        try:
            return capture_blockwise(model, inputs, list(targets))
        except UnsupportedModel:
            # The whole trace may not fit into memory, but there is no other way to try.
            pass
    return capture(model, inputs, list(targets), gradients_only=gradients_only)


def needs_outputs_only(specs: Iterable[MethodSpec]) -> bool:
    """Return whether all methods hide parts of the input, and read nothing but what comes out."""
    return all(spec.method.shares_passes or spec.method.is_control for spec in specs)


def _start(request: AttributionRequest, batch: Batch, *, blockwise: bool) -> StartedBatch:
    with gc_paused(), _hold_replays(request, batch):
        trace = _replay(request, batch)
        if trace is None:
            trace = _trace(request, batch, blockwise=blockwise)
        started = []
        # Target by target, so that only the gradients of one target are held besides those of the first.
        for targets, names in request.expand_targets(trace, batch.indices).items():
            started.append((names, _start_methods(request, _retarget(trace, targets))))
        return StartedBatch(batch.indices, len(request.specs), started)


def _hold_replays(request: AttributionRequest, batch: Batch) -> AbstractContextManager[Any]:
    if not _allows_replay(request):
        return nullcontext()
    return hold_replays(request.model, batch.inputs)


def _allows_replay(request: AttributionRequest) -> bool:
    """Return whether methods read nothing but gradients, of a trace that nobody keeps."""
    # Methods that hide parts of the input take many passes, for which other threads should not wait.
    return request.cache is None and all(map(_reads_gradients_alone, request.active_specs.values()))


def _reads_gradients_alone(spec: MethodSpec) -> bool:
    return spec.needs == {"gradients"} and not spec.method.shares_passes


def _replay(request: AttributionRequest, batch: Batch) -> Trace | None:
    """Return a trace that is valid as long as replays are held; None if the batch has to be captured."""
    if not _allows_replay(request):
        return None
    return capture_replayed(request.model, batch.inputs, request.targets_at(batch.indices))


def _retarget(trace: Trace, targets: tuple[Target, ...]) -> Trace:
    # The trace itself has cached what it has computed for its own targets.
    if targets == trace.targets:
        return trace
    return trace.with_target(targets)


def _start_methods(request: AttributionRequest, trace: Trace) -> dict[int, ExplanationBuilder]:
    """Run the methods on a trace in the order that keeps a GPU busy, and return their builders by method index."""
    specs = request.active_specs
    if share_gradients(specs.values()):
        trace.keep_gradients()
    scheduled = dict(sorted(specs.items(), key=lambda item: _schedule_key(item[1])))
    builders = start_explanations(trace, list(scheduled.values()), request.refused)
    started = {}
    for index, builder in zip(scheduled, builders, strict=True):
        if builder is not None:
            started[index] = builder
    return started


def _schedule_key(spec: MethodSpec) -> tuple[bool, bool, bool]:
    """Return the sort key that brings methods into the order in which they share the most work.

    First what needs gradients and relevance, which are computed side by side, so that a GPU has enough to do while
    Python goes on with the other methods; then what reads the same gradients. Among the first, those that need all
    relevance maps come before those that release them block by block.
    """
    needs = spec.method.needs
    return not _reads_both(spec), _frees_maps(spec), "gradients" not in needs


def _reads_both(spec: MethodSpec) -> bool:
    return {"gradients", "relevance"} <= spec.method.needs


def _frees_maps(spec: MethodSpec) -> bool:
    """Return whether a method reads the gradients and relevance of one map at a time, and frees them."""
    return _reads_both(spec) and works_blockwise(spec)


def share_gradients(specs: Iterable[MethodSpec]) -> bool:
    """Return whether gradients should be kept for methods that read all of them."""
    return any(map(_reads_all_gradients, specs))


def _reads_all_gradients(spec: MethodSpec) -> bool:
    return "gradients" in spec.method.needs and not _frees_maps(spec)


def can_go_blockwise(model: Model, specs: Iterable[MethodSpec]) -> bool:
    """Return whether a trace that is computed block by block is enough for all methods and saves memory."""
    # Blocks are found on a short probe of the input, and an image cannot be made shorter.
    return not model.takes_images and all(map(works_blockwise, specs))


def list_blockwise_methods() -> list[str]:
    """Return the methods that work block by block with their default options."""
    candidates = [method for method in METHODS.values() if not method.is_control]
    return [method.name for method in candidates if method.blockwise(method.options)]


def works_blockwise(spec: MethodSpec) -> bool:
    """Return whether a trace that is computed block by block is enough for a method with these options."""
    return spec.method.blockwise(spec.all_options)
