"""A trace once more with other rounding: in float64, or with weights changed as little as rounding changes numbers."""

from weakref import WeakKeyDictionary

import torch

from clearhead.engine.blockwise import BlockwiseTrace, capture_blockwise
from clearhead.engine.product_types import PRECISIONS, find_product_type
from clearhead.engine.recorded_pass import run_forward
from clearhead.engine.step_trace import StepTrace
from clearhead.engine.trace import Trace
from clearhead.model.inputs import as_inputs
from clearhead.model.model import Model
from clearhead.model.outputs import check_finite
from clearhead.model.placement import with_perturbed_weights, with_precision

FLOAT64 = "float64"
PERTURBED = "perturbed"

# Several methods that lose digits share one trace.
_RETRACED: WeakKeyDictionary[Trace, dict[str, Trace]] = WeakKeyDictionary()


def retrace(trace: Trace, rounding: str) -> Trace:
    """Return a trace of the same inputs and targets in FLOAT64, or on PERTURBED weights."""
    # Steps of an answer share the forward pass of the whole, which is what it is.
    if isinstance(trace, StepTrace):
        return trace
    traces = _RETRACED.setdefault(trace, {})
    if rounding not in traces:
        traces[rounding] = _capture_again(trace, _copy_model(trace.model, rounding))
    return traces[rounding]


def _copy_model(model: Model, rounding: str) -> Model:
    if rounding == FLOAT64:
        return with_precision(model, FLOAT64)
    return with_perturbed_weights(model, number_precision(model))


def _capture_again(trace: Trace, model: Model) -> Trace:
    batch = as_inputs(model, trace.inputs)
    if isinstance(trace, BlockwiseTrace):
        return capture_blockwise(model, batch, list(trace.targets))
    forward = run_forward(model, batch)
    check_finite(model, forward.host_output)
    # The targets as they were resolved: near a tie another rounding could predict another class.
    return Trace(model, batch, forward, trace.targets)


def number_precision(model: Model) -> float:
    """Return the distance from 1 to the next number in which the model computes, or torch may multiply."""
    product_type = find_product_type(model)
    if product_type is None:
        return torch.finfo(model.dtype).eps
    return PRECISIONS[product_type]
