"""Load a model: an embedded one, a local folder, a hub id, or objects in memory."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.errors import BadOption
from clearhead.model import zoo
from clearhead.model.cpu_features import require_bfloat16
from clearhead.model.folders import hide_progress_bars, load_folder, load_masked_lm
from clearhead.model.function_network import TEXTS
from clearhead.model.model import Model
from clearhead.model.model_checks import select_processor, validate_model
from clearhead.model.objects import unwrap_network, wrap_network_output, wrap_objects, wrap_two_towers
from clearhead.model.placement import place_model
from clearhead.model.zoo import language_model


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

    Objects are networks of Transformers, pipelines, custom modules with a Transformer inside (together with its
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
        loaded = wrap_two_towers(wrap_network_output(loaded))
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
    return load_folder(str(source), allow_pickle)


def _load_from_zoo(name: str) -> Model:
    network, processor, lm = zoo.open_model(name)
    return Model(network, processor, lm, name)


def _load_language_model() -> Model:
    with hide_progress_bars():
        folder = language_model.prepare_folder()
    return replace(load_folder(str(folder), allow_pickle=False), name=language_model.NAME)


def _load_lm_head(source: Any, allow_pickle: bool) -> Any:
    """Return a masked-language model from an object, a folder or a hub id."""
    if not isinstance(source, str | Path):
        return _validate_lm_head(source)
    return load_masked_lm(str(source), allow_pickle)


def _validate_lm_head(source: Any) -> Any:
    network = unwrap_network(source)
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
