"""Relevance propagation: a resumable walk over the tape from the output towards the input."""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.engine.context import gc_paused
from clearhead.engine.lrp.context import RelevanceContext, RuleSet, Shares
from clearhead.engine.lrp.kernels.dispatch import on_device_of
from clearhead.engine.tape import Step, Tape
from clearhead.errors import UnsupportedOperation


def _identity(relevance: Tensor) -> Tensor:
    return relevance


class RelevancePass:
    """Propagates relevance from a seed at the output, as far as it is asked for; later requests resume the walk.

    Register with `keep` and `keep_total` the activations that will be asked for, before the walk reaches them.
    """

    def __init__(self, tape: Tape, rules: RuleSet, output: Tensor, seed: Tensor) -> None:
        batch = seed.shape[0]
        self.tape = tape
        self.context = RelevanceContext(rules, batch, [seed.new_zeros(batch, 1)])
        self.dtype = seed.dtype
        self.position = len(tape.steps)
        self._pending: dict[int, Tensor] = {_require_node(tape, output): seed}
        self._reductions: dict[int, Callable[[Tensor], Tensor]] = {}
        self._kept: dict[int, Tensor] = {}
        self._totals: dict[int, tuple[Tensor, Tensor] | None] = {}

    def keep(self, tensor: Tensor, reduce: Callable[[Tensor], Tensor] = _identity) -> None:
        """Keep reduce(relevance) of an activation when the walk reaches it."""
        self._reductions[_require_node(self.tape, tensor)] = reduce

    def keep_total(self, tensor: Tensor) -> None:
        """Keep the sum of all relevance when the walk reaches an activation."""
        self._totals[_require_node(self.tape, tensor)] = None

    @torch.no_grad()
    def at(self, tensor: Tensor) -> Tensor:
        """Return what was to be kept of an activation's relevance; zeros if none arrives."""
        node = _require_node(self.tape, tensor)
        with gc_paused(), on_device_of(tensor), torch.autocast(tensor.device.type, enabled=False):
            self._walk_to(node)
        self._sum_pending(node)
        # The cached intermediate is as large as an activation: do not hold it between requests.
        self.context.last = None
        if node not in self._kept:
            self._kept[node] = self._reductions[node](self._pending_at(node, tensor))
        return self._kept[node]

    def _walk_to(self, node: int) -> None:
        """Step back until all relevance of a node has arrived."""
        while self.position and self.tape.steps[self.position - 1].node > node:
            self._step_back()

    def _pending_at(self, node: int, tensor: Tensor) -> Tensor:
        relevance = self._pending.get(node)
        if relevance is None:
            return torch.zeros_like(tensor, dtype=self.dtype)
        return relevance

    def total_at(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Return per sample all relevance when the walk reached an activation, and what 0/0 had dropped until then."""
        self.at(tensor)
        total = self._totals[_require_node(self.tape, tensor)]
        assert total is not None
        return total

    def forget(self, tensor: Tensor) -> None:
        """Free what was kept of an activation."""
        node = _require_node(self.tape, tensor)
        self._kept.pop(node, None)
        self._reductions.pop(node, None)

    def _sum_pending(self, node: int) -> None:
        """Sum the relevance of all activations if that was asked for at this node."""
        if node not in self._totals or self._totals[node] is not None:
            return
        sums = []
        for relevance in self._pending.values():
            rows = relevance.reshape(self.context.count_samples(relevance), -1)
            # In float64, since the conservation gap is a difference of large sums.
            total_B = rows.sum(1, dtype=torch.float64)
            sums.append(total_B)
        self._totals[node] = (torch.stack(sums).sum(0), self.context.dropped_B)

    def _step_back(self) -> None:
        """Propagate relevance through the last step that is left."""
        step = self.tape.steps[self.position - 1]
        self._sum_pending(step.node)
        relevance = self._pending.get(step.node)
        shares = () if relevance is None else self._apply(step, relevance)
        # State changes only after the rule has succeeded: a walk that was refused or interrupted can be resumed.
        self.position -= 1
        if relevance is None:
            return
        # Freed unless it was asked for: relevance is as large as the activation.
        del self._pending[step.node]
        if step.node in self._reductions:
            self._kept[step.node] = self._reductions[step.node](relevance)
        self._add_shares(step, shares)

    def _add_shares(self, step: Step, shares: Shares) -> None:
        """Add the shares of a step to the relevance of its parents."""
        for parent, share in zip(step.parents, shares, strict=True):
            present = self._pending.get(parent)
            # Out of place: a rule may hand the same tensor to several parents.
            self._pending[parent] = share if present is None else present + share

    def _apply(self, step: Step, relevance: Tensor) -> Shares:
        count = len(self.context.dropped_sums)
        try:
            return step.backward(relevance, self.context)
        except BaseException:
            # Otherwise the relevance that the failed rule dropped would be counted again on the next attempt.
            del self.context.dropped_sums[count:]
            raise


def _require_node(tape: Tape, tensor: Tensor) -> int:
    """Return the node of an activation; raise UnsupportedOperation if it is not on the tape."""
    node = tape.node_of(tensor)
    if node is None:
        raise UnsupportedOperation("This tensor is not part of the trace, so it has no relevance.")
    return node
