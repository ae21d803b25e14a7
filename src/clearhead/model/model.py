"""The model that is explained: a network, its processor and an optional masked-LM head."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.model.choice_network import ChoiceNetwork
from clearhead.model.custom_network import CustomNetwork
from clearhead.model.focus_networks import BoxNetwork, FocusNetwork, MaskedWordNetwork
from clearhead.model.function_network import FunctionNetwork
from clearhead.model.joined_networks import JoinedNetwork
from clearhead.model.language import AnswerNetwork, EncoderDecoderNetwork, PictureNetwork
from clearhead.model.two_towers import DualEncoder, Tower

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
# How byte-level and SentencePiece tokenizers write the blank before a word.
BLANK_MARKS = "Ġ▁"


@dataclass(frozen=True, eq=False)
class Model:
    """A Hugging Face network with the processor that turns raw input into its tensors.

    `processor` is a tokenizer, an image processor, both (a TowerProcessor), or None (only tensors can be explained);
    `lm` is a masked-language model whose head decodes hidden states. `class_names` are used instead of those in the
    config. `copies` caches copies in other dtypes, see `with_precision`. `picture_processor` puts pictures among the
    words of a prompt.
    """

    network: Any
    processor: Any = None
    lm: Any = None
    name: str = "model"
    copies: dict[str, tuple[Any, "Model"]] = field(default_factory=dict, repr=False)
    class_names: Sequence[str] | None = None
    picture_processor: Any = None

    def __repr__(self) -> str:
        """Name the model in one line: networks and tokenizers print themselves in dozens."""
        return f"<Model {self.name}: {type(self.network).__name__}, {self.problem}, {len(self.labels)} labels>"

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
        return isinstance(self.network, AnswerNetwork)

    @property
    def reads_pairs(self) -> bool:
        """Whether the model compares two inputs that it embeds apart, so that a pair of them is explained."""
        return isinstance(self.network, DualEncoder)

    @property
    def reads_jointly(self) -> bool:
        """Whether the model reads a picture and a text as one sequence, so that both are explained together."""
        return isinstance(self.network, JoinedNetwork)

    @property
    def is_function(self) -> bool:
        """Whether the model is a function, of which only the outputs are known."""
        return isinstance(self.network, FunctionNetwork)

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model reads one text, the source, and writes another."""
        return isinstance(self.network, EncoderDecoderNetwork)

    @property
    def reads_pictures(self) -> bool:
        """Whether the model writes text about pictures among the words of a prompt."""
        return isinstance(self.network, PictureNetwork)

    @property
    def has_focus(self) -> bool:
        """Whether the model has an output for every word, box or pixel, of which a part is explained."""
        return isinstance(self.network, FocusNetwork)

    @property
    def names_words(self) -> bool:
        """Whether the classes are the words of the vocabulary, as for a masked word."""
        return isinstance(self.network, MaskedWordNetwork)

    @property
    def chooses(self) -> bool:
        """Whether the model scores each of several choices about a context."""
        return isinstance(self.network, ChoiceNetwork)

    @property
    def is_positional(self) -> bool:
        """Whether the output belongs to a position of the text, which moves if words before it are deleted."""
        return self.problem == "span" or (self.has_focus and not self.takes_images)

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
        if self.class_names is not None:
            return dict(enumerate(self.class_names))
        if self.names_words:
            return self._vocabulary
        if self.chooses:
            return {0: "choice"}
        names = getattr(self.config, "id2label", None) or self._numbered_classes
        if self.background is None:
            return names
        return {**names, self.background: "no object"}

    @property
    def _numbered_classes(self) -> dict[int, str]:
        """The classes of a config that only counts them, as PVT's does."""
        count = getattr(self.config, "num_labels", None) or 0
        return dict(enumerate(map("LABEL_{}".format, range(count))))

    @property
    def finds_objects(self) -> bool:
        """Whether the model finds objects, of which one box is explained."""
        return isinstance(self.network, BoxNetwork)

    @property
    def background(self) -> int | None:
        """The class of boxes without an object; None if there is none."""
        if not isinstance(self.network, BoxNetwork) or not self.network.has_background:
            return None
        return len(self.config.id2label)

    @cached_property
    def _vocabulary(self) -> dict[int, str]:
        """The words of the vocabulary by id, without the mark of a blank before them."""
        names = {number: f"token {number}" for number in range(self.config.vocab_size)}
        if self.processor is not None:
            for piece, number in self.processor.get_vocab().items():
                names[number] = piece.lstrip(BLANK_MARKS) or piece
        return names

    @property
    def problem(self) -> str:
        """single-label, multi-label, one-logit, regression, span or answer: decides what a probability is."""
        if self.writes:
            return "answer"
        if type(self.network).__name__.endswith("ForQuestionAnswering"):
            return "span"
        # The words of a vocabulary exclude each other, whatever the config says of other heads.
        if self.names_words:
            return "single-label"
        # The score of one choice is no probability without those of the others.
        if self.chooses:
            return "regression"
        if self.finds_objects:
            return "multi-label" if self.background is None else "single-label"
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
        if self.takes_images or self.writes or self.reads_jointly:
            return True
        return getattr(self.config, "pad_token_id", None) is not None and self.takes_mask

    @cached_property
    def takes_mask(self) -> bool:
        """Whether the network accepts an attention mask."""
        # A wrapper's forward(*args, **kwargs) names no inputs: it passes on what it gets.
        return "attention_mask" in self.input_names or "input_ids" not in self.input_names

    @cached_property
    def input_names(self) -> frozenset[str]:
        """The tensors that the network's forward names."""
        if isinstance(self.network, CustomNetwork):
            return frozenset(self.network.arguments)
        return frozenset(inspect.signature(self.network.forward).parameters)

    @cached_property
    def takes_anything(self) -> bool:
        """Whether the network passes on tensors that its forward does not name."""
        if isinstance(self.network, CustomNetwork):
            return False
        parameters = inspect.signature(self.network.forward).parameters.values()
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def input_embedding(network: Any) -> Tensor | None:
    """Return the input embedding weight, which marks where recording starts; None if the network has none."""
    try:
        table = network.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    return getattr(table, "weight", None)


def max_tokens(model: Model) -> int | None:
    """Return the maximum number of tokens of an input; None if nothing limits it."""
    # Positions count the words of the text, which is limited before the picture joins it.
    if model.reads_jointly:
        return None
    limits = [_count_positions(table) for table in model.position_tables]
    limits += _tokenizer_limits(model.processor)
    # CLIP's table of positions has the same name in both towers, so its size is read from the config.
    if not limits or isinstance(model.network, Tower):
        limits += _config_limit(model.config)
    return min(limits, default=None)


def _tokenizer_limits(tokenizer: Any) -> list[int]:
    """Return the limit of the tokenizer in a list; an empty list if it has none."""
    limit = getattr(tokenizer, "model_max_length", None)
    if limit is None or limit >= NO_TOKENIZER_LIMIT:
        return []
    return [limit]


def _config_limit(config: Any) -> list[int]:
    """Return the limit of the config in a list; an empty list if it has none."""
    limit = getattr(config, "max_position_embeddings", None) or 0
    # Some configs state -1 for "no limit".
    if limit <= 0:
        return []
    return [int(limit)]


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
