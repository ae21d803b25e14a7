"""The way back: relevance walks the tape from the output towards the input, as far as it is asked for."""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.engine.context import gc_paused
from clearhead.engine.lrp.context import RelevanceContext, RuleSet
from clearhead.engine.lrp.kernels.dispatch import on_device_of
from clearhead.engine.tape import Tape
from clearhead.errors import UnsupportedOperation


class RelevancePass:
    """Relevance on its way from a seed at the output towards the input, as far as it has been asked for.

    `keep` says which activations will be asked for, and what of their relevance is worth keeping.
    """

    def __init__(self, tape: Tape, rules: RuleSet, output: Tensor, seed: Tensor) -> None:
        self.tape = tape
        self.flow = RelevanceContext(rules, seed.shape[0], [seed.new_zeros(seed.shape[0], 1)])
        self.dtype = seed.dtype
        self.position = len(tape.steps)
        self.pending: dict[int, Tensor] = {_known(tape, output): seed}
        self.wanted: dict[int, Callable[[Tensor], Tensor]] = {}
        self.kept: dict[int, Tensor] = {}
        self.weighed: dict[int, tuple[Tensor, Tensor] | None] = {}

    def keep(self, tensor: Tensor, part: Callable[[Tensor], Tensor] = lambda relevance: relevance) -> None:
        self.wanted[_known(self.tape, tensor)] = part

    def weigh(self, tensor: Tensor) -> None:
        """Says that all relevance will be added up when this activation is reached."""
        self.weighed[_known(self.tape, tensor)] = None

    @torch.no_grad()
    def at(self, tensor: Tensor) -> Tensor:
        """What was to be kept of this activation's relevance: zeros where none arrives."""
        node = _known(self.tape, tensor)
        with gc_paused(), on_device_of(tensor), torch.autocast(tensor.device.type, enabled=False):
            while self.position and self.tape.steps[self.position - 1].node > node:
                self._step_back()
        if node in self.weighed:
            self._reach(node)
        self.flow.last = None
        if node not in self.kept:
            arrived = self.pending.get(node)
            arrived = torch.zeros_like(tensor, dtype=self.dtype) if arrived is None else arrived
            self.kept[node] = self.wanted[node](arrived)
        return self.kept[node]

    def under_way(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Per sample, all relevance when this activation was reached, wherever it was, and what 0/0 had taken."""
        self.at(tensor)
        found = self.weighed[_known(self.tape, tensor)]
        assert found is not None
        return found

    def _reach(self, node: int) -> None:
        if self.weighed[node] is None:
            parts = [part.reshape(self.flow.samples(part), -1) for part in self.pending.values()]
            total_B = torch.stack([part.sum(1, dtype=torch.float64) for part in parts]).sum(0)
            self.weighed[node] = (total_B, self.flow.dropped_B)

    def forget(self, tensor: Tensor) -> None:
        """Lets go of what was kept of an activation."""
        node = _known(self.tape, tensor)
        self.kept.pop(node, None)
        self.wanted.pop(node, None)

    def _step_back(self) -> None:
        """One step, or none at all: a pass that was refused or interrupted is refused again, or goes on from there."""
        step = self.tape.steps[self.position - 1]
        if step.node in self.weighed:
            self._reach(step.node)
        arrived, lost = self.pending.get(step.node), len(self.flow.lost)
        try:
            shares = () if arrived is None else step.back(arrived, self.flow)
        except BaseException:
            del self.flow.lost[lost:]
            raise
        self.position -= 1
        if arrived is None:
            return
        del self.pending[step.node]
        if step.node in self.wanted:
            self.kept[step.node] = self.wanted[step.node](arrived)
        for parent, part in zip(step.parents, shares, strict=True):
            present = self.pending.get(parent)
            self.pending[parent] = part if present is None else present + part


def _known(tape: Tape, tensor: Tensor) -> int:
    node = tape.node(tensor)
    if node is None:
        raise UnsupportedOperation("This tensor is not part of the trace, so no relevance can be asked for it.")
    return node
