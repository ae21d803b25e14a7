"""Log-probabilities of an answer when tokens of its prompt are removed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.engine.batching import in_batches
from clearhead.engine.context import eager_inference
from clearhead.model.inputs import Encoded, collate
from clearhead.model.language import ANSWER_POSITIONS
from clearhead.model.model import Model
from clearhead.model.outputs import finite_logits
from clearhead.perturbation.run import TOKENS_PER_BATCH
from clearhead.validation import require_choice

REPLACEMENTS = ("delete", "attention")


@dataclass(frozen=True, eq=False)
class Ablation:
    """A prompt with its answer, which of the tokens are kept (T), and the steps of the answer that are scored."""

    encoded: Encoded
    keep_T: Array
    steps: tuple[int, ...]


def answer_log_probs(model: Model, ablations: Sequence[Ablation], *, replacement: str = "delete") -> list[Array]:
    """Return for each ablation the log-probability of each of its steps, in float64; equal ones are computed once."""
    require_choice("replacement", replacement, REPLACEMENTS, " for answers")
    rows: dict[bytes, Encoded] = {}
    keys = []
    for ablation in ablations:
        row = _remove_tokens(ablation, replacement)
        key = _row_key(row)
        keys.append(key)
        rows.setdefault(key, row)
    scores = dict(zip(rows, _run_rows(model, list(rows.values())), strict=True))
    return [scores[key] for key in keys]


def _remove_tokens(ablation: Ablation, replacement: str) -> Encoded:
    """Return the network's input, cut after the last scored step."""
    row = _select_steps(ablation)
    keep_T = np.asarray(ablation.keep_T[: row.length], dtype=bool)
    if replacement == "attention":
        return _with_values(row, attention_mask=keep_T.astype(int).tolist())
    return _delete_tokens(row, keep_T)


def _select_steps(ablation: Ablation) -> Encoded:
    """Return the row with the scored steps only; tokens after the last of them cannot matter."""
    encoded = ablation.encoded
    answer = encoded.item.answer
    assert answer is not None
    positions = [encoded.values[ANSWER_POSITIONS][step] for step in ablation.steps]
    length = positions[-1] + 1
    item = replace(
        encoded.item,
        tokens=encoded.item.tokens[:length],
        answer=replace(answer, ids=tuple(answer.ids[step] for step in ablation.steps)),
    )
    cut = {name: values[:length] for name, values in encoded.values.items()}
    return Encoded(item, {**cut, ANSWER_POSITIONS: positions})


def _with_values(row: Encoded, **values: list[int]) -> Encoded:
    return replace(row, values={**row.values, **values})


def _delete_tokens(row: Encoded, keep_T: Array) -> Encoded:
    kept = np.flatnonzero(keep_T)
    # A step is predicted at the last token that is left before it.
    position_T = np.maximum(np.cumsum(keep_T) - 1, 0)
    values = {name: _select(values, kept) for name, values in row.values.items() if name != ANSWER_POSITIONS}
    values[ANSWER_POSITIONS] = position_T[row.values[ANSWER_POSITIONS]].tolist()
    item = replace(row.item, tokens=tuple(_select(row.item.tokens, kept)))
    return Encoded(item, values)


def _select(values: Sequence[Any], kept: Array) -> list[Any]:
    return [values[index] for index in kept]


def _row_key(row: Encoded) -> bytes:
    """Return bytes that are equal for equal inputs with equal scored tokens."""
    assert row.item.answer is not None
    return repr((sorted(row.values.items()), row.item.answer.ids)).encode()


def _run_rows(model: Model, rows: Sequence[Encoded]) -> list[Array]:
    # Longest first: a batch is as wide as its first row, and what does not fit into memory shows at once.
    order = sorted(range(len(rows)), key=lambda index: rows[index].length, reverse=True)
    scores: dict[int, Array] = {}

    def compute(start: int, stop: int) -> None:
        indices = order[start:stop]
        batch = [rows[index] for index in indices]
        scores.update(zip(indices, _score_batch(model, batch), strict=True))

    lengths = [rows[index].length for index in order]
    tokens = TOKENS_PER_BATCH.get(model.device.type, TOKENS_PER_BATCH["cpu"])
    with eager_inference(model.network, model.device):
        in_batches(lengths, compute, tokens=tokens, label="prompts")
    return [scores[index] for index in range(len(rows))]


def _score_batch(model: Model, rows: Sequence[Encoded]) -> list[Array]:
    logits_BNV = finite_logits(model, model.network(**collate(model, rows).tensors))
    return [_score_row(logits_NV, row) for logits_NV, row in zip(logits_BNV, rows, strict=True)]


def _score_row(logits_NV: Tensor, row: Encoded) -> Array:
    assert row.item.answer is not None
    ids_N = torch.tensor(row.item.answer.ids, device=logits_NV.device)
    # Row by row in float64: a copy of the whole batch over a large vocabulary would not fit.
    scores_NV = logits_NV[: len(ids_N)].double()
    log_prob_N = scores_NV.gather(1, ids_N[:, None])[:, 0] - scores_NV.logsumexp(-1)
    return log_prob_N.cpu().numpy()
