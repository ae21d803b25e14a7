"""Passes on a GPU whose kernels are recorded once, as CUDA graphs, and launched again from these.

For a single input a GPU waits for Python most of the time. A network launches the same kernels
for all inputs of one shape, in its forward pass and in each backward pass, so that these are recorded when a shape
comes again and again, and replayed from then on: the same kernels on the same numbers, without the network's Python
code. A network that cannot be recorded runs as usual.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from clearhead.engine.context import NETWORK_LOCK, list_modules
from clearhead.engine.forward import ForwardPass
from clearhead.engine.gradients import GradientCache, Gradients, compute_gradients
from clearhead.engine.lrp.kernels.dispatch import allows_tf32
from clearhead.engine.memory import estimate_memory
from clearhead.engine.network_state import describe_module
from clearhead.engine.product_types import PRECISIONS, TF32, read_convolution_setting
from clearhead.engine.recorded_pass import run_forward
from clearhead.engine.seeds import Seeds
from clearhead.engine.streams import copy_to_host
from clearhead.engine.trace import Trace
from clearhead.environment import allows_replay
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.model.outputs import check_finite, resolve_targets
from clearhead.model.target import TargetLike

MASK = "attention_mask"
TENSORS = frozenset(["input_ids", MASK, "token_type_ids", "pixel_values"])
# Above that the GPU is the bottleneck: its kernels take longer than Python needs to launch them.
MOST_ELEMENTS = {"input_ids": 512, "pixel_values": 3 * 512 * 512}
# Recording takes as long as about five passes, which pays only for shapes that come again.
SEEN_BEFORE = 2
# Recorded passes keep their activations: together they may take this share of the GPU's memory.
MOST_MEMORY = 0.25
# Differences of this many roundings may come from other kernels for the same product; larger ones are an error.
ROUNDINGS = 64

T = TypeVar("T")
Shapes = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]


class NotReplayable(Exception):
    """A pass cannot be recorded, or gives other numbers than the network itself."""


@dataclass(frozen=True)
class RecordedGradients:
    """One backward pass: its graph, the direction that it starts from, and the gradients that it writes to."""

    graph: torch.cuda.CUDAGraph
    direction: Tensor
    gradients: Gradients

    def run(self, direction: Tensor) -> Gradients:
        """Run the backward pass from another direction."""
        self.direction.copy_(direction)
        self.graph.replay()
        return self.gradients


class ReplayedPass:
    """A forward pass that is run again for other inputs of the same shape, and its backward passes.

    Every run writes to the same tensors, so what one has computed is lost with the next.
    """

    def __init__(self, model: Model, inputs: Inputs) -> None:
        self._tolerance = ROUNDINGS * _find_precision(model)
        # Recorded on blanks: a graph that does not read its inputs then gives other numbers than the network.
        self._inputs = Inputs(_make_blanks(inputs.tensors), inputs.items)
        self._backwards: dict[str, RecordedGradients | None] = {}
        self._device = model.device
        self.memory = 0
        self._graph, self._forward = self._record(lambda: run_forward(model, self._inputs, gradients_only=True))

    def _record(self, work: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """Record some work, and count the memory that its graph takes."""
        before = _used_memory(self._device)
        recorded = _record(work)
        self.memory += _used_memory(self._device) - before
        return recorded

    def run(self, inputs: Inputs) -> ForwardPass:
        """Run the forward pass for other inputs."""
        for name, tensor in self._inputs.tensors.items():
            tensor.copy_(inputs.tensors[name])
        self._graph.replay()
        # A new object, so that what was cached for the inputs before is not found again.
        return replace(self._forward)

    def compute_gradients(self, direction: Tensor, backward: str) -> Gradients:
        """Return what a backward pass over the last forward pass gives, at all activations."""
        if backward not in self._backwards:
            self._backwards[backward] = self._try_to_record(direction, backward)
        recorded = self._backwards[backward]
        if recorded is None:
            return self._compute(direction, backward)
        return recorded.run(direction)

    def _compute(self, direction: Tensor, backward: str) -> Gradients:
        with self._forward.tape.switch.use(backward):
            return compute_gradients(self._forward, direction)

    def _try_to_record(self, direction: Tensor, backward: str) -> RecordedGradients | None:
        # Outside: a method that refuses the network does so here, too.
        expected = self._compute(direction, backward).leaf
        try:
            recorded = self._record_backward(torch.zeros_like(direction), backward)
            self.require_equal(recorded.run(direction).leaf, expected)
        except (NotReplayable, RuntimeError):
            return None
        return recorded

    def _record_backward(self, direction: Tensor, backward: str) -> RecordedGradients:
        graph, gradients = self._record(lambda: self._compute(direction, backward))
        return RecordedGradients(graph, direction, gradients)

    def require_equal(self, replayed: Tensor, expected: Tensor) -> None:
        """Raise NotReplayable unless a replayed pass gave the numbers of the network itself."""
        difference = (replayed - expected).abs().max()
        if not difference <= self._tolerance * expected.abs().max():
            raise NotReplayable


class ReplayedGradients(GradientCache):
    """The gradients of a replayed pass."""

    def __init__(self, replayed: ReplayedPass, forward: ForwardPass, seeds: Seeds, backward: str) -> None:
        super().__init__(forward, seeds, backward)
        self._replayed = replayed

    def _compute(self) -> Gradients:
        return self._replayed.compute_gradients(self._seeds.direction, self._backward)


class ReplayedTrace(Trace):
    """A trace whose passes are replayed: its numbers are valid until the next trace of the same network."""

    replayed: ReplayedPass

    def _make_gradient_cache(self, backward: str) -> GradientCache:
        return ReplayedGradients(self.replayed, self.forward, self._seeds, backward)


@dataclass
class NetworkReplays:
    """The replayed passes of a network by the shapes of their inputs; None if they cannot be recorded.

    `weights` are the addresses that the recorded kernels read from, and the settings they were chosen by.
    """

    weights: tuple[Any, ...]
    passes: dict[Shapes, ReplayedPass | None] = field(default_factory=dict)
    seen: Counter[Shapes] = field(default_factory=Counter)

    @property
    def memory(self) -> int:
        """The bytes that all recorded passes take, with the backward passes that were recorded since."""
        return sum(replayed.memory for replayed in self.passes.values() if replayed is not None)

    def find(self, model: Model, inputs: Inputs, bare: Inputs) -> ReplayedPass | None:
        """Return the recorded pass for inputs of this shape, or None if the network has to be run.

        `bare` are the inputs without their mask.
        """
        shapes = _list_shapes(bare.tensors)
        if shapes in self.passes:
            return self.passes[shapes]
        self.seen[shapes] += 1
        if self.seen[shapes] > SEEN_BEFORE and self._has_memory(model, bare):
            self.passes[shapes] = self._try_to_record(model, inputs, bare)
        return self.passes.get(shapes)

    def _has_memory(self, model: Model, inputs: Inputs) -> bool:
        total = torch.cuda.get_device_properties(model.device).total_memory
        return self.memory + estimate_memory(model, inputs).whole <= MOST_MEMORY * total

    @staticmethod
    def _try_to_record(model: Model, inputs: Inputs, bare: Inputs) -> ReplayedPass | None:
        try:
            return _record_pass(model, inputs, bare)
        # The network itself has run on such inputs, so that an error only says that this way is not open.
        except Exception:
            return None


def _used_memory(device: torch.device) -> int:
    # Reserved, not allocated: a graph keeps what its kernels have used in between.
    return torch.cuda.memory_reserved(device)


# Weak keys do not keep networks alive.
_REPLAYS: WeakKeyDictionary[nn.Module, NetworkReplays] = WeakKeyDictionary()


def capture_replayed(model: Model, inputs: Inputs, targets: Sequence[TargetLike]) -> Trace | None:
    """Return a trace for gradients only by a replayed pass; None if the network has to be run.

    The caller has called `hold_replays`, and leaves it when all that reads the trace is launched.
    """
    bare = _prepare(model, inputs)
    if bare is None:
        return None
    replayed = _find_replays(model).find(model, inputs, bare)
    if replayed is None:
        return None
    forward = replayed.run(bare)
    check_finite(model, forward.host_output)
    trace = ReplayedTrace(model, inputs, forward, resolve_targets(model, inputs, forward.host_output, list(targets)))
    trace.replayed = replayed
    return trace


def hold_replays(model: Model, inputs: Inputs) -> AbstractContextManager[Any]:
    """Return a context in which no other thread replays a pass of the network."""
    if may_replay(model, inputs):
        return NETWORK_LOCK
    # Other work may take long, and threads should not wait for all of it.
    return nullcontext()


def may_replay(model: Model, inputs: Inputs) -> bool:
    """Return whether inputs are small and on a GPU, and the model is a plain classifier."""
    if model.device.type != "cuda" or model.is_function or not allows_replay():
        return False
    is_plain = not (model.writes or model.is_encoder_decoder or model.reads_jointly or model.finds_objects)
    return is_plain and TENSORS.issuperset(inputs.tensors) and all(map(_is_small, inputs.tensors.items()))


def forget_replays() -> None:
    """Forget all recorded passes, because their memory is needed."""
    _REPLAYS.clear()


def _is_small(item: tuple[str, Tensor]) -> bool:
    name, tensor = item
    return tensor.numel() <= MOST_ELEMENTS.get(name, tensor.numel())


def _prepare(model: Model, inputs: Inputs) -> Inputs | None:
    """Return the inputs without their mask; None if they cannot be replayed, or the mask hides a token."""
    if not may_replay(model, inputs) or _is_elsewhere(model.device):
        return None
    tensors = dict(inputs.tensors)
    mask = tensors.pop(MASK, None)
    # Networks look at the mask to choose their kernels, which would wait for the GPU: all masks must be alike.
    if mask is not None and not copy_to_host(mask).bool().all():
        return None
    return Inputs(tensors, inputs.items)


def _is_elsewhere(device: torch.device) -> bool:
    return _is_on_other_device(device) or _is_on_other_stream(device)


def _is_on_other_device(device: torch.device) -> bool:
    # A graph holds the kernels of the current GPU alone: those of another would not be launched again.
    return torch.cuda.current_device() != device.index


def _is_on_other_stream(device: torch.device) -> bool:
    # Passes on several streams would write to the same tensors at a time.
    return torch.cuda.current_stream(device) != torch.cuda.default_stream(device)


def _find_replays(model: Model) -> NetworkReplays:
    weights = _describe_weights(model)
    replays = _REPLAYS.get(model.network)
    if replays is None or replays.weights != weights:
        replays = _REPLAYS[model.network] = NetworkReplays(weights)
    return replays


def _describe_weights(model: Model) -> tuple[Any, ...]:
    """Return what the kernels of a network depend on besides the inputs."""
    modules = list_modules(model.network)
    attention = getattr(model.config, "_attn_implementation", None)
    types = (allows_tf32(), read_convolution_setting("cuda"), model.dtype)
    return (*types, torch.are_deterministic_algorithms_enabled(), attention, *map(describe_module, modules))


def _find_precision(model: Model) -> float:
    """Return how far products may differ between kernels, over the largest number."""
    # Convolutions in tf32 are those of the network itself: only they read the input, and by the same kernel.
    if model.dtype is torch.float32 and allows_tf32():
        return PRECISIONS[TF32]
    return torch.finfo(model.dtype).eps


def _list_shapes(tensors: Mapping[str, Tensor]) -> Shapes:
    return tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items())


def _make_blanks(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}


def _record_pass(model: Model, inputs: Inputs, bare: Inputs) -> ReplayedPass:
    replayed = ReplayedPass(model, bare)
    # With the mask, without which a network may compute something else.
    expected = run_forward(model, inputs, gradients_only=True).output
    replayed.require_equal(replayed.run(bare).output, expected)
    return replayed


def _record(work: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """Return a graph of the kernels that some work launches, and its result, whose tensors the graph writes to."""
    stream = _recording_stream(torch.cuda.current_device())
    before = torch.cuda.current_stream()
    stream.wait_stream(before)
    with torch.cuda.stream(stream):
        # First as usual, so that libraries are set up for this stream.
        work()
    try:
        return _capture(work, stream)
    except Exception:
        _leave_capture(before, stream)
        raise


def _capture(work: Callable[[], T], stream: torch.cuda.Stream) -> tuple[torch.cuda.CUDAGraph, T]:
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the GPU meanwhile.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        result = work()
    return graph, result


def _leave_capture(before: torch.cuda.Stream, stream: torch.cuda.Stream) -> None:
    """Undo what a failed recording has left behind."""
    # torch stays on the stream of the recording, and its random numbers wait for the recording to end.
    torch.cuda.set_stream(before)
    _capture(lambda: torch.zeros(1, device=before.device), stream)


@cache
def _recording_stream(device: int) -> torch.cuda.Stream:
    # One for all: autograd runs a backward pass on the stream of its forward pass.
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
