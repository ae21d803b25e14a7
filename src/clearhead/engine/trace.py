"""The trace: one forward pass, with gradients and relevance on demand, each computed once.

Shape letters, used as suffixes of names everywhere:
B batch · H head · T query token · S key token · D hidden · C class · L layer or block · P pixel row · Q pixel column
Blocks are numbered from the input; hidden state 0 is the embedding output, hidden state b + 1 the output of block b.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.engine.blocks import record_forward
from clearhead.engine.forward import ForwardPass
from clearhead.engine.gradients import (
    BlockGradients,
    Gradients,
    collect_gradients,
    compute_gradients,
    gradients_by_block,
)
from clearhead.engine.lrp.context import RuleSet
from clearhead.engine.lrp.kernels.dispatch import kernels_for, on_device_of
from clearhead.engine.lrp.linear import POSITIVE, READING, Z_PLUS, Z_PLUS_PIXELS
from clearhead.engine.lrp.propagation import RelevancePass
from clearhead.engine.streams import HostCopy, copy_to_host, prefetch, run_in_background
from clearhead.engine.tape import Tape
from clearhead.errors import UnsupportedModel
from clearhead.lazy import LazySequence
from clearhead.model.inputs import Inputs, as_inputs
from clearhead.model.loading import as_model
from clearhead.model.model import Model, input_embedding
from clearhead.model.outputs import check_finite, extract_logits, resolve_targets
from clearhead.model.placement import with_precision
from clearhead.model.target import Target, TargetLike, make_seeds, target_score
from clearhead.model.tensor_checks import explain_size_errors

LARGE = 2**26
"""Bytes of attention maps from which their gradients and relevance are worth letting go."""


class Trace:
    """One forward pass of a batch, and what follows from it for one target per sample.

    >>> trace = capture(model, "a fine film")                # doctest: +SKIP
    >>> trace.attention_relevances[-1].shape                 # doctest: +SKIP
    torch.Size([1, 12, 5, 5])
    """

    def __init__(self, model: Model, inputs: Inputs, forward: ForwardPass, targets: tuple[Target, ...]) -> None:
        self.model, self.inputs, self.forward, self.targets = model, inputs, forward, targets
        self._passes: dict[tuple[str, int], RelevancePass] = {}
        self._forgotten = False
        self.is_shared = False
        """Whether several methods ask of it, so that what one of them had made should be kept for the others."""

    @property
    def logits(self) -> Tensor:
        """(B,C); for a question-answering model (B,2,T), start before end."""
        return self.forward.output.detach()

    @property
    def attentions(self) -> list[Tensor]:
        return [attention.detach() for attention in self.forward.attentions]

    @property
    def hidden_states(self) -> list[Tensor]:
        return [hidden.detach() for hidden in self.forward.hidden_states]

    @property
    def block_inputs(self) -> list[Tensor]:
        """What each block received: hidden state b, unless the network changes it between blocks."""
        return [hidden.detach() for hidden in self.forward.block_inputs]

    @property
    def leaf(self) -> Tensor:
        """Where dependence on the input begins: word embeddings (B,T,D), or pixel values (B,C,P,Q)."""
        return self.forward.leaf.detach()

    @property
    def is_image(self) -> bool:
        return "pixel_values" in self.inputs.tensors

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of patches."""
        return self.forward.tape.patches

    @cached_property
    def mask_BT(self) -> Tensor:
        """True where a token is real, not padding."""
        mask, ids = self._mask, self.inputs.tensors.get("input_ids")
        if mask is None:
            tokens = self.forward.hidden_states[0] if self.is_image else self.forward.leaf if ids is None else ids
            return torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        return mask.bool()

    @cached_property
    def real_BT(self) -> Tensor:
        """`mask_BT` on the CPU."""
        if self._mask is None:
            return torch.ones(self.mask_BT.shape, dtype=torch.bool, device="cpu")
        return copy_to_host(self._mask).bool()

    @property
    def _mask(self) -> Tensor | None:
        """As it was given; none where every token is real."""
        return None if self.is_image else self.inputs.tensors.get("attention_mask")

    @cached_property
    def contents(self) -> list[bytes]:
        """The ids or values of each input without its padding: what its random numbers depend on."""
        ids = self.inputs.tensors.get("input_ids")
        rows = copy_to_host(self.leaf if ids is None else ids).to(torch.float32).numpy()
        own = rows if ids is None else [row[real] for row, real in zip(rows, self.real_BT.numpy(), strict=True)]
        return [one.tobytes() for one in own]

    def with_target(self, target: TargetLike | Sequence[TargetLike]) -> "Trace":
        """The same forward pass, explained for another target."""
        targets = resolve_targets(self.model, self.inputs, self.forward.said, target)
        return Trace(self.model, self.inputs, self.forward, targets)

    @cached_property
    def _seeds(self) -> list[tuple[int, Tensor]]:
        return make_seeds(self.targets, self.logits)

    @property
    def _wide_seeds(self) -> list[Tensor]:
        """Where relevance starts: never in less than float32."""
        return [seed.to(torch.promote_types(seed.dtype, torch.float32)) for _, seed in self._seeds]

    @property
    def _direction(self) -> Tensor:
        """What the gradients are taken along: the signed sum of the seeds."""
        parts = [seed if sign == 1 else sign * seed for sign, seed in self._seeds]
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)

    @cached_property
    def score_B(self) -> Tensor:
        """The logit, contrast of logits, or sum of start and end logits that is explained."""
        return target_score(self._seeds, self.logits)

    @cached_property
    def gradients(self) -> Gradients:
        found = compute_gradients(self.forward, self._direction)
        if found is None:
            raise UnsupportedModel(_not_differentiable(self.model))
        return found

    @property
    def attention_gradients(self) -> list[Tensor]:
        return self.gradients.attentions if self.forward.attentions else []

    @property
    def hidden_gradients(self) -> list[Tensor]:
        return self.gradients.hidden_states if self.forward.hidden_states else []

    @property
    def leaf_gradient(self) -> Tensor:
        return self.gradients.leaf

    def _pass(self, rules: RuleSet, number: int) -> RelevancePass:
        """The relevance pass from one seed; resumed, never repeated."""
        key = (rules.name, number)
        if key not in self._passes:
            started = RelevancePass(self.forward.tape, rules, self.forward.output, self._wide_seeds[number])
            for attention in self.forward.attentions if rules is POSITIVE else self.forward.attentions[-1:]:
                started.keep(attention)
            for hidden in self.forward.hidden_states:
                started.keep(hidden, lambda relevance: relevance.sum(-1))
            if rules is Z_PLUS:
                started.weigh(self.forward.attentions[-1])
            if self.is_image:
                started.keep(self.forward.leaf)
            self._passes[key] = started
        return self._passes[key]

    def relevance_at(self, tensor: Tensor, rules: RuleSet = POSITIVE) -> Tensor:
        """Signed sum of the passes from every seed, at an activation of the forward pass."""
        parts = [self._pass(rules, number).at(tensor) for number in range(len(self._seeds))]
        if len(parts) == 1:
            return parts[0]
        return torch.stack([sign * part for (sign, _), part in zip(self._seeds, parts, strict=True)]).sum(0)

    @cached_property
    def attention_relevances(self) -> list[Tensor]:
        """R of every attention map under the rules of TransAtt (B,H,T,S)."""
        self._remember()
        return [self.relevance_at(attention) for attention in reversed(self.forward.attentions)][::-1]

    def _remember(self) -> None:
        """Begins anew the passes that have let go of maps."""
        if self._forgotten:
            self._passes = {key: one for key, one in self._passes.items() if key[0] != POSITIVE.name}
            self._forgotten = False

    @cached_property
    def weighted_relevances(self) -> list[Tensor]:
        """E_h (∇A ⊙ R)⁺ of every block (B,T,S), TransAtt Eq. 13; the maps R are let go as soon as they are used."""
        if "attention_relevances" in self.__dict__ or not self._is_large:
            steep = run_in_background(lambda: self.attention_gradients, self.leaf.device)
            relevances = self.attention_relevances
            return [gated_mean(*pair) for pair in zip(steep(), relevances, strict=True)]
        self._remember()
        self._forgotten = True
        maps: list[Tensor] = []
        gradients = prefetch(self._steep(), self.leaf.device)
        for attention in reversed(self.forward.attentions):
            relevance = self.relevance_at(attention)
            maps.append(gated_mean(next(gradients), relevance))
            for number in range(len(self._seeds)):
                self._pass(POSITIVE, number).forget(attention)
        next(gradients, None)  # what comes after the last of them is done as well
        return maps[::-1]

    @property
    def _is_large(self) -> bool:
        """Whether the attention maps are so large that no more of their kind should be kept than must be."""
        return sum(attention.nbytes for attention in self.forward.attentions) >= LARGE

    def _steep(self) -> Iterator[Tensor]:
        """Gradients of the attention maps from the last block to the first.

        They come block by block where blocks form a chain, and are kept if other methods will ask for them.
        """
        if "gradients" in self.__dict__ or not self.forward.chain:
            yield from reversed(self.attention_gradients)
            return
        blocks: list[BlockGradients] = []
        for block in gradients_by_block(self.forward, self._direction):
            yield block.attention
            if self.is_shared:
                blocks.append(block)
        if blocks:
            self.gradients = collect_gradients(self.forward, blocks)

    def embedding_relevance(self, rules: RuleSet = POSITIVE) -> Tensor:
        """Relevance of the embedding output, summed over D (B,T)."""
        return self.relevance_at(self.forward.hidden_states[0], rules)

    def pixel_relevance(self) -> Tensor:
        """The z-plus pass carried on through the patch convolution (B,C,P,Q)."""
        for number in range(len(self._seeds)):
            started = self._pass(Z_PLUS, number)
            started.at(self.forward.hidden_states[0])
            started.flow.rules = Z_PLUS_PIXELS
        return self.relevance_at(self.forward.leaf, Z_PLUS)

    def conservation(self, rules: RuleSet = POSITIVE) -> list[dict[str, float]]:
        """Per sample, how far ΣR at the embedding output is from 1, and what units without contribution took."""
        return list(self.balance(rules))

    def balance(self, rules: RuleSet = POSITIVE) -> Sequence[dict[str, float]]:
        """The same, without waiting for the device."""
        passes = [self._pass(rules, number) for number in range(len(self._seeds))]
        embedded = self.forward.hidden_states[0]
        return self._balance([(one.at(embedded).double().sum(1), one.flow.dropped_B) for one in passes])

    def balance_at_the_last_map(self, rules: RuleSet) -> Sequence[dict[str, float]]:
        """The same of all relevance that is under way at the last attention map: for methods that go no deeper."""
        last = self.forward.attentions[-1]
        return self._balance([self._pass(rules, number).under_way(last) for number in range(len(self._seeds))])

    def _balance(self, arrived: list[tuple[Tensor, Tensor]]) -> Sequence[dict[str, float]]:
        """The report of what arrived from each seed, and what was dropped on its way: the worst seed counts."""
        pairs = zip(self._seeds, arrived, strict=True)
        gaps = [((total_B - seed.flatten(1).sum(1)).abs(), lost_B.abs()) for (_, seed), (total_B, lost_B) in pairs]
        worst = [column[0] if len(column) == 1 else torch.stack(column).amax(0) for column in zip(*gaps, strict=True)]
        coming = HostCopy(torch.stack([one.double() for one in worst], 1))
        names = ("conservation_gap", "dropped")
        return LazySequence(
            len(self.targets), lambda: [dict(zip(names, row, strict=True)) for row in coming.wait().tolist()]
        )

    @cached_property
    def reading_BT(self) -> Tensor:
        """Which tokens of the last hidden state the head reads, as weights that sum to one.

        One-hot for a classification token, even where the head averages.
        """
        last = self.forward.hidden_states[-1]
        seed = torch.stack([seed for _, seed in self._seeds]).sum(0)
        reading = RelevancePass(self.forward.tape, READING, self.forward.output, seed.to(last.dtype))
        reading.keep(last, lambda relevance: relevance.sum(-1))
        weights_BT = reading.at(last).abs()
        return weights_BT / weights_BT.sum(1, keepdim=True)

    @property
    def leading(self) -> int:
        """How many class, distillation and register tokens stand before an image's patches."""
        return self.forward.hidden_states[0].shape[1] - self._cells if self.is_image else 0

    @property
    def _cells(self) -> int:
        if self.grid is None:
            raise UnsupportedModel(f"{self.model.name} does not cut its image into patches by a convolution.")
        return self.grid[0] * self.grid[1]

    def patches(self, pixels_BPQ: Tensor) -> Tensor:
        """Sums of a pixel map over each patch, zero for the tokens before the patches (B,T)."""
        rows, columns = self.grid if self._cells and self.grid else (0, 0)
        cells_BRC = F.adaptive_avg_pool2d(pixels_BPQ, (rows, columns))
        area = pixels_BPQ.shape[-2] * pixels_BPQ.shape[-1] / (rows * columns)
        return F.pad(cells_BRC.flatten(1) * area, (self.leading, 0))

    def as_patches(self, scores_BT: Tensor) -> Tensor:
        """Scores of merged patches shared among the patches that were merged; others as they are."""
        tokens = self.forward.hidden_states[0].shape[1]
        if scores_BT.shape[1] == tokens:
            return scores_BT
        ratio = (tokens / scores_BT.shape[1]) ** 0.5
        if not self.is_image or self.leading or ratio != int(ratio) or self.grid is None:
            raise UnsupportedModel(f"The blocks of {self.model.name} do not keep the tokens of the input.")
        factor = int(ratio)
        cells = scores_BT.reshape(-1, self.grid[0] // factor, self.grid[1] // factor) / factor**2
        return cells.repeat_interleave(factor, 1).repeat_interleave(factor, 2).flatten(1)

    def require_tokens(self, count: int) -> None:
        """Refuses scores that cannot be placed on the tokens of the input."""
        expected = self.mask_BT.shape[1]
        if count != expected:
            raise UnsupportedModel(
                f"{self.model.name} works on {count} tokens, but the input has {expected}: it puts tokens of its own "
                "among them, or takes some away. Choose a method that looks at the input alone, such as gradient "
                "or integrated-gradients."
            )

    def require_token_maps(self) -> None:
        """Refuses models whose attention maps do not relate all tokens to all tokens."""
        tokens = self.forward.hidden_states[0].shape[:2]
        self.require_tokens(tokens[1])
        for attention in self.forward.attentions:
            if attention.dim() != 4 or (attention.shape[0], attention.shape[-1]) != tuple(tokens):
                raise UnsupportedModel(
                    f"The attention maps of {self.model.name} have shape {tuple(attention.shape)}, which does not "
                    f"relate its {tokens[1]} tokens to each other (windows, merged tokens). Choose lrp or a gradient "
                    "method instead."
                )


def gated_mean(gradient_BHTS: Tensor, relevance_BHTS: Tensor) -> Tensor:
    """E_h (∇A ⊙ R)⁺ (B,T,S)."""
    fast = kernels_for(relevance_BHTS)
    if fast and relevance_BHTS.dim() == 4:
        with on_device_of(relevance_BHTS):
            return fast.gated_mean(gradient_BHTS.contiguous(), relevance_BHTS.contiguous())  # type: ignore[no-any-return]
    return (gradient_BHTS * relevance_BHTS).clamp_(min=0).mean(1)


def capture(
    model: Any,
    inputs: Any,
    target: TargetLike | Sequence[TargetLike] = None,
    *,
    precision: str | None = None,
) -> Trace:
    """Runs the unmodified model once and keeps what explanations need.

    `model` and `inputs` are anything `explain` takes; `target` one target, or a list with one per sample.
    `precision="float64"` runs a float64 copy of the model, for the last digits of relevance.
    """
    model = with_precision(as_model(model), precision)
    batch = as_inputs(model, inputs)
    leaf = next((name for name in ("pixel_values", "inputs_embeds") if name in batch.tensors), None)
    words = input_embedding(model.network)
    with explain_size_errors(model, batch.tensors):
        tape, logits = record_forward(model.network, batch.tensors, words, leaf, lambda out: extract_logits(model, out))
    forward = _forward(model, batch, tape, logits)
    check_finite(model, forward.said)
    return Trace(model, batch, forward, resolve_targets(model, batch, forward.said, target))


def _not_differentiable(model: Model) -> str:
    return (
        f"The logits of {model.name} do not depend differentiably on its input, as in some quantised models. "
        "Load it unquantised."
    )


def _forward(model: Model, inputs: Inputs, tape: Tape, logits: Tensor) -> ForwardPass:
    if not logits.requires_grad or tape.leaf is None:
        raise UnsupportedModel(_not_differentiable(model))
    ids, words = inputs.tensors.get("input_ids"), input_embedding(model.network)
    known = ids is None or words is None or _in_order(tape.leaf.detach(), ids, words.detach())
    return ForwardPass(model.name, tape, logits, known)


def _in_order(leaf_BTD: Tensor, ids_BT: Tensor, words_VD: Tensor) -> bool:
    """Whether the word embeddings lie as samples × tokens; values decide where the shape alone cannot."""
    if leaf_BTD.shape[:2] != ids_BT.shape:
        return False
    return ids_BT.shape[0] != ids_BT.shape[1] or torch.equal(leaf_BTD, F.embedding(ids_BT, words_VD))
