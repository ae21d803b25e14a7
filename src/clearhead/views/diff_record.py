"""What changed between two models as plain data for JSON."""

from dataclasses import asdict
from itertools import starmap
from typing import Any

from clearhead.model_diff import ExampleDiff, ModelDiff, NoiseDraw, Reasons, Snapshot

FORMAT = 1
MAX_TOP_WORDS = 5
SNAPSHOT_FIELDS = ("model", "checksum", "task", "task_digest", "method")


def record(diff: ModelDiff) -> dict[str, Any]:
    """Return the verdict, all tables, and all examples, without the shares of each word."""
    return {
        "document": "clearhead diff",
        "format": FORMAT,
        "first": _describe_snapshot(diff.first),
        "second": _describe_snapshot(diff.second),
        "verdict": asdict(diff.verdict),
        "correlation": diff.correlation,
        "overlap": diff.overlap,
        "notes": list(diff.notes),
        "words": list(map(asdict, diff.words)),
        "classes": list(map(asdict, diff.classes)),
        "blocks": list(map(asdict, diff.blocks)),
        "noise": _list_noise(diff),
        "examples": list(map(_describe_row, diff.rows)),
    }


def _describe_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    record = {name: getattr(snapshot, name) for name in SNAPSHOT_FIELDS}
    return {**record, "versions": dict(snapshot.versions)}


def _list_noise(diff: ModelDiff) -> list[dict[str, Any]]:
    noise = diff.noise
    if noise is None:
        return []
    return list(map(_describe_draw, (*noise.sources, *noise.methods)))


def _describe_draw(draw: NoiseDraw) -> dict[str, Any]:
    return {
        "name": draw.name,
        "shift": draw.mean_shift,
        "correlation": draw.mean_agreement,
        "changed": draw.changed,
    }


def _describe_row(row: ExampleDiff) -> dict[str, Any]:
    return {
        "id": row.first.id,
        "digest": row.first.digest,
        "first": _describe_reasons(row.first),
        "second": _describe_reasons(row.second),
        **asdict(row.agreement),
        "threshold": row.threshold,
        "same_answer": row.has_same_answer,
        "beyond_noise": row.is_beyond_noise,
    }


def _describe_reasons(reasons: Reasons) -> dict[str, Any]:
    return {
        "prediction": reasons.prediction,
        "probability": reasons.probability,
        "top": list(starmap(_describe_word, reasons.top(MAX_TOP_WORDS))),
    }


def _describe_word(word: str, share: float) -> dict[str, Any]:
    return {"word": word, "share": share}
