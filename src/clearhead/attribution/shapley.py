"""Shapley values from random orders of the units, drawn until they are known well enough."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clearhead.attribution.method import Attribution
from clearhead.attribution.perturbed_features import Perturbation, ScoredRow
from clearhead.attribution.sampling_error import mean_error, relative_error
from clearhead.attribution.seeding import make_generator
from clearhead.engine.trace import Trace
from clearhead.perturbation.features import Features
from clearhead.validation import require_integer

MAX_ORDERS = 25
MAX_IMAGE_ORDERS = 10
ORDERS_PER_ROUND = 5
ORDER_TOLERANCE = 0.1


@dataclass
class _RowGains:
    """The gains of a row's units in all orders so far, and the latest scores of both ends."""

    gains: list[Tensor] = field(default_factory=list)
    latest: ScoredRow | None = None

    @property
    def gain_NU(self) -> Tensor:
        return torch.cat(self.gains)

    @property
    def error(self) -> float | None:
        """The standard error relative to the largest value; None if it is unknown."""
        gain_NU = self.gain_NU
        return relative_error(mean_error(gain_NU), gain_NU.mean(0))

    def is_known(self, tolerance: float) -> bool:
        """Return whether more orders are not needed."""
        error = self.error if self.gains else None
        return error is not None and error <= tolerance

    def add(self, row: ScoredRow, order_NU: Tensor) -> None:
        self.gains.append(find_gains(row.score_N, order_NU))
        self.latest = row


def sample_orders(perturbation: Perturbation, samples: int | None, tolerance: float, seed: int) -> Attribution:
    """Return the mean gains over `samples` orders; over as many as the tolerance takes if that is None."""
    limit = _choose_limit(perturbation.trace, samples)
    # All orders are drawn, because drawing is cheap; the first ones do not depend on how many follow.
    orders = perturbation.draw(_draw_orders, limit, seed)
    round_size = limit if samples is not None else min(ORDERS_PER_ROUND, limit)
    rows = _add_rounds(perturbation, orders, round_size, tolerance)
    latest = [row.latest for row in rows if row.latest is not None]
    diagnostics = perturbation.describe(latest, seed=seed)
    for entry, row in zip(diagnostics, rows, strict=True):
        entry.update(_describe(row))
    return perturbation.attribute([row.gain_NU.mean(0) for row in rows], diagnostics)


def _choose_limit(trace: Trace, samples: int | None) -> int:
    if samples is None:
        return MAX_IMAGE_ORDERS if trace.is_image else MAX_ORDERS
    require_integer("samples", samples)
    return samples


def _describe(row: _RowGains) -> dict[str, Any]:
    return {"samples": len(row.gain_NU), "sampling_error": row.error}


def _add_rounds(
    perturbation: Perturbation, orders: Sequence[Tensor], round_size: int, tolerance: float
) -> list[_RowGains]:
    """Score orders round by round, for inputs with a row that is not known well enough."""
    rows: list[_RowGains] = []
    limit = len(orders[0])
    for start in range(0, limit, round_size):
        drawn = [order_NU[start : start + round_size] for order_NU in orders]
        open_inputs = _find_open(rows, tolerance)
        if rows and not open_inputs:
            break
        masks = [_growing_masks(order_NU[: _count(index, open_inputs, rows)]) for index, order_NU in enumerate(drawn)]
        scored = perturbation.score_rows(masks)
        rows = rows or [_RowGains() for _ in scored]
        for gains, row in zip(rows, scored, strict=True):
            # A row that is known stays as it is when other rows of its input go on, as if it were alone.
            if len(row.score_N) and not gains.is_known(tolerance):
                gains.add(row, drawn[row.index])
    return rows


def _find_open(rows: Sequence[_RowGains], tolerance: float) -> set[int]:
    """Return the inputs of which a row is not known well enough."""
    return {row.latest.index for row in rows if row.latest is not None and not row.is_known(tolerance)}


def _count(index: int, open_inputs: set[int], rows: Sequence[_RowGains]) -> int | None:
    # In the first round every input is scored; later, none of the orders of one that is known.
    return None if not rows or index in open_inputs else 0


def _draw_orders(trace: Trace, row: int, features: Features, samples: int, seed: int) -> Tensor:
    """Draw random orders of the features of one input (orders × features)."""
    # One generator for all orders: the first ones stay the same when more are drawn.
    generator = make_generator(trace, row, seed)
    return torch.stack([torch.randperm(features.count, generator=generator) for _ in range(samples)])


def _growing_masks(order_NU: Tensor) -> Tensor:
    """Return for each order the masks from nothing to everything (orders · (features + 1), features)."""
    counts_M1 = torch.arange(order_NU.shape[1] + 1)[:, None]
    return (_find_steps(order_NU)[:, None] < counts_M1).flatten(0, 1)


def find_gains(score_N: Tensor, order_NU: Tensor) -> Tensor:
    """Return the gain when each feature is added, in each order (orders × features)."""
    gain_NU = score_N.reshape(len(order_NU), -1).diff(dim=1)
    return gain_NU.gather(1, _find_steps(order_NU).to(gain_NU.device))


def _find_steps(order_NU: Tensor) -> Tensor:
    """Return at which step of each order each feature is added."""
    # The inverse of a permutation sorts it.
    return order_NU.argsort(1)
