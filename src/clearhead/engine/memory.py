"""Estimates of memory before an explanation is computed."""

import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.engine.context import list_modules
from clearhead.engine.lrp.kernels.dispatch import DEVICES
from clearhead.model.inputs import Inputs, longest_text
from clearhead.model.language import ANSWER_POSITIONS
from clearhead.model.model import Model

# Activations of a hidden state's size that a block saves for the backward pass, besides its wide layer.
HIDDEN_STATES_PER_BLOCK = 18
# Wide activations that a gated layer saves besides those of a plain one: the gate and the product.
EXTRA_WIDE_IN_GATES = 2
# Tensors of the logits' size that exist at a time: the output and its copy, the seeds and their sum.
LOGITS_IN_BACKWARD = 6
# Attention maps of one block that exist at a time in the backward pass.
MAPS_IN_BACKWARD = 5
# Masks that exist at a time for fused attention: as truth values and as numbers.
MASKS_OF_FUSED_ATTENTION = 2
# Share of the free memory that a trace may take: estimates are not exact.
USABLE_SHARE = 0.9
# How Transformers calls the layer whose output gates another.
GATE_MODULES = ("gate_proj", "gate_up_proj", "wi_1")
MEMINFO = Path("/proc/meminfo")
# Free bytes of a device that does not report them: everything fits.
UNKNOWN = 2**62
NO_BYTES = {"all": {"current": 0}}


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a batch takes besides the model, traced as a whole and block by block, and bytes that are free."""

    whole: int
    blockwise: int
    free: int

    @property
    def fits(self) -> bool:
        """Whether the batch can be traced as a whole."""
        return self.whole <= USABLE_SHARE * self.free


@dataclass(frozen=True)
class ConfigSizes:
    """The sizes of a Transformer; 0 if the config does not tell.

    `wide` is that of the feed-forward layers, `vocabulary` that of a language head.
    """

    blocks: int
    heads: int
    width: int
    wide: int
    vocabulary: int


def estimate_memory(model: Model, batch: Inputs, *, gradients_only: bool = False) -> MemoryEstimate:
    """Estimate from the config and the size of the batch, without running anything; unknown sizes count as zero.

    With `gradients_only` no attention map is kept, if the network's attention is torch's fused one.
    """
    tokens = longest_text(batch) or image_tokens(getattr(model.network, "config", None))
    has_maps = not (gradients_only and _has_fused_attention(model.network))
    whole, blockwise = _estimate_row(model, tokens, _count_answer_tokens(batch), has_maps=has_maps)
    return MemoryEstimate(len(batch) * whole, len(batch) * blockwise, free_bytes(model.device))


def count_fitting_rows(model: Model, tokens: int, free: int) -> int:
    """Return how many inputs of a length can be traced as a whole in so many bytes."""
    whole, _ = _estimate_row(model, tokens)
    return free // max(1, whole)


def _has_fused_attention(network: nn.Module) -> bool:
    return getattr(getattr(network, "config", None), "_attn_implementation", None) == "sdpa"


def _estimate_row(model: Model, tokens: int, answer_tokens: int = 0, *, has_maps: bool = True) -> tuple[int, int]:
    """Return the bytes that one input of a batch takes, traced as a whole and block by block."""
    sizes = read_sizes(getattr(model.network, "config", None))
    element = model.dtype.itemsize
    block = element * tokens * _saved_features(model, sizes)
    # A map without heads: weighted, as a block leaves it behind its input, or the mask of fused attention.
    mask = element * tokens**2
    inputs = sizes.blocks * element * tokens * sizes.width
    attention = sizes.heads * mask if has_maps else 0
    results = inputs + (sizes.blocks if has_maps else MASKS_OF_FUSED_ATTENTION) * mask
    logits = LOGITS_IN_BACKWARD * element * answer_tokens * sizes.vocabulary
    blockwise = block + MAPS_IN_BACKWARD * attention + results + logits
    return _whole_bytes(sizes.blocks, block, attention) + logits, blockwise


def _count_answer_tokens(batch: Inputs) -> int:
    """Return how many tokens of each text have logits over the vocabulary: those of an answer."""
    if ANSWER_POSITIONS not in batch.tensors:
        return 0
    return batch.tensors[ANSWER_POSITIONS].shape[1]


def _whole_bytes(blocks: int, block: int, attention: int) -> int:
    """Return the bytes of a trace as a whole from those that one block and one attention map take."""
    # Every block keeps two maps; the others exist for one block at a time.
    kept = blocks * (block + 2 * attention)
    return kept + (MAPS_IN_BACKWARD - 2) * attention


def read_sizes(config: Any) -> ConfigSizes:
    """Return the sizes that a config tells."""
    width = _config_size(config, "hidden_size")
    return ConfigSizes(
        blocks=_config_size(config, "num_hidden_layers"),
        heads=_config_size(config, "num_attention_heads"),
        width=width,
        wide=_config_size(config, "intermediate_size") or 4 * width,
        vocabulary=_config_size(config, "vocab_size"),
    )


def _saved_features(model: Model, sizes: ConfigSizes) -> int:
    """Return how many features per token a block saves for the backward pass."""
    # With fused kernels the activation function of the wide layer is recomputed, so its result is not saved.
    wide_tensors = 1 if model.device.type in DEVICES else 2
    if _has_gates(model.network):
        wide_tensors += EXTRA_WIDE_IN_GATES
    return HIDDEN_STATES_PER_BLOCK * sizes.width + wide_tensors * sizes.wide


def _has_gates(network: nn.Module) -> bool:
    """Return whether blocks have gated MLPs, by the names of their modules."""
    names = chain.from_iterable(module._modules for module in list_modules(network))
    return any(name.endswith(GATE_MODULES) for name in names)


def image_tokens(config: Any) -> int:
    """Return the number of patches of an image, and a class token."""
    # Networks for pictures of any shape state how many patches they were trained with.
    if not _config_size(config, "image_size"):
        return _config_size(config, "num_patches")
    image_size = _config_size(config, "image_size")
    patch_size = _config_size(config, "patch_size")
    if not patch_size:
        return 0
    return (image_size // patch_size) ** 2 + 1


def _config_size(config: Any, name: str) -> int:
    """Return a size from the config; 0 if it is missing, or differs from stage to stage."""
    size = getattr(config, name, 0)
    return size if isinstance(size, int) else 0


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device."""
    if device.type == "cuda":
        return _free_cuda_bytes(device)
    if not MEMINFO.exists():
        return UNKNOWN
    # Available, not free: the kernel's caches give way to programs.
    match = re.search(r"MemAvailable:\s+(\d+) kB", MEMINFO.read_text())
    if match is None:
        return UNKNOWN
    return int(match[1]) * 1024


def _free_cuda_bytes(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    # What torch's allocator has reserved but not given out is free as well. Its statistics are empty before first use.
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    return int(free + _current_bytes(stats, "reserved_bytes") - _current_bytes(stats, "allocated_bytes"))


def _current_bytes(stats: dict[str, Any], name: str) -> int:
    current: int = stats.get(name, NO_BYTES)["all"]["current"]
    return current


def fits_in_memory(model: Model, batch: Inputs) -> bool:
    """Whether a batch can be traced as a whole."""
    return estimate_memory(model, batch).fits
