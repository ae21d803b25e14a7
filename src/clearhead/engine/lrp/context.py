"""One relevance pass: its rule set, what a rule is, and the bookkeeping that rules share."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.lrp.kernels.dispatch import kernels_for
from clearhead.errors import UnsupportedOperation

# The relevance of each activation that an operation took.
Shares = Sequence[Tensor]
# Distributes the relevance of an operation's output among its activations.
Backward = Callable[[Tensor, "RelevanceContext"], Shares]
# The activations that an operation took, and its backward function.
RuleResult = tuple[Sequence[Tensor], Backward]
# Called as rule(saved_tensors, output, *args, **kwargs) with the arguments of the recorded call.
Rule = Callable[..., RuleResult]


@cache
def accepts(rule: Rule, positional: int, keywords: tuple[str, ...]) -> bool:
    """Return whether a rule can be called with this many positional arguments and these keywords.

    That does not depend on the values, so each form of call is bound only once.
    """
    tensors_and_out = (None, None)
    try:
        inspect.signature(rule).bind(*tensors_and_out, *[None] * positional, **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


@dataclass(frozen=True)
class LinearCall:
    """A call of a linear layer: out = x · weightᵀ + bias; `out` is None if it was not saved."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    out: Tensor | None

    def to(self, dtype: torch.dtype) -> "LinearCall":
        """Convert to another dtype."""
        bias = self.bias
        if bias is not None:
            bias = bias.to(dtype)
        out = self.out
        # An output in another dtype was rounded differently: it is computed again.
        if out is not None and out.dtype != dtype:
            out = None
        return LinearCall(self.x.to(dtype), self.weight.to(dtype), bias, out)

    def select(self, units: Tensor) -> "LinearCall":
        """Return the call of a layer that has some of the units only."""
        bias = self.bias
        if bias is not None:
            # One number for all units is a bias, too.
            bias = bias.expand(*bias.shape[:-1], len(self.weight))[..., units]
        out = None if self.out is None else self.out[..., units]
        return LinearCall(self.x, self.weight[units], bias, out)

    @property
    def output(self) -> Tensor:
        """The saved output, or the output computed again."""
        if self.out is not None:
            return self.out
        return F.linear(self.x, self.weight, self.bias)


@dataclass(frozen=True)
class RuleSet:
    """How one relevance pass treats the operations on which the papers differ.

    `linear` is the rule of linear layers. `normalise_add` applies TransAtt Eq. 9 to additions. `proportional` divides
    relevance by contributions; without it, relevance is multiplied by the transposed weights, like a gradient.
    `split_constants` gives constants their share of an addition.
    """

    name: str
    linear: Callable[[LinearCall, Tensor, "RelevanceContext"], Tensor]
    normalise_add: bool = False
    proportional: bool = True
    split_constants: bool = False


@dataclass
class RelevanceContext:
    """The state of one relevance pass: its rule set, its batch size, and the relevance that 0/0 has dropped.

    `dropped_sums` are parts of that relevance, each (B, any number): rules only append to them, so that they never
    wait for the device.
    """

    rules: RuleSet
    batch: int
    dropped_sums: list[Tensor] = field(default_factory=list)
    last: tuple[Callable[[Tensor], Tensor], Tensor, Tensor] | None = None

    def compute_once(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return function(x), cached until the next call with other arguments.

        The layers of queries, keys and values share their input and follow each other on the tape.
        """
        # By identity: comparing values would cost as much as computing them.
        if self.last is None or self.last[0] is not function or self.last[1] is not x:
            # Free the old result before the new one is allocated.
            self.last = None
            self.last = (function, x, function(x))
        return self.last[2]

    @property
    def dropped_B(self) -> Tensor:
        """The relevance that 0/0 has dropped from each sample so far."""
        # One sum replaces them all, so that the next request adds up only what is new.
        self.dropped_sums[:] = [torch.cat(self.dropped_sums, 1).sum(1, keepdim=True)]
        return self.dropped_sums[0][:, 0]

    def count_samples(self, tensor: Tensor) -> int:
        """Return the batch size; raise UnsupportedOperation if the first axis does not separate the samples."""
        if tensor.dim() == 0 or tensor.shape[0] % self.batch:
            raise UnsupportedOperation(
                f"A tensor of shape {tuple(tensor.shape)} does not keep the {self.batch} samples apart. "
                "Explain one input at a time, or choose a method without relevance."
            )
        return self.batch

    def sum_per_sample(self, tensor: Tensor) -> Tensor:
        """Return the sum over each sample (B)."""
        return tensor.reshape(self.count_samples(tensor), -1).sum(1)

    def expand_per_sample(self, factor_B: Tensor, target: Tensor) -> Tensor:
        """Return a factor per sample in a shape that broadcasts with `target`."""
        # The first axis may hold several rows per sample, such as heads or windows.
        repeated = factor_B.repeat_interleave(target.shape[0] // self.batch)
        return repeated.view(-1, *[1] * (target.dim() - 1))

    def divide(
        self,
        relevance: Tensor,
        denominator: Tensor,
        is_zero: Tensor | None = None,
        *,
        factor: float = 1.0,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Return factor · relevance / denominator with 0/0 = 0, and count the relevance that this drops.

        Overwrites `denominator`. `is_zero` says which denominators count as zero; by default those that are. Fused
        kernels round the quotient to `dtype` if one is given.
        """
        kernels = kernels_for(relevance)
        if kernels and is_zero is None and relevance.shape == denominator.shape:
            return self._divide_fused(kernels, relevance, denominator, factor, dtype)
        if is_zero is None:
            is_zero = denominator == 0
        # Written into the denominator, which saves an allocation as large as the activation.
        quotient = torch.div(relevance, denominator, out=denominator)
        if is_zero.any():
            self._drop(relevance * is_zero)
            quotient.masked_fill_(is_zero, 0.0)
        if factor == 1:
            return quotient
        return quotient.mul_(factor)

    def _drop(self, relevance: Tensor) -> None:
        """Count relevance that no input receives."""
        dropped_B = self.sum_per_sample(relevance)
        self.dropped_sums.append(dropped_B[:, None])

    def _divide_fused(
        self, kernels: Any, relevance: Tensor, denominator: Tensor, factor: float, dtype: torch.dtype | None
    ) -> Tensor:
        samples = self.count_samples(relevance)
        quotient: Tensor
        quotient, dropped = kernels.divide(relevance.contiguous(), denominator.contiguous(), samples, factor, dtype)
        self.dropped_sums.append(dropped)
        return quotient


def is_activation(value: object) -> bool:
    """Return whether a value depends on the input: parameters are frozen in a trace, so only activations need grad."""
    return isinstance(value, Tensor) and value.requires_grad
