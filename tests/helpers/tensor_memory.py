"""Bytes of tensors that are alive at a time, counted rather than read from the allocator."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class StorageCensus(TorchDispatchMode):
    """Counts the storages that operations make until each is freed."""

    def __init__(self):
        super().__init__()
        self.live = {}
        self.current = 0
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for value in tree_flatten(out)[0]:
            if isinstance(value, torch.Tensor):
                self.add(value.untyped_storage())
        return out

    def add(self, storage):
        # Views and in-place writes return a storage that is counted already.
        if storage._cdata in self.live:
            return
        self.live[storage._cdata] = storage.nbytes()
        self.current += storage.nbytes()
        self.peak = max(self.peak, self.current)
        weakref.finalize(storage, self.remove, storage._cdata)

    def remove(self, address):
        self.current -= self.live.pop(address)


def measure_peak(work):
    """Return the most bytes that live at a time while `work` runs, after a run that fills caches."""
    work()
    census = StorageCensus()
    with census:
        work()
    return census.peak
