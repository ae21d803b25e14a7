"""The model that is explained: a network, its processor and an optional masked-LM head."""

import inspect
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.model.language import AnswerNetwork, EncoderDecoderNetwork, PictureNetwork

# `config.problem_type` of Transformers to the name used here.
PROBLEMS = {
    "regression": "regression",
    "multi_label_classification": "multi-label",
    "single_label_classification": "single-label",
}
# BERT and its relatives, OPT and BART, GPT-2.
POSITION_TABLE_NAMES = ("position_embeddings", "embed_positions", "wpe")
# Tokenizers without a limit state a huge `model_max_length` (about 1e30) instead of None.
NO_TOKENIZER_LIMIT = 10**9


@dataclass(frozen=True, eq=False)
class Model:
    """A Hugging Face network with the processor that turns raw input into its tensors.

    `processor` is a tokenizer, an image processor, or None (only tensors can be explained); `lm` is a masked-language
    model whose head decodes hidden states. `copies` caches copies in other dtypes, see `with_precision`.
    `picture_processor` puts pictures among the words of a prompt.
    """

    network: Any
    processor: Any = None
    lm: Any = None
    name: str = "model"
    copies: dict[str, tuple[Any, "Model"]] = field(default_factory=dict, repr=False)
    picture_processor: Any = None

    @property
    def config(self) -> Any:
        return self.network.config

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.network.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first floating-point parameter."""
        # Quantised models hold integer parameters too, so the first parameter is not enough.
        dtype: torch.dtype = next(p.dtype for p in self.network.parameters() if p.dtype.is_floating_point)
        return dtype

    @property
    def takes_images(self) -> bool:
        return getattr(self.network, "main_input_name", "input_ids") == "pixel_values"

    @property
    def writes(self) -> bool:
        """Whether the model writes text, so that its answers are explained instead of classes."""
        return self.problem == "answer"

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model reads one text, the source, and writes another."""
        return isinstance(self.network, EncoderDecoderNetwork)

    @property
    def reads_pictures(self) -> bool:
        """Whether the model writes text about pictures among the words of a prompt."""
        return isinstance(self.network, PictureNetwork)

    @property
    def labels(self) -> list[str]:
        """The class names of the config, by index."""
        names = self._class_names
        return [str(names.get(index, f"LABEL_{index}")) for index in range(len(names))]

    @property
    def classes(self) -> int:
        """The number of classes that the config names, 0 if it names none."""
        return len(self._class_names)

    @property
    def _class_names(self) -> dict[int, Any]:
        return getattr(self.config, "id2label", None) or {}

    @property
    def problem(self) -> str:
        """single-label, multi-label, one-logit, regression, span or answer: decides what a probability is."""
        if isinstance(self.network, AnswerNetwork):
            return "answer"
        if type(self.network).__name__.endswith("ForQuestionAnswering"):
            return "span"
        if self.classes == 1:
            return _problem_of_single_output(self._declared_problem)
        return self._declared_problem or "single-label"

    @property
    def _declared_problem(self) -> str | None:
        return PROBLEMS.get(getattr(self.config, "problem_type", None) or "")

    @cached_property
    def position_tables(self) -> list[nn.Embedding]:
        """The position embeddings, which limit the number of tokens."""
        return [module for name, module in self.network.named_modules() if _is_position_table(name, module)]

    @property
    def can_pad(self) -> bool:
        """Whether texts of different lengths may share a batch."""
        # A language model may have no padding token: its padding is masked, whatever stands there.
        if self.takes_images or self.writes:
            return True
        return getattr(self.config, "pad_token_id", None) is not None and self.takes_mask

    @cached_property
    def takes_mask(self) -> bool:
        """Whether the network accepts an attention mask."""
        parameters = inspect.signature(self.network.forward).parameters
        # A wrapper's forward(*args, **kwargs) names no inputs: it passes on what it gets.
        return "attention_mask" in parameters or "input_ids" not in parameters


def input_embedding(network: Any) -> Tensor | None:
    """Return the input embedding weight, which marks where recording starts; None if the network has none."""
    try:
        table = network.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    return getattr(table, "weight", None)


def max_tokens(model: Model) -> int | None:
    """Return the maximum number of tokens of an input; None if nothing limits it."""
    limits = [_count_positions(table) for table in model.position_tables]
    limits += _tokenizer_limits(model.processor)
    if limits:
        return min(limits)
    return _config_limit(model.config)


def _tokenizer_limits(tokenizer: Any) -> list[int]:
    """Return the limit of the tokenizer in a list; an empty list if it has none."""
    limit = getattr(tokenizer, "model_max_length", None)
    if limit is None or limit >= NO_TOKENIZER_LIMIT:
        return []
    return [limit]


def _config_limit(config: Any) -> int | None:
    limit = getattr(config, "max_position_embeddings", None) or 0
    # Some configs state -1 for "no limit".
    if limit <= 0:
        return None
    return int(limit)


def _problem_of_single_output(problem: str | None) -> str:
    # Transformers trains a single output as a regression unless the config says otherwise.
    if problem is None or problem == "regression":
        return "regression"
    return "one-logit"


def _is_position_table(name: str, module: nn.Module) -> bool:
    return isinstance(module, nn.Embedding) and name.rsplit(".", 1)[-1] in POSITION_TABLE_NAMES


def _count_positions(table: nn.Embedding) -> int:
    """Return the number of positions that tokens can use."""
    # RoBERTa counts positions from padding_idx + 1, OPT from its own `offset`.
    if table.padding_idx:
        return table.num_embeddings - (table.padding_idx + 1)
    return table.num_embeddings - int(getattr(table, "offset", 0))
