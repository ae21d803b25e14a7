"""Benchmarks: task × model × methods × metrics, cut into jobs that can be lost and done again."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead import zoo
from clearhead.errors import BadOption
from clearhead.registry import Registry
from clearhead.results import FORMAT, Outcome, Results, digest, fingerprint, opened, versions

if TYPE_CHECKING:
    from clearhead.model import Model
    from clearhead.task import Example, Task

SHARD = 16
RANGE = re.compile(r"(\w+)=(\d+)\.\.(\d+)")
SHARE = re.compile(r"(\w+)=(\d+)/(\d+)")
EVERY = re.compile(r"(\w+)=\*")


@dataclass(frozen=True)
class Benchmark:
    """A table or figure of a paper: what it compares, and on what kind of data."""

    name: str
    title: str
    data: str
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    methods_across: bool = False

    @property
    def summary(self) -> str:
        return f"{self.title}. Data: {self.data}."


BENCHMARKS: Registry[Benchmark] = Registry("benchmark")


def register(*several: Benchmark) -> None:
    for one in several:
        BENCHMARKS.add(one.name, one)


@dataclass(frozen=True)
class Plan:
    """What is run, in names only, so that it can be written down, compared, and sent to another machine."""

    task: str
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    model: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    shard: int = SHARD
    batch_size: int | None = None
    precision: str | None = None
    long: str = "truncate"
    lm_head: str | None = None
    seed: int = 0
    device: str | None = None
    benchmark: str | None = None


@dataclass(frozen=True)
class Job:
    """One shard: examples start … stop by every method and metric, since all methods share a trace."""

    number: int
    start: int
    stop: int


def jobs_of(count: int, shard: int) -> list[Job]:
    """The shards of `count` examples."""
    starts = range(0, count, shard)
    return [Job(number, start, min(start + shard, count)) for number, start in enumerate(starts)]


# --- spellings of several methods ------------------------------------------------------------------------------


def expanded(spellings: Sequence[str], blocks: int) -> list[str]:
    """layer=* is every layer, layer=7/12 that share of the depth rounded up, seed=0..19 twenty seeds."""
    found = [one for spelling in spellings for one in _expanded(spelling, blocks)]
    return list(dict.fromkeys(found))


def _expanded(spelling: str, blocks: int) -> Iterator[str]:
    spelling = SHARE.sub(lambda match: f"{match[1]}={-(-int(match[2]) * blocks // int(match[3]))}", spelling)
    spelling = EVERY.sub(lambda match: f"{match[1]}=0..{blocks}", spelling)
    match = RANGE.search(spelling)
    if match is None:
        yield spelling
        return
    for number in range(int(match[2]), int(match[3]) + 1):
        yield from _expanded(f"{spelling[: match.start()]}{match[1]}={number}{spelling[match.end() :]}", blocks)


# --- before a run ----------------------------------------------------------------------------------------------


def manifest_of(plan: Plan) -> dict[str, Any]:
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
        return digest(path)
    from clearhead import task

    return task.digest(read(plan))


def _model_digest(name: str | None) -> str:
    """Of an embedded model its checksums, of a folder its files, of a hub id its downloaded snapshot."""
    if name is None or name in zoo.names():
        checksums = Path(zoo.__file__).with_name("checksums.json")
        return fingerprint({"name": name or zoo.DEFAULT, "checksums": digest(checksums) if checksums.exists() else ""})
    if Path(name).is_dir():
        return digest(Path(name))
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return digest(Path(snapshot_download(name, local_files_only=True)))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError):
        from clearhead.model import load

        load(name)
        return digest(Path(snapshot_download(name, local_files_only=True)))


def _file_digests(plan: Plan) -> dict[str, str]:
    """The files that options name: a masked-LM model, a reference corpus."""
    named = [plan.lm_head or "", *(text.partition("=")[2] for one in plan.metrics for text in one.split(":", 1)[-1].split(","))]
    return {name: digest(Path(name)) for name in sorted(set(named)) if name and Path(name).exists()}
