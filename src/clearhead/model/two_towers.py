"""Two-tower models: two encoders whose embeddings are compared, of a picture and a text, or of two texts.

The score is scale · ⟨x̂, ŷ⟩ + bias. With the embedding of the other input held, each tower is an ordinary network whose
head is a linear layer with that embedding as its weights; so it is recorded and explained like any other.
"""

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import BadOption, UnsupportedModel

FIRST, SECOND = 0, 1
POOLINGS = ("mean", "cls")
SCORES = ("cosine", "dot")
# Families that read the last position of a text, so that texts have to be padded to one length.
FIXED_LENGTH = ("siglip", "siglip2")
# Families whose logits are those of independent yes-or-no questions.
SIGMOID = ("siglip", "siglip2")


class UnitNorm(nn.Module):
    """Divide a vector by its length; balanced passes hold the length, like the deviation of any norm."""

    def forward(self, vectors: Tensor) -> Tensor:
        unit: Tensor = vectors / vectors.norm(dim=-1, keepdim=True)
        return unit


class DualEncoder(nn.Module):
    """A stock two-tower model, unmodified, whose inputs are embedded one by one and compared.

    `takes_images` tells whether the first input is a picture; `padded_length` to how many tokens texts are padded, if
    the model needs it; `has_sigmoid` whether the sigmoid of a score is its probability.
    """

    takes_images = False
    padded_length: int | None = None
    has_sigmoid = False

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.config = network.config
        # A new module is in training mode, whatever its network is in.
        self.train(network.training)

    @abstractmethod
    def embed(self, side: int, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the embedding of each input of a side, as it is compared (B,D)."""

    @abstractmethod
    def side_config(self, side: int) -> Any:
        """Return the configuration of a tower."""

    @abstractmethod
    def word_table(self, side: int) -> Any:
        """Return the module that looks words up; None for pictures."""

    def read_scale(self) -> float:
        """Return what the product of two embeddings is multiplied by."""
        return 1.0

    def read_bias(self) -> float:
        """Return what is added to the product of two embeddings."""
        return 0.0

    def find_grid(self, pixels: Tensor) -> tuple[int, int] | None:
        """Return rows and columns of patches, unless they are cut by a convolution, whose output tells them."""
        return None

    def make_head(self, others_CD: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights and biases of the linear layer that scores an embedding against others."""
        return others_CD * self.read_scale(), others_CD.new_full((len(others_CD),), self.read_bias())


class ImageTextEncoder(DualEncoder):
    """CLIP and its relatives: the cosine of a picture and a text, scaled."""

    takes_images = True

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        self.unit_norm = UnitNorm()
        self.has_sigmoid = network.config.model_type in SIGMOID
        if network.config.model_type in FIXED_LENGTH:
            self.padded_length = network.config.text_config.max_position_embeddings

    def embed(self, side: int, tensors: Mapping[str, Tensor]) -> Tensor:
        features = self.network.get_text_features if side else self.network.get_image_features
        # Whatever the config says: a tuple would not tell its pooled output from the hidden states.
        output = features(**tensors, return_dict=True)
        embeddings_BD: Tensor = self.unit_norm(self.pool(output))
        return embeddings_BD

    def pool(self, output: Any) -> Tensor:
        """Return the embedding among what a tower returns (B,D)."""
        pooled_BD: Tensor = output.pooler_output
        return pooled_BD

    def read_scale(self) -> float:
        # ALIGN divides by a temperature; the others keep the logarithm of a factor.
        if hasattr(self.network, "temperature"):
            return 1 / float(self.network.temperature.detach())
        return math.exp(float(self.network.logit_scale.detach()))

    def read_bias(self) -> float:
        bias = getattr(self.network, "logit_bias", None)
        return 0.0 if bias is None else float(bias.detach())

    def side_config(self, side: int) -> Any:
        return self.config.text_config if side else self.config.vision_config

    def word_table(self, side: int) -> Any:
        return self.network.text_model.get_input_embeddings() if side else None


class TextPairEncoder(DualEncoder):
    """A sentence encoder that embeds both texts: the mean of the last hidden states, or the class token's."""

    def __init__(self, network: Any, pooling: str, score: str) -> None:
        super().__init__(network)
        self.pooling = pooling
        self.unit_norm = UnitNorm() if score == "cosine" else nn.Identity()

    def embed(self, side: int, tensors: Mapping[str, Tensor]) -> Tensor:
        hidden_BTD = self.network(**tensors, return_dict=True).last_hidden_state
        embeddings_BD: Tensor = self.unit_norm(self._pool(hidden_BTD, tensors["attention_mask"]))
        return embeddings_BD

    def _pool(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        if self.pooling == "cls":
            return hidden_BTD[:, 0]
        # Shares of one mask: no sum over padding, and nothing to divide by that depends on the words.
        kept_BT = mask_BT.to(hidden_BTD.dtype)
        share_BT = kept_BT / kept_BT.sum(1, keepdim=True)
        return (hidden_BTD * share_BT[..., None]).sum(1)

    def side_config(self, side: int) -> Any:
        return self.config

    def word_table(self, side: int) -> Any:
        return self.network.get_input_embeddings()


class Tower(nn.Module):
    """One side of a two-tower model, which scores its input against embeddings of the other side, held constant.

    `labels` name these; `held_C` is added to their scores, as of other texts that the input does not change.
    """

    def __init__(
        self, encoder: DualEncoder, side: int, others_CD: Tensor, labels: Sequence[str], held_C: Tensor | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.side = side
        self.main_input_name = "pixel_values" if encoder.takes_images and side == FIRST else "input_ids"
        self.config = _name_classes(encoder.side_config(side), labels, has_sigmoid=encoder.has_sigmoid)
        # Detached and in buffers: copies in other dtypes take them along, and no gradient reaches the other tower.
        weight_CD, bias_C = encoder.make_head(others_CD.detach())
        self.register_buffer("weight_CD", weight_CD)
        self.register_buffer("bias_C", bias_C if held_C is None else bias_C + held_C.to(bias_C))
        self.train(encoder.training)

    def get_input_embeddings(self) -> Any:
        return self.encoder.word_table(self.side)

    def find_grid(self, pixels: Tensor) -> tuple[int, int] | None:
        return self.encoder.find_grid(pixels)

    def forward(self, **tensors: Tensor) -> Tensor:
        return self._compare(self.encoder.embed(self.side, tensors))

    def _compare(self, embeddings_BD: Tensor) -> Tensor:
        return nn.functional.linear(embeddings_BD, self.weight_CD, self.bias_C)  # type: ignore[arg-type]


def _name_classes(config: Any, labels: Sequence[str], *, has_sigmoid: bool) -> Any:
    """Return a copy of a tower's configuration with the other side's inputs as classes."""
    # A copy: the stock config stays as it is.
    named = copy.deepcopy(config)
    named.id2label = dict(enumerate(labels))
    named.label2id = {label: index for index, label in named.id2label.items()}
    named.problem_type = _choose_problem(len(labels), has_sigmoid=has_sigmoid)
    return named


def _choose_problem(classes: int, *, has_sigmoid: bool) -> str:
    if has_sigmoid:
        return "multi_label_classification"
    # The softmax over a single text would be one, whatever the picture shows.
    return "regression" if classes == 1 else "single_label_classification"


def make_text_pair_encoder(network: Any, pooling: str, score: str) -> TextPairEncoder:
    """Return a sentence encoder as a two-tower model; raise BadOption for another pooling or score."""
    _require_choice("pooling", pooling, POOLINGS)
    _require_choice("score", score, SCORES)
    if not _reads_text(network):
        raise UnsupportedModel(f"{type(network).__name__} is no text encoder: load it with AutoModel.")
    return TextPairEncoder(network, pooling, score)


def _reads_text(network: Any) -> bool:
    return hasattr(network, "get_input_embeddings") and not hasattr(network.config, "vision_config")


def _require_choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise BadOption(f"Invalid {option}={value!r}: use {' or '.join(choices)}.")


@torch.no_grad()
def score_embeddings(encoder: DualEncoder, first_BD: Tensor, others_CD: Tensor) -> Tensor:
    """Return the score of every first input with every other (B,C)."""
    return nn.functional.linear(first_BD, *encoder.make_head(others_CD))
