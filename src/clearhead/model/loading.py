"""Load a model: an embedded one, a local folder, a hub id, or objects in memory."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.errors import BadFile, BadOption, UnsupportedModel, first_line
from clearhead.model import zoo
from clearhead.model.cpu_features import require_bfloat16
from clearhead.model.language import (
    AnswerNetwork,
    encoder_decoder_architectures,
    picture_architectures,
    wrap_language_model,
)
from clearhead.model.model import Model
from clearhead.model.model_checks import select_processor, unsupported_head, validate_model
from clearhead.model.placement import place_model
from clearhead.model.zoo import language_model
from clearhead.registry import unknown_name

# Ending of an architecture's name to the class of Transformers that loads it.
AUTO_CLASSES = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForImageClassification": "AutoModelForImageClassification",
    "ForImageClassificationWithTeacher": "AutoModelForImageClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
}
PICTURE_CLASS = "AutoModelForImageTextToText"


def load(
    model: Any = None,
    processor: Any = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    lm_head: Any = None,
    allow_pickle: bool = False,
) -> Model:
    """Load a Model from nothing (the embedded default), a name, a folder, a hub id, or objects.

    Objects in memory are used as they are and left untouched; another device or dtype makes a copy.
    Code from model repositories is never executed, and pickled weights are refused unless `allow_pickle`.

    >>> clearhead.load("path/to/my-bert", device="cuda")     # doctest: +SKIP
    """
    # Weights created under the caller's inference_mode could never have gradients.
    with torch.inference_mode(False):
        loaded = _load_source(model, allow_pickle)
        if processor is not None:
            loaded = replace(loaded, processor=processor, copies={})
        if lm_head is not None:
            loaded = replace(loaded, lm=_load_lm_head(lm_head, allow_pickle), copies={})
        loaded = _wrap_language_model(loaded)
        validate_model(loaded)
        return _place(select_processor(loaded), device, dtype)


def _place(model: Model, device: Any, dtype: Any) -> Model:
    placed = _place_lm_head(place_model(model, device, dtype))
    # Before the first pass: an illegal instruction would end the process without a message.
    require_bfloat16(placed.dtype, placed.device)
    return placed


def as_model(model: Any) -> Model:
    """Return a Model as it is, or load one from anything `load` accepts."""
    if isinstance(model, Model):
        return model
    return load(model)


def models() -> dict[str, Any]:
    """Return the embedded models by name, each with its task and whether it is installed.

    Classifiers have their labels and accuracy as well.
    """
    described = {}
    for name in zoo.names():
        described[name] = {**zoo.describe(name), "installed": True}
    described[language_model.NAME] = language_model.describe()
    return described


def _load_source(source: Any, allow_pickle: bool) -> Model:
    if isinstance(source, Model):
        return source
    if source is None:
        return _load_from_zoo(zoo.names()[0])
    if isinstance(source, str | Path):
        return _load_by_name(source, allow_pickle)
    return _wrap_objects(source)


def _load_by_name(source: str | Path, allow_pickle: bool) -> Model:
    name = Path(source).as_posix()
    if name in zoo.names():
        return _load_from_zoo(name)
    if name == language_model.NAME:
        return _load_language_model()
    return _load_from_folder(str(source), allow_pickle)


def _load_from_zoo(name: str) -> Model:
    network, processor, lm = zoo.open_model(name)
    return Model(network, processor, lm, name)


def _load_language_model() -> Model:
    with _hide_progress_bars():
        folder = language_model.prepare_folder()
    return replace(_load_from_folder(str(folder), allow_pickle=False), name=language_model.NAME)


def _load_from_folder(source: str, allow_pickle: bool) -> Model:
    """Load a folder or hub id in the layout of Transformers."""
    _validate_source(source)
    auto_class = _find_auto_class(_read_architecture(source))
    with _translate_load_errors(source), _hide_progress_bars():
        network = _load_network(auto_class, source, allow_pickle)
        processor = _load_processor(source, auto_class)
    return Model(network, processor, None, source)


def _read_architecture(source: str) -> str:
    config = _read_config(source)
    architectures = getattr(config, "architectures", None)
    if architectures:
        return str(architectures[0])
    # Converted weights often do not name it, but an encoder–decoder has one head that writes.
    return encoder_decoder_architectures().get(config.model_type, "?")


def _read_config(source: str) -> Any:
    import transformers

    with _translate_load_errors(source):
        return transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)


def _find_auto_class(architecture: str) -> str:
    for ending, auto_class in AUTO_CLASSES.items():
        if architecture.endswith(ending):
            return auto_class
    if architecture in encoder_decoder_architectures().values():
        return "AutoModelForSeq2SeqLM"
    # Those that are not covered are refused with their reason, once they are loaded.
    if architecture in picture_architectures():
        return PICTURE_CLASS
    raise unsupported_head(architecture)


def _load_network(auto_class: str, source: str, allow_pickle: bool) -> Any:
    import transformers

    # None lets Transformers fall back to pickled weights; True allows safetensors only.
    use_safetensors = None if allow_pickle else True
    loader = getattr(transformers, auto_class)
    network = loader.from_pretrained(source, trust_remote_code=False, use_safetensors=use_safetensors)
    return network.eval()


def _load_processor(source: str, auto_class: str) -> Any:
    import transformers

    if auto_class == PICTURE_CLASS:
        return _load_picture_processor(source)
    if "Image" in auto_class:
        return transformers.AutoImageProcessor.from_pretrained(source, trust_remote_code=False)
    return transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)


def _load_picture_processor(source: str) -> Any:
    """Return the processor of words and pictures; the tokenizer if the processor needs torchvision."""
    import transformers

    try:
        return transformers.AutoProcessor.from_pretrained(source, trust_remote_code=False)
    except ImportError:
        # Prompts can be given as tensors, for which the tokenizer is enough.
        return transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)


def _load_lm_head(source: Any, allow_pickle: bool) -> Any:
    """Return a masked-language model from an object, a folder or a hub id."""
    if not isinstance(source, str | Path):
        return _validate_lm_head(source)
    return _load_masked_lm(str(source), allow_pickle)


def _load_masked_lm(source: str, allow_pickle: bool) -> Any:
    _validate_source(source)
    with _translate_load_errors(source), _hide_progress_bars():
        return _load_network("AutoModelForMaskedLM", source, allow_pickle)


def _validate_lm_head(source: Any) -> Any:
    network = _unwrap_network(source)
    if not _has_lm_head(network):
        raise BadOption(f"lm_head must be a …ForMaskedLM model, or its folder, not {type(source).__name__}.")
    return network


def _has_lm_head(network: Any) -> bool:
    # Every network of Transformers has the method; it returns None without a head.
    return hasattr(network, "get_output_embeddings") and network.get_output_embeddings() is not None


def _place_lm_head(model: Model) -> Model:
    """Return the model with its masked-LM head on the network's device."""
    # `place_model` moves the head only together with the network.
    if model.lm is None or _device_of(model.lm) == model.device:
        return model
    return replace(model, lm=copy.deepcopy(model.lm).to(model.device), copies={})


