"""Modules as people write them around the body of a Transformer, and functions from inputs to probabilities."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

BERT = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8}


def make_body() -> nn.Module:
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(max_position_embeddings=64, **BERT)).eval()


class OwnClassifier(nn.Module):
    """A body and a head, without a config; takes no token types, and returns its logits in one of several ways."""

    def __init__(self, form: str = "tensor", classes: int = 4) -> None:
        super().__init__()
        self.body = make_body()
        self.head = nn.Linear(32, classes)
        self.form = form

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        states = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        logits = self.head(states[:, 0])
        forms: dict[str, Any] = {"tensor": logits, "tuple": (logits.sum(), logits), "dict": {"logits": logits}}
        forms["output"] = transformers.modeling_outputs.SequenceClassifierOutput(logits=logits)
        forms["probabilities"] = logits.softmax(-1)
        return forms[self.form]


class OtherNames(nn.Module):
    """A module that calls its arguments otherwise, and returns a number per input."""

    def __init__(self) -> None:
        super().__init__()
        self.body = make_body()
        self.head = nn.Linear(32, 1)

    def forward(self, ids: Tensor, mask: Tensor, segment: Tensor) -> Tensor:
        return self.head(self.body(ids, mask, segment).last_hidden_state[:, 0])[:, 0]


class OwnImageClassifier(nn.Module):
    """A ViT's body with a head of one's own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = transformers.ViTModel(transformers.ViTConfig(intermediate_size=48, **VIT))
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(pixel_values=x).last_hidden_state[:, 0])


class Convolution(nn.Module):
    """No Transformer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.convolution(x).mean((2, 3)))


def like_fine(texts: Sequence[str]) -> Any:
    """Return probabilities of two classes, 0.9 for the second if a text says 'fine', else 0.2."""
    second = np.array([0.9 if "fine" in text else 0.2 for text in texts])
    return np.stack([1 - second, second], 1)


def like_bright_corner(images: Any) -> Any:
    """Return two probabilities: how dark, and how bright, the upper left quarter of each image is."""
    height, width = images.shape[1:3]
    bright = images[:, : height // 2, : width // 2].mean((1, 2, 3)) / 255
    return np.stack([1 - bright, bright], 1)
