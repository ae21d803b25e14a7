"""Worker: explains, measures and times one shard at a time, and keeps the model between shards."""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from clearhead.attribution.method import MethodSpec
from clearhead.bench.metric_groups import MetricGroup, group_metrics
from clearhead.bench.plan import SHARD_STEPS, Job, Plan, expand_layers, read_plan_task
from clearhead.bench.run_folder import ShardResult
from clearhead.data.task import Example
from clearhead.errors import BadOption
from clearhead.evaluation.evaluate import parse_entries
from clearhead.evaluation.examples import describe_gold
from clearhead.evaluation.explained import (
    REFUSALS,
    ExplainedExamples,
    check_labels,
    default_need,
    explain_examples,
    required_targets,
)
from clearhead.evaluation.metric import ExplainedExample, MetricSpec
from clearhead.model.focused_inputs import require_focus
from clearhead.model.loading import load
from clearhead.model.model import Model
from clearhead.model.model_checks import refuse_choices
from clearhead.model.placement import with_precision
from clearhead.progress import Advance, progress
from clearhead.views.json_record import row as explanation_row

Row = dict[str, Any]
CasesByMethod = Mapping[str, Sequence[ExplainedExample]]

# Enough for a stable time per example, few enough not to prolong the run.
MAX_TIMED_EXAMPLES = 8
# How configurations of different architectures name the number of blocks.
BLOCK_COUNT_NAMES = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


@dataclass(frozen=True)
class Worker:
    """What a process keeps between jobs: the model, the methods, and the examples."""

    plan: Plan
    model: Model
    methods: tuple[MethodSpec, ...]
    groups: tuple[MetricGroup, ...]

    def select_examples(self, job: Job) -> Sequence[Example]:
        """Return the examples of a job."""
        return self.groups[job.group].examples[job.start : job.stop]


def make_worker(plan: Plan, groups: Sequence[MetricGroup] | None = None) -> Worker:
    """Load what the jobs of a plan need, and raise BadInput for a wrong label before anything is computed.

    Without `groups` the task is read again, as by a worker in another process.
    """
    model = _load_planned_model(plan)
    methods = _parse_methods(model, plan.methods)
    if groups is None:
        groups = group_metrics(plan, read_plan_task(plan))
    _check_groups(model, groups)
    return Worker(plan, model, methods, tuple(groups))


def _check_groups(model: Model, groups: Sequence[MetricGroup]) -> None:
    for group in groups:
        check_labels(model, group.examples, required_targets(group.metrics))


def _load_planned_model(plan: Plan) -> Model:
    loaded = load(plan.model, device=plan.device, lm_head=plan.lm_head, allow_pickle=plan.allow_pickle)
    refuse_choices(loaded, "bench")
    if plan.focus is not None:
        require_focus(loaded)
    return with_precision(loaded, plan.precision)


def _parse_methods(model: Model, methods: Sequence[str]) -> tuple[MethodSpec, ...]:
    """Parse the methods, layer ranges expanded and `random` as one spec per seed, each once."""
    expanded = expand_layers(methods, _count_blocks(model, methods))
    specs = {spec.text: spec for spec in _list_specs(expanded)}
    return tuple(specs.values())


def _list_specs(methods: Sequence[str]) -> Iterator[MethodSpec]:
    for entry in parse_entries(methods):
        yield from entry.specs


def _count_blocks(model: Model, methods: Sequence[str]) -> int:
    """Return the number of blocks from the model's configuration; only layer ranges need it."""
    count = _configured_blocks(model)
    if count == 0 and _has_layer_ranges(methods):
        raise BadOption(f"The depth of {model.name} is unknown: write layers as numbers, such as layer=4.")
    return count


def _configured_blocks(model: Model) -> int:
    """Return the number of blocks by whichever name the configuration has for it; 0 if it has none."""
    counts = (getattr(model.config, name, None) for name in BLOCK_COUNT_NAMES)
    return int(next(filter(None, counts), 0))


def _has_layer_ranges(methods: Sequence[str]) -> bool:
    return expand_layers(methods, 0) != list(methods)


