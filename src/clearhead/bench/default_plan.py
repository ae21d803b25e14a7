"""Methods and metrics of a bench for which none are named."""

from collections.abc import Sequence

from clearhead.attribution.names import DEFAULT_ANSWER_METHOD, DEFAULT_METHOD
from clearhead.data.task import Example

CONTROL = "random"
# The default, the best of one trace by measurement, and two that take more passes; chance to compare with.
CLASS_METHODS = (DEFAULT_METHOD, "attn-lrp", "trans-att", "integrated-gradients", CONTROL)
ANSWER_METHODS = (DEFAULT_ANSWER_METHOD, "gradient-x-input", CONTROL)
CLASS_METRICS = ("comprehensiveness", "sufficiency", "aopc")
ANSWER_METRICS = ("log-prob-drop", "log-prob-revealing:steps=5")


def choose_default_plan(examples: Sequence[Example]) -> dict[str, tuple[str, ...]]:
    """Return methods and metrics for data, of which the first examples are given."""
    if any(example.writing is not None for example in examples):
        return {"methods": ANSWER_METHODS, "metrics": ANSWER_METRICS}
    return {"methods": CLASS_METHODS, "metrics": CLASS_METRICS}
