"""Seeds: where the gradients and the relevance of a target start."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Seeds:
    """Signed one-hot tensors over the output: one for a class, two for a contrast or a span (see `make_seeds`)."""

    pairs: Sequence[tuple[int, Tensor]]

    @property
    def tensors(self) -> list[Tensor]:
        return [seed for _, seed in self.pairs]

    @property
    def direction(self) -> Tensor:
        """The direction of the output along which gradients are taken."""
        return self.signed_sum(self.tensors)

    @property
    def relevance_seeds(self) -> list[Tensor]:
        """The seeds of relevance passes, in float32 or more: shares of relevance underflow in half precision."""
        return [seed.to(torch.promote_types(seed.dtype, torch.float32)) for seed in self.tensors]

    @property
    def unsigned_sum(self) -> Tensor:
        """The sum of the seeds without signs, so that the two of a contrast do not cancel."""
        return torch.stack(self.tensors).sum(0)

    def signed_sum(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return Σ sign · tensor, with one tensor per seed."""
        # Nearly every target has one seed, whose sign is 1: its tensor is returned without a copy.
        if len(self.pairs) == 1:
            return tensors[0]
        return torch.stack(_apply_signs(self.pairs, tensors)).sum(0)


def _apply_signs(pairs: Sequence[tuple[int, Tensor]], tensors: Sequence[Tensor]) -> list[Tensor]:
    return [_apply_sign(sign, tensor) for (sign, _), tensor in zip(pairs, tensors, strict=True)]


def _apply_sign(sign: int, tensor: Tensor) -> Tensor:
    # Attention maps are large: no copy where the sign does not change them.
    if sign == 1:
        return tensor
    return sign * tensor
