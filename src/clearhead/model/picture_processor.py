"""Load the processor of a model that reads pictures among words."""

from typing import Any

from clearhead.model.hub import load_pretrained


def load_picture_processor(source: str) -> Any:
    """Return the processor of words and pictures; the tokenizer if the processor needs torchvision."""
    import transformers

    try:
        return load_pretrained(transformers.AutoProcessor, source)
    except ImportError:
        # Prompts can be given as tensors, for which the tokenizer is enough.
        return load_pretrained(transformers.AutoTokenizer, source)
