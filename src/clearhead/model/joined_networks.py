"""Networks that read a picture and a text together, explained at what enters their first blocks.

Words and patches (or regions) are embedded before the network runs and joined into one sequence, `inputs_embeds`. The
unmodified network then runs with this sequence instead of what its own embedding modules return.
"""

import copy
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import BadInput, UnsupportedModel

TEXT_LENGTH = "text_length"
"""The input tensor that tells how many words come first (B,1)."""


@dataclass(frozen=True)
class JoinedEmbeddings:
    """What enters the first block for one input (T,D).

    `words` counts the tokens of the text, which come first or, with `is_last`, behind the picture; `leading` counts the
    tokens of the picture before its patches. `grid` has rows and columns of patches, and `cells` the number of each
    patch in it, row by row; regions have none.
    """

    embeddings_TD: Tensor
    words: int
    leading: int = 0
    grid: tuple[int, int] | None = None
    cells: Sequence[int] = ()
    is_last: bool = False

    @property
    def text_start(self) -> int:
        return len(self.embeddings_TD) - self.words if self.is_last else 0

    @property
    def text_span(self) -> tuple[int, int]:
        """The first token of the text, and the one behind its last."""
        return self.text_start, self.text_start + self.words

    @property
    def picture_start(self) -> int:
        return 0 if self.is_last else self.words


class JoinedNetwork(nn.Module):
    """A stock network, unmodified, that takes the joined embeddings of a text and a picture, and their mask."""

    takes_images = False
    """Whether it takes pictures, or the features of regions."""
    problem: str | None = None
    """What the config means where it does not say it, from how the family is trained."""
    features = ""
    """The tensor that holds the features of regions."""
    has_two_stacks = False
    """Whether picture and text have a stack each, of which the second reads the first, or both each other."""
    counts: tuple[int, int, int] | None = None
    """Blocks of words, of the picture, and of both, where they attend to each other or a third stack reads them."""
    has_bridges = False
    """Whether stacks of one input each are added to those that read both, block by block."""
    has_third_stack = False
    """Whether picture and text have a stack each, and a third reads both."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        # A copy: the stock config stays as it is.
        self.config = copy.deepcopy(network.config)
        if self.config.problem_type is None:
            self.config.problem_type = self.problem
        # Not train(), which would set the mode of every layer of the network.
        self.training = network.training

    @abstractmethod
    def embed(self, tensors: Mapping[str, Tensor]) -> JoinedEmbeddings:
        """Return what enters the first block for one input, without padding."""


class ViltNetwork(JoinedNetwork):
    """ViLT: words, then a class token of the picture, then its patches."""

    takes_images = True
    # Answers are trained as independent yes-or-no questions.
    problem = "multi_label_classification"

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        # The config still has the classes of other heads.
        if type(network).__name__ == "ViltForImageAndTextRetrieval":
            self.config.id2label = {0: "match"}
            self.config.problem_type = "regression"

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Tensor:
        # The embeddings module gets a sequence of this length, so that it draws no patches.
        blank = make_blank(inputs_embeds)
        with replace_output(self.network.vilt.embeddings, (inputs_embeds, attention_mask)):
            logits: Tensor = self.network(
                inputs_embeds=blank[:, :1],
                attention_mask=attention_mask[:, :1],
                image_embeds=blank[:, 1:],
                pixel_mask=attention_mask[:, 1:],
                return_dict=True,
            ).logits
        return logits

    def embed(self, tensors: Mapping[str, Tensor]) -> JoinedEmbeddings:
        pixels = tensors["pixel_values"]
        # Without a mask every pixel is of the picture, none is padding.
        pixel_mask = tensors.get("pixel_mask")
        if pixel_mask is None:
            pixel_mask = torch.ones_like(pixels[:, 0])
        joined_TD, cell_K = self._embed_patches(tensors, pixels, pixel_mask)
        words = tensors["input_ids"].shape[1]
        # Sorted: the network draws patches in a random order, which its blocks do not see.
        order_K = torch.argsort(cell_K).to(joined_TD.device)
        patches_KD = joined_TD[words + 1 :][: len(cell_K)][order_K]
        embeddings_TD = torch.cat([joined_TD[: words + 1], patches_KD])
        return JoinedEmbeddings(embeddings_TD, words, 1, *self._place_cells(pixels, pixel_mask, cell_K.sort().values))

    def _embed_patches(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, pixel_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the joined embeddings of one input, and the cell of each patch among all that the pixels have."""
        embeddings = self.network.vilt.embeddings
        with fixed_draws():
            limit = self.config.max_image_length
            _, mask_1K, (index_1K2, (_, columns)) = embeddings.visual_embed(pixels, pixel_mask, max_image_length=limit)
        ids = tensors["input_ids"]
        # The same draws again: only `visual_embed` tells which patches they are.
        with fixed_draws():
            types = tensors.get("token_type_ids")
            joined_1TD, _ = embeddings(ids, torch.ones_like(ids), types, pixels, pixel_mask, None, None)
        cell_K = (index_1K2[0] @ index_1K2.new_tensor([columns, 1])).cpu()
        # Behind the class token; padding is drawn last.
        return joined_1TD[0], cell_K[mask_1K[0, 1:].bool().cpu()]

    def _place_cells(self, pixels: Tensor, pixel_mask: Tensor, cell_K: Tensor) -> tuple[tuple[int, int], list[int]]:
        """Return rows and columns of patches without padding, and the cells of patches in them."""
        height, width = self.network.vilt.embeddings.patch_embeddings.projection.weight.shape[-2:]
        size = (pixels.shape[-2] // height, pixels.shape[-1] // width)
        # As the network does it, so that a patch at the border counts in the same way.
        visible = F.interpolate(pixel_mask[:, None].float(), size=size)[0, 0]
        # Padding is on the right and at the bottom.
        rows, columns = int(visible[:, 0].sum()), int(visible[0].sum())
        cells = cell_K // size[1] * columns + cell_K % size[1]
        return (rows, columns), cells.tolist()


class VisualBertNetwork(JoinedNetwork):
    """VisualBERT: words, then regions, whose features are given."""

    features = "visual_embeds"

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        if self.config.bypass_transformer:
            raise UnsupportedModel(
                "VisualBERT with bypass_transformer reads regions in its last block alone: its words and regions are "
                "no one sequence. Load a model without it."
            )

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor, text_length: Tensor) -> Tensor:
        blank = make_blank(inputs_embeds)
        regions = torch.zeros(*blank[:, 1:].shape[:2], self.config.visual_embedding_dim).to(blank)
        # As one word and many regions: words have positions, of which there may be too few.
        arguments = {
            "inputs_embeds": blank[:, :1],
            "attention_mask": attention_mask[:, :1],
            "visual_embeds": regions,
            "visual_attention_mask": attention_mask[:, 1:],
        }
        base = self.network.visual_bert
        # The head finds the word it reads by the length of the text, also where words are hidden from attention.
        position_T = torch.arange(blank.shape[1], device=blank.device)
        text_mask = (position_T < text_length).long()
        with replace_arguments(base, arguments), replace_output(base.embeddings, inputs_embeds):
            logits: Tensor = self.network(inputs_embeds=blank, attention_mask=text_mask, return_dict=True).logits
        return logits

    def embed(self, tensors: Mapping[str, Tensor]) -> JoinedEmbeddings:
        names = ("input_ids", "token_type_ids", "position_ids", "visual_token_type_ids", "image_text_alignment")
        arguments = {name: tensors[name] for name in names if name in tensors}
        features = tensors[self.features]
        joined_1TD = self.network.visual_bert.embeddings(**arguments, visual_embeds=features)
        words = tensors["input_ids"].shape[1]
        # Only now: alignments and types have a row for every region.
        kept_K = tensors.get("visual_attention_mask", torch.ones_like(features[..., 0]))[0].bool()
        embeddings_TD = torch.cat([joined_1TD[0, :words], joined_1TD[0, words:][kept_K]])
        return JoinedEmbeddings(embeddings_TD, words)


