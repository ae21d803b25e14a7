"""Least squares with an absolute penalty (Lasso), by coordinate descent."""

import math

import numpy as np

from clearhead.arrays import Array

MAX_SWEEPS = 10_000
TOLERANCE = 1e-10


def fit_lasso(design_NU: Array, response_N: Array, penalty: float) -> Array:
    """Return the weights w that minimise ‖y − Z w − b‖² / 2N + penalty · ‖w‖₁, per unit of the design's columns.

    Z has the columns of the design, standardised; their weights are divided by the columns' deviations, so that a
    weight is the change of the response when its column changes by one. A constant column has weight 0.
    """
    deviation_U = design_NU.std(0)
    varies_U = deviation_U > 0
    deviation_K = deviation_U[varies_U]
    scaled_NK = _centre(design_NU)[:, varies_U] / deviation_K
    weight_U = np.zeros(len(deviation_U))
    weight_U[varies_U] = _descend(scaled_NK, _centre(response_N), penalty) / deviation_K
    return weight_U


def _centre(values: Array) -> Array:
    # The intercept b is free, so it takes the means of both sides.
    centred: Array = values - values.mean(0)
    return centred


def _descend(scaled_NK: Array, centred_N: Array, penalty: float) -> Array:
    """Minimise coordinate by coordinate; columns have mean 0 and variance 1."""
    gram_KK = _correlate(scaled_NK, scaled_NK)
    # The correlation of each column with what the weights leave unexplained.
    correlation_K = _correlate(scaled_NK, centred_N)
    weight_K = np.zeros(len(correlation_K))
    # Relative to the response, whose scale differs from model to model.
    limit = TOLERANCE * np.abs(centred_N).max()
    for _ in range(MAX_SWEEPS):
        if _sweep(weight_K, correlation_K, gram_KK, penalty) <= limit:
            break
    return weight_K


def _correlate(scaled_NK: Array, values: Array) -> Array:
    correlation: Array = scaled_NK.T @ values / len(scaled_NK)
    return correlation


def _sweep(weight_K: Array, correlation_K: Array, gram_KK: Array, penalty: float) -> float:
    """Improve every weight once, in place; return the largest change."""
    largest = 0.0
    for column in range(len(weight_K)):
        before = weight_K[column]
        after = _shrink(correlation_K[column] + before, penalty)
        # Most weights are zero and stay so.
        if after != before:
            weight_K[column] = after
            correlation_K -= (after - before) * gram_KK[column]
            largest = max(largest, abs(after - before))
    return largest


def _shrink(value: float, penalty: float) -> float:
    """Move a value towards zero by the penalty, not beyond."""
    if abs(value) > penalty:
        return value - math.copysign(penalty, value)
    return 0.0
