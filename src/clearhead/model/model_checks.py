"""Refuse models that cannot be explained, with the reason and what to do."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from clearhead.errors import UnsupportedModel
from clearhead.model.joined_families import WRAPPERS
from clearhead.model.language import CAUSAL_ENDINGS, reads_both_ways
from clearhead.model.model import Model
from clearhead.model.picture_layout import LAYOUTS, REASONS
from clearhead.model.tower_processor import as_tower_processor

UNSUPPORTED_HEADS = (
    "LMHeadModel",
    "ForCausalLM",
    "ForConditionalGeneration",
)
# Why networks of families that mix a picture and a text are refused, but for those with a wrapper.
_OTHER_HEAD = "this head is not covered"
MIXED_STACKS = {
    "vilt": _OTHER_HEAD,
    "visual_bert": _OTHER_HEAD,
    "lxmert": _OTHER_HEAD,
    "blip": _OTHER_HEAD,
    "flava": "it has no head that matches a picture and a text",
    "bridgetower": _OTHER_HEAD,
}
# Packages of the modules that eager-mode quantisation of torch puts into a network.
QUANTISED_MODULES = ("torch.ao.nn.quantized", "torch.nn.quantized")


def validate_model(model: Model) -> None:
    """Raise UnsupportedModel unless the network's gradients and relevance can be computed."""
    # Language models that are explained have been wrapped, so that their own name does not count.
    architecture = type(model.network).__name__
    if not (model.reads_jointly or model.reads_pairs):
        _refuse_mixed_stacks(model.config, architecture)
    if architecture.endswith("ForVideoClassification"):
        raise UnsupportedModel(
            f"{architecture} reads videos, which cannot be explained: load a model of single pictures."
        )
    if architecture.endswith(UNSUPPORTED_HEADS):
        _refuse_both_ways(model.config, architecture)
        raise _refuse_pictures(model.config) or unsupported_head(architecture)
    _validate_gradients(model.network, architecture)
    _validate_devices(model.network, architecture)
    # Its vocabulary is compared later, by the methods that decode hidden states.
    _validate_lm_width(model, architecture)
    _validate_stack(model, architecture)


def _validate_stack(model: Model, architecture: str) -> None:
    # Detectors with a decoder say of themselves that they have both stacks.
    is_pair = getattr(model.config, "is_encoder_decoder", False) and not model.finds_objects
    if is_pair and not _can_classify_or_write(model, architecture):
        raise UnsupportedModel(
            f"{architecture} has an encoder and a decoder, but neither classifies a text nor writes one about it: "
            "load a …ForSequenceClassification or …ForConditionalGeneration model such as T5 or BART, or a "
            "MarianMTModel."
        )


def _can_classify_or_write(model: Model, architecture: str) -> bool:
    # The decoder of a classifier reads the text again; what it reads for other heads is not known.
    return model.is_encoder_decoder or architecture.endswith("ForSequenceClassification")


def refuse_choices(model: Model, purpose: str) -> None:
    """Raise UnsupportedModel for a model that scores several choices, which `purpose` cannot read."""
    if model.chooses:
        raise UnsupportedModel(
            f"{purpose} reads single texts, pairs and images, but {model.name} chooses among several texts: explain "
            "it with clearhead.explain or clearhead explain (docs/heads.md)."
        )


def unsupported_head(architecture: str) -> UnsupportedModel:
    """Return the error for an architecture whose head is not covered."""
    return UnsupportedModel(
        f"{architecture} has no head that is covered: load a …ForSequenceClassification, …ForImageClassification, "
        "…ForQuestionAnswering, …ForTokenClassification, …ForMaskedLM, …ForMultipleChoice, …ForCausalLM, for text "
        "…ForConditionalGeneration, for pictures …ForObjectDetection or …ForSemanticSegmentation model, or a two-tower "
        "model such as CLIPModel. A text encoder without a head compares two texts: clearhead.similarity(encoder)."
    )


def _refuse_mixed_stacks(config: Any, architecture: str) -> None:
    reason = MIXED_STACKS.get(getattr(config, "model_type", ""))
    if reason is not None:
        raise UnsupportedModel(
            f"{architecture} cannot be explained: {reason}. For a picture and a text choose {', '.join(WRAPPERS)}, a "
            f"two-tower model such as CLIP, or a model that writes, of type {', '.join(LAYOUTS)}."
        )


