"""FLAVA: a picture and a text in a stack each, and a third stack that reads both."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import UnsupportedModel
from clearhead.model.joined_networks import (
    JoinedEmbeddings,
    JoinedNetwork,
    make_blank_pixels,
    replace_arguments,
    replace_input,
    replace_output,
)


class FlavaNetwork(JoinedNetwork):
    """FLAVA's matching head: a class token for both, one of the picture, its patches, then words."""

    takes_images = True
    has_third_stack = True

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        # The order in which the head was trained.
        self.config.id2label = {0: "no match", 1: "match"}
        config = network.config
        stacks = (config.text_config, config.image_config, config.multimodal_config)
        words, picture, both = (stack.num_hidden_layers for stack in stacks)
        self.counts = (words, picture, both)
        widths = {stack.hidden_size for stack in stacks}
        if len(widths) > 1:
            raise UnsupportedModel(
                f"The stacks of this FLAVA model have {sorted(widths)} features, which is no one sequence: load one "
                "whose stacks have as many, such as flava-full."
            )

    @property
    def _leading(self) -> int:
        """The class tokens before the patches: without one for both, that of the picture is read."""
        return 2 if self.config.multimodal_config.use_cls_token else 1

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Tensor:
        # Only the part that the matching head reads, without losses: all of it would run every stack twice.
        flava = self.network.flava
        cells = self._patches.num_patches + self._leading
        words = attention_mask[:, cells:]
        with self._replace_tokens(inputs_embeds, attention_mask):
            states = flava(
                input_ids=torch.zeros_like(words),
                attention_mask=words,
                pixel_values=make_blank_pixels(inputs_embeds, self._patches.image_size),
                image_attention_mask=_hide_patches(attention_mask[:, self._leading - 1 : cells], inputs_embeds.dtype),
                return_dict=True,
            ).multimodal_embeddings
        logits: Tensor = self.network.itm_head(states)
        return logits

    @property
    def _patches(self) -> Any:
        return self.network.flava.image_model.embeddings.patch_embeddings

    @contextmanager
    def _replace_tokens(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Iterator[None]:
        """Let the stacks read parts of the sequence instead of their embeddings."""
        flava = self.network.flava
        cells = self._patches.num_patches + self._leading
        first = self._leading - 1
        with ExitStack() as stack:
            picture = inputs_embeds.narrow(1, first, cells - first)
            stack.enter_context(replace_output(flava.image_model.embeddings, picture))
            words = inputs_embeds.narrow(1, cells, inputs_embeds.shape[1] - cells)
            stack.enter_context(replace_output(flava.text_model.embeddings, words))
            stack.enter_context(replace_arguments(flava.multimodal_model, {"attention_mask": attention_mask}))
            if first:
                read_token = partial(_replace_first, inputs_embeds.narrow(1, 0, 1))
                stack.enter_context(replace_input(flava.multimodal_model.encoder, read_token))
            yield

    def embed(self, tensors: Mapping[str, Tensor]) -> JoinedEmbeddings:
        flava = self.network.flava
        names = ("input_ids", "token_type_ids", "position_ids")
        words_1TD = flava.text_model.embeddings(**{name: tensors[name] for name in names if name in tensors})
        patches_1KD = flava.image_model.embeddings(tensors["pixel_values"])
        sections = [patches_1KD[0], words_1TD[0]]
        if self._leading == 2:
            sections.insert(0, flava.multimodal_model.cls_token[0])
        rows, columns = self._find_grid()
        cells = range(rows * columns)
        return JoinedEmbeddings(
            torch.cat(sections), words_1TD.shape[1], self._leading, (rows, columns), cells, is_last=True
        )

    def _find_grid(self) -> tuple[int, int]:
        height, width = self._patches.image_size
        patch_height, patch_width = self._patches.patch_size
        return height // patch_height, width // patch_width


def _hide_patches(mask_BK: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Return what is added to the scores of attention in the stack of the picture; None if all of it is seen."""
    if bool(mask_BK.all()):
        return None
    hidden_BK = (mask_BK == 0).to(dtype)
    return hidden_BK[:, None, None] * torch.finfo(dtype).min


def _replace_first(first_B1D: Tensor, states_BTD: Tensor) -> Tensor:
    return torch.cat([first_B1D, states_BTD.narrow(1, 1, states_BTD.shape[1] - 1)], 1)
