"""Traces without activations, for methods that only need outputs."""

from collections.abc import Sequence

from clearhead.engine.output_pass import run_outputs
from clearhead.engine.trace import Trace
from clearhead.model.inputs import Inputs
from clearhead.model.model import Model
from clearhead.model.outputs import check_finite, resolve_targets
from clearhead.model.target import TargetLike


def capture_outputs(model: Model, inputs: Inputs, target: TargetLike | Sequence[TargetLike] = None) -> Trace:
    """Run the model once and keep only its outputs."""
    forward = run_outputs(model, inputs)
    check_finite(model, forward.host_output)
    return Trace(model, inputs, forward, resolve_targets(model, inputs, forward.host_output, target))
