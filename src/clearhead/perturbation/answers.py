"""Log-probabilities of an answer when tokens of its prompt are removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.engine.batching import in_batches
from clearhead.engine.context import eager_inference
from clearhead.model.batches import Answer
from clearhead.model.inputs import Encoded, collate
from clearhead.model.language import ANSWER_POSITIONS, SOURCE_LENGTH
from clearhead.model.model import Model
from clearhead.model.outputs import finite_logits
from clearhead.perturbation.run import TOKENS_PER_BATCH
from clearhead.validation import require_choice

REPLACEMENTS = ("delete", "attention")
# What has a value for every token.
TOKEN_VALUES = ("input_ids", "attention_mask")


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
    keys = [_add_row(rows, _remove_tokens(ablation, replacement)) for ablation in ablations]
    scores = _run_rows(model, rows)
    return [scores[key] for key in keys]


def _add_row(rows: dict[bytes, Encoded], row: Encoded) -> bytes:
    """Add a row unless there is one like it, and return the key of both."""
    assert row.item.answer is not None
    key = repr((sorted(row.values.items()), row.item.answer.ids)).encode()
    rows.setdefault(key, row)
    return key


def _remove_tokens(ablation: Ablation, replacement: str) -> Encoded:
    """Return the network's input, cut after the last scored step."""
    row = _select_steps(ablation)
    keep_T = np.asarray(ablation.keep_T[: row.length], dtype=bool)
    if replacement == "delete":
        return _delete_tokens(row, keep_T)
    mask = keep_T.astype(int).tolist()
    return replace(row, values={**row.values, "attention_mask": mask})


def _select_steps(ablation: Ablation) -> Encoded:
    """Return the row with the scored steps only; tokens after the last of them cannot matter."""
    encoded = ablation.encoded
    positions = [encoded.values[ANSWER_POSITIONS][step] for step in ablation.steps]
    length = positions[-1] + 1
    values = {name: values[:length] for name, values in encoded.values.items()}
    item = replace(encoded.item, tokens=encoded.item.tokens[:length], answer=_select_answer(ablation))
    return Encoded(item, {**values, ANSWER_POSITIONS: positions})


def _select_answer(ablation: Ablation) -> Answer:
    answer = ablation.encoded.item.answer
    assert answer is not None
    return replace(answer, ids=tuple(answer.ids[step] for step in ablation.steps))


def _delete_tokens(row: Encoded, keep_T: Array) -> Encoded:
    kept = np.flatnonzero(keep_T)
    values = {name: _select(row.values[name], kept) for name in TOKEN_VALUES}
    values[ANSWER_POSITIONS] = _shift_positions(row.values[ANSWER_POSITIONS], keep_T)
    if SOURCE_LENGTH in row.values:
        values[SOURCE_LENGTH] = [int(keep_T[: row.values[SOURCE_LENGTH][0]].sum())]
    item = replace(row.item, tokens=tuple(_select(row.item.tokens, kept)))
    return Encoded(item, {**row.values, **values})


def _select(values: Sequence[Any], kept: Array) -> list[Any]:
    return [values[index] for index in kept]


def _shift_positions(positions: Sequence[int], keep_T: Array) -> list[int]:
    # A step is predicted at the last token that is left before it.
    position_T = np.maximum(np.cumsum(keep_T) - 1, 0)
    shifted: list[int] = position_T[positions].tolist()
    return shifted


def _run_rows(model: Model, rows: Mapping[bytes, Encoded]) -> dict[bytes, Array]:
    # Longest first: a batch is as wide as its first row, and what does not fit into memory shows at once.
    ordered = dict(sorted(rows.items(), key=lambda item: item[1].length, reverse=True))
    batch = list(ordered.values())
    scores: list[Array] = []

    def compute(start: int, stop: int) -> None:
        scores.extend(_score_batch(model, batch[start:stop]))

    tokens = TOKENS_PER_BATCH.get(model.device.type, TOKENS_PER_BATCH["cpu"])
    with eager_inference(model.network, model.device):
        in_batches([row.length for row in batch], compute, tokens=tokens, label="prompts")
    return dict(zip(ordered, scores, strict=True))


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
