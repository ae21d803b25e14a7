"""Metrics grouped by the examples they measure, and the jobs of every group."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def group_metrics(plan: Plan, task: Task) -> tuple[MetricGroup, ...]:
    """Return one group for all metrics on the task's own examples, and one for each that prepares examples."""
    on_task = []
    groups = []
    for spec in parse_metrics(plan.metrics):
        if spec.metric.prepare is None:
            on_task.append(spec)
        else:
            groups.append(MetricGroup((spec,), spec.prepare(task)))
    # First, so that the first job, which also measures the costs, has the task's own examples.
    if on_task:
        groups.insert(0, MetricGroup(tuple(on_task), task.examples))
    return tuple(groups)


def make_jobs(groups: Sequence[MetricGroup], shard: int) -> list[Job]:
    """Cut the examples of every group into shards, numbered through."""
    jobs: list[Job] = []
    for index, group in enumerate(groups):
        count = len(group.examples)
        for start in range(0, count, shard):
            stop = min(start + shard, count)
            jobs.append(Job(len(jobs), index, start, stop))
    return jobs
