"""Run a few short texts of different lengths end to end as one row, so that nothing is computed for padding.

Between the embeddings and the head of an encoder, tokens meet in attention only. Texts in one row, each of which
attends to itself alone, get there what they get in a padded batch; before and after it they are padded as usual.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from clearhead.engine.context import list_modules, list_parameters
from clearhead.engine.network_state import describe_module
from clearhead.model.model import Model
from clearhead.model.placement import weight_version

MAX_TOKENS = 256
"""Tokens of one row: its attention map has all pairs of them, which costs more than padding does for longer ones."""
LEAST_SPREAD = 0.01
"""How far logits of different texts must be apart, by the largest, to tell errors of packing from rounding."""
MASK = "attention_mask"
Read = Callable[[Any], Tensor]
"""A function from a network's output to logits."""


class NotPackable(Exception):
    """The blocks of a network are not given what packing has to change."""


@dataclass(frozen=True, eq=False)
class Packing:
    """Padded rows and their real tokens (R,T)."""

    real_RT: Tensor

    @property
    def begins_with_tokens(self) -> bool:
        """Whether the padding of all rows is behind their tokens."""
        return bool(self.real_RT[:, 0].all())

    @cached_property
    def row_N(self) -> Tensor:
        """The row of each real token."""
        return self.real_RT.nonzero()[:, 0]

    @cached_property
    def position_N(self) -> Tensor:
        """The position of each real token in its row."""
        return self.real_RT.nonzero()[:, 1]

    @cached_property
    def _is_own_row_NN(self) -> Tensor:
        return self.row_N[:, None] == self.row_N

    @cached_property
    def first_R(self) -> Tensor:
        """The first token of each row, among the real tokens of all."""
        return (self.position_N == 0).nonzero().flatten()

    def pack(self, hidden_RTC: Tensor) -> Tensor:
        """Return the real tokens of all rows in one row (1,N,C)."""
        return hidden_RTC[self.row_N, self.position_N][None]

    def unpack(self, hidden_1NC: Tensor) -> Tensor:
        """Return the tokens, or the first ones of all rows, at their places in padded rows (R,T,C)."""
        hidden_RTC = hidden_1NC.new_zeros(*self.real_RT.shape, hidden_1NC.shape[-1])
        if self.is_packed(hidden_1NC):
            hidden_RTC[self.row_N, self.position_N] = hidden_1NC[0]
        else:
            hidden_RTC[:, 0] = hidden_1NC[0]
        return hidden_RTC

    def pack_mask(self, mask: Tensor) -> Tensor:
        """Return the mask of the attention of padded rows (R,1,T or 1,T) for the packed row (1,1,N,N)."""
        mask_RTT = mask[:, 0].expand(-1, mask.shape[-1], -1)
        own_NN = mask_RTT[self.row_N[:, None], self.position_N[:, None], self.position_N]
        return torch.where(self._is_own_row_NN, own_NN, _least_value(mask.dtype))[None, None]

    def holds(self, value: Any, axes: int) -> bool:
        """Return whether a value is a tensor of padded rows with so many axes."""
        return isinstance(value, Tensor) and value.dim() == axes and len(value) == len(self.real_RT)

    def is_hidden(self, value: Any) -> bool:
        return self.holds(value, 3) and value.shape[:2] == self.real_RT.shape

    def is_mask(self, value: Any) -> bool:
        return self.holds(value, 4) and value.shape[1] == 1 and value.shape[3] == self.real_RT.shape[1]

    def is_packed(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.shape[:2] == (1, len(self.row_N))


def _least_value(dtype: torch.dtype) -> Any:
    """Return what a mask has where there is no attention."""
    return False if dtype is torch.bool else torch.finfo(dtype).min


class _BlockHooks:
    """Hooks that give the blocks of a network packed rows; other threads may run the network meanwhile."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._thread = get_ident()
        # All blocks are given the same mask. It is kept, since another could get the id of one that is freed.
        self._masks: dict[int, tuple[Tensor, Tensor]] = {}

    def before(self, module: nn.Module, args: Any, kwargs: Any = None) -> Any:
        """Return the arguments of a block, packed."""
        if get_ident() != self._thread:
            return None
        if not any(map(self._packing.is_mask, [*args, *kwargs.values()])):
            raise NotPackable
        return tuple(map(self._pack, args)), {name: self._pack(value) for name, value in kwargs.items()}

    def _pack(self, value: Any) -> Any:
        if self._packing.is_hidden(value):
            return self._packing.pack(value)
        if self._packing.is_mask(value):
            return self._pack_mask(value)
        return value

    def _pack_mask(self, mask: Tensor) -> Tensor:
        if id(mask) not in self._masks:
            self._masks[id(mask)] = (mask, self._packing.pack_mask(mask))
        return self._masks[id(mask)][1]

    def shorten(self, module: nn.Module, args: Any, out: Any) -> Any:
        """Return the output of the last attention for the first token of each row alone."""
        if get_ident() != self._thread:
            return None
        hidden_1NC, *others = out
        return (hidden_1NC[:, self._packing.first_R], *others)

    def after(self, module: nn.Module, args: Any, out: Any) -> Any:
        """Return the output of the last block, padded again."""
        if get_ident() != self._thread:
            return None
        return self._packing.unpack(out)


@dataclass(frozen=True)
class _Stack:
    """The blocks of a network; the attention of the last one if the head reads first tokens only."""

    blocks: Sequence[nn.Module] = ()
    last_attention: nn.Module | None = None

    @contextmanager
    def hook(self, hooks: _BlockHooks) -> Iterator[None]:
        with ExitStack() as stack:
            for block in self.blocks:
                stack.callback(block.register_forward_pre_hook(hooks.before, with_kwargs=True).remove)
            stack.callback(self.blocks[-1].register_forward_hook(hooks.after).remove)
            if self.last_attention is not None:
                stack.callback(self.last_attention.register_forward_hook(hooks.shorten).remove)
            yield


@dataclass(frozen=True)
class _Finding:
    """How a network can be packed that was in some state; without blocks, that it cannot."""

    state: tuple[Any, ...]
    stack: _Stack


_FINDINGS: WeakKeyDictionary[nn.Module, _Finding] = WeakKeyDictionary()


def worth_packing(lengths_N: Tensor, model: Model) -> bool:
    """Return whether packing saves time: on a CPU, for a few rows of different lengths."""
    # A GPU computes padding faster than Python packs it. Half precision would hide what packing changes.
    if model.device.type != "cpu" or model.dtype not in (torch.float32, torch.float64):
        return False
    return int(lengths_N.sum()) <= MAX_TOKENS and bool((lengths_N != lengths_N[0]).any())


def run_packed(network: nn.Module, tensors: Mapping[str, Tensor], read: Read) -> Tensor | None:
    """Return what is read from the output for texts that run as one row; None if the network cannot be packed.

    The first texts of a network also run padded, and it is packed from then on if both results are close. A head that
    has learned to read other tokens, or has been replaced, is compared again.
    """
    state = _describe_network(network)
    finding = _FINDINGS.get(network)
    if finding is None or finding.state != state:
        return _compare_stacks(network, state, tensors, read)
    return _try_packed(network, finding.stack, tensors, read)


def _describe_network(network: nn.Module) -> tuple[Any, ...]:
    """Return what a network computes its output from, besides texts."""
    modules = list_modules(network)
    return (*map(describe_module, modules), *map(weight_version, list_parameters(modules)))


def _compare_stacks(
    network: nn.Module, state: tuple[Any, ...], tensors: Mapping[str, Tensor], read: Read
) -> Tensor | None:
    """Find out how a network can be packed; return the logits, of padded texts if it cannot; None without blocks."""
    stacks = _list_stacks(network)
    padded = _try_network(network, tensors, read) if stacks else None
    # Nearly equal logits, as of a head of zeros, say little about what they were computed from.
    if padded is None or _find_spread(padded) <= LEAST_SPREAD * _largest(padded):
        return padded
    for stack in stacks:
        packed = _try_packed(network, stack, tensors, read)
        if packed is not None and _is_close(packed, padded):
            _FINDINGS[network] = _Finding(state, stack)
            # Not the padded ones, so that the same texts have the same logits to the last digit the next time.
            return packed
    _FINDINGS[network] = _Finding(state, _Stack())
    return padded


def _is_close(packed: Tensor, padded: Tensor) -> bool:
    """Return whether logits differ by rounding alone, against which the differences between texts are large."""
    precision: float = torch.finfo(padded.dtype).eps ** 0.5
    return _are_finite_alike(packed, padded) and _largest(packed - padded) <= precision * _find_spread(padded)


def _are_finite_alike(packed: Tensor, padded: Tensor) -> bool:
    # Logits of padding may be infinite, and differences of these are no numbers.
    return torch.equal(packed.isfinite(), padded.isfinite())


def _find_spread(logits: Tensor) -> float:
    """Return how far the logits of any text are from those of the first."""
    return _largest(logits - logits[:1])


def _largest(values: Tensor) -> float:
    """Return the largest magnitude of finite values."""
    return max(values[values.isfinite()].abs().tolist(), default=0.0)


def _try_packed(network: nn.Module, stack: _Stack, tensors: Mapping[str, Tensor], read: Read) -> Tensor | None:
    packing = Packing(tensors[MASK].bool())
    if not stack.blocks or not packing.begins_with_tokens:
        return None
    with stack.hook(_BlockHooks(packing)):
        return _try_network(network, tensors, read)


def _try_network(network: nn.Module, tensors: Mapping[str, Tensor], read: Read) -> Tensor | None:
    try:
        return read(network(**tensors))
    # Networks of one's own may do anything with what their blocks are given, and memory may run out.
    except Exception:
        return None


def _list_stacks(network: nn.Module) -> list[_Stack]:
    """Return how a network may be packed, the fastest first."""
    blocks = _find_blocks(network)
    if not blocks:
        return []
    shortened = [_Stack(blocks, child) for child in islice(blocks[-1].children(), 1)]
    return [*shortened, _Stack(blocks)]


def _find_blocks(network: nn.Module) -> Sequence[nn.Module]:
    """Return the longest list of modules of one type."""
    lists = [tuple(module) for module in list_modules(network) if isinstance(module, nn.ModuleList)]
    return max(filter(_is_uniform, lists), key=len, default=())


def _is_uniform(modules: Sequence[nn.Module]) -> bool:
    return len(set(map(type, modules))) == 1
