"""Conservation reports: how much of a seed's relevance arrives."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.engine.seeds import Seeds
from clearhead.engine.streams import HostCopy
from clearhead.lazy import LazySequence


class Arrival(NamedTuple):
    """Per sample, the relevance that arrived from one seed, and what 0/0 dropped on the way."""

    total_B: Tensor
    dropped_B: Tensor


def report_conservation(seeds: Seeds, arrivals: Sequence[Arrival]) -> Sequence[dict[str, float]]:
    """Return per sample how far the arrived relevance is from that of the seed, and how much was dropped.

    With several seeds the worst counts. The numbers are copied from the device in the background and read lazily.
    """
    gaps = [_gap(seed, arrival) for seed, arrival in zip(seeds.tensors, arrivals, strict=True)]
    dropped = [arrival.dropped_B.abs() for arrival in arrivals]
    # One copy for both columns: it is queued behind the relevance pass, and nothing waits for it yet.
    columns = torch.stack([_worst(gaps).double(), _worst(dropped).double()], 1)
    return LazySequence(len(columns), partial(_read_report, HostCopy(columns)))


def _read_report(host_copy: HostCopy) -> list[dict[str, float]]:
    return [{"conservation_gap": gap, "dropped": drop} for gap, drop in host_copy.wait().tolist()]


def _gap(seed: Tensor, arrival: Arrival) -> Tensor:
    """Return per sample how far the arrived relevance is from that of the seed."""
    seeded_B = seed.flatten(1).sum(1)
    return (arrival.total_B - seeded_B).abs()


def _worst(values: Sequence[Tensor]) -> Tensor:
    # One seed is the usual case, which needs no copy.
    if len(values) == 1:
        return values[0]
    return torch.stack(list(values)).amax(0)
