"""Prompts with tokens removed, and an answer whose tokens are predicted from what is left."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.model.language import ANSWER_POSITIONS, SOURCE_LENGTH
from clearhead.perturbation.deletion import order_tokens
from clearhead.perturbation.rows import Rows, chunk_rows, digest_arrays
from clearhead.perturbation.token_replacement import TokenReplacement, token_id

START_TOKENS = ("bos", "eos", "pad")


@dataclass(frozen=True)
class AnswerReplacement(TokenReplacement):
    """Prompts and answers along one axis; `positions_EN` are where the answer's tokens are predicted.

    A token that followed a removed one is predicted from the last token that is still there. Where nothing is left of
    a prompt, its answer follows the token that starts a text. The encoder of an encoder–decoder reads the first
    `source_length` tokens, the decoder the others; both close their gaps by themselves.
    """

    positions_EN: Tensor
    source_length: int = 0

    @property
    def _leaves_gaps(self) -> bool:
        """Whether removed tokens are gone, instead of replaced by another token."""
        return self.fill is None

    def _keep(self, rows: Rows, chosen: Tensor) -> Tensor:
        keep_NT = super()._keep(rows, chosen)
        self._start_bare(keep_NT, rows, chosen, True)
        return keep_NT

    def _start_bare(self, values_NT: Tensor, rows: Rows, chosen: Tensor, value: int) -> None:
        """Set the first token of rows that have nothing left of their prompt."""
        # Another token in place of removed ones leaves a prompt of its length.
        if self._leaves_gaps:
            bare_N = self._is_bare(rows, chosen)
            values_NT[bare_N, self._first_tokens(rows, chosen)[bare_N]] = value

    def _is_bare(self, rows: Rows, chosen: Tensor) -> Tensor:
        """Return which rows have nothing left of their prompt."""
        keep_NT = super()._keep(rows, chosen) & self.mask_ET[rows.example_R[chosen]]
        position_T = torch.arange(self.tokens)
        return ~(keep_NT & (position_T < self._prompt_ends(rows, chosen))).any(1)

    def _prompt_ends(self, rows: Rows, chosen: Tensor) -> Tensor:
        """Return the position after the prompt of each row (N,1)."""
        first_N1 = self.positions_EN[rows.example_R[chosen], :1]
        if self.source_length:
            return torch.full_like(first_N1, self.source_length)
        return first_N1 + 1

    def _first_tokens(self, rows: Rows, chosen: Tensor) -> Tensor:
        """Return where each row begins, after padding."""
        return self.mask_ET[rows.example_R[chosen]].int().argmax(1)

    def _count_deleted(self, rows: Rows) -> Tensor:
        counts = []
        for chunk in chunk_rows(len(rows.example_R)):
            # What is deleted from a source leaves padding, because the decoder's input follows.
            keep_NT = self._keep(rows, chunk)[:, self.source_length :]
            counts.append((~keep_NT).sum(1))
        return torch.cat(counts)

    def _order(self, keep_NT: Tensor) -> Tensor:
        return order_tokens(keep_NT, self.source_length)

    def keys(self, rows: Rows, chosen: Tensor, lengths_N: Tensor) -> list[bytes]:
        keys = super().keys(rows, chosen, lengths_N)
        # Rows of equal tokens can differ in where their answers are predicted.
        positions_NK = self._find_positions(rows, chosen).numpy()
        return [key + digest_arrays([row]) for key, row in zip(keys, positions_NK, strict=True)]

    def build(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        tensors = super().build(rows, chosen, width)
        # What is deleted shifts all that follows, and with it where the answer is predicted.
        tensors[ANSWER_POSITIONS] = self._find_positions(rows, chosen).to(self.model.device)
        return tensors

    def _replace(self, rows: Rows, chosen: Tensor, width: int) -> dict[str, Tensor]:
        tensors = super()._replace(rows, chosen, width)
        # Of embeddings, as of a prompt with pictures, the first stays as it is.
        if "input_ids" in tensors:
            self._start_bare(tensors["input_ids"], rows, chosen, self._start_token)
        return tensors

    @property
    def _start_token(self) -> int:
        # Not every tokenizer has a token for the start of a text.
        for name in START_TOKENS:
            number = token_id(self.model, name)
            if number is not None:
                return number
        return 0

    def _find_positions(self, rows: Rows, chosen: Tensor) -> Tensor:
        """Return where the answer's tokens are predicted in some rows: at the last token that is left."""
        positions_NK = self.positions_EN[rows.example_R[chosen]]
        if not self._leaves_gaps:
            return positions_NK
        keep_NT = self._keep(rows, chosen)
        if self.replacement == "delete":
            return self._count_kept(keep_NT).gather(1, positions_NK) - 1
        return self._last_kept(keep_NT).gather(1, positions_NK)

    def _last_kept(self, keep_NT: Tensor) -> Tensor:
        """Return at each position the last one up to it that is kept."""
        position_T = torch.arange(self.tokens)
        return torch.where(keep_NT, position_T, 0).cummax(1).values

    def _count_kept(self, keep_NT: Tensor) -> Tensor:
        """Return at each position of the decoder how many tokens come before the next; a source keeps its width."""
        filled_NT = keep_NT.clone()
        filled_NT[:, : self.source_length] = True
        return filled_NT.cumsum(1)

    def finish(self, logits: Tensor, example_N: Tensor) -> Tensor:
        return logits


def make_answer_replacement(texts: TokenReplacement) -> AnswerReplacement:
    """Return what removes tokens from prompts, given what removes tokens from texts."""
    tensors = dict(texts.tensors)
    positions_EN = tensors.pop(ANSWER_POSITIONS)
    source_length = _read_source_length(tensors)
    return AnswerReplacement(
        texts.model, tensors, texts.mask_ET, texts.replacement, texts.fill, positions_EN, source_length
    )


def _read_source_length(tensors: Mapping[str, Tensor]) -> int:
    if SOURCE_LENGTH not in tensors:
        return 0
    # The same for all rows, because sources are padded.
    return int(tensors[SOURCE_LENGTH][0, 0])
