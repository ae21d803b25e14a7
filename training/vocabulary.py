"""Reduce a WordPiece vocabulary and its word embeddings to what English text needs."""

import json
from collections import Counter
from pathlib import Path

import torch
from tokenizers import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def select_tokens(vocabulary: dict[str, int], texts: list[str], tokenizer: Tokenizer, size: int) -> list[str]:
    """Return special tokens, common characters, ASCII continuation pieces, then whole words by frequency."""
    counts: Counter[str] = Counter()
    for start in range(0, len(texts), 4096):
        for encoding in tokenizer.encode_batch(texts[start : start + 4096], add_special_tokens=False):
            counts.update(encoding.tokens)
    plain = [token for token in vocabulary if token.isascii() and token not in SPECIAL]
    always = {token for token in plain if token.startswith("##")} | set(filter(_is_common_character, vocabulary))
    words = [token for token in plain if token not in always and not token.startswith("[unused")]
    words.sort(key=lambda token: (-counts[token], vocabulary[token]))
    kept = always | set(words[: max(0, size - len(always) - len(SPECIAL))])
    return SPECIAL + sorted(kept, key=vocabulary.__getitem__)


def _is_common_character(token: str) -> bool:
    """Return whether a token is one character of Latin script, punctuation or currency."""
    return len(token) == 1 and (ord(token) < 0x250 or 0x2010 <= ord(token) < 0x20D0)


def trim_tokenizer(source: Path, tokens: list[str]) -> str:
    """Return the tokenizer file with the kept tokens, numbered in order, without padding or truncation."""
    content = json.loads(source.read_text(encoding="utf-8"))
    number = {token: i for i, token in enumerate(tokens)}
    content["truncation"] = content["padding"] = None
    content["model"]["vocab"] = number
    content["added_tokens"] = [
        {**entry, "id": number[entry["content"]]} for entry in content["added_tokens"] if entry["content"] in number
    ]
    for token, entry in content["post_processor"]["special_tokens"].items():
        entry["ids"] = [number[token]]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def trim_embeddings(embeddings_VD: torch.Tensor, vocabulary: dict[str, int], tokens: list[str]) -> torch.Tensor:
    return embeddings_VD[torch.tensor([vocabulary[token] for token in tokens])].clone()
