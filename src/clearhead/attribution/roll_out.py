"""Roll-outs: products of I + map over the blocks, without what the identities alone carry to words."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.attribution.method import Attribution, fill_diagnostics
from clearhead.engine.streams import HostCopy
from clearhead.engine.trace import Trace
from clearhead.lazy import LazySequence


def attribute_roll_out(
    trace: Trace,
    maps: Sequence[Tensor],
    *,
    normalise_rows: bool = False,
    diagnostics: Sequence[Mapping[str, Any]] = (),
) -> Attribution:
    """Return r (C − I): the rows that the head reads of C = (I + M_{L−1}) ⋯ (I + M_0), without the identity path.

    The identity path carries the head's own weights r to the input, whatever the maps. It is kept where the head reads
    the first token alone, a class token as in the papers. The diagnostics report its share where it is removed.
    """
    row_B1T, path_B1T = _split_reading(trace, maps[0].dtype)
    carry_down = _carry_down_normalised if normalise_rows else _carry_down
    # Vector × matrix from the last block down, which costs T² per block instead of T³.
    for map_BTS in reversed(maps):
        row_B1T, path_B1T = carry_down(row_B1T, path_B1T, map_BTS)
    relevance_BT, removed_BT = row_B1T[:, 0], path_B1T[:, 0]
    return Attribution(relevance_BT, diagnostics=report_identity_share(relevance_BT, removed_BT, diagnostics))


def _split_reading(trace: Trace, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the head's weights of samples that keep the identity path, and of those that lose it; else zero."""
    keeps_path_B11 = reads_first_token(trace)[:, None, None]
    reading_B1T = trace.reading_BT.to(dtype)[:, None]
    return reading_B1T * keeps_path_B11, reading_B1T * ~keeps_path_B11


def reads_first_token(trace: Trace) -> Tensor:
    """Return for which samples the head reads the first real token alone (B)."""
    return trace.reading_BT.masked_fill(find_first_tokens(trace), 0).sum(1) == 0


def find_first_tokens(trace: Trace) -> Tensor:
    """Return True at the first real token of each sample (B,T)."""
    mask_BT = trace.mask_BT
    # Padding may stand on the left.
    return mask_BT & (mask_BT.cumsum(1) == 1)


def _carry_down(row_B1T: Tensor, path_B1T: Tensor, map_BTS: Tensor) -> tuple[Tensor, Tensor]:
    """Carry a row and the identity path beside it through I + M."""
    # Two rows, because subtracting the path at the end would lose the digits of relevance far smaller than it.
    return torch.baddbmm(row_B1T, row_B1T + path_B1T, map_BTS), path_B1T


def _carry_down_normalised(row_B1T: Tensor, path_B1T: Tensor, map_BTS: Tensor) -> tuple[Tensor, Tensor]:
    """Carry a row and the identity path beside it through I + M with rows that sum to one."""
    identity = make_identity(map_BTS)
    with_residual = map_BTS + identity
    total_BT1 = with_residual.sum(-1, keepdim=True)
    # Without the identity again, because the row itself is added.
    row_B1T = torch.baddbmm(row_B1T, row_B1T, with_residual / total_BT1 - identity)
    path_B1T = path_B1T / total_BT1.mT
    return torch.baddbmm(row_B1T, path_B1T, map_BTS), path_B1T


def make_identity(map_BTS: Tensor) -> Tensor:
    """Return the identity of the size, precision and device of a map."""
    return torch.eye(map_BTS.shape[-1], dtype=map_BTS.dtype, device=map_BTS.device)


def report_identity_share(
    relevance_BT: Tensor, removed_BT: Tensor, diagnostics: Sequence[Mapping[str, Any]] = ()
) -> Sequence[dict[str, Any]]:
    """Add to the diagnostics which share of the total the identity path had, where it was removed."""
    removed_B = removed_BT.double().sum(1)
    share_B = removed_B / (removed_B + relevance_BT.double().sum(1))
    # Lazily: the share is copied from the device in the background.
    return LazySequence(len(share_B), partial(_read_shares, HostCopy(share_B), diagnostics))


def _read_shares(copy: HostCopy, diagnostics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    shares = copy.wait().tolist()
    return list(map(_add_share, fill_diagnostics(diagnostics, len(shares)), shares))


def _add_share(entry: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Add the share of the identity path to a diagnostic entry, unless the path was kept."""
    if share > 0:
        return {**entry, "identity_share": share}
    return dict(entry)
