"""Tiny random models of many families, in float64, and a small tokenizer: what the tests explain."""

import os
from functools import cache
from pathlib import Path

import torch
import transformers as hf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import clearhead

SHARED = Path(os.environ.get("CLEARHEAD_SHARED", Path(__file__).parents[3] / "shared"))

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_labels": 3,
}
TEXT = {**SIZES, "vocab_size": 60, "max_position_embeddings": 64, "pad_token_id": 0}
ROTARY = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
MODERN = {**TEXT, "global_attn_every_n_layers": 2, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}
MODERN |= {"bos_token_id": 1, "eos_token_id": 2}
IMAGE = {**SIZES, "image_size": 32, "patch_size": 8}
OPT = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_dim": 48, "word_embed_proj_dim": 32}
OPT |= {"vocab_size": 60, "max_position_embeddings": 64, "num_labels": 3, "pad_token_id": 0}
DEBERTA = {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
DISTIL = {"vocab_size": 60, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64}
DISTIL |= {"num_labels": 3, "pad_token_id": 0}
GPT2 = {"vocab_size": 60, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "num_labels": 3}
GPT2 |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
CLIP = {
    "vision_config": {key: value for key, value in IMAGE.items() if key != "num_labels"},
    "text_config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 30}
    | {"intermediate_size": 16, "bos_token_id": 1, "eos_token_id": 2},
    "num_labels": 3,
}

FAMILIES = {
    "bert": (hf.BertConfig, TEXT, hf.BertForSequenceClassification),
    "roberta": (hf.RobertaConfig, {**TEXT, "pad_token_id": 1}, hf.RobertaForSequenceClassification),
    "xlm-r": (hf.XLMRobertaConfig, {**TEXT, "pad_token_id": 1}, hf.XLMRobertaForSequenceClassification),
    "distilbert": (hf.DistilBertConfig, DISTIL, hf.DistilBertForSequenceClassification),
    "albert": (hf.AlbertConfig, {**TEXT, "embedding_size": 16}, hf.AlbertForSequenceClassification),
    "electra": (hf.ElectraConfig, {**TEXT, "embedding_size": 16}, hf.ElectraForSequenceClassification),
    "modernbert": (hf.ModernBertConfig, MODERN, hf.ModernBertForSequenceClassification),
    "modernbert-mean": (
        hf.ModernBertConfig,
        {**MODERN, "classifier_pooling": "mean"},
        hf.ModernBertForSequenceClassification,
    ),
    "deberta-v2": (hf.DebertaV2Config, DEBERTA, hf.DebertaV2ForSequenceClassification),
    "vit": (hf.ViTConfig, IMAGE, hf.ViTForImageClassification),
    "deit": (hf.DeiTConfig, IMAGE, hf.DeiTForImageClassification),
    "deit-teacher": (hf.DeiTConfig, IMAGE, hf.DeiTForImageClassificationWithTeacher),
    "beit": (hf.BeitConfig, {**IMAGE, "use_relative_position_bias": True}, hf.BeitForImageClassification),
    "dinov2": (hf.Dinov2Config, {**IMAGE, "mlp_ratio": 2}, hf.Dinov2ForImageClassification),
    "swin": (hf.SwinConfig, {**SWIN, "num_labels": 3}, hf.SwinForImageClassification),
    "clip": (hf.CLIPConfig, CLIP, hf.CLIPForImageClassification),
    "gpt2": (hf.GPT2Config, GPT2, hf.GPT2ForSequenceClassification),
    "opt": (hf.OPTConfig, OPT, hf.OPTForSequenceClassification),
    "llama": (hf.LlamaConfig, ROTARY, hf.LlamaForSequenceClassification),
    "qwen3": (hf.Qwen3Config, ROTARY, hf.Qwen3ForSequenceClassification),
    "gemma": (hf.GemmaConfig, ROTARY, hf.GemmaForSequenceClassification),
}


def randomised(network, seed=1):
    """Weights wide enough that every part of the network matters, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        scale = 0.25 if parameter.dim() > 1 else 0.1
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale
        centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        with torch.no_grad():
            parameter.copy_(noise + centre)
    return network


def network(family="bert", *, attention="sdpa", dtype=torch.float64, seed=1, kind=None, **changes):
    config, options, default = FAMILIES[family]
    settings = config(**{**options, **changes})
    settings._attn_implementation = "eager" if family == "deberta-v2" else attention
    return randomised((kind or default)(settings).to(dtype).eval(), seed)


def model(family="bert", **options):
    return clearhead.load(network(family, **options))


@cache
def shared_model(family):
    """The default tiny model of a family, made once: a trace leaves it as it was."""
    return model(family)


def tensors(family="bert", rows=3, length=9, seed=0):
    """A batch of random inputs; the second text is three tokens shorter than the rest."""
    generator = torch.Generator().manual_seed(seed)
    options = FAMILIES[family][1]
    if "image_size" in options or family == "clip":
        return {"pixel_values": torch.randn(rows, 3, 32, 32, dtype=torch.float64, generator=generator)}
    ids = torch.randint(5, 60, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    if rows > 1:
        ids[1, length - 3 :], mask[1, length - 3 :] = options["pad_token_id"], 0
    return {"input_ids": ids, "attention_mask": mask}


def alone(batch, row):
    """One row of a batch, without its padding."""
    if "pixel_values" in batch:
        return {"pixel_values": batch["pixel_values"][row : row + 1]}
    length = int(batch["attention_mask"][row].sum())
    return {name: value[row : row + 1, :length] for name, value in batch.items()}


WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a the film is not good bad dull joy ##less very , . ! never finds its heart"


def tokenizer(limit=64):
    """A word-piece tokenizer over two dozen words."""
    vocabulary = {word: place for place, word in enumerate(WORDS.split())}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    special = {f"{key}_token": value for key, value in names.items()}
    return hf.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=limit, **special)


ROBERTA = {"bos_token": "<s>", "cls_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "sep_token": "</s>"}
ROBERTA |= {"unk_token": "<unk>", "mask_token": "<mask>"}


def byte_tokenizer(limit=40):
    """A tokenizer of bytes, as RoBERTa's: the tokens of one character share its offset."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    names, alphabet = list(dict.fromkeys(ROBERTA.values())), pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["a film is not good"], trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return hf.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=limit, **ROBERTA)


def blank_tokenizer(limit=20):
    """A tokenizer whose tokens begin with the blank before them, as XLM-R's."""
    vocabulary = [*dict.fromkeys(ROBERTA.values()), *("▁" + word for word in ("a", "film", "is", "not", "good"))]
    backend = Tokenizer(models.Unigram([(word, -1.0) for word in vocabulary], unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return hf.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=limit, **ROBERTA)


def text_model(**options):
    """A tiny BERT that reads text, with labels."""
    labels = {0: "negative", 1: "neutral", 2: "positive"}
    settings = {"id2label": labels, "label2id": {name: place for place, name in labels.items()}, **options}
    return clearhead.load(network("bert", **settings), tokenizer())


def image_processor(**options):
    return hf.ViTImageProcessorPil(size={"height": 32, "width": 32}, **options)


def image_model(**options):
    return clearhead.load(network("vit", **options), image_processor())
