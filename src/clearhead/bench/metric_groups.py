"""Metrics grouped by the examples they measure, and the jobs of every group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import filterfalse

from clearhead.bench.plan import Job, Plan
from clearhead.data.task import Example, Task
from clearhead.evaluation.metric import MetricSpec, parse_metric


@dataclass(frozen=True)
class MetricGroup:
    """Metrics on the same examples: the task's own, or those that one metric prepares from them."""

    metrics: tuple[MetricSpec, ...]
    examples: Sequence[Example]


def parse_metrics(specs: Sequence[str]) -> list[MetricSpec]:
    """Parse the metrics of a plan, each once."""
    return list(map(parse_metric, dict.fromkeys(specs)))


def prepares_examples(spec: MetricSpec) -> bool:
    """Return whether a metric measures examples of its own, which it makes of the task's."""
    return spec.metric.prepare is not None


def group_metrics(plan: Plan, task: Task) -> tuple[MetricGroup, ...]:
    """Return one group for all metrics on the task's own examples, and one for each that prepares examples."""
    specs = parse_metrics(plan.metrics)
    # First, so that the first job, which also measures the costs, has the task's own examples.
    return (*_group_on_task(specs, task), *_group_prepared(specs, task))


def _group_on_task(specs: Sequence[MetricSpec], task: Task) -> Iterator[MetricGroup]:
    metrics = tuple(filterfalse(prepares_examples, specs))
    if metrics:
        yield MetricGroup(metrics, task.examples)


def _group_prepared(specs: Sequence[MetricSpec], task: Task) -> Iterator[MetricGroup]:
    for spec in filter(prepares_examples, specs):
        yield MetricGroup((spec,), spec.prepare(task))


def make_jobs(groups: Sequence[MetricGroup], shard: int) -> list[Job]:
    """Cut the examples of every group into shards, numbered through."""
    jobs: list[Job] = []
    for index, group in enumerate(groups):
        for start, stop in _cut(len(group.examples), shard):
            jobs.append(Job(len(jobs), index, start, stop))
    return jobs


def _cut(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each shard."""
    for start in range(0, count, size):
        # The last shard may be shorter.
        yield start, min(start + size, count)
