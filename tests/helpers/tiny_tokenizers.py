"""Small tokenizers: word pieces over a few words, bytes, and pieces that begin with the blank before them."""

import string
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
SPECIAL |= {"mask_token": "[MASK]"}
ROBERTA = {"bos_token": "<s>", "cls_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "sep_token": "</s>"}
ROBERTA |= {"unk_token": "<unk>", "mask_token": "<mask>"}

_SPECIAL_WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK]"
_JOY_WORDS = "a the film is not good bad dull joy ##less very , . ! never finds its heart"
_PLOT_WORDS = ". a fine film with no plot is it really good or bad ##ly ##s"
JOY_WORDS = f"{_SPECIAL_WORDS} {_JOY_WORDS}".split()
PLOT_WORDS = f"{_SPECIAL_WORDS} {_PLOT_WORDS}".split()


def word_piece_tokenizer(
    words: Sequence[str] = JOY_WORDS, limit: int | None = 64, **options: Any
) -> PreTrainedTokenizerFast:
    """Return a tokenizer as BERT's, of texts and pairs of texts; the first words are the special tokens."""
    vocabulary = {word: index for index, word in enumerate(words)}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=limit, **SPECIAL, **options)


def plot_tokenizer() -> PreTrainedTokenizerFast:
    """Return a word-piece tokenizer over PLOT_WORDS that takes texts of any length and numbers the texts of a pair."""
    return word_piece_tokenizer(
        PLOT_WORDS, limit=None, model_input_names=["input_ids", "token_type_ids", "attention_mask"]
    )


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """Return a word-piece tokenizer that knows a few words and every letter, so that no text is unknown to it."""
    letters = list(string.ascii_lowercase + string.digits + ".,!?'\"<>()&;/=-")
    words = [*SPECIAL.values(), "a", "film", "tedious", "never", "heart", "bad", "good", *letters]
    continued = ["##" + letter for letter in letters]
    # "a" is both a word and a letter.
    return word_piece_tokenizer(list(dict.fromkeys([*words, *continued])))


def byte_tokenizer(limit: int = 40) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes, as RoBERTa's: the tokens of one character share its offset."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(dict.fromkeys(ROBERTA.values())),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["a film is not good"], trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=limit, **ROBERTA)


def blank_tokenizer(limit: int = 20) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens begin with the blank before them, as XLM-R's."""
    words = ["▁" + word for word in ("a", "film", "is", "not", "good")]
    vocabulary = [*dict.fromkeys(ROBERTA.values()), *words]
    backend = Tokenizer(models.Unigram([(word, -1.0) for word in vocabulary], unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=limit, **ROBERTA)
