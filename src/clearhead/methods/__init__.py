"""The methods, one file per family; importing this package registers them, calling it lists them."""

from clearhead.method import METHODS
from clearhead.methods import (
    activation,
    attention,
    control,
    decoded,
    deeplift,
    flow,
    gradient,
    path,
    perturbation,
    relevance,
)
from clearhead.registry import answers

__all__ = [
    "activation",
    "attention",
    "control",
    "decoded",
    "deeplift",
    "flow",
    "gradient",
    "path",
    "perturbation",
    "relevance",
]

answers(__name__, lambda: METHODS)
