"""Bounds on what one request may cost, checked before anything is computed."""

from clearhead.attribution.method import MethodSpec
from clearhead.engine.memory import count_fitting_rows, image_tokens
from clearhead.errors import BadOption
from clearhead.model.inputs import Encoded
from clearhead.model.model import Model
from clearhead.web.limits import Limits

COST_OPTIONS = ("samples", "steps", "segments", "window", "batch", "top")
"""Options that multiply the cost of a method."""


def check_options(method: MethodSpec, limits: Limits) -> None:
    """Raise BadOption if an option that multiplies the cost is too large."""
    for name in COST_OPTIONS:
        value = method.options.get(name)
        if _exceeds(value, limits.max_samples):
            raise BadOption(f"Invalid {name}={value}: this server computes at most {limits.max_samples}.")


def _exceeds(value: object, limit: int) -> bool:
    # Options may also be names, such as that of a baseline.
    return isinstance(value, int | float) and value > limit


def check_pass_size(model: Model, method: MethodSpec, encoded: Encoded, limits: Limits) -> None:
    """Raise BadOption if a batch of a method, whose size its option chooses, would take too much memory."""
    check_batch_rows(model, method, _count_tokens(model, encoded), limits)


def check_batch_rows(model: Model, method: MethodSpec, tokens: int, limits: Limits) -> None:
    """Raise BadOption if a batch of inputs with so many tokens would take too much memory."""
    rows = method.options.get("batch")
    # Without a size, methods choose batches that stay small.
    if not isinstance(rows, int):
        return
    fitting = max(1, count_fitting_rows(model, tokens, limits.max_pass_bytes))
    if rows > fitting:
        raise BadOption(
            f"Invalid batch={rows}: with {tokens} tokens each, a pass would take more than the "
            f"{limits.max_pass_bytes / 1e9:g} GB that this server gives a request. Use at most {fitting}, or none."
        )


def _count_tokens(model: Model, encoded: Encoded) -> int:
    if model.takes_images:
        return image_tokens(model.config)
    return encoded.length


def check_class_outputs(model: Model, rows: int, limits: Limits) -> None:
    """Raise BadOption if the outputs of all classes for so many inputs are more than one request may have."""
    limit = max(1, limits.max_class_outputs // max(1, len(model.labels)))
    if rows > limit:
        raise BadOption(
            f"Invalid hidden: {rows} lists for {len(model.labels)} classes are more outputs than one request may ask "
            f"for. Give at most {limit} lists."
        )
