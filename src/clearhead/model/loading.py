"""TODO."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.errors import BadFile, BadOption, UnsupportedModel
from clearhead.model import zoo
from clearhead.model.model import Model
from clearhead.model.placement import place_model
from clearhead.registry import unknown_name

HEADS = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForImageClassification": "AutoModelForImageClassification",
    "ForImageClassificationWithTeacher": "AutoModelForImageClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
}


QUANTISED = ("torch.ao.nn.quantized", "torch.nn.quantized")


def load(
    model: Any = None,
    processor: Any = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    lm_head: Any = None,
    allow_pickle: bool = False,
) -> Model:
    """Makes a Model of what you have: nothing (the embedded default), a name, a folder, a hub id, or objects.

    Objects in memory are used as they are and left untouched; asking for another device or dtype makes a copy.
    Code from model repositories is never executed, and pickled weights are refused unless `allow_pickle`.

    >>> clearhead.load("path/to/my-bert", device="cuda")     # doctest: +SKIP
    """
    with torch.inference_mode(False):
        loaded = _load_source(model, allow_pickle)
        if processor is not None:
            loaded = replace(loaded, processor=processor, copies={})
        if lm_head is not None:
            loaded = replace(loaded, lm=_load_lm_head(lm_head, allow_pickle), copies={})
        _check_head(loaded)
        loaded = _with_processor_part(loaded)
        placed = place_model(loaded, device, dtype)
        if placed.lm is not None and next(placed.lm.parameters()).device != placed.device:
            placed = replace(placed, lm=copy.deepcopy(placed.lm).to(placed.device), copies={})
        return placed


def as_model(model: Any) -> Model:
    """What every function takes as a model: a Model as it is, or whatever `load` makes one of."""
    return model if isinstance(model, Model) else load(model)


def models() -> dict[str, Any]:
    """The embedded models by name, with what each is for and how good it is."""
    return {name: zoo.describe(name) for name in zoo.names()}


def _load_source(model: Any, allow_pickle: bool) -> Model:
    if isinstance(model, Model):
        return model
    if model is None or (isinstance(model, str | Path) and Path(model).as_posix() in zoo.names()):
        return _from_zoo(zoo.names()[0] if model is None else Path(model).as_posix())
    return _from_folder(str(model), allow_pickle) if isinstance(model, str | Path) else _from_objects(model)


def _from_zoo(name: str) -> Model:
    network, processor, lm = zoo.open_model(name)
    return Model(network, processor, lm, name)


def _exists(source: str) -> bool:
    try:
        return Path(source).exists()
    except (OSError, ValueError):
        return False


def _check_source(source: str) -> None:
    """Refuses at once what can be neither a folder nor a hub id, before the hub is asked for it again and again."""
    if _exists(source):
        return
    embedded = zoo.names()
    if source.startswith("clearhead/") or f"clearhead/{source}" in embedded:
        raise unknown_name("embedded model", source, embedded)
    if source.startswith((".", "/", "~")) or source.endswith("/") or source.count("/") > 1 or "\\" in source:
        raise BadFile(_not_loadable(source, "There is no such folder."))


def _from_folder(source: str, allow_pickle: bool) -> Model:
    import transformers

    _check_source(source)
    try:
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise BadFile(_not_loadable(source, _first_line(error))) from error
    architecture = (getattr(config, "architectures", None) or ["?"])[0]
    head = next((auto for ending, auto in HEADS.items() if architecture.endswith(ending)), None)
    if head is None:
        raise UnsupportedModel(_wrong_head(architecture))
    options = {"trust_remote_code": False, "use_safetensors": None if allow_pickle else True}
    try:
        with hide_progress_bars():
            network = getattr(transformers, head).from_pretrained(source, **options).eval()
            processor = _load_processor(source, head)
    except (OSError, ValueError) as error:
        raise BadFile(_not_loadable(source, _first_line(error))) from error
    return Model(network, processor, None, source)


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Transformers' progress bars for reading weights, which flash by, are left out."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _load_processor(source: str, head: str) -> Any:
    import transformers

    kind = transformers.AutoImageProcessor if "Image" in head else transformers.AutoTokenizer
    return kind.from_pretrained(source, trust_remote_code=False)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _not_loadable(source: str, reason: str) -> str:
    names = ", ".join(zoo.names())
    told = f"'{source}' cannot be loaded: {reason} Give a folder with config.json and safetensors weights, a hub id, "
    told += f"or one of {names}."
    pickled = " Pickled weights need allow_pickle=True (clearhead serve: --allow-pickle)."
    return told + pickled * ("safetensors" in reason)


def _from_objects(source: Any) -> Model:
    processor = None
    if hasattr(source, "model") and hasattr(source, "preprocess"):
        parts = (getattr(source, "image_processor", None), getattr(source, "tokenizer", None))
        processor = next((part for part in parts if part is not None), None)
        source = source.model
    network = unwrap_network(source)
    if not isinstance(network, nn.Module) or not hasattr(network, "config"):
        raise UnsupportedModel(
            f"A {type(source).__name__} cannot be explained: give a Hugging Face Transformer (a PreTrainedModel), its "
            "name, or its folder."
        )
    name = getattr(network.config, "_name_or_path", "") or type(network).__name__
    return Model(network, processor, None, name)


def unwrap_network(network: Any) -> Any:
    """The eager Hugging Face network inside torch.compile and adapter wrappers."""
    network = getattr(network, "_orig_mod", network)
    if hasattr(network, "get_base_model") and hasattr(network, "peft_config"):
        if getattr(network.active_peft_config, "is_prompt_learning", False):
            raise UnsupportedModel(
                "Prompt-learning adapters add tokens that are not in the input. Merge or remove them."
            )
        network = network.get_base_model()
    return getattr(network, "_orig_mod", network)


def _with_processor_part(model: Model) -> Model:
    """With the part of its processor that reads what the network takes; refuses one that does not."""
    if model.processor is None:
        return model
    part = getattr(model.processor, "image_processor" if model.takes_images else "tokenizer", None) or model.processor
    is_tokenizer = hasattr(part, "convert_ids_to_tokens")
    if not callable(part) or is_tokenizer == model.takes_images:
        wanted = "an image processor (AutoImageProcessor)" if model.takes_images else "a tokenizer (AutoTokenizer)"
        raise UnsupportedModel(f"{model.name} needs {wanted} to read its inputs, not {type(part).__name__}.")
    return model if part is model.processor else replace(model, processor=part, copies={})


def _load_lm_head(source: Any, allow_pickle: bool) -> Any:
    import transformers

    if not isinstance(source, str | Path):
        found = unwrap_network(source)
        if getattr(found, "get_output_embeddings", lambda: None)() is None:
            raise BadOption(f"lm_head must be a …ForMaskedLM model, or its folder, not {type(source).__name__}.")
        return found
    _check_source(str(source))
    options = {"trust_remote_code": False, "use_safetensors": None if allow_pickle else True}
    try:
        with hide_progress_bars():
            return transformers.AutoModelForMaskedLM.from_pretrained(str(source), **options).eval()
    except (OSError, ValueError) as error:
        raise BadFile(_not_loadable(str(source), _first_line(error))) from error


def _check_head(model: Model) -> None:
    kind = type(model.network).__name__
    refused = (
        "ForTokenClassification",
        "ForCausalLM",
        "ForMaskedLM",
        "LMHeadModel",
        "ForConditionalGeneration",
    )
    if kind.endswith(refused):
        raise UnsupportedModel(_wrong_head(kind))
    if any(parameter.is_inference() for parameter in model.network.parameters()):
        raise UnsupportedModel(f"{kind} was made inside torch.inference_mode() and has no gradient. Make it outside.")
    if any(type(module).__module__.startswith(QUANTISED) for module in model.network.modules()):
        raise UnsupportedModel(f"{kind} is quantised with kernels that have no gradient. Load it unquantised.")
    widths = [getattr(one.config, "hidden_size", None) for one in (model.network, model.lm) if one is not None]
    if len(set(widths)) > 1:
        raise UnsupportedModel(f"The masked-LM head reads {widths[1]} channels, but {kind} has {widths[0]}.")
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedModel(
            f"{kind} has an encoder and a decoder; Clearhead explains models with one stack of blocks."
        )


def _wrong_head(kind: str) -> str:
    return (
        f"{kind} has no classification, regression or answer-span head. Token classification and generation are not "
        "covered: load a …ForSequenceClassification, …ForImageClassification or …ForQuestionAnswering model."
    )
