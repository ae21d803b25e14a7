"""Tiny random networks, and classifiers that are linear in their words or pixels, so that answers are known."""

from types import SimpleNamespace
from typing import Any

import torch
import transformers
from torch import nn

from clearhead.model.model import Model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "a", "fine", "film", "with", "no", "plot", "is", "it"]
WORDS += ["really", "good", "or", "bad", "##ly", "##s"]


def tokenizer() -> Any:
    """A word-piece tokenizer over a handful of words."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: place for place, word in enumerate(WORDS)}
    pieces = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    pieces.normalizer = normalizers.Lowercase()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.decoder = decoders.WordPiece()
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    names = {
        name: f"[{name[:-6].upper()}]" for name in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    }
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, model_input_names=inputs, **names)


def _ready(network: Any) -> Any:
    """In float64 and with larger weights, so that classes differ visibly."""
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(4)
    return network.double().eval()


def bert(layers: int = 3, labels: int = 3) -> Model:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        num_labels=labels,
    )
    return Model(_ready(transformers.BertForSequenceClassification(config)), tokenizer(), name="tiny-bert")


def answering_bert() -> Model:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    return Model(_ready(transformers.BertForQuestionAnswering(config)), tokenizer(), name="tiny-answers")


def llama() -> Model:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        num_labels=3,
        pad_token_id=0,
    )
    return Model(_ready(transformers.LlamaForSequenceClassification(config)), name="tiny-llama")


def lonely_gpt() -> Model:
    """A decoder without a padding token, which takes one input at a time."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64, num_labels=3)
    return Model(_ready(transformers.GPT2ForSequenceClassification(config)), name="tiny-gpt")


def vit() -> Model:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=24,
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        num_labels=3,
    )
    processor = transformers.ViTImageProcessor(size={"height": 24, "width": 24})
    return Model(_ready(transformers.ViTForImageClassification(config)), processor, name="tiny-vit")


def picture(seed: int = 0) -> Any:
    from PIL import Image

    values = torch.randint(0, 256, (24, 24, 3), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return Image.fromarray(values.numpy())


class _Linear(nn.Module):
    """A network whose attention block adds nothing, so that a logit is a sum over words or pixels."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        labels = {place: f"class {place}" for place in range(2)}
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
        super().__init__(mask_token_id=WORDS.index("[MASK]"))
        torch.manual_seed(1)
        self.words = nn.Embedding(60, 6).double()
        self.head = nn.Linear(6, 1, bias=False).double()
        self.inner = Block()
        self.words.weight.data[WORDS.index("[MASK]")] = 0

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
    return Model(LinearText().eval(), tokenizer(), name="linear-text")


def linear_answers() -> Model:
    return Model(LinearForQuestionAnswering().eval(), tokenizer(), name="linear-answers")


def linear_image() -> Model:
    return Model(LinearImage().eval(), None, name="linear-image")
