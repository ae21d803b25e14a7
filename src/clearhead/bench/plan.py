"""TODO."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.bench.run_folder import (
    FORMAT,
    fingerprint,
    hash_files,
    versions,
)
from clearhead.errors import BadOption
from clearhead.model import zoo

if TYPE_CHECKING:
    from clearhead.data.task import Task


EXAMPLES_PER_SHARD = 32
RANGE = re.compile(r"(\w+)=(\d+)\.\.(\d+)")
SHARE = re.compile(r"(\w+)=(\d+)/(\d+)")
EVERY = re.compile(r"(\w+)=\*")


@dataclass(frozen=True)
class Plan:
    """What is run, in names only, so that it can be written down, compared, and sent to another machine."""

    task: str
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    model: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    shard: int = EXAMPLES_PER_SHARD
    batch_size: int | None = None
    precision: str | None = None
    lm_head: str | None = None
    seed: int = 0
    device: str | None = None
    benchmark: str | None = None


@dataclass(frozen=True)
class Job:
    """One shard: examples start … stop by every method and metric, since all methods share a trace."""

    number: int
    stream: int
    start: int
    stop: int


def expand_layers(spellings: Sequence[str], blocks: int) -> list[str]:
    """layer=* is every layer, layer=7/12 that share of the depth rounded up, layer=3..6 four of them."""
    found = [one for spelling in spellings for one in _expand_layers(spelling, blocks)]
    return list(dict.fromkeys(found))


def _expand_layers(spelling: str, blocks: int) -> Iterator[str]:
    if any(int(match[3]) < 1 for match in SHARE.finditer(spelling)):
        raise BadOption(f"'{spelling}' names no layer: a share of the depth is written layer=7/12.")
    spelling = SHARE.sub(lambda match: f"{match[1]}={-(-int(match[2]) * blocks // int(match[3]))}", spelling)
    spelling = EVERY.sub(lambda match: f"{match[1]}=0..{blocks}", spelling)
    match = RANGE.search(spelling)
    if match is None:
        yield spelling
        return
    if int(match[3]) < int(match[2]):
        raise BadOption(f"'{spelling}' names no layer: the first of a range comes first, layer={match[3]}..{match[2]}.")
    for number in range(int(match[2]), int(match[3]) + 1):
        yield from _expand_layers(f"{spelling[: match.start()]}{match[1]}={number}{spelling[match.end() :]}", blocks)


def make_manifest(plan: Plan) -> dict[str, Any]:
    """What decides the values: the plan and the content of every file it names, with the versions used."""
    wanted = {**asdict(plan), "columns": dict(plan.columns)}
    del wanted["device"]
    plain = json.loads(json.dumps(wanted))
    hashes = {"task": _task_digest(plan), "model": _model_digest(plan.model), **_file_digests(plan)}
    found = versions()
    return {
        "format": FORMAT,
        "versions": found,
        "plan": plain,
        "hashes": hashes,
        "seeds": {"intervals": plan.seed},
        "fingerprint": fingerprint({"plan": plain, "hashes": hashes}),
    }


def _task_digest(plan: Plan) -> str:
    path = Path(plan.task)
    if path.exists():
        return hash_files(path)
    from clearhead.data import task

    return task.task_digest(read_plan_task(plan))


def _model_digest(name: str | None) -> str:
    """Of an embedded model its checksums, of a folder its files, of a hub id its downloaded snapshot."""
    if zoo.names() and (name is None or name in zoo.names()):
        checksums = Path(zoo.__file__).with_name("checksums.json")
        return fingerprint(
            {"name": name or zoo.names()[0], "checksums": hash_files(checksums) if checksums.exists() else ""}
        )
    if name is None:
        raise BadOption("Which model? This build has no embedded one: name a folder or a hub id with --model.")
    if Path(name).is_dir():
        return hash_files(Path(name))
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return hash_files(Path(snapshot_download(name, local_files_only=True)))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError):
        from clearhead.model.loading import load

        load(name)
        return hash_files(Path(snapshot_download(name, local_files_only=True)))


def _file_digests(plan: Plan) -> dict[str, str]:
    """The files that options name: a masked-LM model, a reference corpus."""
    named = [
        plan.lm_head or "",
        *(text.partition("=")[2] for one in plan.metrics for text in one.split(":", 1)[-1].split(",")),
    ]
    return {name: hash_files(Path(name)) for name in sorted(set(named)) if name and Path(name).exists()}


def read_plan_task(plan: Plan) -> "Task":
    """The plan's task, with as many examples as it asks for."""
    from clearhead.data.read import read_task

    return read_task(plan.task, limit=plan.limit, **plan.columns)
