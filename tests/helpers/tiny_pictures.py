"""Tiny random models that find objects in pictures or label their pixels, in float64."""

import torch
import transformers as hf
from helpers.tiny_models import IMAGE, SIZES, randomised

RESNET = {"embedding_size": 8, "hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1], "layer_type": "basic"}
DETR = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "num_queries": 7}
DETR |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_labels": 5}
DETR |= {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
SEGFORMER = {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32], "num_labels": 4}
SEGFORMER |= {"patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [2, 4], "mlp_ratios": [2, 2]}
SEGFORMER |= {"decoder_hidden_size": 24}
PICTURES = {
    "yolos": (
        hf.YolosConfig,
        {**IMAGE, "image_size": [32, 32], "num_detection_tokens": 6},
        hf.YolosForObjectDetection,
        32,
    ),
    "detr": (hf.DetrConfig, DETR, hf.DetrForObjectDetection, 96),
    "conditional-detr": (hf.ConditionalDetrConfig, DETR, hf.ConditionalDetrForObjectDetection, 96),
    "segformer": (hf.SegformerConfig, SEGFORMER, hf.SegformerForSemanticSegmentation, 32),
    "beit-pixels": (
        hf.BeitConfig,
        {**SIZES, "num_hidden_layers": 4, "image_size": 32, "patch_size": 8, "out_indices": [1, 2, 3, 4]}
        | {"use_auxiliary_head": False, "use_mask_token": False},
        hf.BeitForSemanticSegmentation,
        32,
    ),
}
"""Configuration, its options, class, and the side of its pictures."""


def picture_network(family, **changes):
    config_class, options, network_class, _ = PICTURES[family]
    options = {**options, **changes}
    if "detr" in family:
        options["backbone_config"] = hf.ResNetConfig(**RESNET, out_features=["stage4"])
    return randomised(network_class(config_class(**options)).double().eval())


def picture_tensors(family, rows=2):
    side = PICTURES[family][3]
    generator = torch.Generator().manual_seed(0)
    return {"pixel_values": torch.randn(rows, 3, side, side, dtype=torch.float64, generator=generator)}
