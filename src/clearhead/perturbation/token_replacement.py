"""Texts with tokens removed: replaced by another token, deleted, or taken from attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model.model import Model
from clearhead.perturbation.deletion import delete_tokens, order_tokens, truncate_tokens
from clearhead.perturbation.rows import Rows, chunk_rows, digest_arrays, move_tensors, select_rows


def token_id(model: Model, name: str) -> int | None:
    """Return the id of the 'mask' or 'pad' token, None if the model has none."""
    # The tokenizer first: configurations often leave these ids out.
    for source in (model.processor, model.config):
        number = getattr(source, f"{name}_token_id", None)
        if number is not None:
            return int(number)
    return None


@dataclass(frozen=True)
class TokenReplacement:
    """Texts with tokens replaced by `fill`, deleted, or removed from attention."""

    model: Model
    tensors: dict[str, Tensor]
    mask_ET: Tensor
    replacement: str
    fill: int | None

    @property
    def removes_attention(self) -> bool:
        return self.replacement.endswith("attention")

    @property
    def tokens(self) -> int:
        """Tokens of the longest input, to which all are padded."""
        return self.mask_ET.shape[1]

    def lengths(self, rows: Rows) -> Tensor:
        length_R = self._ends()[rows.example_R]
        if self.replacement == "delete":
            return self._shorten(length_R, rows)
        return length_R

    def _shorten(self, length_R: Tensor, rows: Rows) -> Tensor:
        # An input with nothing left still has one padding token.
        return (length_R - self._count_deleted(rows)).clamp(min=1)

    def _ends(self) -> Tensor:
        """Return the position after the last real token of every example (E)."""
        # Not the number of real tokens: padding may also stand on the left.
        return (self.mask_ET * torch.arange(1, self.tokens + 1)).amax(1)

    def _count_deleted(self, rows: Rows) -> Tensor:
        counts = []
        for chunk in chunk_rows(len(rows.example_R)):
            keep_NT = self._keep(rows, chunk)
            counts.append((~keep_NT).sum(1))
        return torch.cat(counts)

    def _keep(self, rows: Rows, chosen: Tensor) -> Tensor:
        """Return which tokens of some rows stay (N,T)."""
        return rows.keep(chosen, self.mask_ET.device)

    def keys(self, rows: Rows, chosen: Tensor, lengths_N: Tensor) -> list[bytes]:
        tensors = self._replace(rows, chosen, self.tokens)
        return _digest_rows(_as_arrays(tensors), lengths_N.tolist())

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        tensors = self._replace(rows, chosen, width)
        # The mask was added for lengths, but the network would not accept it.
        if not self.model.takes_mask:
            del tensors["attention_mask"]
        return move_tensors(tensors, self.model.device)

    def _replace(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        """Return the tensors of some rows with removed tokens replaced, cut to a width."""
        tensors = select_rows(self.tensors, rows.example_R[chosen])
        removed = self._remove(tensors, self._keep(rows, chosen))
        return {name: truncate_tokens(tensor, self.tokens, width) for name, tensor in removed.items()}

    def _remove(self, tensors: dict[str, Tensor], keep_NT: Tensor) -> dict[str, Tensor]:
        if self.replacement == "delete":
            return delete_tokens(tensors, keep_NT, self._order(keep_NT), self._pad_id())
        return {**tensors, **self._mark_removed(tensors, keep_NT)}

    def _order(self, keep_NT: Tensor) -> Tensor:
        """Return the order of the tokens that closes the gaps."""
        return order_tokens(keep_NT)

    def _pad_id(self) -> int:
        # Any id will do without a padding token: padding gets no attention.
        return token_id(self.model, "pad") or 0

    def _mark_removed(self, tensors: Mapping[str, Tensor], keep_NT: Tensor) -> dict[str, Tensor]:
        """Return the tensors that the replacement changes: the ids, the attention mask, or both."""
        marked = {}
        if self.fill is not None:
            marked["input_ids"] = torch.where(keep_NT, tensors["input_ids"], self.fill)
        if self.removes_attention:
            marked["attention_mask"] = tensors["attention_mask"] * keep_NT
        return marked

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        if logits.dim() == 2:
            return logits
        # Answer spans: batches differ in width, and padding can be no answer.
        real_NT = self.mask_ET[example_N].to(logits.device)
        missing = real_NT.shape[1] - logits.shape[-1]
        return F.pad(logits, (0, missing)).masked_fill(~real_NT[:, None], -torch.inf)


def _digest_rows(arrays: Sequence[Any], lengths: Sequence[int]) -> list[bytes]:
    return [_digest_row(arrays, row, length) for row, length in enumerate(lengths)]


def _digest_row(arrays: Sequence[Any], row: int, length: int) -> bytes:
    # Cut to the row's own length, so that equal texts match whatever the padding of the batch.
    return digest_arrays(array[row][:length] for array in arrays)


def _as_arrays(tensors: Mapping[str, Tensor]) -> list[Any]:
    return list(map(_as_numpy, tensors.values()))


def _as_numpy(tensor: Tensor) -> Any:
    # NumPy has no bfloat16.
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy()
