"""Plain PyTorch modules around the body of a Transformer, with a head and a signature of their own."""

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import UnsupportedModel, first_line

TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "inputs_embeds", "position_ids")
# What the name of an argument contains, to the tensor that it stands for.
ARGUMENT_HINTS = {"mask": "attention_mask", "type": "token_type_ids", "segment": "token_type_ids"}
IMAGE_ARGUMENTS = ("pixel_values", "pixels", "image", "images")
PROBE_IDS = (0, 1, 2)
PROBE_SIZE = 224
SMALLEST = 1e-30
SUM_TOLERANCE = 1e-4


class CustomNetwork(nn.Module):
    """A module of the user's, called with the arguments that it takes; its first matrix of numbers are the logits.

    `arguments` maps the tensors of a tokenizer or image processor to the names of the module's arguments. If the head
    returns probabilities, their logarithms are the logits.
    """

    def __init__(self, module: nn.Module, processor: Any) -> None:
        super().__init__()
        self.module = module
        self.main_input_name = _find_main_input(module, processor)
        self.arguments = _map_arguments(module, self.main_input_name)
        self.returns_probabilities = False
        self.config: Any = None

    def forward(self, **tensors: Tensor) -> Tensor:
        values = find_values(self._run(tensors), _count_rows(tensors))
        return self._as_logits(values)

    def _run(self, tensors: Mapping[str, Tensor]) -> Any:
        arguments = {self.arguments.get(name, name): tensor for name, tensor in tensors.items()}
        return self.module(**arguments)

    def _as_logits(self, values: Tensor) -> Tensor:
        if self.returns_probabilities:
            return values.clamp(min=SMALLEST).log()
        return values

    def get_input_embeddings(self) -> Any:
        """Return the word embeddings: those of the body, else the first table of the module."""
        for body in _list_bodies(self.module):
            return body.get_input_embeddings()
        return _find_table(self.module)


def _count_rows(tensors: Mapping[str, Tensor]) -> int:
    return len(next(iter(tensors.values())))


def _find_table(module: nn.Module) -> nn.Embedding | None:
    # The first one: words are looked up before positions.
    return next((child for child in module.modules() if isinstance(child, nn.Embedding)), None)


def wrap_module(module: nn.Module, processor: Any) -> CustomNetwork:
    """Return a network around a module; it is called once, to see what its head returns."""
    network = CustomNetwork(module, processor)
    network.config = _find_config(module, processor)
    _read_head(network, _probe(network, processor))
    return network


def _read_head(network: CustomNetwork, values: Tensor) -> None:
    """Set what the outputs of a network for a small input tell about its head."""
    network.returns_probabilities = _are_probabilities(values)
    _name_classes(network.config, values.shape[1])


def _name_classes(config: Any, count: int) -> None:
    # The config of a body knows nothing of a head that was put on it.
    if len(getattr(config, "id2label", None) or ()) != count:
        config.id2label = number_labels(count)


def is_stock(module: Any) -> bool:
    """Return whether a network has the interface of Transformers: a config, word embeddings or a name of its input."""
    return hasattr(module, "config") and hasattr(module, "get_input_embeddings") and hasattr(module, "main_input_name")


def find_values(output: Any, rows: int) -> Tensor:
    """Return the logits in what a module returned: one row per input."""
    for value in _list_values(output):
        if _is_matrix(value, rows):
            return value
        # One number per input.
        if value.shape == (rows,):
            return value[:, None]
    raise _no_logits(output)


def _is_matrix(value: Tensor, rows: int) -> bool:
    return value.dim() == 2 and len(value) == rows


def _no_logits(output: Any) -> UnsupportedModel:
    return UnsupportedModel(
        f"The module returned {_describe(output)}: return the logits (inputs × classes) as a tensor, first in a tuple, "
        "or under the name 'logits'."
    )


