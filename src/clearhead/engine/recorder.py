"""The recorder: a torch function mode that writes the operations of a forward pass onto a tape.

Gradients stay with autograd; the tape adds, for every operation that depends on the input, the rule that propagates
relevance back through it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.engine.activation_roles import CHOICES, ActivationRoles
from clearhead.engine.attention import Masks, decompose_attention
from clearhead.engine.balanced import LINEAR, PRODUCTS, QUOTIENTS, SELF_PRODUCTS, BalancedCalls, multiplies
from clearhead.engine.lookups import WordLookups, looked_up_ids, looked_up_table
from clearhead.engine.lrp.context import Backward, Rule, RuleResult, accepts, is_activation
from clearhead.engine.lrp.rules import bounded_convolution, gated_rule, rule_for
from clearhead.engine.multi_head_attention import NAME as MULTI_HEAD_ATTENTION
from clearhead.engine.multi_head_attention import can_decompose, decompose_heads
from clearhead.engine.onednn import can_multiply, is_preferred, linear
from clearhead.engine.running_module import name_running_module
from clearhead.engine.self_gates import ElementwiseSources
from clearhead.engine.tape import GRADIENTS_ONLY, AttentionMap, Step, Tape, raise_unsupported
from clearhead.engine.torch_calls import (
    METADATA,
    TorchCall,
    detach_pattern,
    find_activations,
    function_name,
    is_in_place,
    keep_precision,
    name_origin,
)
from clearhead.engine.word_layout import WordLayout, find_layout
from clearhead.errors import UnsupportedModel, UnsupportedOperation

REFUSE_RELEVANCE = raise_unsupported(GRADIENTS_ONLY)


class Recorder(TorchFunctionMode):
    """Records every operation that depends on the input.

    The input starts at the first look-up in the embedding table `words`, or where `begin` is called; `ids` are its
    tokens, as far as they are known. With several sequences (`has_sequences`), `lookups` are those of words that are
    still to come.
    """

    def __init__(self, tape: Tape, network: nn.Module, words: Tensor | None = None) -> None:
        super().__init__()
        self.tape = tape
        self.network = network
        self.words = words
        self.ids: Tensor | None = None
        self.lookups: WordLookups | None = None
        self.has_sequences = False
        self._saved = tape.saved
        self.paused = 0
        self._masks = Masks()
        self._softmaxes: dict[int, AttentionMap] = {}
        self._roles = ActivationRoles()
        self._sources = ElementwiseSources()
        self._balanced = BalancedCalls(tape.switch, tape.saved, roles=self._roles, sources=self._sources)
        self.norm_depth = 0
        # Not by a mode around this one, through which every call would go once more.
        self._uses_onednn = is_preferred()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function_name(function)
        if name in METADATA:
            return function(*args, **kwargs)
        if name == "embedding" and self._looks_up_words(args, kwargs):
            return self._arrange_words(looked_up_ids(args, kwargs), function(*args, **kwargs))
        if name == "embedding" and self._looks_up_part(args, kwargs):
            return self._slice_leaf()
        if self.paused:
            return self._call_paused(name, function, args, kwargs)
        args = detach_pattern(name, args)
        activations = find_activations(args, kwargs)
        # What does not depend on the input is a constant and needs no step.
        if not activations:
            return function(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            return self._attend(*args, **kwargs)
        if name == MULTI_HEAD_ATTENTION and can_decompose(args, kwargs):
            return decompose_heads(args, self.call, self._attend)
        return self._call_and_record(TorchCall(name, function, args, kwargs), activations)

    def call(self, function: Callable[..., Tensor], *args: Any) -> Tensor:
        """Call a function as if the network had called it."""
        out: Tensor = self.__torch_function__(function, (), args)
        return out

    def begin(self, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor as the leaf: what is computed from it depends on the input."""
        self.tape.leaf = self.restart(tensor)
        return self.tape.leaf

    def restart(self, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor that is an activation without a past: backward passes end there."""
        # Cloned, since an inference tensor cannot require gradients and the network may write to its input.
        start = tensor.detach().clone().requires_grad_()
        self.tape.add_node(start)
        return start

    def begin_sequences(self, lookups: WordLookups) -> None:
        """Make one leaf of the embeddings of several sequences, whose look-ups are parts of it."""
        self.begin(lookups.embed())
        self.lookups = lookups

    def _looks_up_words(self, args: Any, kwargs: Any) -> bool:
        """Return whether this call of `embedding` looks up the words of the input, for the first time or again."""
        if self.lookups is not None or looked_up_table(args, kwargs) is not self.words:
            return False
        return self.tape.leaf is None or self._find_layout(looked_up_ids(args, kwargs)) is not None

    def _find_layout(self, looked_up: Tensor) -> WordLayout | None:
        return find_layout(looked_up, self.ids, is_first=self.tape.leaf is None)

    def _arrange_words(self, looked_up: Tensor, embedded: Tensor) -> Tensor:
        """Return the words of a look-up as a part of the leaf, which begins at the first one."""
        layout = self._find_layout(looked_up)
        self.tape.layouts.append(layout)
        if layout is None:
            return self.begin(embedded)
        leaf = self.tape.leaf
        if leaf is None:
            leaf = self.begin(layout.restore(embedded, self.ids))
        return layout.arrange(leaf, embedded, self.call)

    def _looks_up_part(self, args: Any, kwargs: Any) -> bool:
        return self.lookups is not None and self.lookups.is_next(args, kwargs)

    def _slice_leaf(self) -> Tensor:
        """Return the part of the leaf that the next look-up stands for."""
        assert self.lookups is not None and self.tape.leaf is not None
        return self.call(torch.narrow, self.tape.leaf, 1, *self.lookups.advance())

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Compute scaled dot-product attention: by torch's fused kernel if nobody will read the map."""
        if self.tape.gradients_only and self._masks.can_fuse(query.dtype, *args, **kwargs):
            function = F.scaled_dot_product_attention
            call = TorchCall(function.__name__, function, (query, key, value, *args), kwargs)
            return self._call_and_record(call, find_activations(call.args, kwargs))  # type: ignore[no-any-return]
        return decompose_attention(
            *(query, key, value, *args),
            **kwargs,
            masks=self._masks,
            call=self.call,
            make_contiguous=self._make_contiguous,
        )

    def _make_contiguous(self, tensor: Tensor) -> Tensor:
        """Return a contiguous copy, which is the same activation for the tape."""
        copy = tensor.contiguous()
        if copy is not tensor:
            self._copy_node(tensor, copy)
        return copy

    def _copy_node(self, tensor: Tensor, copy: Tensor) -> None:
        node = self._saved.node_of(tensor)
        if node is not None:
            self._saved.set_node(copy, node)

    def _call_and_record(self, call: TorchCall, activations: list[Tensor]) -> Any:
        if call.name == "softmax":
            call = keep_precision(call)
        if is_in_place(call.function):
            return self._write_and_record(call, activations)
        self._check_seen(activations)
        out = self._call(call.name, call.function, call.args, call.kwargs)
        if isinstance(out, (list, tuple)):
            for index, tensor in enumerate(out):
                self._record(call, rule_for(call.name, call.function, index), tensor, activations)
        else:
            self._record_result(call, out, activations)
        return out

    def _write_and_record(self, call: TorchCall, activations: list[Tensor]) -> Tensor:
        """Record a write in place, whose result is what was written into; a view's tensor has changed as well."""
        written: Tensor = call.first
        before = call
        if is_activation(written):
            before = self._copy_overwritten(call)
            activations = find_activations(before.args, before.kwargs)
        self._check_seen(activations)
        base = written._base
        base_parents = self._list_parents(base)
        self._call(call.name, call.function, call.args, call.kwargs)
        self._record_result(before, written, activations)
        if base is not None and base_parents is not None:
            self._record_base(base, base_parents, self._saved.node_of(written))
        return written

    def _record_base(self, base: Tensor, parents: tuple[int, ...], view: int | None) -> None:
        """Record that a tensor was changed through a view of it, if the view is on the tape."""
        if view is not None:
            self.tape.record_write(base, (*parents, view))

    def _list_parents(self, base: Tensor | None) -> tuple[int, ...] | None:
        """Return the node of a tensor as far as it is an activation; None if what it depends on is not known."""
        if base is None or not is_activation(base):
            return ()
        node = self._saved.node_of(base)
        if node is None:
            return None
        return (node,)

    def _record_result(self, call: TorchCall, out: Any, activations: list[Tensor]) -> None:
        """Record the only output of a call."""
        rule, sources = self._find_rule(call, activations)
        self._record(call, rule, out, sources)
        if len(sources) < len(activations):
            # An activation function that is written out may be a gate as well.
            self.note_gate(out)

    def _check_seen(self, activations: list[Tensor]) -> None:
        """Refuse the balanced passes if an activation comes from code that makes no torch calls."""
        for activation in activations:
            if not self._saved.has_seen(activation):
                self._refuse_unseen(name_origin(activation))

    def _refuse_unseen(self, origin: str | None) -> None:
        if origin is not None:
            self.tape.switch.refuse(self._no_balanced_rule(origin))

    def _find_rule(self, call: TorchCall, activations: list[Tensor]) -> tuple[Rule | None, list[Tensor]]:
        """Return the rule of a call with a single output, and the activations that it gives relevance to."""
        if call.name in SELF_PRODUCTS and len(activations) == 2:
            gated = self._sources.find_gated(*map(self._saved.node_of, activations))
            # The other factor is a function of this one.
            if gated is not None and activations[0].shape == activations[1].shape:
                return gated_rule(gated), [activations[gated]]
        if call.name == "conv2d" and self._reads_pixels(call):
            return bounded_convolution, activations
        return rule_for(call.name, call.function), activations

    def _call(self, name: str, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a function so that its backward can be switched, if its gradient is not its rule anyway."""
        if name == "linear" and self._uses_onednn and can_multiply(args, kwargs):
            return linear(*args)
        if name in LINEAR and self._is_linear(name, args, kwargs):
            return function(*args, **kwargs)
        if is_in_place(function):
            self._check_in_place(name, find_activations(args, kwargs))
            return function(*args, **kwargs)
        return self._balanced.call(name, function, args, kwargs, lambda: self._no_balanced_rule(name))

    def _is_linear(self, name: str, args: Any, kwargs: Any) -> bool:
        """Return whether a call of an operation whose gradient is its rule has no constant or product in it."""
        if multiplies(name, args, kwargs):
            return False
        return name not in CHOICES or not args or not self._roles.chooses_experts(name, self._saved.node_of(args[0]))

    def _check_in_place(self, name: str, activations: list[Tensor]) -> None:
        """Refuse the balanced passes if a write in place is not linear: its backward cannot be replaced."""
        is_linear = len(activations) == 1 and name in PRODUCTS | QUOTIENTS
        # No coefficient passes constants, such as the weights of experts.
        is_held = all(self._saved.node_of(tensor) in self._roles.held for tensor in activations)
        if not is_linear and not is_held:
            self.tape.switch.refuse(self._no_balanced_rule(f"{name}_"))

    def _call_paused(self, name: str, function: Any, args: Any, kwargs: Any) -> Any:
        if self.norm_depth == 0:
            return function(*args, **kwargs)
        return self._balanced.call_in_norm(name, function, args, kwargs, lambda: self._no_balanced_rule(name))

    def _no_balanced_rule(self, name: str) -> str:
        return (
            f"No rule of the balanced backward passes for the operation '{name}' as used in "
            f"'{self._current_module()}'. Choose backward='gradient' where a method has it, another method such as "
            "gradient-x-input, or instead of attn-lrp cp-lrp, which holds gates constant."
        )

    def replace_activation(self, out: Tensor, source: Tensor, module: nn.Module) -> Tensor:
        """Return the output of an activation module so that its backward can be switched."""
        # A module that has overwritten its input cannot be divided by it; ReLU leaves the ratio as it was.
        if out is source and not isinstance(module, nn.ReLU):
            self.tape.switch.refuse(self._no_balanced_rule(f"{type(module).__name__}(inplace=True)"))
        return self._balanced.replace_activation(out, source, module.forward)

    def note_gate(self, out: Tensor) -> None:
        """Note the output of an activation function, which may gate another activation."""
        node = self._saved.node_of(out)
        if node is not None:
            self._roles.gates.add(node)

    def _move_leaf(self) -> None:
        """Let the network write into the leaf that it holds (as CTRL does), by making that a copy of a new one."""
        held = self.tape.leaf
        if held is None or self.tape.steps:
            # What was computed of it would not depend on the new one.
            raise UnsupportedModel(
                f"{type(self.network).__name__} overwrites its word embeddings after it has read them, in "
                f"'{self._current_module()}'. Choose a method that only needs outputs, such as occlusion."
            )
        leaf = self.begin(held)
        self._copy_node(leaf, held.requires_grad_(False).copy_(leaf))

    def _copy_overwritten(self, call: TorchCall) -> TorchCall:
        """Return an in-place call with a copy of the activation that it will overwrite."""
        if call.first is self.tape.leaf:
            self._move_leaf()
        # Rules need the value before the write, and on the tape the copy stands for that value's node.
        copy = call.first.clone()
        self._copy_node(call.first, copy)
        return call.replace_first(copy)

    def _record(self, call: TorchCall, rule: Rule | None, out: Any, activations: list[Tensor]) -> None:
        """Record one output of a call, unless it is not an activation or is on the tape already."""
        # Functions such as `contiguous` may return their argument.
        if not is_activation(out) or self._saved.node_of(out) is not None:
            return
        operands, backward = self._apply(call, rule, out, activations)
        step = self.tape.record(out, operands, backward)
        self._follow_attention(call, out, step)
        # After a write through a view, what an operation depends on is not known, and its result has no role.
        if len(step.parents) == len(operands):
            self._note_roles(call.name, step)
        if call.name in ("gelu", "silu") and call.args and not self.tape.gradients_only:
            self._mark_recomputable(call, out)
        if call.name == "conv2d" and self._cuts_pixels(call):
            self.tape.patches = (out.shape[-2], out.shape[-1])

    def _note_roles(self, name: str, step: Step) -> None:
        self._sources.note(name, step.node, step.parents)
        self._roles.note(name, step.node, step.parents)

    def _reads_pixels(self, call: TorchCall) -> bool:
        """Return whether a convolution reads the image itself, which may have been padded."""
        leaf = self.tape.leaf
        return leaf is not None and leaf.dim() >= 4 and call.first.shape[-3] == leaf.shape[-3]

    def _cuts_pixels(self, call: TorchCall) -> bool:
        """Return whether a convolution cuts the image into patches: that of the pixels, or the last of a backbone."""
        has_backbone = getattr(self.network.config, "backbone_config", None) is not None
        return call.first is self.tape.leaf or (has_backbone and not self.tape.maps)

    def _apply(self, call: TorchCall, rule: Rule | None, out: Tensor, activations: list[Tensor]) -> RuleResult:
        """Return what the rule makes of a call, or a refusal that is raised when relevance reaches the step."""
        if self.tape.gradients_only:
            return activations, REFUSE_RELEVANCE
        # Binding first tells arguments that the rule does not take from a TypeError inside the rule, which is a bug.
        if rule is None or not accepts(rule, len(call.args), tuple(call.kwargs)):
            return activations, self._refuse(call.name)
        try:
            result = rule(self._saved, out, *call.args, **call.kwargs)
        except UnsupportedOperation as error:
            return activations, raise_unsupported(f"{error} (in '{self._current_module()}')")
        # An activation that the rule takes for a constant would lose its relevance.
        if not _are_same(result[0], activations):
            return activations, self._refuse(call.name)
        return result

    def _refuse(self, name: str) -> Backward:
        return raise_unsupported(
            f"No relevance rule for the operation '{name}' as used in '{self._current_module()}'. Choose a method "
            "without relevance (att-cat, integrated-gradients, …) for this model."
        )

    def _current_module(self) -> str:
        return name_running_module(self.network)

    def _mark_recomputable(self, call: TorchCall, out: Tensor) -> None:
        options = call.args[1:]

        def recompute(x: Tensor) -> Tensor:
            result: Tensor = getattr(F, call.name)(x, *options, **call.kwargs)
            return result

        self._saved.mark_recomputable(out, recompute, call.args[0])

    def _follow_attention(self, call: TorchCall, out: Tensor, step: Step) -> None:
        """Note a softmax as an attention map once it is the left operand of a matrix product."""
        name = call.name
        if name in ("softmax", "attention_weights") and out.dim() >= 3:
            self._softmaxes[step.node] = AttentionMap(None if self.tape.gradients_only else out)
        elif name == "scaled_dot_product_attention":
            self.tape.maps.append(AttentionMap(None, is_used=True))
        elif name in ("matmul", "bmm"):
            self._note_map(self._saved.node_of(call.first))
        elif len(step.parents) == 1 and step.parents[0] in self._softmaxes:
            # Dropout, masks and reshapes of a softmax are still that softmax.
            self._softmaxes[step.node] = self._softmaxes[step.parents[0]]

    def _note_map(self, node: int | None) -> None:
        attention = self._softmaxes.get(node or 0)
        if attention is not None and not attention.is_used:
            attention.is_used = True
            self.tape.maps.append(attention)


def _are_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return whether two sequences hold the same tensors, in any order."""
    if len(first) == len(second) == 1:
        return first[0] is second[0]
    return set(map(id, first)) == set(map(id, second))
