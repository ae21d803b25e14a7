"""The trace: one forward pass, with gradients and relevance on demand, each computed once.

Blocks are numbered from the input; hidden state 0 is the embedding output, hidden state b + 1 the output of block b.
The shape letters at the end of names are explained in `clearhead.engine`.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from clearhead.engine.answer_positions import precedes_answer, read_answer
from clearhead.engine.backward import ATTN_LRP, GRADIENT, check_backward
from clearhead.engine.conservation import report_conservation
from clearhead.engine.forward import ForwardPass
from clearhead.engine.gradients import GradientCache, Gradients, compute_module_coefficients
from clearhead.engine.head_reading import read_head
from clearhead.engine.head_relevance import head_relevances
from clearhead.engine.lookups import source_tokens
from clearhead.engine.lrp.context import RuleSet
from clearhead.engine.lrp.linear import POSITIVE
from clearhead.engine.module_outputs import find_output
from clearhead.engine.patches import PatchGrid
from clearhead.engine.recorded_pass import run_model
from clearhead.engine.relevance_cache import RelevanceCache
from clearhead.engine.seeds import Seeds
from clearhead.engine.step_gradients import StepSeeds, compute_step_gradients, start_passes
from clearhead.engine.streams import copy_to_host
from clearhead.engine.weighted_relevance import compute_weighted_relevances
from clearhead.errors import UnsupportedModel
from clearhead.model.inputs import Inputs, as_inputs
from clearhead.model.language import ANSWER_POSITIONS
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.outputs import check_finite, resolve_targets
from clearhead.model.placement import with_precision
from clearhead.model.target import Target, TargetLike, make_seeds, target_score


class Trace:
    """One forward pass of a batch, with the gradients and relevance of one target per sample.

    >>> trace = capture(model, "a fine film")                # doctest: +SKIP
    >>> trace.attention_relevances[-1].shape                 # doctest: +SKIP
    torch.Size([1, 12, 5, 5])
    """

    def __init__(self, model: Model, inputs: Inputs, forward: ForwardPass, targets: tuple[Target, ...]) -> None:
        self.model = model
        self.inputs = inputs
        self.forward = forward
        self.targets = targets

    def with_target(self, target: TargetLike | Sequence[TargetLike]) -> "Trace":
        """Return a trace of the same forward pass for another target."""
        targets = resolve_targets(self.model, self.inputs, self.forward.host_output, target)
        return Trace(self.model, self.inputs, self.forward, targets)

    @property
    def logits(self) -> Tensor:
        """(B,C); for a question-answering model (B,2,T), start before end."""
        return self.forward.output.detach()

    @property
    def attentions(self) -> list[Tensor]:
        """Attention maps of all blocks, each (B,H,T,S)."""
        return self.forward.joint_maps

    @property
    def hidden_states(self) -> list[Tensor]:
        """Embedding output and output of every block, each (B,T,D)."""
        self.forward.require_states()
        return self.forward.joint_states

    @property
    def block_inputs(self) -> list[Tensor]:
        """What each block received: hidden state b, unless the network changes it between blocks."""
        return self.forward.joint_inputs

    @cached_property
    def source_tokens(self) -> int:
        """How many tokens the encoder of an encoder–decoder reads, the first ones; 0 if there is one sequence."""
        return source_tokens(self.inputs.tensors)

    @property
    def leaf(self) -> Tensor:
        """The activation where dependence on the input begins: word embeddings (B,T,D), or pixel values (B,C,P,Q)."""
        return self.forward.leaf.detach()

    @property
    def is_image(self) -> bool:
        return "pixel_values" in self.inputs.tensors

    @cached_property
    def mask_BT(self) -> Tensor:
        """True where a token is real, not padding."""
        if self._given_mask is not None:
            return self._given_mask.bool()
        return torch.ones(self._token_shape(), dtype=torch.bool, device=self.logits.device)

    @cached_property
    def real_BT(self) -> Tensor:
        """`mask_BT` on the CPU."""
        if self._given_mask is None:
            return torch.ones_like(self.mask_BT, device="cpu")
        # The mask was an input, so its copy need not wait for the kernels of the forward pass.
        return copy_to_host(self._given_mask).bool()

    @cached_property
    def query_BT(self) -> Tensor:
        """The tokens that the explained score can depend on: all real ones, but for those after an explained step."""
        if not self.model.writes:
            return self.mask_BT
        return precedes_answer(self.targets, self._answer_positions, self.mask_BT)

    @property
    def _answer_positions(self) -> Tensor:
        return self.inputs.tensors[ANSWER_POSITIONS]

    @property
    def _given_mask(self) -> Tensor | None:
        """The attention mask of a text; None if every token is real."""
        # The tokens of an image are never padding.
        if self.is_image:
            return None
        return self.inputs.tensors.get("attention_mask")

    def _token_shape(self) -> tuple[int, int]:
        """Return the number of samples and of tokens."""
        if self.is_image:
            return self.forward.token_shape
        ids = self.inputs.tensors.get("input_ids")
        words = self.forward.leaf if ids is None else ids
        return words.shape[0], words.shape[1]

    # Seeds and caches are made when they are first used: many traces only serve methods that need outputs.
    @cached_property
    def _seeds(self) -> Seeds:
        return Seeds(make_seeds(self.targets, self.logits))

    @cached_property
    def score_B(self) -> Tensor:
        """The logit, contrast of logits, or sum of start and end logits that is explained."""
        return target_score(self._seeds.pairs, self.logits)

    @cached_property
    def _gradient_cache(self) -> GradientCache:
        return self._make_gradient_cache(GRADIENT)

    def _make_gradient_cache(self, backward: str) -> GradientCache:
        return GradientCache(self.forward, self._seeds, backward)

    @property
    def gradients(self) -> Gradients:
        """Gradients of the explained score."""
        return self._gradient_cache.joint

    @cached_property
    def _coefficient_caches(self) -> dict[str, GradientCache]:
        return {GRADIENT: self._gradient_cache}

    def _coefficient_cache(self, backward: str) -> GradientCache:
        check_backward(backward)
        if backward not in self._coefficient_caches:
            cache = self._make_gradient_cache(backward)
            cache.keep_blocks = self._gradient_cache.keep_blocks
            self._coefficient_caches[backward] = cache
        return self._coefficient_caches[backward]

    def coefficients(self, backward: str) -> Gradients:
        """Return what a backward pass gives at all activations: gradients, or the coefficients of a balanced pass."""
        return self._coefficient_cache(backward).joint

    def step_coefficients(self, seeds: StepSeeds, backward: str, *, with_maps: bool) -> Gradients:
        """Return what a backward pass gives for each of several steps of the only input, one in each row."""
        with self.forward.tape.switch.use(backward):
            gradients = compute_step_gradients(self.forward, start_passes(self.forward, seeds), with_maps=with_maps)
        return gradients.join(self.forward)

    def keep_gradients(self) -> None:
        """Keep gradients that trans-att computes block by block, because other methods will ask for them."""
        self._gradient_cache.keep_blocks = True

    def attention_coefficients(self, backward: str) -> list[Tensor]:
        """Return what a backward pass gives at the attention maps, each (B,H,T,S)."""
        # First of all, so that no backward pass is spent on a network without maps.
        self.forward.require_attentions()
        return self.coefficients(backward).attentions

    def hidden_coefficients(self, backward: str) -> list[Tensor]:
        """Return what a backward pass gives at the hidden states, each (B,T,D)."""
        self.forward.require_states()
        return self.coefficients(backward).hidden_states

    @property
    def attention_gradients(self) -> list[Tensor]:
        """Gradients at the attention maps, each (B,H,T,S)."""
        return self.attention_coefficients(GRADIENT)

    @property
    def hidden_gradients(self) -> list[Tensor]:
        """Gradients at the hidden states, each (B,T,D)."""
        return self.hidden_coefficients(GRADIENT)

    @property
    def leaf_gradient(self) -> Tensor:
        """The gradient at the leaf."""
        return self.gradients.leaf

    @cached_property
    def _relevance_cache(self) -> RelevanceCache:
        return RelevanceCache(self.forward, self._seeds, keep_leaf=self.is_image)

    def relevance_at(self, tensor: Tensor, rules: RuleSet = POSITIVE) -> Tensor:
        """Return the relevance of an activation of the forward pass."""
        return self._relevance_cache.at(tensor, rules)

    @property
    def attention_relevances(self) -> list[Tensor]:
        """Relevance of every attention map under the rules of TransAtt (B,H,T,S)."""
        return self.forward.join_maps(self._relevance_cache.attention_maps())

    @cached_property
    def weighted_relevances(self) -> list[Tensor]:
        """E_h (∇A ⊙ R)⁺ of every block (B,T,S), TransAtt Eq. 13."""
        return self._weigh_relevances(GRADIENT)

    def relevances_weighted_by(self, backward: str) -> list[Tensor]:
        """Return E_h (c ⊙ R)⁺ of every block (B,T,S), where c is what a backward pass gives at the attention map."""
        if backward == GRADIENT:
            return self.weighted_relevances
        return self._weigh_relevances(backward)

    def _weigh_relevances(self, backward: str) -> list[Tensor]:
        return self.forward.join_maps(
            compute_weighted_relevances(self.forward, self._coefficient_cache(backward), self._relevance_cache)
        )

    def module_relevance(self, name: str, backward: str = ATTN_LRP, *, call: int = 0) -> Tensor:
        """Return activation × coefficient of each unit at the output of a module (B,T,D), signed.

        `name` is one of the `modules` given to `capture`; `call` tells the calls apart of a module that the network
        uses several times.
        """
        output = find_output(self.forward.tape.module_outputs, name, call)
        check_backward(backward)
        if backward not in self._module_coefficients:
            coefficients = compute_module_coefficients(self.forward, self._seeds.direction, backward)
            self._module_coefficients[backward] = coefficients
        return output.detach() * self._module_coefficients[backward][name][call]

    @cached_property
    def _module_coefficients(self) -> dict[str, dict[str, list[Tensor]]]:
        """What each backward pass gave at the outputs of the kept modules."""
        return {}

    def head_relevance(self, backward: str = ATTN_LRP) -> Tensor:
        """Return activation × coefficient of every attention head, summed over tokens and features (B,L,H), signed."""
        coefficients = self.forward.separate_maps(self.attention_coefficients(backward))
        attentions = self.forward.separate_maps(self.attentions)
        return head_relevances(attentions, coefficients, len(self.logits), backward)

    def embedding_relevance(self, rules: RuleSet = POSITIVE) -> Tensor:
        """Return the relevance of the embedding output, summed over features (B,T)."""
        return torch.cat([self.relevance_at(embedding, rules) for embedding in self.forward.embeddings], 1)

    def last_map_relevance(self, rules: RuleSet) -> Tensor:
        """Return the relevance of the last block's attention map (B,H,T,S)."""
        return self.forward.join_last_maps(
            [self.relevance_at(attention, rules) for attention in self.forward.last_maps]
        )

    def pixel_relevance(self) -> Tensor:
        """Return the z-plus relevance of the pixels, through the patch convolution (B,C,P,Q)."""
        return self._relevance_cache.pixels()

    def conservation(self, rules: RuleSet = POSITIVE) -> list[dict[str, float]]:
        """Return per sample how far ΣR at the embedding output is from 1, and what 0/0 dropped."""
        return list(self.balance(rules))

    def balance(self, rules: RuleSet = POSITIVE) -> Sequence[dict[str, float]]:
        """Return `conservation` as a lazy sequence, which does not wait for the device yet."""
        return report_conservation(self._seeds, self._relevance_cache.arrivals_at_embedding(rules))

    def balance_at_the_last_map(self, rules: RuleSet) -> Sequence[dict[str, float]]:
        """Return `balance` of all relevance under way at the last attention map, for methods that stop there."""
        return report_conservation(self._seeds, self._relevance_cache.arrivals_at_last_map(rules))

    @cached_property
    def reading_BT(self) -> Tensor:
        """Which tokens of the last hidden state the head reads, as weights that sum to one.

        One-hot for a classification token, even where the head averages; for an answer the tokens that its explained
        steps are predicted from, in equal shares.
        """
        if self.model.writes:
            return read_answer(self.targets, self._answer_positions, self.mask_BT)
        return read_head(self.forward, self._seeds)

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of patches."""
        return self.forward.tape.patches

    @cached_property
    def patch_grid(self) -> PatchGrid:
        """The geometry of an image's patches."""
        trailing = getattr(self.model.network, "trailing_tokens", 0)
        return PatchGrid(*self._require_grid(), self.forward.token_shape[1], trailing)

    def _require_grid(self) -> tuple[int, int]:
        if self.grid is None:
            raise UnsupportedModel(f"{self.model.name} does not cut its image into patches by a convolution.")
        return self.grid

    @property
    def leading(self) -> int:
        """How many class, distillation and register tokens come before an image's patches."""
        return self.patch_grid.leading if self.is_image else 0

    def patches(self, pixels_BPQ: Tensor) -> Tensor:
        """Return the sum of a pixel map over each patch, zero for all other tokens (B,T)."""
        return self.patch_grid.sum_pixels(pixels_BPQ)

    def as_patches(self, scores_BT: Tensor) -> Tensor:
        """Divide the scores of merged patches among the patches; return scores of other tokens as they are."""
        count = scores_BT.shape[1]
        if count == self.forward.joint_states[0].shape[1]:
            return scores_BT
        factor = self._require_merge_factor(count)
        return self.patch_grid.spread_merged(scores_BT, factor)

    def _require_merge_factor(self, count: int) -> int:
        # Only images have patches that a network may merge, such as Swin.
        factor = self.patch_grid.merge_factor(count) if self.is_image else None
        if factor is None:
            raise UnsupportedModel(
                f"The blocks of {self.model.name} do not keep the tokens of the input, and do not merge whole squares "
                "of patches. Choose a method that only looks at the pixels, such as integrated-gradients, or occlusion."
            )
        return factor

    def require_tokens(self, count: int) -> None:
        """Raise UnsupportedModel unless `count` scores match the tokens of the input."""
        expected = self.mask_BT.shape[1]
        if count != expected:
            raise UnsupportedModel(
                f"{self.model.name} works on {count} tokens, but the input has {expected}: it inserts tokens of its "
                "own, or removes some. Choose a method that only looks at the input, such as gradient or "
                "integrated-gradients."
            )

    def require_token_maps(self) -> None:
        """Raise UnsupportedModel unless every attention map relates all tokens to all tokens."""
        embedding = self.forward.joint_states[0]
        tokens = embedding.shape[1]
        self.require_tokens(tokens)
        for attention in self.forward.joint_maps:
            if not _relates_tokens(attention, embedding):
                raise UnsupportedModel(
                    f"The attention maps of {self.model.name} have shape {tuple(attention.shape)}, which does not "
                    f"relate its {tokens} tokens to each other (windows, merged tokens). Choose lrp or a gradient "
                    "method instead."
                )


