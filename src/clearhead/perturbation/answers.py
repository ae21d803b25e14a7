"""Log-probabilities of an answer when tokens of its prompt are removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
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


def group_log_probs(model: Model, groups: Sequence[Sequence[Ablation]], *, replacement: str) -> list[list[Array]]:
    """Return the log-probabilities of each group of ablations, computed together."""
    # In one call: batches fill up, and rows that groups share are computed once.
    scores = iter(answer_log_probs(model, list(chain.from_iterable(groups)), replacement=replacement))
    return [list(islice(scores, len(group))) for group in groups]


def ablate_rows(encoded: Encoded, keep_KT: Array, steps: tuple[int, ...]) -> list[Ablation]:
    """Return a prompt with each choice of kept tokens, all scored at the same steps."""
    return [Ablation(encoded, keep_T, steps) for keep_T in keep_KT]


def require_answer(encoded: Encoded) -> Answer:
    """Return the answer of a prompt that has one."""
    assert encoded.item.answer is not None
    return encoded.item.answer


def _add_row(rows: dict[bytes, Encoded], row: Encoded) -> bytes:
    """Add a row unless there is one like it, and return the key of both."""
    key = _make_key(row)
    rows.setdefault(key, row)
    return key


def _make_key(row: Encoded) -> bytes:
    # The answer belongs to it, because the last of its tokens is not among the values.
    return repr((sorted(row.values.items()), require_answer(row).ids)).encode()


def _remove_tokens(ablation: Ablation, replacement: str) -> Encoded:
    """Return the network's input, cut after the last scored step."""
    row = _select_steps(ablation)
    keep_T = np.asarray(ablation.keep_T[: row.length], dtype=bool)
    if replacement == "delete":
        return _delete_tokens(row, keep_T)
    # Removed tokens stay in the row, but nothing looks at them.
    mask = keep_T.astype(int).tolist()
    return replace(row, values={**row.values, "attention_mask": mask})


def _select_steps(ablation: Ablation) -> Encoded:
    """Return the row with the scored steps only; tokens after the last of them cannot matter."""
    encoded = ablation.encoded
    positions = _select(encoded.values[ANSWER_POSITIONS], ablation.steps)
    length = positions[-1] + 1
    item = replace(encoded.item, tokens=encoded.item.tokens[:length], answer=_select_answer(ablation))
    return Encoded(item, {**_cut_values(encoded, length), ANSWER_POSITIONS: positions})


def _cut_values(encoded: Encoded, length: int) -> dict[str, Any]:
    return {name: values[:length] for name, values in encoded.values.items()}


def _select_answer(ablation: Ablation) -> Answer:
    answer = require_answer(ablation.encoded)
    return replace(answer, ids=tuple(_select(answer.ids, ablation.steps)))


def _delete_tokens(row: Encoded, keep_T: Array) -> Encoded:
    kept = np.flatnonzero(keep_T).tolist()
    values = {**row.values, **_delete_values(row, kept)}
    values[ANSWER_POSITIONS] = _shift_positions(row.values[ANSWER_POSITIONS], keep_T)
    if SOURCE_LENGTH in values:
        values[SOURCE_LENGTH] = [_count_source(row, keep_T)]
    return Encoded(replace(row.item, tokens=tuple(_select(row.item.tokens, kept))), values)


def _delete_values(row: Encoded, kept: Sequence[int]) -> dict[str, Any]:
    return {name: _select(row.values[name], kept) for name in TOKEN_VALUES}


def _count_source(row: Encoded, keep_T: Array) -> int:
    """Return how many tokens are left for the encoder."""
    length = row.values[SOURCE_LENGTH][0]
    return int(keep_T[:length].sum())


def _select(values: Sequence[Any], indices: Sequence[int]) -> list[Any]:
    return [values[index] for index in indices]


def _shift_positions(positions: Sequence[int], keep_T: Array) -> list[int]:
    # A step is predicted at the last token that is left before it.
    position_T = np.maximum(np.cumsum(keep_T) - 1, 0)
    shifted: list[int] = position_T[positions].tolist()
    return shifted


def _run_rows(model: Model, rows: Mapping[bytes, Encoded]) -> dict[bytes, Array]:
    # Longest first: a batch is as wide as its first row, and what does not fit into memory shows at once.
    keys = sorted(rows, key=lambda key: rows[key].length, reverse=True)
    with eager_inference(model.network, model.device):
        scores = _score_rows(model, list(map(rows.__getitem__, keys)))
    return dict(zip(keys, scores, strict=True))


def _score_rows(model: Model, rows: Sequence[Encoded]) -> list[Array]:
    scores: list[Array] = []

    def compute(start: int, stop: int) -> None:
        scores.extend(_score_batch(model, rows[start:stop]))

    tokens = TOKENS_PER_BATCH.get(model.device.type, TOKENS_PER_BATCH["cpu"])
    in_batches([row.length for row in rows], compute, tokens=tokens, label="prompts")
    return scores


def _score_batch(model: Model, rows: Sequence[Encoded]) -> list[Array]:
    logits_BNV = finite_logits(model, model.network(**collate(model, rows).tensors))
    return list(map(_score_row, logits_BNV, rows))


def _score_row(logits_NV: Tensor, row: Encoded) -> Array:
    ids_N = torch.tensor(require_answer(row).ids, device=logits_NV.device)
    # Row by row in float64: a copy of the whole batch over a large vocabulary would not fit.
    scores_NV = logits_NV[: len(ids_N)].double()
    log_prob_N = scores_NV.gather(1, ids_N[:, None])[:, 0] - scores_NV.logsumexp(-1)
    return log_prob_N.cpu().numpy()
