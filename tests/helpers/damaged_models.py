"""Model folders with one thing wrong, as downloads, copies and edits leave them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from helpers.tiny_tokenizers import word_piece_tokenizer
from safetensors.torch import load_file

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 133\n"
WEIGHTS = "model.safetensors"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

Damage = Callable[[Path], Any]


def write(name: str, content: bytes) -> Damage:
    """Replace a file."""
    return lambda folder: (folder / name).write_bytes(content)


def remove(*names: str) -> Damage:
    """Delete files."""

    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


def cut(name: str) -> Damage:
    """Keep half of a file."""

    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return damage


def change(**settings: Any) -> Damage:
    """Change settings of config.json."""

    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))

    return damage


def pickle_weights(folder: Path) -> None:
    """Save the weights as older versions of Transformers did."""
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def enlarge_vocabulary(folder: Path) -> None:
    """Put the tokenizer of a model with more words beside the weights."""
    words = [*SPECIAL, *map("w{}".format, range(500))]
    word_piece_tokenizer([*words, "fine", "film"]).save_pretrained(folder)


# What is wrong, and what the message must say.
DAMAGES: dict[str, tuple[Damage, str]] = {
    "cut weights": (cut(WEIGHTS), "damaged or cut off"),
    "empty weights": (write(WEIGHTS, b""), "damaged or cut off"),
    "zeros": (write(WEIGHTS, bytes(100)), "damaged or cut off"),
    "pointer": (write(WEIGHTS, POINTER), "Git LFS pointer"),
    "pointer of the tokenizer": (write("tokenizer.json", POINTER), "Git LFS pointer"),
    "no weights": (remove(WEIGHTS), "no file named model.safetensors"),
    "pickled weights": (pickle_weights, "allow"),
    "config is no JSON": (write("config.json", b"hello"), "not a valid JSON file"),
    "config is empty": (write("config.json", b""), "not a valid JSON file"),
    "config is a list": (write("config.json", b"[]"), "model_type"),
    "config is binary": (write("config.json", b"\xff\xfe\x00"), "not a valid JSON file"),
    "no config": (remove("config.json"), "config.json"),
    "unknown type": (change(model_type="nosuch"), "nosuch"),
    "unknown architecture": (change(architectures=["Nosuch"]), "no head that is covered"),
    "architecture is a number": (change(architectures=5), "no head that is covered"),
    "dtype": (change(dtype="float99"), "float99"),
    "whole numbers": (change(dtype="int8"), "floating-point"),
    "heads": (change(num_attention_heads=5), "multiple of the number of attention heads"),
    "width": (change(hidden_size=64), "other sizes than its config.json says"),
    "width in words": (change(hidden_size="big"), "hidden_size"),
    "vocabulary of the config": (change(vocab_size=7), "other sizes than its config.json says"),
    "more blocks": (change(num_hidden_layers=5), "would be random"),
    "activation": (change(hidden_act="nosuch"), "nosuch"),
    "no tokenizer": (remove("tokenizer.json", "tokenizer_config.json"), "no vocabulary"),
    "no vocabulary": (remove("tokenizer.json"), "tokenizer"),
    "cut tokenizer": (cut("tokenizer.json"), "cannot be loaded"),
    "tokenizer of something else": (write("tokenizer.json", b'{"a": 1}'), "damaged or do not fit"),
    "tokenizer settings": (write("tokenizer_config.json", b"x"), "cannot be loaded"),
    "tokenizer of another model": (enlarge_vocabulary, "does not fit: it returned token"),
}


def damage_copy(model: str | Path, folder: Path, name: str) -> Path:
    """Return a damaged copy of a model's folder."""
    shutil.copytree(model, folder)
    damage, _ = DAMAGES[name]
    damage(folder)
    return folder
