"""Benchmarks: task × model × methods × metrics, cut into jobs that can be lost and done again."""

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.bench.run_folder import (
    FORMAT,
    MANIFEST,
    SUMMARY,
    Outcome,
    Results,
    check_same,
    digest,
    fingerprint,
    opened,
    versions,
)
from clearhead.bench.summary import measures_of
from clearhead.bench.summary import summary_of as summary_of
from clearhead.data.parquet import parquet
from clearhead.errors import BadOption, UnsupportedModel
from clearhead.model import zoo
from clearhead.validation import require_integer

if TYPE_CHECKING:
    from clearhead.attribution.method import Spelling
    from clearhead.data.task import Example, Task
    from clearhead.evaluation.explained import Explained
    from clearhead.evaluation.metric import Case, Measure
    from clearhead.model.model import Model

SHARD, SAMPLE = 32, 8
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
    shard: int = SHARD
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


Record = dict[str, Any]
Runner = Callable[[Plan, Sequence[Job]], Iterator[Outcome]]
Advance = Callable[[int, int, str], None]


# --- spellings of several methods ------------------------------------------------------------------------------


def expanded(spellings: Sequence[str], blocks: int) -> list[str]:
    """layer=* is every layer, layer=7/12 that share of the depth rounded up, layer=3..6 four of them."""
    found = [one for spelling in spellings for one in _expanded(spelling, blocks)]
    return list(dict.fromkeys(found))


def _expanded(spelling: str, blocks: int) -> Iterator[str]:
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
    from clearhead.data import task

    return task.digest(read(plan))


def _model_digest(name: str | None) -> str:
    """Of an embedded model its checksums, of a folder its files, of a hub id its downloaded snapshot."""
    if zoo.names() and (name is None or name in zoo.names()):
        checksums = Path(zoo.__file__).with_name("checksums.json")
        return fingerprint(
            {"name": name or zoo.names()[0], "checksums": digest(checksums) if checksums.exists() else ""}
        )
    if name is None:
        raise BadOption("Which model? This build has no embedded one: name a folder or a hub id with --model.")
    if Path(name).is_dir():
        return digest(Path(name))
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return digest(Path(snapshot_download(name, local_files_only=True)))
    except (LocalEntryNotFoundError, HFValidationError, HfHubHTTPError, OSError):
        from clearhead.model.model import load

        load(name)
        return digest(Path(snapshot_download(name, local_files_only=True)))


def _file_digests(plan: Plan) -> dict[str, str]:
    """The files that options name: a masked-LM model, a reference corpus."""
    named = [
        plan.lm_head or "",
        *(text.partition("=")[2] for one in plan.metrics for text in one.split(":", 1)[-1].split(",")),
    ]
    return {name: digest(Path(name)) for name in sorted(set(named)) if name and Path(name).exists()}


# --- one job ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """Metrics that look at the same examples: the task's own, or those that one metric makes of them."""

    measures: "tuple[Measure, ...]"
    examples: "Sequence[Example]"


@dataclass(frozen=True)
class Worker:
    """What a process keeps between jobs: the model, the methods, and the examples."""

    plan: Plan
    model: "Model"
    spellings: "tuple[Spelling, ...]"
    streams: tuple[Stream, ...]


def read(plan: Plan) -> "Task":
    """The plan's task, with as many examples as it asks for."""
    from clearhead.data.read import read_task

    return read_task(plan.task, limit=plan.limit, **plan.columns)


def streams_of(plan: Plan, task: "Task") -> tuple[Stream, ...]:
    """One stream for all metrics that take the examples as they are, one for each that makes its own."""
    measures = measures_of(plan.metrics)
    plain = tuple(one for one in measures if one.metric.prepare is None)
    others = [one for one in measures if one.metric.prepare is not None]
    found = [Stream(plain, task.examples)] if plain else []
    return (*found, *(Stream((one,), one.prepare(task)) for one in others))


def jobs_of(streams: Sequence[Stream], shard: int) -> list[Job]:
    """The shards of every stream, numbered through."""
    places = [
        (stream, start, min(start + shard, len(one.examples)))
        for stream, one in enumerate(streams)
        for start in range(0, len(one.examples), shard)
    ]
    return [Job(number, *place) for number, place in enumerate(places)]


def prepare(plan: Plan) -> Worker:
    """Loads what the jobs of a plan need, and finds a wrong label before anything is computed."""
    from clearhead.evaluation.evaluate import entries
    from clearhead.evaluation.explained import check_labels, needed
    from clearhead.model.model import load, precise

    model = precise(load(plan.model, device=plan.device, lm_head=plan.lm_head), plan.precision)
    wanted = entries(expanded(plan.methods, _blocks(model, plan.methods)))
    spellings = {one.text: one for entry in wanted for one in entry.spellings}
    streams = streams_of(plan, read(plan))
    for stream in streams:
        check_labels(model, stream.examples, needed(stream.measures))
    return Worker(plan, model, tuple(spellings.values()), streams)


def _blocks(model: "Model", methods: Sequence[str]) -> int:
    """How many blocks the network has, where a method's layers are counted by them."""
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    found = next((getattr(model.config, name) for name in names if getattr(model.config, name, None)), None)
    if found is None and expanded(methods, 0) != list(methods):
        raise BadOption(f"How deep {model.name} is cannot be told: write layers as numbers, such as layer=4.")
    return int(found or 0)


