"""Models that compare: two texts by a sentence encoder, or pictures with fixed texts by a two-tower model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import BadInput, UnsupportedModel
from clearhead.model.batches import Encoded, Inputs, collate
from clearhead.model.folders import load_sentence_encoder
from clearhead.model.image_inputs import encode_image
from clearhead.model.loading import as_model, load
from clearhead.model.model import Model
from clearhead.model.objects import wrap_objects
from clearhead.model.sentence_folders import SentenceFolder
from clearhead.model.text_inputs import JOINT_ADVICE, encode_text
from clearhead.model.tower_processor import TowerProcessor
from clearhead.model.two_towers import FIRST, SECOND, DualEncoder, Tower, make_text_pair_encoder

# Inputs that are embedded together.
BATCH = 32


@dataclass(frozen=True)
class SideBatch:
    """A batch of one side, and where its inputs stand among those that were encoded."""

    indices: Sequence[int]
    inputs: Inputs


def similarity(
    encoder: Any, tokenizer: Any = None, *, pooling: str = "mean", score: str = "cosine", allow_pickle: bool = False
) -> Model:
    """Return a text encoder as a model that compares two texts: `explain(model, (text_a, text_b))`.

    `encoder` is a network without a head (AutoModel) or its folder. Its last hidden states are averaged, or with
    `pooling="cls"` the first is taken; `score` is the cosine or the dot product of both embeddings.

    >>> clearhead.similarity("path/to/my-encoder", pooling="cls")     # doctest: +SKIP
    """
    if isinstance(encoder, str | Path):
        name = str(encoder)
        return load(load_sentence_encoder(name, SentenceFolder(name, pooling, score), allow_pickle), tokenizer)
    wrapped = wrap_objects(encoder)
    network = make_text_pair_encoder(wrapped.network, pooling, score)
    return load(replace(wrapped, network=network), tokenizer)


def zero_shot(model: Any, texts: Sequence[str]) -> Model:
    """Return a two-tower model as an image classifier whose classes are texts, for everything that takes a classifier.

    >>> clearhead.zero_shot(clip, ["a photo of a cat", "a photo of a dog"])     # doctest: +SKIP
    """
    model = as_model(model)
    _require_picture_tower(model)
    require_texts(texts)
    return make_tower(model, FIRST, embed_side(model, SECOND, texts), texts)


def _require_picture_tower(model: Model) -> None:
    if not model.reads_pairs or not model.network.takes_images:
        raise UnsupportedModel(f"{model.name} does not compare pictures with texts: give a model such as CLIP.")


def require_texts(texts: Any) -> None:
    """Raise BadInput unless this is a list of texts."""
    is_list = isinstance(texts, Sequence) and not isinstance(texts, str)
    if not is_list or not texts or not all(isinstance(text, str) for text in texts):
        raise BadInput(f"Invalid texts {texts!r}: give a list of texts to compare with.")


def make_tower(
    model: Model, side: int, others_CD: Tensor, labels: Sequence[str], held_C: Tensor | None = None
) -> Model:
    """Return one side of a two-tower model as a model whose classes are inputs of the other side."""
    encoder = _dual_encoder(model)
    return Model(Tower(encoder, side, others_CD, labels, held_C), _side_processor(model, side), None, model.name)


def make_text_tower(model: Model, first_D: Tensor, texts: Sequence[str], logits_C: Tensor, index: int) -> Model:
    """Return the tower of one of several texts, whose scores are those of all texts: the others keep theirs.

    So the first input and a text are explained for the same score, be it a probability among the texts or a contrast.
    """
    others_CD = first_D.new_zeros(len(texts), len(first_D))
    others_CD[index] = first_D
    held_C = logits_C - _dual_encoder(model).read_bias()
    held_C[index] = 0
    return make_tower(model, SECOND, others_CD, texts, held_C)


def _dual_encoder(model: Model) -> DualEncoder:
    network: DualEncoder = model.network
    return network


def _side_processor(model: Model, side: int) -> Any:
    processor = model.processor
    if not isinstance(processor, TowerProcessor):
        raise BadInput(f"{model.name} was loaded without a processor: load it with one to read pictures and texts.")
    if side == FIRST and _dual_encoder(model).takes_images:
        return processor.image_processor
    return processor.tokenizer


def encode_side(model: Model, side: int, sources: Sequence[Any], overflow: str = "error") -> list[SideBatch]:
    """Encode inputs of one side as batches: of texts one, of pictures one for each size."""
    tower = make_reading_tower(model, side)
    encoded = [_encode(tower, model, source, overflow) for source in sources]
    groups: dict[Any, list[int]] = {}
    for index, row in enumerate(encoded):
        groups.setdefault(_picture_size(row), []).append(index)
    return [SideBatch(indices, _collate_some(tower, encoded, indices)) for indices in groups.values()]


def _collate_some(tower: Model, encoded: Sequence[Encoded], indices: Sequence[int]) -> Inputs:
    return collate(tower, [encoded[index] for index in indices])


def _picture_size(encoded: Encoded) -> Any:
    # Texts of different lengths are padded instead.
    pixels = encoded.values.get("pixel_values")
    return None if pixels is None else pixels.shape


def encode_one(model: Model, side: int, source: Any, overflow: str = "error") -> Inputs:
    """Encode a single input of one side."""
    return encode_side(model, side, [source], overflow)[0].inputs


def make_reading_tower(model: Model, side: int) -> Model:
    """Return a tower that reads its inputs, without anything to compare them with."""
    return make_tower(model, side, _make_nothing(model), ["similarity"])


def _make_nothing(model: Model) -> Tensor:
    # Encoding reads the config and the processor only, so that any head will do.
    return torch.zeros(1, 1, dtype=model.dtype, device=model.device)


def _encode(tower: Model, model: Model, source: Any, overflow: str) -> Encoded:
    if tower.takes_images:
        return encode_image(tower, source)
    encoded = encode_text(tower, source, overflow, advice=JOINT_ADVICE)
    length = _dual_encoder(model).padded_length
    return encoded if length is None else _pad_text(tower, encoded, length)


def _pad_text(tower: Model, encoded: Encoded, length: int) -> Encoded:
    """Pad a text to the length that the model was trained with: it reads the last position, padding or not."""
    missing = length - encoded.length
    pad = tower.processor.pad_token_id
    if pad is None:
        raise BadInput(f"The tokenizer of {tower.name} has no padding token, to which its texts have to be padded.")
    item = encoded.item
    offsets = None if item.offsets is None else item.offsets + ((0, 0),) * missing
    tokens = item.tokens + (tower.processor.convert_ids_to_tokens(pad),) * missing
    padded = replace(item, tokens=tokens, special=item.special + (True,) * missing, offsets=offsets)
    # Padding counts as seen: SigLIP was trained without masks.
    ids = encoded.values["input_ids"] + [pad] * missing
    return Encoded(padded, {"input_ids": ids, "attention_mask": [1] * length})


def embed_side(model: Model, side: int, sources: Sequence[Any], overflow: str = "error") -> Tensor:
    """Return the embeddings of inputs of one side, without gradients (N,D)."""
    rows: list[Any] = [None] * len(sources)
    for start in range(0, len(sources), BATCH):
        for batch in encode_side(model, side, sources[start : start + BATCH], overflow):
            # The side that is held: its gradients are those of another trace.
            with torch.no_grad():
                embeddings_BD = _dual_encoder(model).embed(side, batch.inputs.tensors)
            for index, embedding_D in zip(batch.indices, embeddings_BD, strict=True):
                rows[start + index] = embedding_D
    return torch.stack(rows)
