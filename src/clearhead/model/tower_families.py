"""Which stock networks are two-tower models, and how those that differ from CLIP embed their inputs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.model.packed_patches import SPATIAL_SHAPES, cut_patches
from clearhead.model.two_towers import SECOND, ImageTextEncoder

# Networks whose class loads itself: for their type AutoModel makes one without the heads that compare.
WITH_HEADS = ("BridgeTowerForContrastiveLearning",)


class FlavaEncoder(ImageTextEncoder):
    """FLAVA's towers, compared as its contrastive loss does it: by the class tokens."""

    def pool(self, output: Any) -> Tensor:
        # The network projects every token.
        class_token_BD: Tensor = output.pooler_output[:, 0]
        return class_token_BD

    def side_config(self, side: int) -> Any:
        return self.config.text_config if side else self.config.image_config


class PackedImageTextEncoder(ImageTextEncoder):
    """SigLIP 2 for pictures of any shape, which are cut into patches here: so their pixels are explained as well."""

    def embed(self, side: int, tensors: Mapping[str, Tensor]) -> Tensor:
        if side == SECOND:
            return super().embed(side, tensors)
        pixels = tensors["pixel_values"]
        # On the CPU, where the network reads them one by one.
        shapes_B2 = torch.tensor([self.find_grid(pixels)] * len(pixels))
        # Without a mask, since pictures of one batch have one shape and no padding.
        packed = {"pixel_values": cut_patches(pixels, self.patch_size), SPATIAL_SHAPES: shapes_B2}
        return super().embed(side, packed)

    @property
    def patch_size(self) -> int:
        size: int = self.config.vision_config.patch_size
        return size

    def find_grid(self, pixels: Tensor) -> tuple[int, int]:
        height, width = pixels.shape[-2:]
        return height // self.patch_size, width // self.patch_size


class BatchFirst(nn.Module):
    """A block of BridgeTower's pictures with the axes of other networks (B,T,D) outside of its attention.

    Relevance is divided input by input, so that the first axis has to keep them apart.
    """

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def forward(self, states_BTD: Tensor) -> Tensor:
        normed_TBD = self.block.ln_1(states_BTD).transpose(0, 1)
        attended_BTD = states_BTD + self.block.attention(normed_TBD, None).transpose(0, 1)
        hidden_BTF = self.block.ln_2(attended_BTD)
        for layer in self.block.mlp.values():
            hidden_BTF = layer(hidden_BTF)
        states: Tensor = attended_BTD + hidden_BTF
        return states


class BridgeTowerEncoder(ImageTextEncoder):
    """BridgeTower's text and picture before they are bridged, compared as in its contrastive loss."""

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        self.base = network.bridgetower
        self.blocks = nn.ModuleList(map(BatchFirst, self.base.vision_model.visual.transformer.resblocks))
        # New modules are in training mode, whatever the network is in.
        self.train(network.training)

    def embed(self, side: int, tensors: Mapping[str, Tensor]) -> Tensor:
        class_token_BD = self._read_text(tensors) if side else self._read_picture(tensors["pixel_values"])
        embeddings_BD: Tensor = self.unit_norm(class_token_BD)
        return embeddings_BD

    def _read_text(self, tensors: Mapping[str, Tensor]) -> Tensor:
        states_BTD = self.base.text_model(**tensors, return_dict=True).last_hidden_state
        text_BD: Tensor = self.network.itc_text_head(states_BTD[:, 0])
        return text_BD

    def _read_picture(self, pixels: Tensor) -> Tensor:
        visual = self.base.vision_model.visual
        states_BTD = visual.ln_pre(visual.embeddings(pixels))
        for block in self.blocks:
            states_BTD = block(states_BTD)
        # The type of pictures, as where both inputs meet.
        type_D = self.base.token_type_embeddings.weight[1]
        projected_BD = self.base.cross_modal_image_transform(visual.ln_post(states_BTD)[:, 0]) + type_D
        picture_BD: Tensor = self.network.itc_image_head(projected_BD)
        return picture_BD

    def word_table(self, side: int) -> Any:
        return self.base.text_model.get_input_embeddings() if side else None


FAMILIES: dict[str, type[ImageTextEncoder]] = {
    "flava": FlavaEncoder,
    "siglip2": PackedImageTextEncoder,
    "bridgetower": BridgeTowerEncoder,
}
"""Two-tower models by type that differ from CLIP."""


def is_dual_encoder(network: Any) -> bool:
    """Return whether a stock network embeds pictures and texts and compares them by a scaled product."""
    # BLIP writes to its word embeddings in place, and its heads cross both inputs.
    if getattr(network.config, "model_type", "") == "blip":
        return False
    if type(network).__name__ in WITH_HEADS:
        return True
    has_getters = hasattr(network, "get_image_features") and hasattr(network, "get_text_features")
    return has_getters and (hasattr(network, "logit_scale") or hasattr(network, "temperature"))


def dual_encoder_architectures() -> set[str]:
    """Return the two-tower models of Transformers by class name."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES

    # Any two encoders joined, and FLAVA without its heads; they are in no list of Transformers.
    return {
        "VisionTextDualEncoderModel",
        "FlavaModel",
        *WITH_HEADS,
        *MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES.values(),
    }


def wrap_dual_encoder(network: Any) -> Any:
    """Return a two-tower network with its towers apart, or the network itself if it is none."""
    if not is_dual_encoder(network):
        return network
    encoder = FAMILIES.get(network.config.model_type, ImageTextEncoder)
    return encoder(network)
