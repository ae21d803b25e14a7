"""The model that is explained: network, processor, optional masked-LM head; and how it is loaded."""

import inspect
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

PROBLEMS = {
    "regression": "regression",
    "multi_label_classification": "multi-label",
    "single_label_classification": "single-label",
}


@dataclass(frozen=True, eq=False)
class Model:
    """A Hugging Face network with what turns raw input into its tensors.

    `processor` is a tokenizer, an image processor, or None (tensors in); `lm` a masked-language model whose head
    decodes hidden states.
    """

    network: Any
    processor: Any = None
    lm: Any = None
    name: str = "model"
    copies: dict[str, tuple[Any, "Model"]] = field(default_factory=dict, repr=False)

    @property
    def config(self) -> Any:
        return self.network.config

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.network.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the first floating parameter: quantised models hold integer ones too."""
        dtype: torch.dtype = next(p.dtype for p in self.network.parameters() if p.dtype.is_floating_point)
        return dtype

    @property
    def takes_images(self) -> bool:
        return getattr(self.network, "main_input_name", "input_ids") == "pixel_values"

    @property
    def labels(self) -> list[str]:
        names = self._names
        return [str(names.get(index, f"LABEL_{index}")) for index in range(len(names))]

    @property
    def classes(self) -> int:
        """How many classes the config names; 0 where it names none."""
        return len(self._names)

    @property
    def _names(self) -> dict[int, Any]:
        return getattr(self.config, "id2label", None) or {}

    @property
    def problem(self) -> str:
        """single-label, multi-label, one-logit, regression or span: decides what a probability is."""
        if type(self.network).__name__.endswith("ForQuestionAnswering"):
            return "span"
        kind = PROBLEMS.get(getattr(self.config, "problem_type", None) or "")
        if len(self._names) == 1:
            return "regression" if kind in (None, "regression") else "one-logit"
        return kind or "single-label"

    @cached_property
    def position_tables(self) -> list[nn.Embedding]:
        """Embeddings of positions, which limit how many tokens the network takes."""
        return [
            module
            for name, module in self.network.named_modules()
            if isinstance(module, nn.Embedding)
            and name.rsplit(".", 1)[-1] in ("position_embeddings", "embed_positions", "wpe")
        ]

    @property
    def can_pad(self) -> bool:
        """Whether texts of different lengths may share a batch."""
        return self.takes_images or (getattr(self.config, "pad_token_id", None) is not None and self.takes_mask)

    @cached_property
    def takes_mask(self) -> bool:
        """Whether the network can be told what is padding; a wrapper that names no inputs takes what it is given."""
        taken = inspect.signature(self.network.forward).parameters
        return "attention_mask" in taken or "input_ids" not in taken


def input_embedding(network: Any) -> Tensor | None:
    """The weights of the word embedding, by which the start of a text's trace is recognised."""
    try:
        table = network.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    return getattr(table, "weight", None)


def max_tokens(model: Model) -> int | None:
    """How many tokens the network takes at most; None where nothing limits it."""
    limits = [
        module.num_embeddings - (module.padding_idx + 1 if module.padding_idx else getattr(module, "offset", 0))
        for module in model.position_tables
    ]
    stated = getattr(model.config, "max_position_embeddings", None)
    said = getattr(model.processor, "model_max_length", None)
    if said is not None and said < 10**9:
        limits.append(said)
    return min(limits, default=stated if stated and stated > 0 else None)