def _list_values(output: Any) -> Iterator[Tensor]:
    """Yield the tensors of an output, those called logits first."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        yield from _only_tensors([output.get("logits"), *output.values()])
    elif isinstance(output, tuple | list):
        yield from _only_tensors(output)
    else:
        yield from _only_tensors([getattr(output, "logits", None)])


def _only_tensors(values: Sequence[Any]) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


def _describe(output: Any) -> str:
    shapes = [str(tuple(value.shape)) for value in _list_values(output)]
    return f"a {type(output).__name__} with {'tensors of shape ' + ', '.join(shapes) if shapes else 'no tensor'}"


def _list_bodies(module: nn.Module) -> Iterator[Any]:
    """Yield the networks of Transformers inside a module, the outermost first."""
    for child in module.modules():
        if child is not module and is_stock(child):
            yield child


def _find_main_input(module: nn.Module, processor: Any) -> str:
    # An image processor tells what a module reads whose body does not.
    if _names_images(module) or _is_image_processor(processor) or _has_image_body(module):
        return "pixel_values"
    return "input_ids"


def _names_images(module: nn.Module) -> bool:
    """Return whether an argument of a module is called like a picture."""
    return not _list_parameters(module).keys().isdisjoint(IMAGE_ARGUMENTS)


def _list_parameters(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(module.forward).parameters


def _is_image_processor(processor: Any) -> bool:
    return processor is not None and not hasattr(processor, "convert_ids_to_tokens")


def _has_image_body(module: nn.Module) -> bool:
    body = next(_list_bodies(module), None)
    return getattr(body, "main_input_name", "") == "pixel_values"


def _map_arguments(module: nn.Module, main: str) -> dict[str, str]:
    """Return by tensor the name of the argument that takes it."""
    parameters = _list_parameters(module)
    if _takes_all(parameters.values()):
        return {name: name for name in (main, *TEXT_INPUTS)}
    return _match_names(list(parameters), main)


def _takes_all(parameters: Iterable[inspect.Parameter]) -> bool:
    # A module with **kwargs takes tensors by their own names.
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _match_names(names: Sequence[str], main: str) -> dict[str, str]:
    """Return by tensor an argument of the same name, else one whose name hints at it."""
    arguments = {name: name for name in (main, *TEXT_INPUTS) if name in names}
    for name in names[1:]:
        _match_hints(arguments, name)
    # Whatever the first one is called.
    if names:
        arguments.setdefault(main, names[0])
    return arguments


def _match_hints(arguments: dict[str, str], name: str) -> None:
    for hint, tensor in ARGUMENT_HINTS.items():
        if hint in name:
            arguments.setdefault(tensor, name)


def _find_config(module: Any, processor: Any) -> Any:
    """Return a copy of the config of a module or of its body, or one with the padding token alone."""
    for owner in (module, *_list_bodies(module)):
        config = getattr(owner, "config", None)
        if _is_config(config):
            # Changed below, and the module is the user's.
            return copy.deepcopy(config)
    return SimpleNamespace(pad_token_id=getattr(processor, "pad_token_id", None))


def _is_config(config: Any) -> bool:
    return config is not None and not isinstance(config, Mapping)


def _probe(network: CustomNetwork, processor: Any) -> Tensor:
    """Return what a module returns for a small input."""
    try:
        with torch.no_grad():
            values: Tensor = network(**_make_probe(network, processor))
            return values
    except UnsupportedModel:
        raise
    # Whatever the user's module raises.
    except Exception as error:
        raise _probe_failed(network, error) from error


def _probe_failed(network: CustomNetwork, error: Exception) -> UnsupportedModel:
    return UnsupportedModel(
        f"A {type(network.module).__name__} failed when it was tried with {', '.join(network.arguments)}: "
        f"{first_line(error)} Its forward takes the tensors of its tokenizer or image processor by name, and "
        "returns logits."
    )


def _make_probe(network: CustomNetwork, processor: Any) -> dict[str, Tensor]:
    if network.main_input_name == "pixel_values":
        return {"pixel_values": _make_blank_image(network, processor)}
    probe = _make_tokens(next(network.parameters()).device)
    return {name: tensor for name, tensor in probe.items() if name in network.arguments}


def _make_blank_image(network: CustomNetwork, processor: Any) -> Tensor:
    weight = next(network.parameters())
    height, width = _image_size(network.config, processor)
    return weight.new_zeros(1, 3, height, width)


def _make_tokens(device: torch.device) -> dict[str, Tensor]:
    ids = torch.tensor([PROBE_IDS], device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}


def _image_size(config: Any, processor: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", None)
    if isinstance(size, int):
        return size, size
    return _processed_size(dict(getattr(processor, "size", None) or {}))


def _processed_size(setting: Mapping[str, int]) -> tuple[int, int]:
    # Processors give an edge, or both sides.
    edge = setting.get("shortest_edge") or PROBE_SIZE
    return setting.get("height") or edge, setting.get("width") or edge


def _are_probabilities(values: Tensor) -> bool:
    if values.shape[1] < 2:
        return False
    return bool((values >= 0).all()) and sums_to_one(values[0], SUM_TOLERANCE)


def sums_to_one(values_C: Tensor, tolerance: float) -> bool:
    """Return whether values may be the probabilities of classes that exclude each other."""
    return abs(float(values_C.sum()) - 1) < tolerance


def number_labels(count: int) -> dict[int, str]:
    """Return names for classes that have none, as Transformers gives them."""
    return {index: f"LABEL_{index}" for index in range(count)}