def compute(worker: Worker, job: Job) -> Outcome:
    """Explains the examples of a shard by every method, from shared traces, and measures the explanations."""
    from clearhead.evaluation.explained import REFUSALS, needed

    stream = worker.streams[job.stream]
    examples = stream.examples[job.start : job.stop]
    seconds: dict[str, float] = {"examples": len(examples)}
    with timed(seconds, "explaining"):
        found = _explained(worker, examples, needed(stream.measures))
    values, refused = [], dict(found.refused)
    for measure in stream.measures:
        try:
            with timed(seconds, f"measuring {measure.text}"):
                values += _measured(worker.model, measure, found.cases)
        except REFUSALS as error:
            refused[measure.text] = str(error)
    if job.number == 0:
        seconds |= costs(worker, examples, found.cases)
    explanations = [row for method, several in found.cases.items() for case in several for row in _rows(case, method)]
    return Outcome(job.number, explanations, values, seconds, {"refused": refused, "skipped": dict(found.skipped)})


def _explained(worker: Worker, examples: "Sequence[Example]", needs: Sequence[str]) -> "Explained":
    """The cases; with an automatic batch size, batches are halved until they fit into memory."""
    import torch

    from clearhead.evaluation.explained import explain_cases

    size = worker.plan.batch_size or len(examples)
    while True:
        try:
            return explain_cases(worker.model, examples, worker.spellings, needs, batch_size=size)
        except (torch.OutOfMemoryError, MemoryError) as error:
            if worker.plan.batch_size is not None or size == 1:
                raise BadOption(f"A batch of {size} does not fit into memory: give a smaller --batch-size.") from error
        size = max(1, size // 2)
        torch.cuda.empty_cache()


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - begun


def costs(worker: Worker, examples: "Sequence[Example]", methods: Collection[str]) -> dict[str, float]:
    """Seconds per example of each method by itself, on a few examples."""
    from clearhead.evaluation.explained import explain_cases

    few, found = examples[:SAMPLE], dict[str, float]()
    for spelling in (one for one in worker.spellings if one.text in methods and not _is_repeat(one, methods)):
        for attempt in ("first", "second"):
            with timed(found, f"{attempt} {spelling.text}"):
                explain_cases(worker.model, few, [spelling], ["prediction"], batch_size=worker.plan.batch_size)
        fastest = min(found.pop(f"first {spelling.text}"), found.pop(f"second {spelling.text}"))
        found[f"alone {spelling.text}"] = fastest / len(few)
    return found


def _is_repeat(spelling: "Spelling", methods: Collection[str]) -> bool:
    """Further seeds cost what the first does."""
    seed = spelling.options.get("seed", 0)
    return bool(seed) and f"{spelling.method.name}:seed=0" in methods


def _measured(model: "Model", measure: "Measure", cases: "Mapping[str, list[Case]]") -> list[dict[str, Any]]:
    """The records of all methods at once, so that what they run shares batches."""
    together = [(method, case) for method, several in cases.items() for case in several]
    records = measure.measure(model, [case for _, case in together])
    return [_value_row(case, method, measure, one) for (method, case), one in zip(together, records, strict=True)]


def _value_row(case: "Case", method: str, measure: "Measure", record: Mapping[str, Any]) -> dict[str, Any]:
    first = record.get(measure.metric.values[0])
    value = float(first) if isinstance(first, int | float) else None
    found = {"example": case.example.id, "method": method, "metric": measure.text, "value": value}
    return {**found, "record": json.dumps(record)}


def _rows(case: "Case", method: str) -> Iterator[dict[str, Any]]:
    from clearhead.views.json_record import row

    for explained, explanation in case.explanations.items():
        yield {"example": case.example.id, "explained": explained, **row(explanation, method)}


# --- a whole run -----------------------------------------------------------------------------------------------


def execute(plan: Plan, folder: Path, runner: Runner, advance: Advance = lambda *_: None) -> dict[str, Any]:
    """Runs what is missing of a plan into its folder, and sums up; a finished run is only read."""
    manifest = manifest_of(plan)
    if is_finished(folder, manifest):
        return _checked(summary_of(Results(folder)))
    task = read(plan)
    check(plan)
    jobs = jobs_of(streams_of(plan, task), plan.shard)
    manifest |= {"examples": len(task), "shards": len(jobs), "skipped": task.notice}
    with opened(folder, manifest) as results:
        missing = [job for job in jobs if not results.has(job.number)]
        done = len(jobs) - len(missing)
        advance(done, len(jobs), "Measuring")
        for place, outcome in enumerate(runner(plan, missing) if missing else (), 1):
            results.keep(outcome)
            advance(done + place, len(jobs), "Measuring")
        return _checked(summary_of(results))


def _checked(summary: dict[str, Any]) -> dict[str, Any]:
    if not summary["rows"]:
        raise UnsupportedModel(f"Nothing could be measured. {' '.join(summary['refused'][:1])}")
    return summary


def is_finished(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether the folder holds this very run, summed up."""
    if not (folder / MANIFEST).exists() or not (folder / SUMMARY).exists():
        return False
    check_same(folder, manifest)
    return True


def check(plan: Plan) -> None:
    """Names and options that make no sense are refused before anything is written or loaded."""
    from clearhead.attribution.method import spelled

    if not plan.methods or not plan.metrics:
        raise BadOption("Name at least one method and one metric.")
    require_integer("seed", plan.seed, 0, is_flag=True)
    for one in expanded(plan.methods, 12):
        spelled(one)
    parquet([])
