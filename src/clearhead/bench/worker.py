"""TODO."""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clearhead.bench.plan import Job, Plan, expand_layers, read_plan_task
from clearhead.bench.run_folder import (
    ShardResult,
)
from clearhead.bench.summary import parse_metrics
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.attribution.method import MethodSpec
    from clearhead.data.task import Example, Task
    from clearhead.evaluation.explained import ExplainedExamples
    from clearhead.evaluation.metric import ExplainedExample, MetricSpec
    from clearhead.model.model import Model


TIMED_EXAMPLES = 8


@dataclass(frozen=True)
class MetricGroup:
    """Metrics that look at the same examples: the task's own, or those that one metric makes of them."""

    measures: "tuple[MetricSpec, ...]"
    examples: "Sequence[Example]"


@dataclass(frozen=True)
class Worker:
    """What a process keeps between jobs: the model, the methods, and the examples."""

    plan: Plan
    model: "Model"
    spellings: "tuple[MethodSpec, ...]"
    streams: tuple[MetricGroup, ...]


def group_metrics(plan: Plan, task: "Task") -> tuple[MetricGroup, ...]:
    """One stream for all metrics that take the examples as they are, one for each that makes its own."""
    measures = parse_metrics(plan.metrics)
    plain = tuple(one for one in measures if one.metric.prepare is None)
    others = [one for one in measures if one.metric.prepare is not None]
    found = [MetricGroup(plain, task.examples)] if plain else []
    return (*found, *(MetricGroup((one,), one.prepare(task)) for one in others))


def make_jobs(streams: Sequence[MetricGroup], shard: int) -> list[Job]:
    """The shards of every stream, numbered through."""
    places = [
        (stream, start, min(start + shard, len(one.examples)))
        for stream, one in enumerate(streams)
        for start in range(0, len(one.examples), shard)
    ]
    return [Job(number, *place) for number, place in enumerate(places)]


def make_worker(plan: Plan) -> Worker:
    """Loads what the jobs of a plan need, and finds a wrong label before anything is computed."""
    from clearhead.evaluation.evaluate import parse_entries
    from clearhead.evaluation.explained import check_labels, required_targets
    from clearhead.model.loading import load
    from clearhead.model.placement import with_precision

    model = with_precision(load(plan.model, device=plan.device, lm_head=plan.lm_head), plan.precision)
    wanted = parse_entries(expand_layers(plan.methods, _count_blocks(model, plan.methods)))
    spellings = {one.text: one for entry in wanted for one in entry.spellings}
    streams = group_metrics(plan, read_plan_task(plan))
    for stream in streams:
        check_labels(model, stream.examples, required_targets(stream.measures))
    return Worker(plan, model, tuple(spellings.values()), streams)


def _count_blocks(model: "Model", methods: Sequence[str]) -> int:
    """How many blocks the network has, where a method's layers are counted by them."""
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    found = next((getattr(model.config, name) for name in names if getattr(model.config, name, None)), None)
    if found is None and expand_layers(methods, 0) != list(methods):
        raise BadOption(f"How deep {model.name} is cannot be told: write layers as numbers, such as layer=4.")
    return int(found or 0)


def run_job(worker: Worker, job: Job) -> ShardResult:
    """Explains the examples of a shard by every method, from shared traces, and measures the explanations."""
    from clearhead.evaluation.explained import REFUSALS, required_targets

    stream = worker.streams[job.stream]
    examples = stream.examples[job.start : job.stop]
    seconds: dict[str, float] = {"examples": len(examples)}
    with timed(seconds, "explaining"):
        found = _explain_shard(worker, examples, required_targets(stream.measures))
    values, refused = [], dict(found.refused)
    for measure in stream.measures:
        try:
            with timed(seconds, f"measuring {measure.text}"):
                values += _measure(worker.model, measure, found.cases)
        except REFUSALS as error:
            refused[measure.text] = str(error)
    if job.number == 0:
        seconds |= measure_costs(worker, examples, found.cases)
    explanations = [
        row for method, several in found.cases.items() for case in several for row in _explanation_rows(case, method)
    ]
    return ShardResult(job.number, explanations, values, seconds, {"refused": refused, "skipped": dict(found.skipped)})


def _explain_shard(worker: Worker, examples: "Sequence[Example]", needs: Sequence[str]) -> "ExplainedExamples":
    """The cases; with an automatic batch size, batches are halved until they fit into memory."""
    import torch

    from clearhead.evaluation.explained import explain_examples

    size = worker.plan.batch_size or len(examples)
    while True:
        try:
            return explain_examples(worker.model, examples, worker.spellings, needs, batch_size=size)
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


def measure_costs(worker: Worker, examples: "Sequence[Example]", methods: Collection[str]) -> dict[str, float]:
    """Seconds per example of each method by itself, on a few examples."""
    from clearhead.evaluation.explained import explain_examples

    few, found = examples[:TIMED_EXAMPLES], dict[str, float]()
    for spelling in (one for one in worker.spellings if one.text in methods and not _is_repeat(one, methods)):
        for attempt in ("first", "second"):
            with timed(found, f"{attempt} {spelling.text}"):
                explain_examples(worker.model, few, [spelling], ["prediction"], batch_size=worker.plan.batch_size)
        fastest = min(found.pop(f"first {spelling.text}"), found.pop(f"second {spelling.text}"))
        found[f"alone {spelling.text}"] = fastest / len(few)
    return found


def _is_repeat(spelling: "MethodSpec", methods: Collection[str]) -> bool:
    """Further seeds cost what the first does."""
    seed = spelling.options.get("seed", 0)
    return bool(seed) and f"{spelling.method.name}:seed=0" in methods


def _measure(
    model: "Model", measure: "MetricSpec", cases: "Mapping[str, list[ExplainedExample]]"
) -> list[dict[str, Any]]:
    """The records of all methods at once, so that what they run shares batches."""
    together = [(method, case) for method, several in cases.items() for case in several]
    records = measure.measure(model, [case for _, case in together])
    return [_value_row(case, method, measure, one) for (method, case), one in zip(together, records, strict=True)]


def _value_row(
    case: "ExplainedExample", method: str, measure: "MetricSpec", record: Mapping[str, Any]
) -> dict[str, Any]:
    first = record.get(measure.metric.values[0])
    value = float(first) if isinstance(first, int | float) else None
    found = {"example": case.example.id, "method": method, "metric": measure.text, "value": value}
    return {**found, "record": json.dumps(record)}


def _explanation_rows(case: "ExplainedExample", method: str) -> Iterator[dict[str, Any]]:
    from clearhead.views.json_record import row

    for explained, explanation in case.explanations.items():
        yield {"example": case.example.id, "explained": explained, **row(explanation, method)}
