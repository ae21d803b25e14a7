"""BridgeTower: stacks of a picture and of a text, bridged to two stacks that attend to each other."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.model.joined_networks import (
    JoinedEmbeddings,
    JoinedNetwork,
    hide_patches,
    make_blank_pixels,
    replace_output,
    require_one_width,
)


class BridgeTowerNetwork(JoinedNetwork):
    """BridgeTower's matching head: a class token of the picture and its patches, then words."""

    takes_images = True
    has_bridges = True

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        # The order in which the head was trained.
        self.config.id2label = {0: "no match", 1: "match"}
        require_one_width(network.config, "BridgeTower", "bridgetower-base-itm-mlm")

    @property
    def _visual(self) -> Any:
        return self.network.bridgetower.vision_model.visual

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Tensor:
        count = self._visual.embeddings.num_positions
        # The stack of the picture takes no mask.
        picture = hide_patches(inputs_embeds.narrow(1, 0, count), attention_mask[:, :count])
        words = inputs_embeds.narrow(1, count, inputs_embeds.shape[1] - count)
        seen = attention_mask[:, count:]
        side = self._visual.embeddings.image_size
        with (
            replace_output(self._visual.ln_pre, picture),
            replace_output(self.network.bridgetower.text_model.embeddings, words),
        ):
            logits: Tensor = self.network(
                input_ids=torch.zeros_like(seen),
                attention_mask=seen,
                pixel_values=make_blank_pixels(inputs_embeds, (side, side)),
                return_dict=True,
            ).logits
        return logits

    def embed(self, tensors: Mapping[str, Tensor]) -> JoinedEmbeddings:
        # Behind the norm that comes before the first block.
        patches_1KD = self._visual.ln_pre(self._visual.embeddings(tensors["pixel_values"]))
        words_1TD = self.network.bridgetower.text_model.embeddings(input_ids=tensors["input_ids"])
        embeddings_TD = torch.cat([patches_1KD[0], words_1TD[0]])
        side = self._visual.embeddings.image_size // self._visual.embeddings.patch_size
        return JoinedEmbeddings(embeddings_TD, words_1TD.shape[1], 1, (side, side), range(side**2), is_last=True)