class LxmertNetwork(JoinedNetwork):
    """LXMERT: regions, whose features and boxes are given, and words, in stacks that end by attending to each other."""

    features = "visual_feats"
    has_two_stacks = True

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        config = network.config
        self.counts = (config.l_layers, config.r_layers, config.x_layers)
        # The config counts the answers, and has the names of another head.
        if len(self.config.id2label) != config.num_qa_labels:
            self.config.id2label = {number: f"LABEL_{number}" for number in range(config.num_qa_labels)}

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor, source_length: Tensor) -> Tensor:
        source = int(source_length[0, 0])
        regions, words = split_sequences(inputs_embeds, source)
        blank = make_blank(inputs_embeds)
        base = self.network.lxmert
        with replace_output(base.embeddings, words), replace_output(base.encoder.visn_fc, regions):
            logits: Tensor = self.network(
                # One word: the positions of a longer text need not be looked up.
                inputs_embeds=blank[:, :1],
                attention_mask=attention_mask[:, source:],
                visual_feats=blank[:, :1, :1].expand(-1, -1, self.config.visual_feat_dim),
                visual_pos=blank[:, :1, :1].expand(-1, -1, self.config.visual_pos_dim),
                visual_attention_mask=attention_mask[:, :source],
                return_dict=True,
            ).question_answering_score
        return logits

    def embed(self, tensors: Mapping[str, Tensor]) -> JoinedEmbeddings:
        if "visual_pos" not in tensors:
            raise BadInput("LXMERT reads where regions lie: give visual_pos beside visual_feats.")
        ids = tensors["input_ids"]
        types = tensors.get("token_type_ids", torch.zeros_like(ids))
        words_1TD = self.network.lxmert.embeddings(ids, types)
        # Features and boxes make one vector for each region.
        regions_1KD = self.network.lxmert.encoder.visn_fc(tensors["visual_feats"], tensors["visual_pos"])
        kept_K = tensors.get("visual_attention_mask", torch.ones_like(regions_1KD[..., 0]))[0].bool()
        embeddings_TD = torch.cat([regions_1KD[0, kept_K], words_1TD[0]])
        return JoinedEmbeddings(embeddings_TD, ids.shape[1], is_last=True)


