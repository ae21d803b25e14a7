"""Why a Transformer decided what it decided, and how far the explanation can be trusted."""

from typing import TYPE_CHECKING, Any

from clearhead.version import __version__

if TYPE_CHECKING:
    from clearhead.answer_explanation import AnswerExplanation, Step
    from clearhead.api import compare, explain
    from clearhead.attribution.choices import choices
    from clearhead.attribution.method import methods
    from clearhead.bench.benchmark import benchmarks
    from clearhead.bench.choose import choose
    from clearhead.bench.sanity import check_sanity
    from clearhead.data.task import tasks
    from clearhead.drift.audit import audit
    from clearhead.drift.check_reasons import check_reasons
    from clearhead.drift.compare_models import diff
    from clearhead.drift.snapshot import snapshot
    from clearhead.engine.trace import Trace, capture
    from clearhead.errors import ClearheadError, UnsupportedModel, UnsupportedOperation
    from clearhead.evaluation.evaluate import Table, evaluate
    from clearhead.evaluation.metric import metrics
    from clearhead.explanation import Explanation
    from clearhead.joint_explanation import JointExplanation
    from clearhead.model.loading import load, models
    from clearhead.model.model import Model
    from clearhead.model.similarity import similarity, zero_shot
    from clearhead.model.target import Target
    from clearhead.model_diff import ModelDiff, Snapshot
    from clearhead.serialization import read
    from clearhead.tables.explain_table import explain_table

_HOMES = {
    "AnswerExplanation": "answer_explanation",
    "ClearheadError": "errors",
    "Explanation": "explanation",
    "JointExplanation": "joint_explanation",
    "Model": "model.model",
    "ModelDiff": "model_diff",
    "Snapshot": "model_diff",
    "Step": "answer_explanation",
    "Table": "evaluation.evaluate",
    "Target": "model.target",
    "Trace": "engine.trace",
    "UnsupportedModel": "errors",
    "UnsupportedOperation": "errors",
    "audit": "drift.audit",
    "benchmarks": "bench.benchmark",
    "capture": "engine.trace",
    "check_reasons": "drift.check_reasons",
    "check_sanity": "bench.sanity",
    "choices": "attribution.choices",
    "choose": "bench.choose",
    "compare": "api",
    "diff": "drift.compare_models",
    "evaluate": "evaluation.evaluate",
    "explain": "api",
    "explain_table": "tables.explain_table",
    "load": "model.loading",
    "methods": "attribution.method",
    "metrics": "evaluation.metric",
    "models": "model.loading",
    "read": "serialization",
    "similarity": "model.similarity",
    "snapshot": "drift.snapshot",
    "tasks": "data.task",
    "zero_shot": "model.similarity",
}

__all__ = [
    "AnswerExplanation",
    "ClearheadError",
    "Explanation",
    "JointExplanation",
    "Model",
    "ModelDiff",
    "Snapshot",
    "Step",
    "Table",
    "Target",
    "Trace",
    "UnsupportedModel",
    "UnsupportedOperation",
    "__version__",
    "audit",
    "benchmarks",
    "capture",
    "check_reasons",
    "check_sanity",
    "choices",
    "choose",
    "compare",
    "diff",
    "evaluate",
    "explain",
    "explain_table",
    "load",
    "methods",
    "metrics",
    "models",
    "read",
    "similarity",
    "snapshot",
    "tasks",
    "zero_shot",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import clearhead` and `clearhead --help` stay fast."""
    import importlib

    if name == "views":
        return importlib.import_module("clearhead.views")
    if name not in _HOMES:
        raise AttributeError(f"module 'clearhead' has no attribute '{name}'")
    return getattr(importlib.import_module(f"clearhead.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
