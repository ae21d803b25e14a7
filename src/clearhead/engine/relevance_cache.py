"""Relevance passes of one trace: started once per rule set and seed, and resumed on demand."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead.engine.conservation import Arrival
from clearhead.engine.forward import ForwardPass
from clearhead.engine.lrp.context import RuleSet
from clearhead.engine.lrp.linear import POSITIVE, Z_PLUS, Z_PLUS_PIXELS
from clearhead.engine.lrp.propagation import RelevancePass
from clearhead.engine.seeds import Seeds


class RelevanceCache:
    """The relevance passes of one trace; `keep_leaf` also keeps relevance at the leaf, for pixels."""

    def __init__(self, forward: ForwardPass, seeds: Seeds, *, keep_leaf: bool) -> None:
        self._forward = forward
        self._seeds = seeds
        self._keep_leaf = keep_leaf
        self._passes: dict[str, list[RelevancePass]] = {}
        self._attention_maps: list[Tensor] | None = None
        self._has_freed_maps = False

    @property
    def has_attention_maps(self) -> bool:
        """Whether the relevance of all attention maps is in memory."""
        return self._attention_maps is not None

    def passes(self, rules: RuleSet) -> list[RelevancePass]:
        """Return the passes under a rule set, one per seed."""
        if rules.name not in self._passes:
            self._passes[rules.name] = [self._start(rules, seed) for seed in self._seeds.relevance_seeds]
        return self._passes[rules.name]

    def _start(self, rules: RuleSet, seed: Tensor) -> RelevancePass:
        """Start a pass that keeps the relevance which methods ask for."""
        started = RelevancePass(self._forward.tape, rules, self._forward.output, seed)
        self._keep_maps(started, rules)
        # Methods read relevance per token, so the features need not be kept.
        for hidden in self._forward.hidden_states:
            started.keep(hidden, _sum_over_features)
        # Only partial LRP stops at the last map, and reports what was under way there.
        if rules is Z_PLUS and self._forward.last_maps:
            started.keep_total(self._forward.attentions[-1])
        if self._keep_leaf:
            started.keep(self._forward.leaf)
        return started

    def _keep_maps(self, started: RelevancePass, rules: RuleSet) -> None:
        for attention in self._select_read(rules):
            started.keep(attention)

    def _select_read(self, rules: RuleSet) -> list[Tensor]:
        """Return the attention maps whose relevance methods read under a rule set."""
        # Only TransAtt reads every map; partial LRP reads the last one. A map that is not kept is freed on the way.
        if rules is POSITIVE:
            return self._forward.attentions
        return self._forward.last_maps

    def at(self, tensor: Tensor, rules: RuleSet) -> Tensor:
        """Return the relevance of an activation: the signed sum of the passes from every seed."""
        return self._seeds.signed_sum([relevance_pass.at(tensor) for relevance_pass in self.passes(rules)])

    def attention_maps(self) -> list[Tensor]:
        """Return the relevance of every attention map under the rules of TransAtt (B,H,T,S)."""
        if self._attention_maps is None:
            self._restart_if_freed()
            self._attention_maps = self._propagate_to_maps()
        return self._attention_maps

    def _propagate_to_maps(self) -> list[Tensor]:
        # From the last block on, as relevance reaches them.
        maps = [self.at(attention, POSITIVE) for attention in reversed(self._forward.attentions)]
        return maps[::-1]

    def iterate_attention_maps(self) -> Iterator[Tensor]:
        """Yield the relevance of the attention maps from the last block to the first; free each after its use."""
        self._restart_if_freed()
        # Set before the walk, which may be refused or abandoned in the middle.
        self._has_freed_maps = True
        for attention in reversed(self._forward.attentions):
            yield self.at(attention, POSITIVE)
            self._forget(attention)

    def _forget(self, attention: Tensor) -> None:
        for relevance_pass in self.passes(POSITIVE):
            relevance_pass.forget(attention)

    def _restart_if_freed(self) -> None:
        """Restart the passes whose maps were freed."""
        if self._has_freed_maps:
            self._passes.pop(POSITIVE.name, None)
            self._has_freed_maps = False

    def arrivals_at_embedding(self, rules: RuleSet) -> list[Arrival]:
        """Return the relevance that each seed gives to the embedding output."""
        return [self._measure_arrival(relevance_pass) for relevance_pass in self.passes(rules)]

    def _measure_arrival(self, relevance_pass: RelevancePass) -> Arrival:
        # Summed before the drops are read, since summing runs the pass.
        total_B = self._sum_embeddings(relevance_pass)
        return Arrival(total_B, relevance_pass.context.dropped_B)

    def _sum_embeddings(self, relevance_pass: RelevancePass) -> Tensor:
        """Return the relevance at the embedding output of each sample (B)."""
        relevances = map(relevance_pass.at, self._forward.embeddings)
        # In float64, because conservation is the difference of sums that are nearly equal.
        return torch.stack([relevance.double().sum(1) for relevance in relevances]).sum(0)

    def arrivals_at_last_map(self, rules: RuleSet) -> list[Arrival]:
        """Return all relevance of each seed that is under way when it reaches the last attention map."""
        last = self._forward.attentions[-1]
        return [Arrival(*relevance_pass.total_at(last)) for relevance_pass in self.passes(rules)]

    def pixels(self) -> Tensor:
        """Return the relevance of the pixels under the z-plus rules (B,C,P,Q)."""
        for relevance_pass in self.passes(Z_PLUS):
            relevance_pass.at(self._forward.hidden_states[0])
            # Below the embedding output the pass continues under rules that give learned positions their share.
            relevance_pass.context.rules = Z_PLUS_PIXELS
        return self.at(self._forward.leaf, Z_PLUS)


def _sum_over_features(relevance_BTD: Tensor) -> Tensor:
    return relevance_BTD.sum(-1)
