"""The tokenizer and the image processor of a two-tower model."""

from dataclasses import dataclass
from typing import Any

from clearhead.errors import UnsupportedModel
from clearhead.model.hub import load_pretrained


@dataclass(frozen=True)
class TowerProcessor:
    """What reads texts, and what reads pictures if the model takes them."""

    tokenizer: Any
    image_processor: Any = None


def as_tower_processor(processor: Any, name: str, *, takes_images: bool) -> TowerProcessor | None:
    """Return the two halves of a combined processor, or a tokenizer alone; raise UnsupportedModel if one is missing."""
    if processor is None or isinstance(processor, TowerProcessor):
        return processor
    # Combined processors differ by family, but all have these two.
    tokenizer = getattr(processor, "tokenizer", processor)
    image_processor = getattr(processor, "image_processor", None) if takes_images else None
    if not hasattr(tokenizer, "convert_ids_to_tokens") or (takes_images and image_processor is None):
        raise _wrong_processor(processor, name, takes_images)
    return TowerProcessor(tokenizer, image_processor)


def _wrong_processor(processor: Any, name: str, takes_images: bool) -> UnsupportedModel:
    # Named by what Transformers loads it with.
    expected = "a tokenizer (AutoTokenizer)"
    if takes_images:
        expected = "a processor with a tokenizer and an image processor (AutoProcessor)"
    return UnsupportedModel(f"{name} needs {expected} to read its inputs, not {type(processor).__name__}.")


def load_tower_processor(source: str) -> TowerProcessor:
    """Load the tokenizer and the image processor of a folder or hub id."""
    import transformers

    tokenizer = load_pretrained(transformers.AutoTokenizer, source)
    # Pillow's processors: those of torchvision need a package that is not at hand everywhere.
    image_processor = load_pretrained(transformers.AutoImageProcessor, source, backend="pil")
    return TowerProcessor(tokenizer, image_processor)
