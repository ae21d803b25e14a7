"""Tiny classifiers that look their words up padded, transposed or twice."""

import torch
import transformers as hf
from helpers.tiny_models import T5, TEXT, randomised, tensors

SEQUENCE = {"vocab_size": 60, "d_model": 32, "max_position_embeddings": 64, "num_labels": 3, "pad_token_id": 0}
SEQUENCE |= {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
SEQUENCE |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "bos_token_id": 1, "eos_token_id": 2}
SEQUENCE |= {"decoder_start_token_id": 2}
XLNET = {"vocab_size": 60, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "num_labels": 3}
FUNNEL = {"vocab_size": 60, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48}
SPARSE = {**TEXT, "attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1, "sep_token_id": 2}
FAMILIES = {
    "longformer": (hf.LongformerForSequenceClassification, hf.LongformerConfig, {**TEXT, "attention_window": 4}),
    "xlnet": (hf.XLNetForSequenceClassification, hf.XLNetConfig, XLNET),
    "funnel": (hf.FunnelForSequenceClassification, hf.FunnelConfig, {**FUNNEL, "num_labels": 3}),
    "bart": (hf.BartForSequenceClassification, hf.BartConfig, SEQUENCE),
    "t5": (hf.T5ForSequenceClassification, hf.T5Config, {**T5, "eos_token_id": 2, "decoder_start_token_id": 0}),
    "big-bird": (hf.BigBirdForSequenceClassification, hf.BigBirdConfig, SPARSE),
}
WITH_DECODER = ("bart", "t5")


def layout_network(family):
    network_class, config_class, options = FAMILIES[family]
    torch.manual_seed(0)
    return randomised(network_class(config_class(**options)).double().eval())


def layout_tensors(family, rows=3, length=9):
    """Return a batch without repeated words; those with a decoder end with the token that it classifies at."""
    batch = tensors("bert", rows=rows, length=length)
    if family == "xlnet":
        # It classifies at the last token, padding or not.
        batch["attention_mask"][:] = 1
    for row in range(rows):
        count = int(batch["attention_mask"][row].sum())
        batch["input_ids"][row, :count] = 5 + torch.randperm(50, generator=torch.Generator().manual_seed(row))[:count]
        if family in WITH_DECODER:
            batch["input_ids"][row, count - 1] = 2
    return batch
