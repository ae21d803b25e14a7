"""Classifiers that are linear in their words or pixels, so that the right answers are known."""

from types import SimpleNamespace
from typing import Any

import torch
from helpers.tiny_tokenizers import PLOT_WORDS, plot_tokenizer
from torch import nn

from clearhead.model.model import Model

MASK_ID = PLOT_WORDS.index("[MASK]")


class _Linear(nn.Module):
    """A network whose attention block adds nothing, so that a logit is a sum over words or pixels."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        labels = {0: "class 0", 1: "class 1"}
        self.config = SimpleNamespace(id2label=labels, pad_token_id=0, problem_type=None, _name_or_path="", **settings)
        self.calls: list[torch.Size] = []


class Block(nn.Module):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        attention = (hidden @ hidden.transpose(1, 2)).softmax(-1)
        return hidden + 0 * (attention @ hidden)


class LinearText(_Linear):
    """Class 0 gets the sum over attended tokens of ⟨embedding, weights⟩, class 1 its negative."""

    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__(mask_token_id=MASK_ID)
        torch.manual_seed(1)
        self.words = nn.Embedding(60, 6).double()
        self.head = nn.Linear(6, 1, bias=False).double()
        self.inner = Block()
        self.words.weight.data[MASK_ID] = 0

    def get_input_embeddings(self) -> nn.Embedding:
        return self.words

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> torch.Tensor:
        self.calls.append(input_ids.shape)
        score = self.head((self.inner(self.words(input_ids)) * attention_mask[..., None]).sum(1))
        return torch.cat([score, -score], 1)

    def weight(self, ids: torch.Tensor) -> torch.Tensor:
        return (self.words.weight[ids] @ self.head.weight[0]).detach()


class LinearForQuestionAnswering(LinearText):
    """The start of the answer is the token with the largest ⟨embedding, weights⟩, and so is its end."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> Any:
        hidden = self.inner(self.words(input_ids)) + (1 - attention_mask[..., None]) * -1e9
        logits = self.head(hidden)[..., 0]
        return SimpleNamespace(start_logits=logits, end_logits=logits)


class LinearImage(_Linear):
    """Class 0 gets Σ pixel × weight, class 1 its negative."""

    main_input_name = "pixel_values"

    def __init__(self) -> None:
        super().__init__(patch_size=4)
        torch.manual_seed(1)
        self.patch = nn.Conv2d(3, 48, 4, 4, bias=False).double()
        self.patch.weight.data = torch.eye(48, dtype=torch.float64).reshape(48, 3, 4, 4)
        self.inner = Block()
        self.head = nn.Linear(9 * 48, 1, bias=False).double()

    def forward(self, pixel_values: torch.Tensor, **_: Any) -> torch.Tensor:
        self.calls.append(pixel_values.shape)
        score = self.head(self.inner(self.patch(pixel_values).flatten(2).transpose(1, 2)).flatten(1))
        return torch.cat([score, -score], 1)

    def products(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixel × weight summed over each patch (B, 9)."""
        patches = self.patch(pixels).flatten(2).transpose(1, 2)
        return (patches * self.head.weight.reshape(9, 48)).sum(-1).detach()


def linear_text() -> Model:
    return Model(LinearText().eval(), plot_tokenizer(), name="linear-text")


def linear_answers() -> Model:
    return Model(LinearForQuestionAnswering().eval(), plot_tokenizer(), name="linear-answers")


def linear_image() -> Model:
    return Model(LinearImage().eval(), None, name="linear-image")
