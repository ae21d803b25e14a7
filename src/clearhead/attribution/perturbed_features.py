"""The features of a trace's inputs, hidden and scored: what methods that perturb the input share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat, starmap
from typing import Any

import torch
from torch import Tensor

from clearhead.attribution.effects import REGRESSION_OUTPUT, describe_effect
from clearhead.attribution.method import Attribution
from clearhead.attribution.seeding import make_generator
from clearhead.engine.step_trace import StepTrace
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput
from clearhead.model.batches import Answer
from clearhead.model.inputs import Inputs
from clearhead.model.target import AnswerTarget, Target
from clearhead.perturbation.answer_scores import PROBABILITY, resolve_output
from clearhead.perturbation.features import SEGMENTS, Features, group_features, restrict_features, text_mask
from clearhead.perturbation.replacement import resolve_replacement
from clearhead.perturbation.run import score_target_sets
from clearhead.validation import require_integer

MAX_PATCHES = 64
"""Patches of an image that are hidden one by one by default."""
Draw = Callable[[Trace, int, Features, int, int], Tensor]
"""A function (trace, input, features, samples, seed) → random masks or orders of one input."""


def _distinct_inputs(trace: Trace) -> Inputs:
    """Return the inputs of a trace, each of them once."""
    return trace.distinct_inputs if isinstance(trace, StepTrace) else trace.inputs


def _target_sets(trace: Trace) -> list[tuple[Target, ...]]:
    """Return the targets of each distinct input, in the order of the rows."""
    # A trace of steps explains many targets of a single input.
    if isinstance(trace, StepTrace):
        return [trace.targets]
    return [(target,) for target in trace.targets]


def _count_targets(trace: Trace) -> list[int]:
    """Return how many rows of the trace belong to each distinct input."""
    return list(map(len, _target_sets(trace)))


@dataclass(frozen=True)
class PerturbationOptions:
    """What is hidden and how, and which output is observed: options that perturbation methods have in common."""

    unit: str | None = None
    replacement: str | None = None
    output: str | None = None
    prefix: bool = True
    segments: int = SEGMENTS
    batch: int | None = None


@dataclass(frozen=True)
class ScoredRow:
    """The scores of a row of the trace, one target of one input, under each of the input's masks.

    `index` is that of the input, `visible_U` the features that the target can depend on. `base` is the score of the
    input with every feature hidden, `prediction` that of the whole input.
    """

    index: int
    score_N: Tensor
    visible_U: Tensor
    base: float
    prediction: float

    def widen(self, value_K: Tensor) -> Tensor:
        """Return the values of visible features among all, zero for the others."""
        value_U = value_K.new_zeros(len(self.visible_U))
        value_U[self.visible_U] = value_K
        return value_U


@dataclass(frozen=True)
class Perturbation:
    """The features of a trace's distinct inputs, and how they are hidden and scored."""

    trace: Trace
    groups: list[Features]
    options: PerturbationOptions

    def draw(self, draw_input: Draw, samples: int, seed: int) -> list[Tensor]:
        """Return what `draw_input` draws for each input, from a generator of its own."""
        drawn = []
        for index, features in enumerate(self.groups):
            drawn.append(draw_input(self.trace, index, features, samples, seed))
        return drawn

    def score(self, masks: list[Tensor]) -> list[Tensor]:
        """Return for each input the explained outputs of its targets under each of its masks (targets × masks)."""
        trace = self.trace
        return score_target_sets(
            trace.model,
            _distinct_inputs(trace),
            masks,
            _target_sets(trace),
            self.groups,
            output=self.options.output,
            replacement=self.options.replacement,
            batch_size=self.options.batch,
        )

    def score_rows(self, masks: list[Tensor]) -> list[ScoredRow]:
        """Return the scores of each row of the trace under the masks of its input."""
        # Both ends in the same batches: most methods have them among their masks, and equal rows are computed once.
        scores = self.score(list(map(_add_ends, masks)))
        return list(starmap(self._make_row, enumerate(chain.from_iterable(scores))))

    def _make_row(self, row: int, score_M: Tensor) -> ScoredRow:
        base, prediction = score_M[-2:].tolist()
        return ScoredRow(self._indices[row], score_M[:-2], self._find_visible(row), base, prediction)

    @cached_property
    def _indices(self) -> list[int]:
        """The index of the distinct input of every row."""
        repeats = starmap(repeat, enumerate(_count_targets(self.trace)))
        return list(chain.from_iterable(repeats))

    def _features(self, row: int) -> Features:
        return self.groups[self._indices[row]]

    def _find_visible(self, row: int) -> Tensor:
        """Return which features have a token that the target of a row can depend on."""
        features = self._features(row)
        if not self.trace.model.writes:
            return torch.ones(features.count, dtype=torch.bool)
        return _find_labels(features, self._query(row))

    def _query(self, row: int) -> Tensor:
        """Return the tokens that the target of a row can depend on, on the CPU, where features are."""
        return self.trace.query_BT[row].cpu()

    def describe(self, rows: Sequence[ScoredRow], **settings: Any) -> list[dict[str, Any]]:
        """Return diagnostics of every row, with the choices that None stood for."""
        trace = self.trace
        replacement = resolve_replacement(trace.model, trace.inputs, self.options.replacement)
        diagnostics = []
        for number, row in enumerate(rows):
            output = self._scored(number)
            entry: dict[str, Any] = {"absent": replacement, "output": output}
            entry.update(_describe_features(self.groups[row.index]))
            effect = describe_effect(output, row.base, row.prediction)
            diagnostics.append({**entry, **settings, "effect": effect})
        return diagnostics

    def _scored(self, row: int) -> str:
        # A regression has no probabilities, so its score is explained whatever was asked for.
        if self.trace.model.problem == "regression":
            return REGRESSION_OUTPUT
        target = self.trace.targets[row]
        if isinstance(target, AnswerTarget):
            return resolve_output(target, self.options.output)
        return self.options.output or PROBABILITY

    def attribute(self, values: Sequence[Tensor], diagnostics: Sequence[dict[str, Any]]) -> Attribution:
        """Share each feature's relevance equally among its tokens or pixels, so that sums stay."""
        shared = torch.stack(list(starmap(self._spread, enumerate(values))))
        if not self.trace.is_image:
            return Attribution(shared, diagnostics=diagnostics)
        pixels_BPQ = shared.reshape(len(shared), *self.trace.inputs.tensors["pixel_values"].shape[-2:])
        attribution = Attribution(self.trace.patches(pixels_BPQ), diagnostics=diagnostics)
        # Patches are tokens already: a pixel map would say nothing more.
        if self.groups[0].kind == "patch":
            return attribution
        return replace(attribution, pixels_BPQ=pixels_BPQ)

    def _spread(self, row: int, value_U: Tensor) -> Tensor:
        """Return the share of every token or pixel in the relevance of its feature; special tokens get none."""
        labels_X = self._features(row).labels.flatten()
        if self.trace.model.writes:
            # What comes after the explained steps has no part in them.
            labels_X = torch.where(self._query(row), labels_X, 0)
        return spread_features(labels_X, value_U)