def run_job(worker: Worker, job: Job) -> ShardResult:
    """Explain the examples of a shard by every method, from shared traces, and measure the explanations."""
    metrics = worker.groups[job.group].metrics
    examples = worker.select_examples(job)
    seconds: dict[str, float] = {"examples": len(examples)}
    # Every example is explained once, and measured once by each metric.
    with progress(len(examples) * (1 + len(metrics)), SHARD_STEPS) as advance:
        with timed(seconds, "explaining"):
            explained = _explain_shard(worker, examples, required_targets(metrics), advance)
        refused = dict(explained.refused)
        values = []
        for spec in metrics:
            values += _measure_or_refuse(worker.model, spec, explained.cases, seconds, refused)
            advance(len(examples))
    # Once per run: every job would measure the same.
    if job.number == 0:
        seconds |= measure_costs(worker, examples, explained.cases)
    notes = {"refused": refused, "skipped": dict(explained.skipped)}
    return ShardResult(job.number, list(_explanation_rows(worker.model, explained.cases)), values, seconds, notes)


def _explain_shard(
    worker: Worker, examples: Sequence[Example], targets: Sequence[str], advance: Advance
) -> ExplainedExamples:
    size = worker.plan.batch_size
    return explain_examples(worker.model, examples, worker.methods, targets, batch_size=size, advance=advance)


def _measure_or_refuse(
    model: Model, spec: MetricSpec, cases: CasesByMethod, seconds: dict[str, float], refused: dict[str, str]
) -> list[Row]:
    """Return the value rows of a metric; add its time to `seconds`, or why it cannot run to `refused`."""
    # A metric that does not fit the model must not cost the values of the others.
    try:
        with timed(seconds, f"measuring {spec.text}"):
            return list(_measure(model, spec, cases))
    except REFUSALS as error:
        refused[spec.text] = str(error)
        return []


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Store how long the block took, unless it raises."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def measure_costs(worker: Worker, examples: Sequence[Example], methods: Collection[str]) -> dict[str, float]:
    """Return the seconds per example of each method run alone, on a few examples."""
    sample = examples[:MAX_TIMED_EXAMPLES]
    costs = {}
    for spec in worker.methods:
        if _is_timed(spec, methods):
            costs[f"alone {spec.text}"] = time_alone(worker.model, spec, sample, worker.plan.batch_size)
    return costs


def _is_timed(spec: MethodSpec, methods: Collection[str]) -> bool:
    # A method that refused the model has no explanations, and so no time.
    return spec.text in methods and not _is_repeat(spec, methods)


def _is_repeat(spec: MethodSpec, methods: Collection[str]) -> bool:
    """Return whether the method is a further seed of another, which costs the same."""
    return bool(spec.options.get("seed")) and f"{spec.method.name}:seed=0" in methods


def time_alone(model: Model, spec: MethodSpec, examples: Sequence[Example], batch_size: int | None = None) -> float:
    """Return the seconds per example of a method run alone."""
    seconds: dict[str, float] = {}
    for attempt in ("first", "second"):
        with timed(seconds, attempt):
            # Together with others a method shares the forward pass, and its own cost does not show.
            explain_examples(model, examples, [spec], [default_need(model)], batch_size=batch_size)
    # The faster of two runs: the first may pay for one-time work such as compiling kernels.
    return min(seconds.values()) / len(examples)


def _measure(model: Model, spec: MetricSpec, cases: CasesByMethod) -> Iterator[Row]:
    """Measure all methods in one call, so that the perturbed inputs of all of them share batches."""
    pairs = list(_pair_with_methods(cases))
    records = spec.measure(model, [case for _, case in pairs])
    for (method, case), record in zip(pairs, records, strict=True):
        yield _value_row(case, method, spec, record)


def _pair_with_methods(cases: CasesByMethod) -> Iterator[tuple[str, ExplainedExample]]:
    """Yield the explained examples of all methods, each with its method."""
    for method, method_cases in cases.items():
        for case in method_cases:
            yield method, case


def _value_row(case: ExplainedExample, method: str, spec: MetricSpec, record: Mapping[str, Any]) -> Row:
    return {
        "example": case.example.id,
        "method": method,
        "metric": spec.text,
        "value": _first_value(spec, record),
        "record": json.dumps(record),
    }


def _first_value(spec: MetricSpec, record: Mapping[str, Any]) -> float | None:
    return _as_number(record.get(spec.metric.values[0]))


def _as_number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    # A metric that is no mean over records has no number per example.
    return None


def _explanation_rows(model: Model, cases: CasesByMethod) -> Iterator[Row]:
    for method, case in _pair_with_methods(cases):
        yield from _case_rows(method, case, describe_gold(model, case.example))


def _case_rows(method: str, case: ExplainedExample, gold: Mapping[str, Any]) -> Iterator[Row]:
    """Yield one row per target that was explained, with the right label."""
    for target, explanation in case.explanations.items():
        row = explanation_row(replace(explanation, source={**explanation.source, **gold}), method)
        yield {"example": case.example.id, "explained": target, **row}
