"""Soft sufficiency and comprehensiveness: embeddings thinned out by how relevant their tokens are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.engine.context import eager_inference
from clearhead.engine.embeddings import logits_from
from clearhead.errors import UnsupportedModel
from clearhead.evaluation.answer_faithfulness import seeded_generator
from clearhead.evaluation.answer_tokens import answer_explanation, encoded_answer, ranked_tokens
from clearhead.evaluation.metric import ExplainedExample, Record, metric
from clearhead.model.inputs import collate
from clearhead.model.model import Model, input_embedding
from clearhead.validation import require_integer

SAMPLES = 5


@dataclass(frozen=True)
class _Draws:
    """How many masks are drawn, from which seed, and whether relevance keeps numbers or drops them."""

    samples: int
    seed: int
    is_dropping: bool

    def __post_init__(self) -> None:
        require_integer("samples", self.samples)
        require_integer("seed", self.seed, 0)

    def draw_noise(self, case: ExplainedExample, shape: Sequence[int]) -> Array:
        """Return uniform numbers (samples × shape)."""
        # The same for all methods: what keeps more of a token keeps all that others keep of it.
        return seeded_generator(self.seed, case).random((self.samples, *shape))


@metric(paper="Zhao & Aletras 2023; ReAGent (Zhao & Shan 2024)", better="higher", targets=("answer",))
def soft_sufficiency(
    model: Model, cases: list[ExplainedExample], *, samples: int = SAMPLES, seed: int = 0
) -> list[Record]:
    """How much of the next-word distributions is left when each number of an embedding is kept with its relevance.

    max(0, 1 − H/H₀): Hellinger distance H to the whole prompt, H₀ that of a prompt of zeros. `samples` draws of masks.
    """
    ratios = _measure_ratios(model, cases, _Draws(samples, seed, is_dropping=False))
    return [{"soft-sufficiency": _complement(ratio)} for ratio in ratios]


@metric(paper="Zhao & Aletras 2023; ReAGent (Zhao & Shan 2024)", better="higher", targets=("answer",))
def soft_comprehensiveness(
    model: Model, cases: list[ExplainedExample], *, samples: int = SAMPLES, seed: int = 0
) -> list[Record]:
    """How far the next-word distributions move when each number of an embedding is dropped with its relevance.

    H/H₀, as for soft-sufficiency.
    """
    ratios = _measure_ratios(model, cases, _Draws(samples, seed, is_dropping=True))
    return [{"soft-comprehensiveness": ratio} for ratio in ratios]


def _complement(ratio: float | None) -> float | None:
    if ratio is None:
        return None
    return max(0.0, 1 - ratio)


def _measure_ratios(model: Model, cases: list[ExplainedExample], draws: _Draws) -> list[float | None]:
    """Return the distance of the thinned prompts relative to that of the prompt of zeros; None without words."""
    with eager_inference(model.network, model.device):
        return [_measure_ratio(model, case, draws) for case in cases]


def _measure_ratio(model: Model, case: ExplainedExample, draws: _Draws) -> float | None:
    explanation = answer_explanation(case, "answer")
    is_ranked_T = ranked_tokens(model, explanation)
    if not is_ranked_T.any():
        return None
    keep_T = _keep_probability(explanation.relevance, is_ranked_T, draws.is_dropping)
    distance_RN = _run_thinned(model, case, keep_T, is_ranked_T, draws)
    return _mean_ratio(distance_RN[1:].mean(0), distance_RN[0])


def _keep_probability(relevance_T: Array, is_ranked_T: Array, is_dropping: bool) -> Array:
    keep_T = _scale_relevance(relevance_T, is_ranked_T)
    if is_dropping:
        keep_T = 1 - keep_T
    # What is not ranked, such as special tokens and the answer, is never thinned out.
    return np.where(is_ranked_T, keep_T, 1.0)


def _scale_relevance(relevance_T: Array, is_ranked_T: Array) -> Array:
    """Return relevance scaled to 0 … 1 over the ranked tokens (T)."""
    ranked = relevance_T[is_ranked_T]
    lowest = ranked.min()
    spread = ranked.max() - lowest
    # Equal relevance of all tokens says nothing about any of them.
    if not spread:
        return np.full_like(relevance_T, 0.5)
    scaled_T: Array = (relevance_T - lowest) / spread
    return scaled_T.clip(0, 1)


def _run_thinned(model: Model, case: ExplainedExample, keep_T: Array, is_ranked_T: Array, draws: _Draws) -> Array:
    """Return the distances to the whole prompt, for every step: of the prompt of zeros, then of each draw (R,N)."""
    tensors = collate(model, [encoded_answer(case)]).tensors
    embedding_TD = _embed(model, tensors["input_ids"][0])
    drawn_STD = draws.draw_noise(case, embedding_TD.shape) < keep_T[:, None]
    mask_RTD = torch.from_numpy(_stack_masks(drawn_STD, is_ranked_T))
    leaf = embedding_TD * mask_RTD.to(embedding_TD)
    return _hellinger(logits_from(model, _repeat(tensors, len(leaf)), leaf))[1:]


def _stack_masks(drawn_STD: Array, is_ranked_T: Array) -> Array:
    """Put the whole prompt and the prompt of zeros before the draws."""
    # In one batch, so that all distances come from the same kernels.
    whole_TD = np.ones(drawn_STD.shape[1:])
    empty_TD = whole_TD * ~is_ranked_T[:, None]
    return np.stack([whole_TD, empty_TD, *drawn_STD])


def _repeat(tensors: dict[str, Tensor], rows: int) -> dict[str, Tensor]:
    # Views of one row, because all rows differ in their embeddings only.
    return {name: tensor.expand(rows, *tensor.shape[1:]) for name, tensor in tensors.items()}


def _embed(model: Model, ids_T: Tensor) -> Tensor:
    return _require_table(model).detach()[ids_T]


def _require_table(model: Model) -> Tensor:
    words = input_embedding(model.network)
    if words is None:
        raise UnsupportedModel(f"{model.name} does not look its words up in a table, so embeddings cannot be masked.")
    return words


def _hellinger(logits_RNV: Tensor) -> Array:
    """Return the Hellinger distance of every row's distributions to those of the first row (R,N)."""
    # float64, because the distance of nearly equal distributions is a difference of nearly equal roots.
    roots_RNV = logits_RNV.double().softmax(-1).sqrt()
    squared_RN = (roots_RNV - roots_RNV[:1]).square().sum(-1) / 2
    return squared_RN.sqrt().cpu().numpy()


def _mean_ratio(distance_N: Array, empty_N: Array) -> float | None:
    """Return the mean ratio over the steps that depend on the prompt at all."""
    # A step that does not depend on the prompt would divide 0 by 0.
    depends_N = empty_N > 0
    if not depends_N.any():
        return None
    return float((distance_N[depends_N] / empty_N[depends_N]).mean())
