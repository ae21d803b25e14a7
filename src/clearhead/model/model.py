"""The model that is explained: network, processor, optional masked-LM head; and how it is loaded."""

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import BadFile, BadOption, UnsupportedModel
from clearhead.model import zoo
from clearhead.registry import unknown

HEADS = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForImageClassification": "AutoModelForImageClassification",
    "ForImageClassificationWithTeacher": "AutoModelForImageClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
}
QUANTISED = ("torch.ao.nn.quantized", "torch.nn.quantized")
PROBLEMS = {
    "regression": "regression",
    "multi_label_classification": "multi-label",
    "single_label_classification": "single-label",
}


@dataclass(frozen=True, eq=False)
class Model:
    """A Hugging Face network with what turns raw input into its tensors.

    `processor` is a tokenizer, an image processor, or None (tensors in); `lm` a masked-language model whose head
    decodes hidden states.
    """

    network: Any
    processor: Any = None
    lm: Any = None
    name: str = "model"
    copies: dict[str, tuple[Any, "Model"]] = field(default_factory=dict, repr=False)

    @property
    def config(self) -> Any:
        return self.network.config

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.network.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the first floating parameter: quantised models hold integer ones too."""
        dtype: torch.dtype = next(p.dtype for p in self.network.parameters() if p.dtype.is_floating_point)
        return dtype

    @property
    def takes_images(self) -> bool:
        return getattr(self.network, "main_input_name", "input_ids") == "pixel_values"

    @property
    def labels(self) -> list[str]:
        names = self._names
        return [str(names.get(index, f"LABEL_{index}")) for index in range(len(names))]

    @property
    def classes(self) -> int:
        """How many classes the config names; 0 where it names none."""
        return len(self._names)

    @property
    def _names(self) -> dict[int, Any]:
        return getattr(self.config, "id2label", None) or {}

    @property
    def problem(self) -> str:
        """single-label, multi-label, one-logit, regression or span: decides what a probability is."""
        if type(self.network).__name__.endswith("ForQuestionAnswering"):
            return "span"
        kind = PROBLEMS.get(getattr(self.config, "problem_type", None) or "")
        if len(self._names) == 1:
            return "regression" if kind in (None, "regression") else "one-logit"
        return kind or "single-label"

    @cached_property
    def position_tables(self) -> list[nn.Embedding]:
        """Embeddings of positions, which limit how many tokens the network takes."""
        return [
            module
            for name, module in self.network.named_modules()
            if isinstance(module, nn.Embedding)
            and name.rsplit(".", 1)[-1] in ("position_embeddings", "embed_positions", "wpe")
        ]

    @property
    def can_pad(self) -> bool:
        """Whether texts of different lengths may share a batch."""
        return self.takes_images or (getattr(self.config, "pad_token_id", None) is not None and self.takes_mask)

    @cached_property
    def takes_mask(self) -> bool:
        """Whether the network can be told what is padding; a wrapper that names no inputs takes what it is given."""
        taken = inspect.signature(self.network.forward).parameters
        return "attention_mask" in taken or "input_ids" not in taken


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
        loaded = _found(model, allow_pickle)
        if processor is not None:
            loaded = replace(loaded, processor=processor, copies={})
        if lm_head is not None:
            loaded = replace(loaded, lm=_lm(lm_head, allow_pickle), copies={})
        _check_head(loaded)
        loaded = _with_reader(loaded)
        placed = _placed(loaded, device, dtype)
        if placed.lm is not None and next(placed.lm.parameters()).device != placed.device:
            placed = replace(placed, lm=copy.deepcopy(placed.lm).to(placed.device), copies={})
        return placed


def as_model(model: Any) -> Model:
    """What every function takes as a model: a Model as it is, or whatever `load` makes one of."""
    return model if isinstance(model, Model) else load(model)


def models() -> dict[str, Any]:
    """The embedded models by name, with what each is for and how good it is."""
    return {name: zoo.describe(name) for name in zoo.names()}


def _found(model: Any, allow_pickle: bool) -> Model:
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


def _check_place(source: str) -> None:
    """Refuses at once what can be neither a folder nor a hub id, before the hub is asked for it again and again."""
    if _exists(source):
        return
    embedded = zoo.names()
    if source.startswith("clearhead/") or f"clearhead/{source}" in embedded:
        raise unknown("embedded model", source, embedded)
    if source.startswith((".", "/", "~")) or source.endswith("/") or source.count("/") > 1 or "\\" in source:
        raise BadFile(_not_loadable(source, "There is no such folder."))


def _from_folder(source: str, allow_pickle: bool) -> Model:
    import transformers

    _check_place(source)
    try:
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise BadFile(_not_loadable(source, _reason(error))) from error
    architecture = (getattr(config, "architectures", None) or ["?"])[0]
    head = next((auto for ending, auto in HEADS.items() if architecture.endswith(ending)), None)
    if head is None:
        raise UnsupportedModel(_wrong_head(architecture))
    options = {"trust_remote_code": False, "use_safetensors": None if allow_pickle else True}
    try:
        with without_bars():
            network = getattr(transformers, head).from_pretrained(source, **options).eval()
            processor = _processor(source, head)
    except (OSError, ValueError) as error:
        raise BadFile(_not_loadable(source, _reason(error))) from error
    return Model(network, processor, None, source)


@contextmanager
def without_bars() -> Iterator[None]:
    """Transformers' progress bars for reading weights, which flash by, are left out."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _processor(source: str, head: str) -> Any:
    import transformers

    kind = transformers.AutoImageProcessor if "Image" in head else transformers.AutoTokenizer
    return kind.from_pretrained(source, trust_remote_code=False)


