"""Cache of the last inputs: their encodings, traces and explanations."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from clearhead.arrays import Array
from clearhead.attribution.method import MethodSpec
from clearhead.engine.trace import Trace
from clearhead.explanation import Explanation
from clearhead.model.inputs import Encoded
from clearhead.model.target import AnswerTarget, Target, TargetLike
from clearhead.web.limits import Limits

FORWARD_PASS = None
"""The key of the trace with the default target; traces with other targets share its forward pass."""


@dataclass(frozen=True)
class Answer:
    """An explanation, the model's output for every class, and the method that was asked for."""

    explanation: Explanation
    classes: list[float]
    method: MethodSpec


@dataclass(frozen=True)
class CachedTraces:
    """The traces of one input, all of one forward pass: the TraceCache of the attribution loop."""

    by_target: dict[Any, Trace] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.by_target)

    def get(self) -> Trace | None:
        return self.by_target.get(FORWARD_PASS)

    def add(self, trace: Trace) -> None:
        # Traces of another forward pass, such as one that went block by block, would not fit together with this one.
        self.by_target.clear()
        self.by_target[FORWARD_PASS] = trace

    def retarget(self, targets: Sequence[TargetLike]) -> Trace:
        trace = self.by_target[FORWARD_PASS].with_target(targets)
        # The trace of an earlier request for the same target has gradients and relevance already.
        return self.by_target.setdefault(make_target_key(trace.targets[0]), trace)

    def clear(self) -> None:
        self.by_target.clear()

    @property
    def token_pairs(self) -> int:
        """Token pairs of all traces, which the memory of their attention maps is proportional to."""
        return sum(trace.mask_BT.shape[1] ** 2 for trace in self.by_target.values())


def make_target_key(target: Target) -> Hashable:
    """Return what distinguishes a target from others."""
    if isinstance(target, AnswerTarget):
        return target.steps, target.foil
    return target.index, target.versus, target.span


@dataclass
class CachedInput:
    """One input of one model: its encoding, its traces, its answers and the scores of random removals."""

    encoded: Encoded
    traces: CachedTraces = field(default_factory=CachedTraces)
    answers: dict[Any, Answer] = field(default_factory=dict)
    random_scores: dict[Any, dict[int, Array]] = field(default_factory=dict)


class InputCache:
    """Least recently used inputs; not locked, because only the worker's thread uses it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.inputs: OrderedDict[Hashable, CachedInput] = OrderedDict()

    def get(self, key: Hashable, encode: Callable[[], Encoded]) -> CachedInput:
        """Return the input with this key, which `encode` computes if it is new."""
        if key not in self.inputs:
            self.inputs[key] = CachedInput(encode())
        self.inputs.move_to_end(key)
        self._evict()
        return self.inputs[key]

    def _evict(self) -> None:
        self._evict_inputs()
        self._evict_traces()
        for cached in self.inputs.values():
            self._trim(cached)

    def _evict_inputs(self) -> None:
        while len(self.inputs) > self.limits.cached_inputs:
            self.inputs.popitem(last=False)

    def _evict_traces(self) -> None:
        token_pairs = 0
        for age, cached in enumerate(reversed(self.inputs.values())):
            token_pairs += cached.traces.token_pairs
            # The latest input keeps its traces whatever their size: it is about to be explained.
            if age > 0 and self._are_too_many(age, token_pairs):
                cached.traces.clear()

    def _are_too_many(self, age: int, token_pairs: int) -> bool:
        """Return whether the traces of an input and all later ones exceed the limits."""
        return age >= self.limits.cached_traces or token_pairs > self.limits.cached_token_pairs

    def _trim(self, cached: CachedInput) -> None:
        _drop_oldest(cached.answers, self.limits.cached_answers)
        _drop_oldest(cached.random_scores, self.limits.cached_traces)
        _drop_oldest(cached.traces.by_target, self._limit_traces(cached.traces))

    def _limit_traces(self, traces: CachedTraces) -> int:
        """Return how many traces of one input stay: fewer of a long one, as each word of an answer has its own."""
        if not traces:
            return self.limits.cached_traces
        pairs_per_trace = traces.token_pairs // len(traces)
        return min(self.limits.cached_traces, max(1, self.limits.cached_token_pairs // pairs_per_trace))


def _drop_oldest(entries: dict[Any, Any], max_entries: int) -> None:
    """Delete the oldest entries beyond `max_entries`, but never the forward pass that other traces share."""
    excess = max(0, len(entries) - max_entries)
    keys = [key for key in entries if key is not FORWARD_PASS]
    for key in keys[:excess]:
        del entries[key]
