"""One pass of relevance: its rule set, its bookkeeping, and what a rule keeps of a call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import UnsupportedOperation

Shares = Sequence[Tensor]
Back = Callable[[Tensor, "Flow"], Shares]
Recorded = tuple[Sequence[Tensor], Back]
Rule = Callable[..., Recorded]


class Kept:
    """A value that the way back needs, guarded against being overwritten in the meantime."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version = tensor.detach(), tensor._version

    @property
    def intact(self) -> bool:
        return self.tensor._version == self.version

    def to(self, dtype: torch.dtype) -> Tensor:
        if not self.intact:
            raise UnsupportedOperation(
                "The network overwrote an activation in place after using it, so relevance cannot be followed. "
                "Choose a method without relevance."
            )
        return self.tensor.to(dtype)


@dataclass(frozen=True)
class Layer:
    """A linear layer as it was called: out = x · weightᵀ + bias."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    out: Tensor


@dataclass(frozen=True)
class RuleSet:
    """How one pass treats the operations on which the papers differ."""

    name: str
    linear: Callable[[Layer, Tensor, "Flow"], Tensor]
    normalise_add: bool = False
    proportional: bool = True
    split_constants: bool = False


@dataclass
class Flow:
    """One pass of relevance: its rule set, the batch size, and what 0/0 took from each sample."""

    rules: RuleSet
    batch: int
    dropped_B: Tensor

    def per_sample(self, tensor: Tensor) -> Tensor:
        """Sums over each sample; samples are the outermost part of the first axis."""
        if tensor.dim() == 0 or tensor.shape[0] % self.batch:
            raise UnsupportedOperation(
                f"A tensor of shape {tuple(tensor.shape)} does not keep the {self.batch} samples apart. "
                "Explain one input at a time, or choose a method without relevance."
            )
        return tensor.reshape(self.batch, -1).sum(1)

    def spread(self, factor_B: Tensor, like: Tensor) -> Tensor:
        """A number per sample, shaped so that it multiplies `like`."""
        repeated = factor_B.repeat_interleave(like.shape[0] // self.batch)
        return repeated.view(-1, *[1] * (like.dim() - 1))

    def divide(self, relevance: Tensor, denominator: Tensor, empty: Tensor | None = None) -> Tensor:
        """relevance / denominator with 0/0 = 0. Overwrites `denominator`, which must be the caller's own."""
        empty = denominator == 0 if empty is None else empty
        quotient = torch.div(relevance, denominator, out=denominator)
        if not empty.any():
            return quotient
        self.dropped_B += self.per_sample(relevance * empty)
        return quotient.masked_fill_(empty, 0.0)


def depends(value: object) -> bool:
    """Whether a value is an activation: parameters are frozen during a trace, so only those carry gradients."""
    return isinstance(value, Tensor) and value.requires_grad
