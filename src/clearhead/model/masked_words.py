"""Words that stand for a masked word, as tokens of the vocabulary."""

from dataclasses import replace
from typing import Any

from clearhead.errors import BadInput
from clearhead.model.model import Model
from clearhead.model.target import Target, TargetLike


def index_words(model: Model, target: TargetLike) -> TargetLike:
    """Return a target whose words are ids of the vocabulary; what is no word, as it is."""
    if isinstance(target, Target):
        return replace(target, index=_index_word(model, target.index), versus=_index_word(model, target.versus))
    index: TargetLike = _index_word(model, target)
    return index


def _index_word(model: Model, word: Any) -> Any:
    # An id, or None for the prediction.
    if not isinstance(word, str):
        return word
    _require_tokenizer(model, word)
    # Tokenizers of bytes have tokens of their own for a word after a blank, as most words stand.
    for text in (f" {word}", word):
        ids = _tokenise(model, text)
        if _is_single_token(model, ids):
            return ids[0]
    raise _no_single_token(model, word)


def _is_single_token(model: Model, ids: list[int]) -> bool:
    return len(ids) == 1 and ids[0] != model.processor.unk_token_id


def _tokenise(model: Model, text: str) -> list[int]:
    ids: list[int] = model.processor(text, add_special_tokens=False)["input_ids"]
    return ids


def _require_tokenizer(model: Model, word: str) -> None:
    if model.processor is None:
        raise BadInput(f"{model.name} was loaded without a tokenizer: give the id of a token instead of {word!r}.")


def _no_single_token(model: Model, word: str) -> BadInput:
    pieces = model.processor.convert_ids_to_tokens(_tokenise(model, word))
    # A single token here is that of unknown words.
    if len(pieces) == 1:
        return BadInput(f"{word!r} is not in the vocabulary of {model.name}: choose a word that is.")
    listed = " ".join(map(str, pieces)) or "nothing"
    return BadInput(
        f"{word!r} is {len(pieces)} tokens of {model.name} ({listed}), but a mask stands for one: choose another word, "
        "or write a mask for each token and explain them one by one."
    )
