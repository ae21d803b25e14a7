"""Plan of a benchmark run in names only, its manifest, and layer ranges in method specs."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.bench.run_folder import FORMAT, fingerprint, hash_files, versions
from clearhead.errors import BadOption
from clearhead.model import zoo

if TYPE_CHECKING:
    from clearhead.data.task import Task

# At most this many examples are computed again after a crash.
EXAMPLES_PER_SHARD = 32
# layer=3..6, layer=7/12 and layer=*, for any option name.
LAYER_RANGE = re.compile(r"(\w+)=(\d+)\.\.(\d+)")
LAYER_SHARE = re.compile(r"(\w+)=(\d+)/(\d+)")
EVERY_LAYER = re.compile(r"(\w+)=\*")


@dataclass(frozen=True)
class Plan:
    """What is run, in names only, so that it can be saved, compared, and sent to another machine."""

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
    """One shard: examples start … stop of a metric group, for every method, since all methods share a trace."""

    number: int
    group: int
    start: int
    stop: int


class PlannedTask:
    """The task of a plan, read once, when its examples are first needed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @cached_property
    def task(self) -> "Task":
        return read_plan_task(self.plan)

    @property
    def digest(self) -> str:
        """Hash of the files, which needs no parsing; of a data set without a path, of its examples."""
        path = Path(self.plan.task)
        if path.exists():
            return hash_files(path)
        from clearhead.data.task import task_digest

        return task_digest(self.task)


def read_plan_task(plan: Plan) -> "Task":
    """Read the plan's task, with as many examples as it asks for."""
    # Imported here because a finished run is shown without NumPy and Pillow.
    from clearhead.data.read import read_task

    return read_task(plan.task, limit=plan.limit, **plan.columns)


def expand_layers(specs: Sequence[str], blocks: int) -> list[str]:
    """Replace layer=* (every layer), layer=7/12 (share of the depth, rounded up) and layer=3..6 by single layers."""
    expanded: list[str] = []
    for spec in specs:
        expanded.extend(_expand_spec(spec, blocks))
    return list(dict.fromkeys(expanded))


def _expand_spec(spec: str, blocks: int) -> Iterator[str]:
    spec = _resolve_shares(spec, blocks)
    spec = EVERY_LAYER.sub(rf"\1=0..{blocks}", spec)
    match = LAYER_RANGE.search(spec)
    if match is None:
        yield spec
        return
    first = int(match[2])
    last = int(match[3])
    if last < first:
        raise BadOption(f"Invalid layer range in '{spec}': write the lower layer first, layer={last}..{first}.")
    for layer in range(first, last + 1):
        # A spec may hold further ranges, which the recursion expands.
        yield from _expand_spec(f"{spec[: match.start()]}{match[1]}={layer}{spec[match.end() :]}", blocks)


def _resolve_shares(spec: str, blocks: int) -> str:
    def resolve(match: re.Match[str]) -> str:
        numerator = int(match[2])
        denominator = int(match[3])
        if denominator < 1:
            raise BadOption(f"Invalid layer in '{spec}': write a share of the depth as layer=7/12.")
        layer = -(-numerator * blocks // denominator)  # rounded up, in integers
        return f"{match[1]}={layer}"

    return LAYER_SHARE.sub(resolve, spec)


def make_manifest(plan: Plan, task: PlannedTask) -> dict[str, Any]:
    """Return what determines the values: the plan and the hash of every file it names, with the versions used."""
    settings = asdict(plan)
    settings["columns"] = dict(plan.columns)
    # A run may be resumed on another device.
    del settings["device"]
    # Through JSON and back, so that it equals what is read from a manifest (tuples become lists).
    plain = json.loads(json.dumps(settings))
    hashes = {"task": task.digest, "model": _model_digest(plan.model), **_file_digests(plan)}
    return {
        "format": FORMAT,
        "versions": versions(),
        "plan": plain,
        "hashes": hashes,
        "seeds": {"intervals": plan.seed},
        "fingerprint": fingerprint({"plan": plain, "hashes": hashes}),
    }


def _model_digest(name: str | None) -> str:
    """Return the hash of an embedded model's checksums, of a folder, or of the downloaded snapshot of a hub id."""
    embedded = zoo.names()
    if embedded and (name is None or name in embedded):
        return _embedded_digest(name or embedded[0])
    if name is None:
        raise BadOption("No model given, and this build has no embedded one: name a folder or a hub id with --model.")
    if Path(name).is_dir():
        return hash_files(Path(name))
    return _hub_digest(name)


def _embedded_digest(name: str) -> str:
    # The checksums cover the weights, so these need not be read.
    checksums = Path(zoo.__file__).with_name("checksums.json")
    digest = hash_files(checksums) if checksums.exists() else ""
    return fingerprint({"name": name, "checksums": digest})


def _hub_digest(name: str) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return hash_files(Path(snapshot_download(name, local_files_only=True)))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError):
        # Not downloaded yet: loading downloads it, or raises an error that says what is wrong with the name.
        from clearhead.model.loading import load

        load(name)
        return hash_files(Path(snapshot_download(name, local_files_only=True)))


def _file_digests(plan: Plan) -> dict[str, str]:
    """Return the hashes of files that options name: a masked-LM model, a reference corpus."""
    names = {plan.lm_head or ""}
    for metric in plan.metrics:
        names.update(_option_values(metric))
    # Whatever exists is taken for a file: one hash too many does no harm, a missing one would mix results.
    return {name: hash_files(Path(name)) for name in sorted(names) if name and Path(name).exists()}


def _option_values(spec: str) -> list[str]:
    options = spec.split(":", 1)[-1]
    return [option.partition("=")[2] for option in options.split(",")]
