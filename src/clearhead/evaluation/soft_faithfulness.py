"""Soft sufficiency and comprehensiveness: embeddings thinned out by how relevant their tokens are."""

from collections.abc import Callable

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


@metric(paper="Zhao & Aletras 2023; ReAGent (Zhao & Shan 2024)", better="higher", targets=("answer",))
def soft_sufficiency(
    model: Model, cases: list[ExplainedExample], *, samples: int = SAMPLES, seed: int = 0
) -> list[Record]:
    """How much of the next-word distributions is left when each number of an embedding is kept with its relevance.

    max(0, 1 − H/H₀): Hellinger distance H to the whole prompt, H₀ that of a prompt of zeros. `samples` draws of masks.
    """
    return _measure(model, cases, "soft-sufficiency", samples, seed)


@metric(paper="Zhao & Aletras 2023; ReAGent (Zhao & Shan 2024)", better="higher", targets=("answer",))
def soft_comprehensiveness(
    model: Model, cases: list[ExplainedExample], *, samples: int = SAMPLES, seed: int = 0
) -> list[Record]:
    """How far the next-word distributions move when each number of an embedding is dropped with its relevance.

    H/H₀, as for soft-sufficiency.
    """
    return _measure(model, cases, "soft-comprehensiveness", samples, seed)


def _measure(model: Model, cases: list[ExplainedExample], name: str, samples: int, seed: int) -> list[Record]:
    require_integer("samples", samples)
    require_integer("seed", seed, 0)
    measure = VALUES[name]
    records = []
    with eager_inference(model.network, model.device):
        for case in cases:
            records.append({name: measure(model, case, samples, seed)})
    return records


def _sufficiency(model: Model, case: ExplainedExample, samples: int, seed: int) -> float | None:
    ratio = _distance_ratio(model, case, _keep_probability(model, case), samples, seed)
    if ratio is None:
        return None
    return max(0.0, 1 - ratio)


def _comprehensiveness(model: Model, case: ExplainedExample, samples: int, seed: int) -> float | None:
    probability_T = _keep_probability(model, case)
    return _distance_ratio(model, case, 1 - probability_T, samples, seed)


VALUES: dict[str, Callable[..., float | None]] = {
    "soft-sufficiency": _sufficiency,
    "soft-comprehensiveness": _comprehensiveness,
}


def _keep_probability(model: Model, case: ExplainedExample) -> Array:
    """Return relevance scaled to 0 … 1 over the ranked tokens (T)."""
    explanation = answer_explanation(case, "answer")
    relevance_T = explanation.relevance
    ranked = relevance_T[ranked_tokens(model, explanation)]
    if not len(ranked):
        return np.zeros_like(relevance_T)
    spread = float(ranked.max() - ranked.min())
    # Equal relevance of all tokens says nothing about any of them.
    if not spread:
        return np.full_like(relevance_T, 0.5)
    scaled_T: Array = (relevance_T - ranked.min()) / spread
    return scaled_T.clip(0, 1)


def _distance_ratio(model: Model, case: ExplainedExample, keep_T: Array, samples: int, seed: int) -> float | None:
    """Return the mean Hellinger distance of thinned prompts, relative to that of the empty prompt, over all steps."""
    is_ranked = ranked_tokens(model, answer_explanation(case, "answer"))
    if not is_ranked.any():
        return None
    tensors = collate(model, [encoded_answer(case)]).tensors
    embedding_TD = _embed(model, tensors["input_ids"][0])
    mask_STD = _draw_masks(keep_T, samples, embedding_TD.shape[1], seeded_generator(seed, case.example.id))
    # The whole prompt, the prompt of zeros, then the samples.
    rows = np.concatenate([np.ones((1, *mask_STD.shape[1:])), np.zeros((1, *mask_STD.shape[1:])), mask_STD])
    rows[:, ~is_ranked] = 1
    leaf = embedding_TD * torch.from_numpy(rows).to(embedding_TD)
    repeated = {name: tensor.expand(len(rows), *tensor.shape[1:]) for name, tensor in tensors.items()}
    distance_RN = _hellinger(logits_from(model, repeated, leaf))
    return _mean_ratio(distance_RN[2:].mean(0), distance_RN[1])


def _embed(model: Model, ids_T: Tensor) -> Tensor:
    words = input_embedding(model.network)
    if words is None:
        raise UnsupportedModel(f"{model.name} does not look its words up in a table, so embeddings cannot be masked.")
    return words.detach()[ids_T]


def _draw_masks(keep_T: Array, samples: int, size: int, generator: np.random.Generator) -> Array:
    """Return Bernoulli masks (S,T,D); a method that keeps more of a token keeps what others keep of it."""
    return (generator.random((samples, len(keep_T), size)) < keep_T[:, None]).astype(np.float64)


def _hellinger(logits_RNV: Tensor) -> Array:
    """Return the Hellinger distance of every row's distributions to those of the first row (R,N)."""
    roots_RNV = logits_RNV.double().softmax(-1).sqrt()
    squared_RN = (roots_RNV - roots_RNV[:1]).square().sum(-1) / 2
    return squared_RN.sqrt().cpu().numpy()


def _mean_ratio(distance_N: Array, empty_N: Array) -> float | None:
    """Return the mean ratio over the steps that depend on the prompt at all."""
    depends_N = empty_N > 0
    if not depends_N.any():
        return None
    return float((distance_N[depends_N] / empty_N[depends_N]).mean())
