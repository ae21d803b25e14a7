"""Backward passes other than the gradient, as autograd functions that are switched when the pass runs.

The graph of one forward pass serves the gradient, AttnLRP and the balanced pass: the functions below look at the switch
of their tape when the backward pass reaches them. `clearhead.engine.balanced` says which operation gets which.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadOption, UnsupportedOperation

GRADIENT = "gradient"
BALANCED = "balanced"
ATTN_LRP = "attn-lrp"
BACKWARDS = (GRADIENT, BALANCED, ATTN_LRP)

Factors = Mapping[str, float]
"""By which a backward pass multiplies coefficients; 1 for a pass that is not named."""
CoefficientRule = Callable[[Tensor, Tensor], Tensor]
"""Maps an operation's input and the coefficient at its output to the coefficient at its input."""


def check_backward(backward: str, available: Sequence[str] = BACKWARDS) -> None:
    """Raise BadOption unless `backward` names one of the available backward passes."""
    if backward not in available:
        raise BadOption(f"Invalid backward={backward!r}. Available: {', '.join(available)}.")


class BackwardSwitch:
    """Which backward pass the graph of one forward pass runs.

    The switch belongs to a tape, not to a thread: on a GPU autograd runs the functions in threads of its own.
    """

    def __init__(self) -> None:
        self.backward = GRADIENT
        self._refusal: str | None = None

    def refuse(self, message: str) -> None:
        """Refuse every pass but the gradient: an operation was recorded that cannot be switched."""
        self._refusal = message

    @contextmanager
    def use(self, backward: str) -> Iterator[None]:
        """Run backward passes of this kind inside the context."""
        self._require_known(backward)
        # Restored at the end, since contexts may nest.
        before = self.backward
        self.backward = backward
        try:
            yield
        finally:
            self.backward = before

    def _require_known(self, backward: str) -> None:
        if backward != GRADIENT and self._refusal is not None:
            raise UnsupportedOperation(self._refusal)


# Autograd calls a function's `backward` once for each call of `forward`, with the same `ctx`. Gradients are not
# materialised: a held operand passes on None, and what lies behind it is skipped instead of being fed with zeros.
# Results are detached rather than returned as views, because a network may write into them in place.


class _Scale(torch.autograd.Function):
    """The identity, whose backward multiplies by a factor that depends on the switch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, switch: BackwardSwitch, factors: Factors) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.switch = switch
        ctx.factors = factors
        return x.detach()

    @staticmethod
    def backward(ctx: Any, coefficient: Tensor | None) -> tuple[Tensor | None, None, None]:
        factor = ctx.factors.get(ctx.switch.backward, 1.0)
        if coefficient is None or factor == 0:
            return None, None, None
        # The gradient passes as it is, without a copy.
        if factor == 1:
            return coefficient, None, None
        return coefficient * factor, None, None


class _Replace(torch.autograd.Function):
    """The output of an operation: its backward goes through autograd's graph or through a coefficient rule."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, x: Tensor, switch: BackwardSwitch, rule: CoefficientRule) -> Tensor:
        ctx.set_materialize_grads(False)
        # Autograd keeps the input of the operation anyway, so this costs no memory.
        ctx.save_for_backward(x)
        ctx.switch = switch
        ctx.rule = rule
        return out.detach()

    @staticmethod
    def backward(ctx: Any, coefficient: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None]:
        if coefficient is None or ctx.switch.backward == GRADIENT:
            return coefficient, None, None, None
        (x,) = ctx.saved_tensors
        return None, ctx.rule(x, coefficient), None, None


class _Refuse(torch.autograd.Function):
    """The output of an operation without a rule: an error if a coefficient arrives."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, switch: BackwardSwitch, message: str) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.switch = switch
        ctx.message = message
        return out.detach()

    @staticmethod
    def backward(ctx: Any, coefficient: Tensor | None) -> tuple[Tensor | None, None, None]:
        if coefficient is not None and ctx.switch.backward != GRADIENT:
            raise UnsupportedOperation(ctx.message)
        return coefficient, None, None


def scale(x: Tensor, switch: BackwardSwitch, factors: Factors) -> Tensor:
    """Return `x`; coefficients that come back through it are multiplied by the factor of their pass."""
    scaled: Tensor = _Scale.apply(x, switch, factors)  # type: ignore[no-untyped-call]
    return scaled


def replace(out: Tensor, x: Tensor, switch: BackwardSwitch, rule: CoefficientRule) -> Tensor:
    """Return `out`, computed from `x`; passes other than the gradient follow the rule."""
    replaced: Tensor = _Replace.apply(out, x, switch, rule)  # type: ignore[no-untyped-call]
    return replaced


def refuse(out: Tensor, switch: BackwardSwitch, message: str) -> Tensor:
    """Return `out`; passes other than the gradient raise UnsupportedOperation when they reach it."""
    refused: Tensor = _Refuse.apply(out, switch, message)  # type: ignore[no-untyped-call]
    return refused
