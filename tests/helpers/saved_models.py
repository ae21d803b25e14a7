"""Tiny random models saved to a folder, as users have them, for the tests of commands and of the page."""

from pathlib import Path
from typing import Any

import torch
import transformers
from helpers.language_models import make_decoder, make_tokenizer
from helpers.tiny_models import image_processor
from helpers.tiny_tokenizers import letter_tokenizer

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def save_text_model(folder: Path, class_name: str = "BertForSequenceClassification", **changes: Any) -> Path:
    """Save a BERT of two blocks with a tokenizer that knows every letter; `changes` are its configuration's."""
    tokenizer = letter_tokenizer()
    labels = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=64, **{**SIZES, **labels, **changes}
    )
    torch.manual_seed(0)
    getattr(transformers, class_name)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_regression_model(folder: Path) -> Path:
    """Save a BERT that answers a number."""
    return save_text_model(folder, id2label={0: "stars"}, label2id={"stars": 0}, problem_type="regression")


def save_answer_model(folder: Path) -> Path:
    """Save a BERT that marks where in the second text the answer stands."""
    return save_text_model(folder, "BertForQuestionAnswering")


def save_image_model(folder: Path, **changes: Any) -> Path:
    """Save a ViT of two blocks that sees 32 × 32 pixels in patches of 8; `changes` are its configuration's."""
    labels = {"id2label": {0: "cat", 1: "dog"}, "label2id": {"cat": 0, "dog": 1}}
    config = transformers.ViTConfig(**{"image_size": 32, "patch_size": 8, **SIZES, **labels, **changes})
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    image_processor().save_pretrained(folder)
    return folder


def save_language_model(folder: Path) -> Path:
    """Save a tiny decoder with its tokenizer, which has a chat template."""
    make_decoder("gpt2").float().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
