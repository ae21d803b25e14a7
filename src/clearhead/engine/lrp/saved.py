"""Tensors saved for the relevance pass, and what a tape knows about each tensor of its forward pass."""

from collections.abc import Callable
from weakref import ref

import torch
from torch import Tensor

from clearhead.engine.lrp.kernels.dispatch import on_gpu
from clearhead.errors import UnsupportedOperation

OVERWRITTEN = (
    "The network overwrote an activation in place after using it, or a weight has changed since, so relevance cannot "
    "be propagated. Trace again, or choose a method without relevance."
)


class SavedTensor:
    """A tensor saved for the relevance pass, or a function that recomputes it; detects in-place writes."""

    __slots__ = ("__weakref__", "_recompute", "_tensor", "version")

    def __init__(self, tensor: Tensor, recompute: Callable[[], Tensor] | None = None) -> None:
        self.version = tensor._version
        self._recompute = recompute
        # What can be recomputed is not held, which is what saves memory.
        self._tensor = tensor if recompute is None else None

    @property
    def is_intact(self) -> bool:
        """Whether the tensor still has the values that were saved."""
        return self._tensor is None or self._tensor._version == self.version

    @property
    def tensor(self) -> Tensor:
        """The saved values; raises UnsupportedOperation if they were overwritten."""
        if self._tensor is None:
            assert self._recompute is not None
            return self._recompute()
        if self._tensor._version != self.version:
            raise UnsupportedOperation(OVERWRITTEN)
        return self._tensor

    def to(self, dtype: torch.dtype) -> Tensor:
        return self.tensor.to(dtype)


class WeakTensor:
    """A tensor that a rule can use if another rule has saved it, but that is not worth memory of its own."""

    __slots__ = ("_saved", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self._saved: list[ref[SavedTensor]] = []

    def add(self, saved: SavedTensor) -> None:
        """Note that another rule has saved this tensor."""
        self._saved.append(ref(saved))

    @property
    def tensor(self) -> Tensor | None:
        """The values, or None if nobody holds them."""
        # Rules may have saved it before and after an in-place write.
        for reference in self._saved:
            saved = reference()
            if saved is not None and saved.version == self._version and saved.is_intact:
                return saved.tensor
        return None


class _Entry(ref[Tensor]):
    """A weak reference to a tensor of the forward pass, with what its tape knows about it.

    Node and recompute function hold for one version each: an in-place write turns the tensor into another activation.
    """

    # Defaults of the class instead of an initialiser: an entry is made for every operation of the forward pass.
    node: int | None = None
    node_version: int = -1
    recompute: Callable[[], Tensor] | None = None
    recompute_version: int = -1
    weak: WeakTensor | None = None


class SavedTensors:
    """The tensors of one forward pass: their numbers on the tape, and how each is saved for the relevance pass.

    Tensors are known by identity and are not kept alive. A weak reference survives while only autograd's graph holds
    the tensor, since torch then preserves the Python object.
    """

    # The ids of dead tensors are reused, so every look-up checks that the entry is of the same tensor: that costs less
    # than a finalizer for each. The check is written out because it runs several times for every recorded operation.

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def _find_or_add(self, tensor: Tensor) -> _Entry:
        entry = self._entries.get(id(tensor))
        if entry is None or entry() is not tensor:
            entry = _Entry(tensor)
            self._entries[id(tensor)] = entry
        return entry

    def node_of(self, tensor: Tensor) -> int | None:
        """Return the node number of an activation, or None if its current values are not on the tape."""
        entry = self._entries.get(id(tensor))
        if entry is None or entry() is not tensor or entry.node_version != tensor._version:
            return None
        return entry.node

    def has_seen(self, tensor: Tensor) -> bool:
        """Return whether an activation was on the tape, perhaps before a write in place."""
        entry = self._entries.get(id(tensor))
        return entry is not None and entry() is tensor and entry.node is not None

    def set_node(self, tensor: Tensor, node: int) -> None:
        entry = self._find_or_add(tensor)
        entry.node = node
        entry.node_version = tensor._version

    def save(self, tensor: Tensor) -> SavedTensor:
        """Save a tensor for the relevance pass; only its recompute function if it has one."""
        entry = self._entries.get(id(tensor))
        if entry is None or entry() is not tensor:
            return SavedTensor(tensor)
        # A function noted before an in-place write would give the old values.
        recompute = entry.recompute if entry.recompute_version == tensor._version else None
        saved = SavedTensor(tensor, recompute)
        if entry.weak is not None:
            entry.weak.add(saved)
        return saved

    def save_weakly(self, tensor: Tensor) -> WeakTensor:
        """Return a reference that finds the tensor if another rule saves it later."""
        weak = WeakTensor(tensor._version)
        self._find_or_add(tensor).weak = weak
        return weak

    def mark_recomputable(self, out: Tensor, function: Callable[[Tensor], Tensor], source: Tensor) -> None:
        """On a GPU, let rules recompute out = function(source) instead of holding it.

        Memory is the scarcer resource there, and autograd keeps `source` in memory anyway.
        """
        if not on_gpu(out):
            return
        saved = self.save(source)
        entry = self._find_or_add(out)
        entry.recompute = lambda: function(saved.tensor)
        entry.recompute_version = out._version
