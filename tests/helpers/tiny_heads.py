"""Tiny random models with an output for every word, or that choose between texts, in float64."""

import torch
import transformers as hf
from helpers.tiny_models import network, tensors
from helpers.tiny_tokenizers import word_piece_tokenizer

import clearhead

MASK_ID = 4
ENTITIES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LABELS = {"num_labels": 5, "id2label": dict(enumerate(ENTITIES)), "label2id": {}}
WORD_LABELS = {
    "bert": hf.BertForTokenClassification,
    "roberta": hf.RobertaForTokenClassification,
    "xlm-r": hf.XLMRobertaForTokenClassification,
    "distilbert": hf.DistilBertForTokenClassification,
    "albert": hf.AlbertForTokenClassification,
    "electra": hf.ElectraForTokenClassification,
    "modernbert": hf.ModernBertForTokenClassification,
    "deberta-v2": hf.DebertaV2ForTokenClassification,
    "mpnet": hf.MPNetForTokenClassification,
    "gpt2": hf.GPT2ForTokenClassification,
    "llama": hf.LlamaForTokenClassification,
    "qwen3": hf.Qwen3ForTokenClassification,
}
MASKED_WORDS = {
    "bert": hf.BertForMaskedLM,
    "roberta": hf.RobertaForMaskedLM,
    "xlm-r": hf.XLMRobertaForMaskedLM,
    "distilbert": hf.DistilBertForMaskedLM,
    "albert": hf.AlbertForMaskedLM,
    "electra": hf.ElectraForMaskedLM,
    "modernbert": hf.ModernBertForMaskedLM,
    "deberta-v2": hf.DebertaV2ForMaskedLM,
    "mpnet": hf.MPNetForMaskedLM,
}
CHOICES = {
    "bert": hf.BertForMultipleChoice,
    "roberta": hf.RobertaForMultipleChoice,
    "xlm-r": hf.XLMRobertaForMultipleChoice,
    "distilbert": hf.DistilBertForMultipleChoice,
    "albert": hf.AlbertForMultipleChoice,
    "electra": hf.ElectraForMultipleChoice,
    "modernbert": hf.ModernBertForMultipleChoice,
    "deberta-v2": hf.DebertaV2ForMultipleChoice,
    "mpnet": hf.MPNetForMultipleChoice,
}
HEADS = [("words", family) for family in WORD_LABELS] + [("masks", family) for family in MASKED_WORDS]


def head_network(head, family, **changes):
    """Return a network of a family with a head for labels of words, or for masked words."""
    if head == "words":
        return network(family, network_class=WORD_LABELS[family], **LABELS, **changes)
    net = network(family, network_class=MASKED_WORDS[family], **changes)
    net.config.mask_token_id = MASK_ID
    return net


def head_tensors(head, family):
    """Return a batch of three texts, the second shorter, each with a masked word if the head fills it in."""
    batch = tensors(family)
    if head == "masks":
        batch["input_ids"][torch.arange(3), torch.tensor([4, 2, 7])] = MASK_ID
    return batch


def labelling_bert(**changes):
    """Return a tiny BERT that labels the words of texts."""
    return clearhead.load(head_network("words", "bert", **changes), word_piece_tokenizer())


def filling_bert(**changes):
    """Return a tiny BERT that fills in masked words of texts."""
    return clearhead.load(head_network("masks", "bert", **changes), word_piece_tokenizer())
