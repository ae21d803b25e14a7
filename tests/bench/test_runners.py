"""Runners: Ray answers as the local runner does, also when a worker is killed."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.dying_workers import Doomed, Mortal
from helpers.ray_cluster import start_cluster
from helpers.saved_models import save_text_model

from clearhead.bench.plan import Plan
from clearhead.bench.run import run_plan
from clearhead.bench.run_folder import RunFolder
from clearhead.bench.runners.local import local
from clearhead.bench.runners.ray import RayRunner
from clearhead.cluster import Cluster
from clearhead.errors import BadInput, BadOption, ClearheadError

pytest.importorskip("ray", reason="runs on a cluster need Ray")

TEXTS = ["a bad , tedious film", "good heart , a good film", "never a good film", "a film with heart", "so good"]


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    task = folder / "dev.tsv"
    task.write_text("label\tsentence\n" + "".join(f"{index % 2}\t{text}\n" for index, text in enumerate(TEXTS)))
    model = str(save_text_model(folder / "model"))
    return Plan(str(task), ("att-cat", "random:seed=1"), ("aopc", "hiding"), model=model, shard=1)


@pytest.fixture(scope="module")
def cluster():
    with start_cluster(2):
        yield RayRunner(Cluster(workers=2))


@pytest.fixture(scope="module")
def local_values(plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("local") / "run"
    run_plan(plan, folder, local)
    return list(RunFolder(folder).values())


def same(values, expected):
    assert len(values) == len(expected)
    for row, expected_row in zip(values, expected, strict=True):
        assert row["value"] == pytest.approx(expected_row["value"], abs=1e-6)
        plain = ("example", "method", "metric")
        assert [row[name] for name in plain] == [expected_row[name] for name in plain]


def test_ray_gives_the_local_values_though_a_worker_is_killed(plan, cluster, local_values, tmp_path, monkeypatch):
    monkeypatch.setattr("clearhead.bench.runners.ray.RayWorker", Mortal)
    run_plan(plan, tmp_path / "run", cluster)
    assert Path(plan.task).with_suffix(".killed").exists()
    same(list(RunFolder(tmp_path / "run").values()), local_values)


def test_a_shard_that_kills_every_worker_is_given_up_and_nothing_is_lost(
    plan, cluster, local_values, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr("clearhead.bench.runners.ray.RayWorker", Doomed)
        patch.setattr("clearhead.cluster.MAX_ATTEMPTS", 2)
        with pytest.raises(ClearheadError, match="lost its worker 2 times"):
            run_plan(plan, tmp_path / "run", RayRunner(Cluster(workers=1)))
    run_plan(plan, tmp_path / "run", local)
    same(list(RunFolder(tmp_path / "run").values()), local_values)


def test_a_mistake_found_by_a_worker_is_told_as_it_is(plan, cluster, tmp_path):
    task = tmp_path / "unknown.tsv"
    task.write_text("label\tsentence\nmaybe\ta film\n")
    with pytest.raises(BadInput, match="maybe"):
        run_plan(replace(plan, task=str(task)), tmp_path / "run", cluster)


def test_without_ray_the_error_says_what_to_install(plan, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(BadOption, match=r"clearhead\[ray\]"):
        run_plan(plan, tmp_path / "run", RayRunner(Cluster(workers=1)))
