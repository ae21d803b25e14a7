"""Tiny random two-tower models in float64, with processors."""

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import torch
import transformers as hf
from helpers.tiny_models import IMAGE, TEXT, image_processor, network, randomised
from helpers.tiny_tokenizers import word_piece_tokenizer

import clearhead

VISION = {name: value for name, value in IMAGE.items() if name != "num_labels"}
WORDS = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
WORDS |= {"vocab_size": 60, "max_position_embeddings": 40, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
EFFICIENT = {"image_size": 32, "width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": 24}
PACKED = {**{name: value for name, value in VISION.items() if name != "image_size"}, "num_patches": 16}
# A head of BridgeTower's pictures has 64 features.
WIDE_WORDS = {**WORDS, "hidden_size": 64}
WIDE_VISION = {**VISION, "hidden_size": 64, "num_hidden_layers": 2}
FLAVA_WORDS = {**WORDS, "hidden_size": 32}
SIGLIP_WORDS = {**WORDS, "hidden_size": 32, "projection_size": 32, "max_position_embeddings": 12}
FAMILIES = {
    "clip": (hf.CLIPConfig, WORDS, VISION, 16, hf.CLIPModel),
    "siglip": (hf.SiglipConfig, SIGLIP_WORDS, VISION, 16, hf.SiglipModel),
    "chinese-clip": (hf.ChineseCLIPConfig, WORDS, VISION, 16, hf.ChineseCLIPModel),
    "siglip2": (hf.Siglip2Config, SIGLIP_WORDS, PACKED, 16, hf.Siglip2Model),
    "flava": (hf.FlavaConfig, FLAVA_WORDS, VISION, 16, hf.FlavaModel),
    "bridge-tower": (hf.BridgeTowerConfig, WIDE_WORDS, WIDE_VISION, 16, hf.BridgeTowerForContrastiveLearning),
    "align": (hf.AlignConfig, WORDS, EFFICIENT, 32, hf.AlignModel),
    "altclip": (hf.AltCLIPConfig, {**WORDS, "project_dim": 16}, VISION, 16, hf.AltCLIPModel),
}
"""Config class, sizes of the text and of the picture tower, width of the embeddings, and network class."""
VISION_CONFIGS = {"flava": "image_config"}
OTHERS = {
    "flava": {"multimodal_config": dict(VISION), "hidden_size": 32, "init_codebook": False},
    "bridge-tower": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "contrastive_hidden_size": 16}
    | {"logit_scale_init_value": 2.6592},
}
"""Settings of a family besides those of its towers."""
WITH_PATCHES = [family for family in FAMILIES if family != "align"]
GRIDS = dict.fromkeys(WITH_PATCHES, (4, 4)) | {"siglip2": (3, 5)}
"""Rows and columns of patches of a photo of 60 × 40 pixels."""
TEXTS = ("a fine film", "a joyless film", "not bad")


def tower_network(family: str = "clip"):
    config_class, words, vision, width, network_class = FAMILIES[family]
    towers = {"text_config": dict(words), VISION_CONFIGS.get(family, "vision_config"): dict(vision)}
    config = config_class(**towers, **OTHERS.get(family, {}), projection_dim=width)
    return _calibrated(randomised(network_class(config).double().eval()))


def _calibrated(network):
    """Set the statistics of batch norms from noise, so that a picture reaches the end of a convolutional network."""
    generator = torch.Generator().manual_seed(2)
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
        norm.weight.data.fill_(1.0)
    if norms:
        with torch.no_grad():
            network.get_image_features(torch.randn(4, 3, 32, 32, generator=generator).double())
    return network.eval()


def tower_processor(family: str = "clip"):
    images = image_processor()
    if family == "siglip2":
        images = hf.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
    return SimpleNamespace(tokenizer=word_piece_tokenizer(), image_processor=images)


@cache
def tower_model(family: str = "clip"):
    return clearhead.load(tower_network(family), tower_processor(family))


def encoder_network(*, has_biases: bool = True):
    """Return a tiny BERT without a head; without biases its balanced passes are exact."""
    encoder = network("bert", network_class=hf.BertModel, **TEXT)
    if not has_biases:
        for name, parameter in encoder.named_parameters():
            if name.endswith("bias"):
                parameter.data.zero_()
    return encoder


def sentence_model(*, has_biases: bool = True, **options: str):
    return clearhead.similarity(encoder_network(has_biases=has_biases), word_piece_tokenizer(), **options)


def save_tower_folder(folder: Path, family: str = "clip") -> Path:
    """Save a tiny two-tower model with its tokenizer and image processor."""
    tower_network(family).float().save_pretrained(folder)
    processor = tower_processor(family)
    processor.tokenizer.save_pretrained(folder)
    processor.image_processor.save_pretrained(folder)
    return folder


def save_sentence_folder(folder: Path, *, mode="pooling_mode_mean_tokens", similarity="cosine", extra=()) -> Path:
    """Save a tiny BERT as sentence-transformers does."""
    encoder_network().float().save_pretrained(folder)
    word_piece_tokenizer().save_pretrained(folder)
    names = [("", "Transformer"), ("1_Pooling", "Pooling"), *extra]
    modules = [{"path": path, "type": f"sentence_transformers.models.{name}"} for path, name in names]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, mode: True}))
    settings = {"similarity_fn_name": similarity}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder
