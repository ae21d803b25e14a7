"""Plans and their shards."""

from dataclasses import replace

import pytest
from helpers.runs import SENTENCES

from clearhead.bench.metric_groups import group_metrics, make_jobs
from clearhead.bench.plan import expand_layers, read_plan_task
from clearhead.bench.run import run_plan
from clearhead.bench.runners.local import local
from clearhead.errors import BadOption


def test_every_example_is_in_one_shard(plan):
    groups = group_metrics(plan, read_plan_task(plan))
    jobs = make_jobs(groups, 4)
    covered = [(job.group, example) for job in jobs for example in range(job.start, job.stop)]
    assert covered == [(0, example) for example in range(len(SENTENCES))]
    assert [job.number for job in jobs] == [0, 1, 2]


def test_layers_may_be_counted_by_depth():
    assert expand_layers(["layer-gradcam:layer=*"], 2) == [f"layer-gradcam:layer={layer}" for layer in (0, 1, 2)]
    assert expand_layers(["decoded-gradcam:layer=7/12,top=3"], 12) == ["decoded-gradcam:layer=7,top=3"]
    assert expand_layers(["decoded-gradcam:layer=7/12"], 6) == ["decoded-gradcam:layer=4"]
    assert expand_layers(["decoded-gradcam:layer=5/12", "decoded-gradcam:layer=6/12"], 6) == ["decoded-gradcam:layer=3"]
    assert expand_layers(["att-cat"], 0) == ["att-cat"]


def test_a_plan_without_methods_is_refused(plan, tmp_path):
    with pytest.raises(BadOption, match="at least one method"):
        run_plan(replace(plan, methods=()), tmp_path / "run", local)
