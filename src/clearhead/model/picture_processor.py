"""Load the processor of a model that reads pictures among words."""

from typing import Any


def load_picture_processor(source: str) -> Any:
    """Return the processor of words and pictures; the tokenizer if the processor needs torchvision."""
    import transformers

    try:
        return transformers.AutoProcessor.from_pretrained(source, trust_remote_code=False)
    except ImportError:
        # Prompts can be given as tensors, for which the tokenizer is enough.
        return transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
