"""Accuracy of the model on the examples of a run, from the right labels that the explanations keep."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clearhead.bench.metric_groups import parse_metrics, prepares_examples
from clearhead.bench.run_folder import RunFolder
from clearhead.evaluation.distributions import share_bounds
from clearhead.evaluation.statistics import LEVEL


def measure_accuracy(run: RunFolder, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the share of right predictions with its exact interval; None if no example has a label of the model."""
    rows = run.sources(_count_task_shards(manifest))
    outcomes = _find_outcomes(rows)
    if not outcomes:
        return None
    right = sum(outcomes)
    low, high = share_bounds(right, len(outcomes), LEVEL)
    return {"right": right, "labelled": len(outcomes), "value": right / len(outcomes), "low": low, "high": high}


def _count_task_shards(manifest: Mapping[str, Any]) -> int:
    """Return the number of shards with the task's own examples, which are the first."""
    # What a metric makes of the examples, such as mosaics, says nothing about the task.
    if not _measures_task(manifest["plan"]["metrics"]):
        return 0
    shards: int = math.ceil(manifest["examples"] / manifest["plan"]["shard"])
    return shards


def _measures_task(metrics: Sequence[str]) -> bool:
    return not all(map(prepares_examples, parse_metrics(metrics)))


def _find_outcomes(rows: Iterable[Mapping[str, Any]]) -> list[bool]:
    """Return whether the prediction is right, once for each example with a label that the model has."""
    outcomes = {}
    for row in rows:
        # Every method has a row of the same example, with the same prediction.
        wrong = _read_source(row).get("wrong")
        if wrong is not None:
            outcomes[row["example"]] = not wrong
    return list(outcomes.values())


def _read_source(row: Mapping[str, Any]) -> dict[str, Any]:
    # Runs of earlier versions have no such column.
    source: dict[str, Any] = json.loads(row.get("source") or "{}")
    return source
