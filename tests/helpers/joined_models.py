"""Tiny random models in float64 that read a picture, or regions, and a text as one sequence."""

from functools import cache

import torch
import transformers as hf
from helpers.tiny_models import IMAGE, TEXT, randomised
from helpers.tiny_tokenizers import word_piece_tokenizer
from helpers.two_towers import FLAVA_WORDS, VISION, WIDE_VISION, WIDE_WORDS, WORDS, tower_processor

import clearhead

REGIONS = 5
WIDTH = 12
VILT = {**TEXT, "image_size": IMAGE["image_size"], "patch_size": IMAGE["patch_size"], "max_position_embeddings": 24}
LXMERT = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 60, "num_qa_labels": 3}
LXMERT |= {"l_layers": 3, "r_layers": 2, "x_layers": 2, "visual_feat_dim": WIDTH, "max_position_embeddings": 64}
BLIP_WORDS = {**WORDS, "hidden_size": 32, "encoder_hidden_size": 32, "sep_token_id": 2}
BLIP = {"text_config": BLIP_WORDS, "vision_config": {**VISION, "num_hidden_layers": 2}, "image_text_hidden_size": 16}
FLAVA = {"text_config": FLAVA_WORDS, "image_config": VISION, "multimodal_config": VISION, "hidden_size": 32}
FLAVA |= {"projection_dim": 16, "init_codebook": False, "return_loss": False}
BRIDGE_TOWER = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "text_config": WIDE_WORDS}
BRIDGE_TOWER |= {"vision_config": WIDE_VISION}
JOINED = {
    "vilt": (hf.ViltConfig, VILT, hf.ViltForQuestionAnswering),
    "vilt-retrieval": (hf.ViltConfig, VILT, hf.ViltForImageAndTextRetrieval),
    "visual-bert": (hf.VisualBertConfig, {**TEXT, "visual_embedding_dim": WIDTH}, hf.VisualBertForQuestionAnswering),
    "visual-bert-reasoning": (
        hf.VisualBertConfig,
        {**TEXT, "visual_embedding_dim": WIDTH},
        hf.VisualBertForVisualReasoning,
    ),
    "lxmert": (hf.LxmertConfig, LXMERT, hf.LxmertForQuestionAnswering),
    "flava": (hf.FlavaConfig, FLAVA, hf.FlavaForPreTraining),
    "bridge-tower": (hf.BridgeTowerConfig, BRIDGE_TOWER, hf.BridgeTowerForImageAndTextRetrieval),
    "blip": (hf.BlipConfig, BLIP, hf.BlipForImageTextRetrieval),
}
"""Config class, sizes, and network class."""
WITH_PICTURES = ("vilt", "vilt-retrieval", "flava", "bridge-tower", "blip")


def joined_network(family: str = "vilt", **sizes):
    config_class, usual, network_class = JOINED[family]
    return randomised(network_class(config_class(**{**usual, **sizes})).double().eval())


def joined_processor(family: str):
    return tower_processor() if family in WITH_PICTURES else word_piece_tokenizer()


@cache
def joined_model(family: str = "vilt"):
    return clearhead.load(joined_network(family), joined_processor(family))


def joined_tensors(family: str = "vilt", rows: int = 2):
    """Return the tensors of inputs, whose texts have different lengths."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 40, (rows, 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, 5:] = 0
    tensors = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    if family in WITH_PICTURES:
        if family == "blip":
            del tensors["token_type_ids"]
        return tensors | {"pixel_values": torch.randn(rows, 3, 32, 32, generator=generator).double()}
    regions = torch.randn(rows, REGIONS, WIDTH, generator=generator).double()
    if family == "lxmert":
        return tensors | {
            "visual_feats": regions,
            "visual_pos": torch.rand(rows, REGIONS, 4, generator=generator).double(),
        }
    return tensors | {"visual_embeds": regions, "visual_attention_mask": torch.ones(rows, REGIONS)}
