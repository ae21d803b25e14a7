"""Standard errors of relevances that come from random samples, estimated from the samples themselves."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.attribution.baselines import replaceable_tokens
from clearhead.engine.trace import Trace

GROUPS = 8
"""Parts that a grouped jackknife leaves out one after the other."""
LEAST_FREEDOM = 1e-6
"""A sample that decides a weight on its own would have none, and its influence no bound."""


def relative_error(error_U: Tensor | None, value_U: Tensor) -> float | None:
    """Return the largest standard error, relative to the largest value; None if it is unknown or all values are 0."""
    largest = float(value_U.abs().max())
    if error_U is None or not largest:
        return None
    return float(error_U.max()) / largest


def mean_error(sample_NU: Tensor) -> Tensor | None:
    """Return the standard error of the mean over samples; None for a single one."""
    count = len(sample_NU)
    if count < 2:
        return None
    deviation_U: Tensor = sample_NU.double().std(0)
    return deviation_U / math.sqrt(count)


class TokenSamples:
    """The sums over samples of every token's relevance and its square, for methods that do not keep their samples."""

    def __init__(self, trace: Trace, samples: int) -> None:
        self.trace = trace
        self.samples = samples
        self.total_BT = torch.zeros(trace.mask_BT.shape, dtype=torch.float64, device=trace.mask_BT.device)
        self.square_BT = torch.zeros_like(self.total_BT)

    def add(self, row: int, relevance_T: Tensor) -> None:
        """Add a sample of one input."""
        self.total_BT[row] += relevance_T
        self.square_BT[row] += relevance_T.double().square()

    def errors(self) -> list[float | None]:
        """Return the relative error of each input, over the tokens that are not special."""
        if self.samples < 2:
            return [None] * len(self.total_BT)
        mean_BT = self.total_BT / self.samples
        variance_BT = (self.square_BT / self.samples - mean_BT.square()).clamp(min=0) / (self.samples - 1)
        return [relative_error(*row) for row in self._select(variance_BT.sqrt(), mean_BT)]

    def _select(self, error_BT: Tensor, mean_BT: Tensor) -> list[tuple[Tensor, Tensor]]:
        counted_BT = self._counted_tokens()
        return [
            (error_T[counted_T], mean_T[counted_T])
            for error_T, mean_T, counted_T in zip(error_BT, mean_BT, counted_BT, strict=True)
        ]

    def _counted_tokens(self) -> Tensor:
        # The leading tokens of an image have no pixels, so no relevance either.
        if self.trace.is_image:
            return self.trace.mask_BT
        return replaceable_tokens(self.trace)


def ridge_error(design_NU: Tensor, answer_N: Tensor, penalty_U: Tensor) -> Tensor | None:
    """Return the jackknife's standard error of ridge-regression weights, every sample left out once.

    Leaving out a sample x with the answer y changes the weights by A⁻¹x (y − xᵀw) / (1 − xᵀA⁻¹x), where A = XᵀX +
    penalty (Sherman and Morrison), so nothing is fitted again.
    """
    count = len(design_NU)
    if count < 2:
        return None
    inverse_UU = torch.linalg.pinv(design_NU.T @ design_NU + torch.diag(penalty_U), hermitian=True)
    influence_NU = design_NU @ inverse_UU
    residual_N = answer_N - design_NU @ (influence_NU.T @ answer_N)
    freedom_N = (1 - (influence_NU * design_NU).sum(1)).clamp(min=LEAST_FREEDOM)
    return _jackknife(influence_NU * (residual_N / freedom_N)[:, None])


def grouped_error(fit: Callable[[Tensor], Tensor], count: int) -> Tensor | None:
    """Return the jackknife's standard error of what `fit` makes of samples, leaving out one of GROUPS at a time.

    `fit` gets a mask of the samples that take part.
    """
    if count < 2 * GROUPS:
        return None
    group_N = torch.arange(count) % GROUPS
    return _jackknife(torch.stack([fit(group_N != group) for group in range(GROUPS)]))


def _jackknife(estimate_GU: Tensor) -> Tensor:
    """Return the standard error from estimates, or their changes, that each leave out one part."""
    count = len(estimate_GU)
    deviation_GU = estimate_GU - estimate_GU.mean(0)
    return (deviation_GU.square().sum(0) * (count - 1) / count).sqrt()