def _add_ends(mask_NU: Tensor) -> Tensor:
    """Return masks with two more: every feature hidden, and none."""
    # Not like the first mask, because there may be none.
    hidden_1U = mask_NU.new_zeros(1, mask_NU.shape[1])
    return torch.cat([mask_NU, hidden_1U, ~hidden_1U])


def _describe_features(features: Features) -> dict[str, Any]:
    return {"unit": features.kind, "units": features.count}


def _find_labels(features: Features, query_T: Tensor) -> Tensor:
    """Return which features have a token among these."""
    visible_U = torch.zeros(features.count + 1, dtype=torch.bool)
    visible_U[features.labels[query_T]] = True
    # Without label 0, which special tokens have.
    return visible_U[1:]


def spread_features(labels_X: Tensor, value_U: Tensor) -> Tensor:
    """Divide the value of each feature equally among the tokens or pixels with its label; label 0 gets none."""
    sizes_U = _count_labels(labels_X, len(value_U)).to(value_U)
    share_U = torch.cat([value_U.new_zeros(1), value_U / sizes_U])
    return share_U[labels_X.to(share_U.device)]


def _count_labels(labels_X: Tensor, features: int) -> Tensor:
    # A feature without tokens has no share to give, so any divisor will do.
    return torch.bincount(labels_X, minlength=features + 1)[1:].clamp(min=1)


def prepare(trace: Trace, options: PerturbationOptions) -> Perturbation:
    """Group the features of a trace's inputs; of an answer those that its explained steps can depend on."""
    # Whatever the unit: a mistake should not wait for the unit that reads it.
    require_integer("segments", options.segments)
    inputs = _distinct_inputs(trace)
    unit = options.unit or _default_unit(trace)
    groups = group_features(trace.model, inputs, unit, grid=trace.grid, segments=options.segments)
    if trace.model.writes:
        groups = _restrict_groups(trace, groups, options)
    return Perturbation(trace, groups, options)


def _default_unit(trace: Trace) -> str | None:
    """Return cells of a grid for images of many patches, whose passes would take minutes; else None."""
    if trace.grid is not None and math.prod(trace.grid) > MAX_PATCHES:
        return "grid"
    return None


def _restrict_groups(trace: Trace, groups: Sequence[Features], options: PerturbationOptions) -> list[Features]:
    restricted = []
    queries = torch.split_with_sizes(trace.query_BT.cpu(), _count_targets(trace))
    inputs = _distinct_inputs(trace)
    for features, item, mask_T, query_KT in zip(groups, inputs.items, text_mask(inputs).cpu(), queries, strict=True):
        visible_T = query_KT.any(0)
        if not options.prefix:
            _hide_answer(visible_T, item.answer, mask_T)
        restricted.append(_require_features(restrict_features(features, visible_T)))
    return restricted


def _hide_answer(visible_T: Tensor, answer: Answer | None, mask_T: Tensor) -> None:
    """Set the tokens of an answer to False, in place."""
    if answer is not None:
        visible_T[mask_T.nonzero()[answer.start :, 0]] = False


def _require_features(features: Features) -> Features:
    if not features.count:
        raise BadInput(f"The prompt has no {features.kind} that could be hidden: its tokens are special.")
    return features


def draw_masks(trace: Trace, index: int, features: Features, samples: int, seed: int) -> Tensor:
    """Draw masks of one input that keep each feature with probability one half (samples × features)."""
    generator = make_generator(trace, index, seed)
    return torch.rand(samples, features.count, dtype=torch.float32, generator=generator) < 0.5