def _relates_tokens(attention: Tensor, hidden: Tensor) -> bool:
    """Return whether an attention map has the samples of a hidden state, and its tokens as keys."""
    # Windowed attention has its windows on the first axis.
    return attention.dim() == 4 and (attention.shape[0], attention.shape[-1]) == hidden.shape[:2]


def _as_names(modules: str | Sequence[str]) -> Sequence[str]:
    return (modules,) if isinstance(modules, str) else modules


def capture(
    model: Any,
    inputs: Any,
    target: TargetLike | Sequence[TargetLike] = None,
    *,
    precision: str | None = None,
    gradients_only: bool = False,
    modules: str | Sequence[str] = (),
) -> Trace:
    """Run the unmodified model once and keep what explanations need.

    `model` and `inputs` are anything `explain` takes; `target` one target, or a list with one per sample.
    `precision="float64"` runs a float64 copy of the model, for the last digits of relevance. `gradients_only` keeps
    neither attention maps nor what relevance needs, which saves memory for methods such as attn-lrp and cat. `modules`
    names modules of the network whose outputs are kept for `Trace.module_relevance`.
    """
    model = with_precision(as_model(model), precision)
    batch = as_inputs(model, inputs)
    forward = run_model(model, batch, _as_names(modules), gradients_only=gradients_only)
    # Before targets are resolved: the prediction of NaN logits would be arbitrary.
    check_finite(model, forward.host_output)
    return Trace(model, batch, forward, resolve_targets(model, batch, forward.host_output, target))