def _reason(error: Exception) -> str:
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
    network = unwrapped(source)
    if not isinstance(network, nn.Module) or not hasattr(network, "config"):
        raise UnsupportedModel(
            f"A {type(source).__name__} cannot be explained: give a Hugging Face Transformer (a PreTrainedModel), its "
            "name, or its folder."
        )
    name = getattr(network.config, "_name_or_path", "") or type(network).__name__
    return Model(network, processor, None, name)


def unwrapped(network: Any) -> Any:
    """The eager Hugging Face network inside torch.compile and adapter wrappers."""
    network = getattr(network, "_orig_mod", network)
    if hasattr(network, "get_base_model") and hasattr(network, "peft_config"):
        if getattr(network.active_peft_config, "is_prompt_learning", False):
            raise UnsupportedModel(
                "Prompt-learning adapters add tokens that are not in the input. Merge or remove them."
            )
        network = network.get_base_model()
    return getattr(network, "_orig_mod", network)


def _with_reader(model: Model) -> Model:
    """With the part of its processor that reads what the network takes; refuses one that does not."""
    if model.processor is None:
        return model
    part = getattr(model.processor, "image_processor" if model.takes_images else "tokenizer", None) or model.processor
    is_tokenizer = hasattr(part, "convert_ids_to_tokens")
    if not callable(part) or is_tokenizer == model.takes_images:
        wanted = "an image processor (AutoImageProcessor)" if model.takes_images else "a tokenizer (AutoTokenizer)"
        raise UnsupportedModel(f"{model.name} needs {wanted} to read its inputs, not {type(part).__name__}.")
    return model if part is model.processor else replace(model, processor=part, copies={})


def _lm(source: Any, allow_pickle: bool) -> Any:
    import transformers

    if not isinstance(source, str | Path):
        found = unwrapped(source)
        if getattr(found, "get_output_embeddings", lambda: None)() is None:
            raise BadOption(f"lm_head must be a …ForMaskedLM model, or its folder, not {type(source).__name__}.")
        return found
    _check_place(str(source))
    options = {"trust_remote_code": False, "use_safetensors": None if allow_pickle else True}
    try:
        with without_bars():
            return transformers.AutoModelForMaskedLM.from_pretrained(str(source), **options).eval()
    except (OSError, ValueError) as error:
        raise BadFile(_not_loadable(str(source), _reason(error))) from error


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


def _placed(model: Model, device: Any, dtype: Any) -> Model:
    wanted_dtype = _dtype(dtype) if dtype is not None else model.dtype
    wanted_device = _device(device) if device is not None else model.device
    same_device = wanted_device.type == model.device.type and wanted_device.index in (
        None,
        model.device.index,
    )
    if same_device and wanted_dtype == model.dtype:
        return model
    try:
        return _copied(model, wanted_device, wanted_dtype)
    except (RuntimeError, AssertionError) as error:
        raise BadOption(f"The model cannot be put on '{device}': {str(error).splitlines()[0]}") from error


def _device(name: Any) -> torch.device:
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise BadOption(f"'{name}' is not a device. Use cpu, cuda, cuda:1 …, or mps.") from error
    if device.type == "meta":
        raise BadOption("Nothing is computed on 'meta'. Use cpu, cuda, cuda:1 …, or mps.")
    return device


def _copied(model: Model, device: torch.device, dtype: torch.dtype) -> Model:
    with torch.inference_mode(False):
        lm = None if model.lm is None else copy.deepcopy(model.lm).to(device, dtype)
        network = copy.deepcopy(model.network).to(device, dtype)
    return replace(model, network=network, lm=lm, copies={})


def _dtype(name: str | torch.dtype) -> torch.dtype:
    found = getattr(torch, name, None) if isinstance(name, str) else name
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise BadOption(f"'{name}' is not a floating type. Use float32, float64, float16 or bfloat16.")
    return found


def precise(model: Model, precision: str | None) -> Model:
    """The same model in another floating type; the copy is made once and kept with the model."""
    if precision is None or _dtype(precision) == model.dtype:
        return model
    stamp, known = _stamp(model), model.copies.get(precision)
    if known is None or known[0] != stamp:
        known = model.copies[precision] = (stamp, _copied(model, model.device, _dtype(precision)))
    return known[1]


def _stamp(model: Model) -> list[tuple[int, int]]:
    """Where every weight lies and how often it was written to: a model that is trained on is another one."""
    networks = [one for one in (model.network, model.lm) if one is not None]
    weights = [one for network in networks for one in (*network.parameters(), *network.buffers())]
    return [(one.data_ptr(), 0 if one.is_inference() else one._version) for one in weights]


def word_table(network: Any) -> Tensor | None:
    """The weights of the word embedding, by which the start of a text's trace is recognised."""
    try:
        table = network.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    return getattr(table, "weight", None)


def longest(model: Model) -> int | None:
    """How many tokens the network takes at most; None where nothing limits it."""
    limits = [
        module.num_embeddings - (module.padding_idx + 1 if module.padding_idx else getattr(module, "offset", 0))
        for module in model.position_tables
    ]
    stated = getattr(model.config, "max_position_embeddings", None)
    said = getattr(model.processor, "model_max_length", None)
    if said is not None and said < 10**9:
        limits.append(said)
    return min(limits, default=stated if stated and stated > 0 else None)
