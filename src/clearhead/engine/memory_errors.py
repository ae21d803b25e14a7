"""Which errors say that memory ran out: torch has no single one."""

import torch

# Of torch's allocator on a CPU; of CUDA, where another program or a library of its own has taken the memory; of cuBLAS.
MESSAGES = ("can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a smaller batch may do without this error."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in MESSAGES)
