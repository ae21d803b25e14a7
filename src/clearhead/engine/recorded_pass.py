"""Run a network once under a recorder, as a forward pass of its sort."""

from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor

from clearhead.engine.blocks import record_forward
from clearhead.engine.forward import (
    DetectorForwardPass,
    ForwardPass,
    FullForwardPass,
    PixelForwardPass,
    float_input,
    not_differentiable,
)
from clearhead.engine.module_outputs import check_module_names
from clearhead.engine.output_pass import run_outputs
from clearhead.engine.patches import choose_cells
from clearhead.engine.sequence_passes import (
    BridgedForwardPass,
    CoAttentionForwardPass,
    MergedForwardPass,
    PairForwardPass,
)
from clearhead.engine.tape import Tape, list_inputs
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model, input_embedding
from clearhead.model.outputs import extract_logits
from clearhead.model.tensor_checks import explain_size_errors


def run_model(model: Model, inputs: Inputs, kept: Sequence[str] = (), *, gradients_only: bool = False) -> ForwardPass:
    """Run a model once: recorded, or for its outputs alone if it is a function."""
    if model.is_function:
        return run_outputs(model, inputs)
    return run_forward(model, inputs, kept, gradients_only=gradients_only)


def run_forward(
    model: Model, inputs: Inputs, kept: Sequence[str] = (), *, gradients_only: bool = False
) -> FullForwardPass:
    """Run the unmodified network once under a recorder; `kept` names modules whose outputs are kept."""
    check_module_names(model.network, kept)
    tensors = inputs.tensors
    words = input_embedding(model.network)
    head = partial(extract_logits, model)
    with explain_size_errors(model, tensors):
        tape, logits = record_forward(
            model.network, tensors, words, float_input(tensors), head, kept, gradients_only=gradients_only
        )
    _require_graph(model, tape, logits)
    _add_grid(model, tape, tensors)
    return _make_pass(model, tape, tensors, logits)


def _require_graph(model: Model, tape: Tape, logits: Tensor) -> None:
    # Parameters are frozen, so logits without a graph do not depend on any input that was recorded.
    if not logits.requires_grad or tape.leaf is None:
        raise not_differentiable(model.name)


def _make_pass(model: Model, tape: Tape, tensors: Mapping[str, Tensor], logits: Tensor) -> FullForwardPass:
    """Return the pass of a network by what it reads."""
    if model.is_encoder_decoder:
        return PairForwardPass(model.name, tape, logits)
    if model.reads_jointly:
        return _make_joined_pass(model, tape, logits)
    if model.finds_objects and model.network.has_decoder:
        return DetectorForwardPass(model.name, tape, logits)
    if "pixel_values" in tensors:
        return _make_picture_pass(model, tape, tensors["pixel_values"], logits)
    return FullForwardPass(model.name, tape, logits)


def _make_picture_pass(model: Model, tape: Tape, pixels: Tensor, logits: Tensor) -> FullForwardPass:
    # Blocks that merge patches in between (Hiera) are as good as none: pixels are read, in cells.
    tape.has_gaps = tape.has_gaps or _cuts_images(tape, len(logits))
    if tape.blocks and not tape.has_gaps:
        return FullForwardPass(model.name, tape, logits)
    tape.patches = choose_cells(pixels)
    return PixelForwardPass(model.name, tape, logits)


def _cuts_images(tape: Tape, images: int) -> bool:
    """Return whether blocks read parts of the images as inputs of their own, as in MobileViT."""
    return any(len(state) != images for state in list_inputs(tape.blocks)[:1])


def _add_grid(model: Model, tape: Tape, tensors: Mapping[str, Tensor]) -> None:
    """Note rows and columns of patches that a network cuts otherwise than by a convolution."""
    find_grid = getattr(model.network, "find_grid", None)
    if tape.patches is None and find_grid is not None and "pixel_values" in tensors:
        tape.patches = find_grid(tensors["pixel_values"])


def _make_joined_pass(model: Model, tape: Tape, logits: Tensor) -> FullForwardPass:
    """Return the pass of a network that reads a picture and a text."""
    network = model.network
    if network.has_bridges:
        return BridgedForwardPass(model.name, tape, logits)
    if network.has_third_stack:
        return MergedForwardPass(model.name, tape, logits, counts=network.counts)
    if not network.has_two_stacks:
        return FullForwardPass(model.name, tape, logits)
    if network.counts is None:
        return PairForwardPass(model.name, tape, logits)
    return CoAttentionForwardPass(model.name, tape, logits, counts=network.counts)
