"""Why a Transformer decided what it decided, and how far the explanation can be trusted."""

from typing import TYPE_CHECKING, Any

from clearhead.version import __version__

if TYPE_CHECKING:
    from clearhead.errors import ClearheadError, UnsupportedModel, UnsupportedOperation
    from clearhead.evaluation import Table, evaluate
    from clearhead.explanation import Explanation, read
    from clearhead.model import Model, load, models
    from clearhead.pipeline import compare, explain
    from clearhead.target import Target
    from clearhead.trace import Trace, capture

_HOMES = {
    "ClearheadError": "errors",
    "Explanation": "explanation",
    "Model": "model",
    "Table": "evaluation",
    "Target": "target",
    "Trace": "trace",
    "UnsupportedModel": "errors",
    "UnsupportedOperation": "errors",
    "capture": "trace",
    "compare": "pipeline",
    "evaluate": "evaluation",
    "explain": "pipeline",
    "load": "model",
    "models": "model",
    "read": "explanation",
}

_PACKAGES = ("benchmarks", "methods", "metrics", "tasks")

__all__ = [
    "ClearheadError",
    "Explanation",
    "Model",
    "Table",
    "Target",
    "Trace",
    "UnsupportedModel",
    "UnsupportedOperation",
    "__version__",
    "benchmarks",
    "capture",
    "compare",
    "evaluate",
    "explain",
    "load",
    "methods",
    "metrics",
    "models",
    "read",
    "tasks",
]


def __getattr__(name: str) -> Any:
    """Names are imported when first used, so that `import clearhead` and `clearhead --help` cost nothing."""
    import importlib

    if name in _PACKAGES:
        return importlib.import_module(f"clearhead.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'clearhead' has no attribute '{name}'")
    return getattr(importlib.import_module(f"clearhead.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
