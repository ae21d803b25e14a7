"""One pass of relevance: its rule set, its bookkeeping, and what a rule keeps of a call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from weakref import ref

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.lrp.kernels.dispatch import kernels_for
from clearhead.errors import UnsupportedOperation

Shares = Sequence[Tensor]
Back = Callable[[Tensor, "RelevanceContext"], Shares]
Recorded = tuple[Sequence[Tensor], Back]
Rule = Callable[..., Recorded]


MADE = "_clearhead_made"
LENT = "_clearhead_lent"
NOT_MADE = (None, None)


class SavedTensor:
    """A value that the way back needs, guarded against being overwritten in the meantime."""

    __slots__ = ("__weakref__", "kept", "make", "version")

    def __init__(self, tensor: Tensor) -> None:
        known, self.version = tensor.__dict__, tensor._version
        version, make = known.get(MADE, NOT_MADE)
        self.make: Callable[[], Tensor] | None = make if version == self.version else None
        self.kept = None if self.make else tensor
        if LENT in known:
            known[LENT].keepers.append(ref(self))

    @property
    def intact(self) -> bool:
        return self.kept is None or self.kept._version == self.version

    @property
    def tensor(self) -> Tensor:
        if not self.intact:
            raise UnsupportedOperation(
                "The network overwrote an activation in place after using it, or a weight has changed since, so "
                "relevance cannot be followed. Trace again, or choose a method without relevance."
            )
        return self.make() if self.kept is None and self.make else self.kept  # type: ignore[return-value]

    def to(self, dtype: torch.dtype) -> Tensor:
        return self.tensor.to(dtype)


class WeakTensor:
    """A value that is welcome on the way back, but only if another rule keeps it anyway."""

    __slots__ = ("keepers", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.version = tensor._version
        self.keepers: list[ref[SavedTensor]] = []
        tensor.__dict__[LENT] = self

    @property
    def tensor(self) -> Tensor | None:
        for found in self.keepers:
            kept = found()
            if kept is not None and kept.version == self.version and kept.intact:
                return kept.tensor
        return None


@dataclass(frozen=True)
class LinearCall:
    """A linear layer as it was called: out = x · weightᵀ + bias."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    out: Tensor | None

    def to(self, dtype: torch.dtype) -> "LinearCall":
        """In another type; the output serves as it is, unless it was rounded to less."""
        serves = self.out is not None and self.out.dtype == dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        return LinearCall(self.x.to(dtype), self.weight.to(dtype), bias, self.out if serves else None)

    @property
    def product(self) -> Tensor:
        return F.linear(self.x, self.weight, self.bias) if self.out is None else self.out


@dataclass(frozen=True)
class RuleSet:
    """How one pass treats the operations on which the papers differ."""

    name: str
    linear: Callable[[LinearCall, Tensor, "RelevanceContext"], Tensor]
    normalise_add: bool = False
    proportional: bool = True
    split_constants: bool = False


@dataclass
class RelevanceContext:
    """One pass of relevance: its rule set, the batch size, and what 0/0 took from each sample."""

    rules: RuleSet
    batch: int
    lost: list[Tensor] = field(default_factory=list)
    last: tuple[Callable[[Tensor], Tensor], Tensor, Tensor] | None = None

    def once(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """part(x), remembered for the next layer: queries, keys and values are made of the same activation."""
        if self.last is None or self.last[0] is not part or self.last[1] is not x:
            self.last = None
            self.last = (part, x, part(x))
        return self.last[2]

    @property
    def dropped_B(self) -> Tensor:
        """What 0/0 took from each sample so far."""
        self.lost[:] = [torch.cat(self.lost, 1).sum(1, keepdim=True)]
        return self.lost[0][:, 0]

    def samples(self, tensor: Tensor) -> int:
        """How many samples the first axis of a tensor keeps apart: as its outermost part."""
        if tensor.dim() == 0 or tensor.shape[0] % self.batch:
            raise UnsupportedOperation(
                f"A tensor of shape {tuple(tensor.shape)} does not keep the {self.batch} samples apart. "
                "Explain one input at a time, or choose a method without relevance."
            )
        return self.batch

    def per_sample(self, tensor: Tensor) -> Tensor:
        """Sums over each sample."""
        return tensor.reshape(self.samples(tensor), -1).sum(1)

    def spread(self, factor_B: Tensor, like: Tensor) -> Tensor:
        """A number per sample, shaped so that it multiplies `like`."""
        repeated = factor_B.repeat_interleave(like.shape[0] // self.batch)
        return repeated.view(-1, *[1] * (like.dim() - 1))

    def divide(
        self,
        relevance: Tensor,
        denominator: Tensor,
        empty: Tensor | None = None,
        *,
        factor: float = 1.0,
        kind: torch.dtype | None = None,
    ) -> Tensor:
        """factor · relevance / denominator with 0/0 = 0. Overwrites `denominator`, which must be the caller's own.

        The fused kernels leave it rounded to `kind`, if that is given.
        """
        fast = kernels_for(relevance)
        if fast and empty is None and relevance.shape == denominator.shape:
            pair = relevance.contiguous(), denominator.contiguous()
            quotient, lost = fast.quotient(*pair, self.samples(relevance), factor, kind)
            self.lost.append(lost)
            return quotient  # type: ignore[no-any-return]
        empty = denominator == 0 if empty is None else empty
        quotient = torch.div(relevance, denominator, out=denominator)
        if empty.any():
            self.lost.append(self.per_sample(relevance * empty)[:, None])
            quotient.masked_fill_(empty, 0.0)
        return quotient if factor == 1 else quotient.mul_(factor)


def is_activation(value: object) -> bool:
    """Whether a value is an activation: parameters are frozen during a trace, so only those carry gradients."""
    return isinstance(value, Tensor) and value.requires_grad
