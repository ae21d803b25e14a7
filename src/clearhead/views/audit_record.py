"""An audit as plain data for JSON."""

from dataclasses import asdict
from typing import Any

from clearhead.drift.shortcuts import Audit, AuditedWord

FORMAT = 1


def record(audit: Audit) -> dict[str, Any]:
    """Return the verdict and all tested words."""
    names = ("model", "task", "method", "examples", "accuracy", "unit", "sentence")
    return {
        "document": "clearhead audit",
        "format": FORMAT,
        **{name: getattr(audit, name) for name in names},
        "notes": list(audit.notes),
        "words": list(map(_describe_word, audit.words)),
    }


def _describe_word(word: AuditedWord) -> dict[str, Any]:
    return {**asdict(word), "has_effect": word.has_effect, "is_shortcut": word.is_shortcut}
