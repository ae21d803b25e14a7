"""Manifest of a table run: everything that determines the output."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.manifest import fingerprint, versions
from clearhead.model.model import Model
from clearhead.plain import finite
from clearhead.tables.explainer import RowTargets, TableExplainer
from clearhead.tables.source import Table

FORMAT = 1
# Numbers of each weight that identify a model.
SAMPLED_WEIGHTS = 64


def make_manifest(explainer: TableExplainer, source: Table, out: Path, shard: int) -> dict[str, Any]:
    """Return what determines the output, with the versions used."""
    plan = _plan_settings(explainer, source, out, shard)
    hashes = {"table": source.digest(), "model": hash_model(explainer.model)}
    return {
        "format": FORMAT,
        "versions": versions(),
        "plan": plan,
        "hashes": hashes,
        "fingerprint": fingerprint({"plan": plan, "hashes": hashes}),
    }


def _plan_settings(explainer: TableExplainer, source: Table, out: Path, shard: int) -> dict[str, Any]:
    settings = {
        "table": source.name,
        "ending": out.suffix,
        "shard": shard,
        "flat": explainer.flat,
        "tokens": explainer.tokens,
        "columns": asdict(replace(explainer.columns, class_names={})),
        "settings": explainer.settings,
        **_describe_targets(explainer.targets),
        **_describe_method(explainer),
    }
    # As they are read from a manifest: tuples become lists.
    plain: dict[str, Any] = json.loads(json.dumps(finite(settings)))
    return plain


def _describe_method(explainer: TableExplainer) -> dict[str, Any]:
    spec = explainer.spec
    return {"model": explainer.model.name, "method": spec.text, "options": spec.all_options}


def _describe_targets(targets: RowTargets) -> dict[str, str | None]:
    return {
        "target": _describe(targets.target),
        "versus": _describe(targets.versus),
        "answer": _describe(targets.answer),
    }


def _describe(value: Any) -> str | None:
    # As text: a Target is no plain data.
    if value is None:
        return None
    return str(value)


def hash_model(model: Model) -> str:
    """Return a hash of a model in memory: names, shapes and a sample of the numbers of its weights."""
    digest = hashlib.sha256(repr((type(model.network).__name__, *model.labels)).encode())
    for name, weight in model.network.state_dict().items():
        # Some modules keep other things than tensors in their state.
        if isinstance(weight, Tensor):
            digest.update(_describe_weight(name, weight).encode())
    return digest.hexdigest()


def _describe_weight(name: str, weight: Tensor) -> str:
    # A sample is enough to tell models apart: training changes every weight. All would take seconds to read.
    flat = weight.detach().reshape(-1)
    step = max(1, flat.numel() // SAMPLED_WEIGHTS)
    return repr((name, tuple(weight.shape), str(weight.dtype), flat[::step].tolist()))
