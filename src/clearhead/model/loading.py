"""Load a model: an embedded one, a local folder, a hub id, or objects in memory."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.errors import BadOption, UnsupportedModel
from clearhead.model import zoo
from clearhead.model.adapters import Adapter, count_adapter_classes, is_adapter, put_on, read_adapter
from clearhead.model.choice_network import ChoiceNetwork, wrap_choices
from clearhead.model.cpu_features import require_bfloat16
from clearhead.model.custom_network import CustomNetwork, is_stock, wrap_module
from clearhead.model.focus_networks import FocusNetwork, wrap_focus
from clearhead.model.function_network import TEXTS, FunctionNetwork, name_function, wrap_function
from clearhead.model.language import (
    AnswerNetwork,
    encoder_decoder_architectures,
    picture_architectures,
    wrap_language_model,
)
from clearhead.model.load_errors import list_names, load_error, refuse_missing_weights, translate_load_errors
from clearhead.model.model import Model
from clearhead.model.model_checks import select_processor, unsupported_head, validate_model
from clearhead.model.picture_processor import load_picture_processor
from clearhead.model.placement import place_model
from clearhead.model.sentence_folders import SentenceFolder, read_sentence_folder
from clearhead.model.tower_processor import load_tower_processor
from clearhead.model.two_towers import (
    DualEncoder,
    dual_encoder_architectures,
    make_text_pair_encoder,
    wrap_dual_encoder,
)
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
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForMultipleChoice": "AutoModelForMultipleChoice",
    "ForObjectDetection": "AutoModelForObjectDetection",
    "ForSemanticSegmentation": "AutoModelForSemanticSegmentation",
}
PICTURE_CLASS = "AutoModelForImageTextToText"

IMAGE_TASKS = ("ImageClassification", "ObjectDetection", "SemanticSegmentation")


def load(
    model: Any = None,
    processor: Any = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    lm_head: Any = None,
    allow_pickle: bool = False,
    labels: Sequence[str] | None = None,
    reads: str = TEXTS,
) -> Model:
    """Load a Model from nothing (the embedded default), a name, a folder, a hub id, or objects.

    Objects are networks of Transformers, pipelines, modules of one's own with a Transformer inside (together with its
    tokenizer or image processor), and functions from a list of texts, or with `reads="images"` from an array of images
    (n × height × width × 3, 0 to 255), to probabilities (n × classes, or n). `labels` name the classes.
    Objects in memory are used as they are and left untouched; another device or dtype makes a copy.
    Code from model repositories is never executed, and pickled weights are refused unless `allow_pickle`.

    >>> clearhead.load("path/to/my-bert", device="cuda")     # doctest: +SKIP
    """
    # Weights created under the caller's inference_mode could never have gradients.
    with torch.inference_mode(False):
        if _is_object(model):
            loaded = wrap_objects(model, processor, reads, labels)
        else:
            loaded = _load_source(model, allow_pickle)
        if labels is not None:
            loaded = _name_classes(loaded, labels)
        if processor is not None:
            loaded = replace(loaded, processor=processor, copies={})
        if lm_head is not None:
            loaded = replace(loaded, lm=_load_lm_head(lm_head, allow_pickle), copies={})
        loaded = _wrap_two_towers(_wrap_network_output(loaded))
        validate_model(loaded)
        return _place(select_processor(loaded), device, dtype)


def _is_object(source: Any) -> bool:
    return source is not None and not isinstance(source, str | Path | Model)


def _name_classes(model: Model, labels: Sequence[str]) -> Model:
    names = list(map(str, labels))
    if isinstance(labels, str) or model.classes not in (0, len(names)):
        raise BadOption(f"Invalid labels={labels!r}: {model.name} has {model.classes} classes; name each of them.")
    return replace(model, class_names=names, copies={})


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
    return _load_by_name(source, allow_pickle)


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
    if is_adapter(source):
        return _load_adapter(read_adapter(source), allow_pickle)
    sentences = read_sentence_folder(source)
    if sentences is not None:
        return load_sentence_encoder(source, sentences, allow_pickle)
    auto_class = _find_auto_class(_read_architecture(source))
    with translate_load_errors(source), _hide_progress_bars():
        network = _load_network(auto_class, source, allow_pickle)
        processor = _load_processor(source, auto_class)
    return Model(network, processor, None, source)


def load_sentence_encoder(source: str, folder: SentenceFolder, allow_pickle: bool) -> Model:
    """Load the network of a folder as an encoder of two texts."""
    _validate_source(folder.network)
    with translate_load_errors(source), _hide_progress_bars():
        network = _load_network("AutoModel", folder.network, allow_pickle)
        tokenizer = _load_processor(folder.network, "AutoTokenizer")
    return Model(make_text_pair_encoder(network, folder.pooling, folder.score), tokenizer, None, source)


def _load_adapter(adapter: Adapter, allow_pickle: bool) -> Model:
    """Load the base model of an adapter, and put the adapter on it."""
    if _is_path(adapter.base) and not _exists(adapter.base):
        raise load_error(adapter.folder, f"it is an adapter of '{adapter.base}', and there is no such folder.")
    auto_class = adapter.auto_class or _find_auto_class(_read_architecture(adapter.base))
    with translate_load_errors(adapter.folder), _hide_progress_bars():
        options = {}
        classes = count_adapter_classes(adapter.folder)
        if classes is not None:
            options["num_labels"] = classes
        # The head may be the adapter's: what the base model lacks comes with it.
        network = _load_network(auto_class, adapter.base, allow_pickle, may_lack=True, **options)
        network = put_on(network, adapter, allow_pickle=allow_pickle)
        processor = _load_processor(adapter.folder if adapter.has_tokenizer else adapter.base, auto_class)
    return Model(_unwrap_network(network), processor, None, adapter.folder)


def _read_architecture(source: str) -> str:
    config = _read_config(source)
    architectures = getattr(config, "architectures", None)
    if isinstance(architectures, list) and architectures:
        return str(architectures[0])
    # Converted weights often do not name it, but an encoder–decoder has one head that writes.
    return encoder_decoder_architectures().get(config.model_type, "?")


def _read_config(source: str) -> Any:
    import transformers

    with translate_load_errors(source):
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
    if architecture in dual_encoder_architectures():
        return "AutoModel"
    raise unsupported_head(architecture)


def _load_network(auto_class: str, source: str, allow_pickle: bool, *, may_lack: bool = False, **options: Any) -> Any:
    import transformers

    # None lets Transformers fall back to pickled weights; True allows safetensors only.
    use_safetensors = None if allow_pickle else True
    loader = getattr(transformers, auto_class)
    network, report = loader.from_pretrained(
        source, trust_remote_code=False, use_safetensors=use_safetensors, output_loading_info=True, **options
    )
    if not may_lack:
        refuse_missing_weights(source, report["missing_keys"], dict(network.named_parameters()))
    return network.eval()


def _load_processor(source: str, auto_class: str) -> Any:
    import transformers

    if auto_class == PICTURE_CLASS:
        return load_picture_processor(source)
    if auto_class == "AutoModel":
        return load_tower_processor(source)
    if auto_class.endswith(IMAGE_TASKS):
        return transformers.AutoImageProcessor.from_pretrained(source, trust_remote_code=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    # Without its files some versions of Transformers make a tokenizer that knows special tokens only.
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise load_error(source, "it has no vocabulary (tokenizer.json, vocab.txt …): copy its tokenizer's files.")
    return tokenizer


def _load_lm_head(source: Any, allow_pickle: bool) -> Any:
    """Return a masked-language model from an object, a folder or a hub id."""
    if not isinstance(source, str | Path):
        return _validate_lm_head(source)
    return _load_masked_lm(str(source), allow_pickle)


def _load_masked_lm(source: str, allow_pickle: bool) -> Any:
    _validate_source(source)
    with translate_load_errors(source), _hide_progress_bars():
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


def wrap_objects(source: Any, processor: Any = None, reads: str = TEXTS, labels: Sequence[str] | None = None) -> Model:
    """Return a Model around a network or pipeline of Transformers, a module, or a function."""
    if _is_pipeline(source):
        return _wrap_network(source.model, processor or _find_pipeline_processor(source))
    if isinstance(_unwrap_network(source), nn.Module):
        return _wrap_network(source, processor)
    if not callable(source):
        raise _no_transformer(source)
    network, prepare = wrap_function(source, processor, reads, labels)
    return Model(network, prepare, None, name_function(source))


def _is_pipeline(source: Any) -> bool:
    # Recognised by its attributes: importing the pipelines of Transformers takes long.
    return hasattr(source, "model") and hasattr(source, "preprocess")


def _wrap_network(source: Any, processor: Any) -> Model:
    network = _unwrap_network(source)
    if not isinstance(network, nn.Module):
        raise _no_transformer(source)
    if not is_stock(network):
        return Model(wrap_module(network, processor), processor, None, type(network).__name__)
    return Model(network, processor, None, _find_name(network))


def _find_name(network: Any) -> str:
    # Empty for networks that were built from a config; a path is that of whoever trained the network.
    name = getattr(network.config, "_name_or_path", "") or type(network).__name__
    return Path(name).name if _has_path_marks(name) else name


def _no_transformer(source: Any) -> UnsupportedModel:
    return UnsupportedModel(
        f"A {type(source).__name__} cannot be explained: give a Hugging Face Transformer (a PreTrainedModel), its "
        "name, or its folder, a torch module, or a function from texts to probabilities such as predict_proba."
    )


def _wrap_network_output(model: Model) -> Model:
    """Return a Model whose network answers with what is explained: an answer's tokens, or a part of its output."""
    if isinstance(model.network, AnswerNetwork | FocusNetwork | ChoiceNetwork | CustomNetwork | FunctionNetwork):
        return model
    wrapped = wrap_choices(wrap_focus(wrap_language_model(model.network)))
    if wrapped is model.network:
        return model
    return replace(model, network=wrapped, copies={})


def _wrap_two_towers(model: Model) -> Model:
    """Return a Model whose two towers can be run apart, if it has two."""
    if isinstance(model.network, DualEncoder):
        return model
    wrapped = wrap_dual_encoder(model.network)
    if wrapped is model.network:
        return model
    return replace(model, network=wrapped, copies={})


def _find_pipeline_processor(pipeline: Any) -> Any:
    # A pipeline that takes pictures and texts has both.
    if getattr(pipeline, "processor", None) is not None:
        return pipeline.processor
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
        raise unknown_name("embedded model", source, list_names())
    if _is_path(source):
        raise load_error(source, "There is no such folder.")


def _is_embedded_name(source: str) -> bool:
    """Whether a name was meant for an embedded model: with their prefix, or one of them without it."""
    return source.startswith("clearhead/") or f"clearhead/{source}" in list_names()


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