def _refuse_both_ways(config: Any, architecture: str) -> None:
    """Raise UnsupportedModel for a language model whose words see those after them, as its config says."""
    if architecture.endswith(CAUSAL_ENDINGS) and reads_both_ways(config):
        raise UnsupportedModel(
            f"{architecture} reads in both directions, so that each word of an answer would see itself: load it with a "
            "config that makes it a decoder (is_decoder=True; of XLNet attn_type='uni'), or as a …ForMaskedLM."
        )


def _refuse_pictures(config: Any) -> UnsupportedModel | None:
    """Return the error for a model that reads pictures in a way that is not covered; None for other models."""
    if getattr(config, "vision_config", None) is None:
        return None
    reason = REASONS.get(config.model_type, "where its image tokens lie on the picture is not known")
    return UnsupportedModel(
        f"The pictures of a model of type {config.model_type} cannot be explained: {reason}. Models that can: "
        f"{', '.join(LAYOUTS)}."
    )


def select_processor(model: Model) -> Model:
    """Return the model with the tokenizer or image processor that its network needs.

    A combined processor is reduced to that one. Raise UnsupportedModel if the processor does not fit.
    """
    if model.processor is None:
        return model
    processor = _reduce_processor(model)
    if not (model.reads_pairs or model.reads_jointly):
        _validate_processor(model, processor)
    if processor is model.processor:
        return model
    # Only a combined processor can put pictures among words.
    combined = model.processor if model.reads_pictures else None
    # The cached copies hold the combined processor.
    return replace(model, processor=processor, copies={}, picture_processor=combined)


def _reduce_processor(model: Model) -> Any:
    """Return the tokenizer or image processor inside a combined processor, else the processor itself."""
    if model.reads_pairs or model.reads_jointly:
        return as_tower_processor(model.processor, model.name, takes_images=model.network.takes_images)
    attribute = "tokenizer"
    if model.takes_images:
        attribute = "image_processor"
    return getattr(model.processor, attribute, None) or model.processor


def _validate_processor(model: Model, processor: Any) -> None:
    if not callable(processor) or _is_tokenizer(processor) == model.takes_images:
        raise _wrong_processor(model, processor)


def _is_tokenizer(processor: Any) -> bool:
    return hasattr(processor, "convert_ids_to_tokens")


def _wrong_processor(model: Model, processor: Any) -> UnsupportedModel:
    expected = "a tokenizer (AutoTokenizer)"
    if model.takes_images:
        expected = "an image processor (AutoImageProcessor)"
    return UnsupportedModel(f"{model.name} needs {expected} to read its inputs, not {type(processor).__name__}.")


def _validate_gradients(network: Any, architecture: str) -> None:
    # Tensors of inference mode cannot be saved for a backward pass, not even when wrapped later.
    if any(map(Tensor.is_inference, network.parameters())):
        raise UnsupportedModel(
            f"{architecture} was created inside torch.inference_mode() and has no gradient. Create it outside."
        )
    if any(map(_is_quantised, network.modules())):
        raise UnsupportedModel(f"{architecture} is quantised with kernels that have no gradient. Load it unquantised.")


def _validate_devices(network: Any, architecture: str) -> None:
    """Raise UnsupportedModel if a device map spreads the network over several devices."""
    devices = {str(parameter.device) for parameter in network.parameters()}
    for module in network.modules():
        # The map of Transformers also names devices whose weights are loaded when they are needed.
        devices.update(map(_name_device, (getattr(module, "hf_device_map", None) or {}).values()))
    _require_one_device(architecture, devices)


def _require_one_device(architecture: str, devices: set[str]) -> None:
    if len(devices) > 1:
        raise UnsupportedModel(
            f"{architecture} is spread over {', '.join(sorted(devices))} by a device map, but a trace needs all of it "
            "on one device: load it without device_map, or with device_map={'': 'cuda:0'}."
        )


def _name_device(device: Any) -> str:
    # A number is that of a GPU.
    return f"cuda:{device}" if isinstance(device, int) else str(device)


def _is_quantised(module: Any) -> bool:
    return type(module).__module__.startswith(QUANTISED_MODULES)


def _validate_lm_width(model: Model, architecture: str) -> None:
    if model.lm is None:
        return
    width = _hidden_size(model.network)
    lm_width = _hidden_size(model.lm)
    if width != lm_width:
        raise UnsupportedModel(f"The masked-LM head reads {lm_width} channels, but {architecture} has {width}.")


def _hidden_size(network: Any) -> int | None:
    return getattr(network.config, "hidden_size", None)