class BlipNetwork(JoinedNetwork):
    """BLIP: a class token of the picture and its patches in one stack, words that read them in another."""

    takes_images = True
    has_two_stacks = True

    def __init__(self, network: Any) -> None:
        super().__init__(network)
        # The order in which the head was trained.
        self.config.id2label = {0: "no match", 1: "match"}
        require_one_width(network.config, "BLIP", "blip-itm-base")

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor, source_length: Tensor) -> Tensor:
        source = int(source_length[0, 0])
        patches, words = split_sequences(inputs_embeds, source)
        # The stack of the picture takes no mask.
        patches = hide_patches(patches, attention_mask[:, :source])
        side = self.config.vision_config.image_size
        pixels = make_blank_pixels(inputs_embeds, (side, side))
        ids = torch.zeros_like(attention_mask[:, source:])
        with (
            replace_output(self.network.vision_model.embeddings, patches),
            replace_output(self.network.text_encoder.embeddings, words),
        ):
            logits: Tensor = self.network(
                input_ids=ids, pixel_values=pixels, attention_mask=attention_mask[:, source:], return_dict=True
            ).itm_score
        return logits

    def embed(self, tensors: Mapping[str, Tensor]) -> JoinedEmbeddings:
        pixels = tensors["pixel_values"]
        patches_1KD = self.network.vision_model.embeddings(pixels)
        words_1TD = self.network.text_encoder.embeddings(input_ids=tensors["input_ids"])
        embeddings_TD = torch.cat([patches_1KD[0], words_1TD[0]])
        # No patch is padding: all pictures have one size.
        size = self.config.vision_config.patch_size
        grid = (pixels.shape[-2] // size, pixels.shape[-1] // size)
        cells = range(grid[0] * grid[1])
        return JoinedEmbeddings(embeddings_TD, words_1TD.shape[1], 1, grid, cells, is_last=True)


def require_one_width(config: Any, family: str, example: str) -> None:
    """Raise UnsupportedModel unless patches and words have as many features."""
    vision, text = config.vision_config, config.text_config
    if vision.hidden_size != text.hidden_size:
        raise UnsupportedModel(
            f"The patches of this {family} model have {vision.hidden_size} features and its words {text.hidden_size}, "
            f"which is no one sequence: load one with as many, such as {example}."
        )


def split_sequences(inputs_embeds: Tensor, source: int) -> tuple[Tensor, Tensor]:
    """Return the picture, the first `source` tokens, and the words."""
    return inputs_embeds.narrow(1, 0, source), inputs_embeds.narrow(1, source, inputs_embeds.shape[1] - source)


def make_blank(inputs_embeds: Tensor) -> Tensor:
    """Return zeros in the shape of the embeddings, which no gradient or relevance reaches."""
    return torch.zeros(inputs_embeds.shape, dtype=inputs_embeds.dtype, device=inputs_embeds.device)


def hide_patches(patches_BKD: Tensor, seen_BK: Tensor) -> Tensor:
    """Return patches with zeros for those that are hidden."""
    if bool(seen_BK.all()):
        return patches_BKD
    return patches_BKD * seen_BK[..., None].to(patches_BKD.dtype)


def make_blank_pixels(inputs_embeds: Tensor, size: tuple[int, int]) -> Tensor:
    """Return blank pictures of the only size that a network takes, whose embeddings are replaced."""
    return torch.zeros(len(inputs_embeds), 3, *size, dtype=inputs_embeds.dtype, device=inputs_embeds.device)


@contextmanager
def fixed_draws() -> Iterator[None]:
    """Draw the same random numbers every time, and leave the caller's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@contextmanager
def replace_output(module: nn.Module, output: Any) -> Iterator[None]:
    """Let a module return something else, in this thread."""
    handle = module.register_forward_hook(_in_this_thread(lambda *_: output))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def replace_input(module: nn.Module, convert: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let a module read something else instead of its first argument, in this thread."""

    def replace(module: nn.Module, args: Any) -> Any:
        return convert(args[0]), *args[1:]

    handle = module.register_forward_pre_hook(_in_this_thread(replace))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def replace_arguments(module: nn.Module, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Call a module with other keyword arguments, in this thread."""

    def replace(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, **arguments}

    handle = module.register_forward_pre_hook(_in_this_thread(replace), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that does nothing in other threads, which may be running the same network."""
    thread = threading.get_ident()

    def call(*args: Any) -> Any:
        return hook(*args) if threading.get_ident() == thread else None

    return call
