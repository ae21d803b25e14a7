"""Plan of a benchmark run in names only, its manifest, and layer ranges in method specs."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.bench.run_folder import FORMAT
from clearhead.errors import BadOption
from clearhead.manifest import fingerprint, hash_files, versions
from clearhead.model import zoo
from clearhead.model.zoo import language_model

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
    allow_pickle: bool = False
    focus: str | None = None


# Label under which a shard counts its steps: explanations of its examples, and their measurements.
SHARD_STEPS = "steps of a shard"


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
    from clearhead.data.read import focus_examples, read_task
    from clearhead.model.focus import parse_focus

    task = read_task(plan.task, limit=plan.limit, **plan.columns)
    return focus_examples(task, parse_focus(plan.focus))


def expand_layers(specs: Sequence[str], blocks: int) -> list[str]:
    """Replace layer=* (every layer), layer=7/12 (share of the depth, rounded up) and layer=3..6 by single layers."""
    return list(dict.fromkeys(_expand_specs(specs, blocks)))


def _expand_specs(specs: Sequence[str], blocks: int) -> Iterator[str]:
    for spec in specs:
        yield from _expand_spec(spec, blocks)


def _expand_spec(spec: str, blocks: int) -> Iterator[str]:
    spec = _resolve_shares(spec, blocks)
    # Layer 0 are the embeddings, so there is one layer more than blocks.
    spec = EVERY_LAYER.sub(rf"\1=0..{blocks}", spec)
    match = LAYER_RANGE.search(spec)
    if match is None:
        yield spec
        return
    # A spec may hold further ranges, which the recursion expands.
    for layer in _parse_range(match):
        yield from _expand_spec(_set_layer(match, layer), blocks)


def _set_layer(match: re.Match[str], layer: int) -> str:
    """Return the spec with one layer in place of its first range."""
    return LAYER_RANGE.sub(rf"\g<1>={layer}", match.string, count=1)


def _parse_range(match: re.Match[str]) -> range:
    first, last = _parse_numbers(match)
    _require_ascending(match, last, first)
    return range(first, last + 1)


def _require_ascending(match: re.Match[str], last: int, first: int) -> None:
    if last < first:
        raise BadOption(f"Invalid layer range in '{match.string}': write the lower layer first, layer={last}..{first}.")


def _parse_numbers(match: re.Match[str]) -> tuple[int, int]:
    """Return the two numbers of a layer range or share."""
    return int(match[2]), int(match[3])


def _resolve_shares(spec: str, blocks: int) -> str:
    return LAYER_SHARE.sub(lambda match: _resolve_share(match, blocks), spec)


def _resolve_share(match: re.Match[str], blocks: int) -> str:
    numerator, denominator = _parse_numbers(match)
    _require_positive(match, denominator)
    # Rounded up in integers, which are exact.
    layer = -(-numerator * blocks // denominator)
    return f"{match[1]}={layer}"


def _require_positive(match: re.Match[str], denominator: int) -> None:
    if denominator < 1:
        raise BadOption(f"Invalid layer in '{match.string}': write a share of the depth as layer=7/12.")


def make_manifest(plan: Plan, task: PlannedTask) -> dict[str, Any]:
    """Return what determines the values: the plan and the hash of every file it names, with the versions used."""
    settings = _plan_settings(plan)
    hashes = _list_hashes(plan, task)
    return {
        "format": FORMAT,
        "versions": versions(),
        "plan": settings,
        "hashes": hashes,
        "seeds": {"intervals": plan.seed},
        "fingerprint": fingerprint({"plan": settings, "hashes": hashes}),
    }


def _list_hashes(plan: Plan, task: PlannedTask) -> dict[str, str]:
    # By content, so that a file that changed under the same name is noticed.
    return {
        "task": task.digest,
        "model": _model_digest(plan.model, allow_pickle=plan.allow_pickle),
        **_file_digests(plan),
    }


def _plan_settings(plan: Plan) -> dict[str, Any]:
    settings = asdict(plan)
    settings["columns"] = dict(plan.columns)
    # A run may be resumed on another device, and how weights are read does not change them.
    del settings["device"], settings["allow_pickle"]
    # Runs of earlier versions had no focus, and are still the same runs.
    if plan.focus is None:
        del settings["focus"]
    return _as_read(settings)


def _as_read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as they are read from a manifest: tuples become lists."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


def _model_digest(name: str | None, *, allow_pickle: bool = False) -> str:
    """Return the hash of an embedded model's checksums, of a folder, or of the downloaded snapshot of a hub id."""
    embedded = zoo.names()
    if name is None:
        name = _default_model(embedded)
    if name in embedded:
        return _embedded_digest(name)
    if name == language_model.NAME:
        return fingerprint({"name": name, "checksums": language_model.SHA256})
    if Path(name).is_dir():
        return hash_files(Path(name))
    return _hub_digest(name, allow_pickle=allow_pickle)


def _default_model(embedded: Sequence[str]) -> str:
    if not embedded:
        raise BadOption("No model given, and this build has no embedded one: name a folder or a hub id with --model.")
    return embedded[0]


def _embedded_digest(name: str) -> str:
    return fingerprint({"name": name, "checksums": _checksums_digest()})


def _checksums_digest() -> str:
    # The checksums cover the weights, so these need not be read.
    path = Path(zoo.__file__).with_name("checksums.json")
    if not path.exists():
        return ""
    return hash_files(path)


def _hub_digest(name: str, *, allow_pickle: bool) -> str:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return _snapshot_digest(name)
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError):
        # Not downloaded yet: loading downloads it, or raises an error that says what is wrong with the name.
        from clearhead.model.loading import load

        load(name, allow_pickle=allow_pickle)
        return _snapshot_digest(name)


def _snapshot_digest(name: str) -> str:
    from huggingface_hub import snapshot_download

    # Only the cache is looked at: a run must not depend on whether the hub answers.
    return hash_files(Path(snapshot_download(name, local_files_only=True)))


def _file_digests(plan: Plan) -> dict[str, str]:
    """Return the hashes of files that options name: a masked-LM model, a reference corpus."""
    return {name: hash_files(Path(name)) for name in _list_files(plan)}


def _list_files(plan: Plan) -> list[str]:
    return sorted(filter(_is_file, {plan.lm_head or "", *_metric_values(plan)}))


def _metric_values(plan: Plan) -> Iterator[str]:
    """Yield the values of all options of the metrics."""
    # Whatever the option is called: a value that exists as a file is one.
    for metric in plan.metrics:
        yield from map(_option_value, _split_options(metric))


def _is_file(name: str) -> bool:
    # Whatever exists is taken for a file: one hash too many does no harm, a missing one would mix results.
    return name != "" and Path(name).exists()


def _split_options(spec: str) -> list[str]:
    return spec.split(":", 1)[-1].split(",")


def _option_value(option: str) -> str:
    return option.partition("=")[2]
