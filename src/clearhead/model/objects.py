"""Models from objects in memory: networks, pipelines, modules and functions, wrapped so that they can be explained."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from clearhead.errors import UnsupportedModel
from clearhead.model.choice_network import ChoiceNetwork, wrap_choices
from clearhead.model.custom_network import CustomNetwork, is_stock, wrap_module
from clearhead.model.focus_networks import FocusNetwork, wrap_focus
from clearhead.model.function_network import TEXTS, FunctionNetwork, name_function, wrap_function
from clearhead.model.joined_families import wrap_joined
from clearhead.model.joined_networks import JoinedNetwork
from clearhead.model.language import AnswerNetwork, wrap_language_model
from clearhead.model.model import Model
from clearhead.model.source_names import has_path_marks
from clearhead.model.tower_families import wrap_dual_encoder
from clearhead.model.two_towers import DualEncoder

WRAPPED = (AnswerNetwork, FocusNetwork, ChoiceNetwork, CustomNetwork, FunctionNetwork, JoinedNetwork)


def wrap_objects(source: Any, processor: Any = None, reads: str = TEXTS, labels: Sequence[str] | None = None) -> Model:
    """Return a Model around a network or pipeline of Transformers, a module, or a function."""
    if _is_pipeline(source):
        return _wrap_network(source.model, processor or _find_pipeline_processor(source))
    if isinstance(unwrap_network(source), nn.Module):
        return _wrap_network(source, processor)
    if not callable(source):
        raise _no_transformer(source)
    network, prepare = wrap_function(source, processor, reads, labels)
    return Model(network, prepare, None, name_function(source))


def _is_pipeline(source: Any) -> bool:
    # Recognised by its attributes: importing the pipelines of Transformers takes long.
    return hasattr(source, "model") and hasattr(source, "preprocess")


def _wrap_network(source: Any, processor: Any) -> Model:
    network = unwrap_network(source)
    if not isinstance(network, nn.Module):
        raise _no_transformer(source)
    if not is_stock(network):
        return Model(wrap_module(network, processor), processor, None, type(network).__name__)
    return Model(network, processor, None, _find_name(network))


def _find_name(network: Any) -> str:
    # Empty for networks that were built from a config; a path is that of whoever trained the network.
    name = getattr(network.config, "_name_or_path", "") or type(network).__name__
    return Path(name).name if has_path_marks(name) else name


def _no_transformer(source: Any) -> UnsupportedModel:
    return UnsupportedModel(
        f"A {type(source).__name__} cannot be explained: give a Hugging Face Transformer (a PreTrainedModel), its "
        "name, or its folder, a torch module, or a function from texts to probabilities such as predict_proba."
    )


def _find_pipeline_processor(pipeline: Any) -> Any:
    # A pipeline that takes pictures and texts has both.
    if getattr(pipeline, "processor", None) is not None:
        return pipeline.processor
    image_processor = getattr(pipeline, "image_processor", None)
    if image_processor is not None:
        return image_processor
    return getattr(pipeline, "tokenizer", None)


def unwrap_network(network: Any) -> Any:
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


def wrap_network_output(model: Model) -> Model:
    """Return a Model whose network answers with what is explained: an answer's tokens, or a part of its output."""
    if isinstance(model.network, WRAPPED):
        return model
    wrapped = wrap_joined(model.network)
    # Heads of such a network have names that those of one text have too.
    if wrapped is model.network:
        wrapped = wrap_choices(wrap_focus(wrap_language_model(model.network)))
    if wrapped is model.network:
        return model
    return replace(model, network=wrapped, copies={})


def wrap_two_towers(model: Model) -> Model:
    """Return a Model whose two towers can be run apart, if it has two."""
    if isinstance(model.network, DualEncoder):
        return model
    wrapped = wrap_dual_encoder(model.network)
    if wrapped is model.network:
        return model
    return replace(model, network=wrapped, copies={})