def _device_of(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


def _wrap_objects(source: Any) -> Model:
    """Return a Model around a Transformers network or pipeline."""
    if not _is_pipeline(source):
        return _wrap_network(source, None)
    return _wrap_network(source.model, _find_pipeline_processor(source))


def _is_pipeline(source: Any) -> bool:
    # Recognised by its attributes: importing the pipelines of Transformers takes long.
    return hasattr(source, "model") and hasattr(source, "preprocess")


def _wrap_network(source: Any, processor: Any) -> Model:
    network = _unwrap_network(source)
    if not isinstance(network, nn.Module) or not hasattr(network, "config"):
        raise _no_transformer(source)
    return Model(network, processor, None, _find_name(network))


def _find_name(network: Any) -> str:
    # Empty for networks that were built from a config.
    return getattr(network.config, "_name_or_path", "") or type(network).__name__


def _no_transformer(source: Any) -> UnsupportedModel:
    return UnsupportedModel(
        f"A {type(source).__name__} cannot be explained: give a Hugging Face Transformer (a PreTrainedModel), its "
        "name, or its folder."
    )


def _wrap_language_model(model: Model) -> Model:
    """Return a Model whose network answers with the logits of an answer's tokens, if it is a language model."""
    if isinstance(model.network, AnswerNetwork):
        return model
    wrapped = wrap_language_model(model.network)
    if wrapped is model.network:
        return model
    return replace(model, network=wrapped, copies={})


def _find_pipeline_processor(pipeline: Any) -> Any:
    image_processor = getattr(pipeline, "image_processor", None)
    if image_processor is not None:
        return image_processor
    return getattr(pipeline, "tokenizer", None)


def _unwrap_network(network: Any) -> Any:
    """Return the eager Hugging Face network inside torch.compile and adapter (PEFT) wrappers."""
    network = getattr(network, "_orig_mod", network)
    if _is_adapter(network):
        network = _unwrap_adapter(network)
    # The adapter may itself wrap a compiled network.
    return getattr(network, "_orig_mod", network)


def _is_adapter(network: Any) -> bool:
    return hasattr(network, "get_base_model") and hasattr(network, "peft_config")


def _unwrap_adapter(network: Any) -> Any:
    # They change the input of the blocks, which relevance could not be traced back to.
    if getattr(network.active_peft_config, "is_prompt_learning", False):
        raise UnsupportedModel("Prompt-learning adapters add tokens that are not in the input. Merge or remove them.")
    return network.get_base_model()


def _validate_source(source: str) -> None:
    """Raise at once if `source` is neither a folder nor a possible hub id, without network requests."""
    if _exists(source):
        return
    # The hub would be asked several times, with pauses, before it gives up.
    if _is_embedded_name(source):
        raise unknown_name("embedded model", source, list(models()))
    if _is_path(source):
        raise BadFile(_load_error_message(source, "There is no such folder."))


def _is_embedded_name(source: str) -> bool:
    """Whether a name was meant for an embedded model: with their prefix, or one of them without it."""
    return source.startswith("clearhead/") or f"clearhead/{source}" in models()


def _is_path(source: str) -> bool:
    """Whether a name cannot be a hub id, which is NAME or OWNER/NAME."""
    return _has_path_marks(source) or source.count("/") > 1


def _has_path_marks(source: str) -> bool:
    return source.startswith((".", "/", "~")) or source.endswith("/") or "\\" in source


def _exists(source: str) -> bool:
    try:
        return Path(source).exists()
    except (OSError, ValueError):  # Too long for a file name, or with a null character.
        return False


@contextmanager
def _translate_load_errors(source: str) -> Iterator[None]:
    """Re-raise the errors of Transformers as BadFile with their first line."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise BadFile(_load_error_message(source, first_line(error))) from error


def _load_error_message(source: str, reason: str) -> str:
    message = (
        f"'{source}' cannot be loaded: {reason} Give a folder with config.json and safetensors weights, a hub id, "
        f"or one of {', '.join(models())}."
    )
    if "safetensors" in reason:
        message += " Pickled weights need allow_pickle=True (clearhead serve: --allow-pickle)."
    if "AutoTokenizer" in reason and find_spec("sentencepiece") is None:
        message += " The tokenizers of Marian and some others need SentencePiece: pip install sentencepiece."
    return message


@contextmanager
def _hide_progress_bars() -> Iterator[None]:
    """Disable the progress bars that Transformers shows while it reads weights."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
