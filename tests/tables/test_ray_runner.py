"""Tables on Ray: the bytes of a local run, also when a worker is killed, and where only workers have the device."""

import pytest
from helpers.dying_workers import MortalTableWorker
from helpers.pictures import photo
from helpers.ray_cluster import start_cluster

import clearhead
from clearhead.attribution.method import parse_method
from clearhead.errors import BadOption
from clearhead.tables.columns import ColumnChoice
from clearhead.tables.explain_table import make_explainer
from clearhead.tables.explainer import RowTargets
from clearhead.tables.ray_runner import TableWorker
from clearhead.tables.shards import Shard

METHOD = "att-cat"


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="the ray extra is not installed")
    with start_cluster(2):
        yield


def explain(model, table, out, **options):
    clearhead.explain_table(model, table, out, METHOD, shard=4, batch_size=4, **options)
    return out.read_bytes()


def test_a_worker_lost_costs_its_shard_and_the_bytes_stay(model, cluster, write_rows, tmp_path, monkeypatch):
    table = write_rows(22)
    local = explain(model, table, tmp_path / "local.parquet")
    monkeypatch.setattr("clearhead.tables.ray_runner.TableWorker", MortalTableWorker)
    assert explain(model, table, tmp_path / "ray.parquet", ray="local", workers=2) == local
    assert table.with_suffix(".killed").exists()
    begun = table.with_suffix(".begun").read_text().split()
    assert sorted(begun) == ["0", "1", "2", "2", "3", "4", "5"]


def test_a_run_goes_on_where_another_runner_was(model, cluster, write_rows, tmp_path, monkeypatch):
    table, out = write_rows(20), tmp_path / "out.jsonl"
    local = explain(model, table, tmp_path / "local.jsonl")
    with pytest.raises(KeyboardInterrupt):
        explain(model, table, out, runner=stop_after(2))
    monkeypatch.setattr("clearhead.tables.ray_runner.TableWorker", MortalTableWorker)
    assert explain(model, table, out, ray="local", workers=1) == local
    assert set(table.with_suffix(".begun").read_text().split()) == {"2", "3", "4"}


def stop_after(count):
    """Return a runner that is interrupted after some shards."""

    def run(explainer, shards, bar):
        for shard in shards:
            if shard.number == count:
                raise KeyboardInterrupt
            yield shard, explainer.explain_rows(shard.rows, bar)

    return run


def test_a_mistake_found_by_a_worker_is_told_as_it_is(model, cluster, write_rows, tmp_path):
    with pytest.raises(BadOption, match="batch_size"):
        clearhead.explain_table(model, write_rows(4), tmp_path / "out.jsonl", METHOD, ray="local", batch_size=0)


def test_images_are_found_from_the_folder_of_the_run(image_model, tmp_path, monkeypatch):
    photo().save(tmp_path / "photo.png")
    choice = ColumnChoice(image="image")
    spec = parse_method("raw-attention")
    rows = [{"image": "photo.png"}]
    monkeypatch.chdir(tmp_path)
    explainer, rows = make_explainer(image_model, rows, spec, choice, RowTargets(), {"check": False})
    monkeypatch.chdir("/")
    record = TableWorker(explainer, "cpu", tmp_path).run_job(Shard(0, rows, ""))[0]
    assert (record["error"], record["image"]) == (None, "photo.png")


def test_flags_that_contradict_each_other_are_refused(model, write_rows, tmp_path):
    table, out = write_rows(4), tmp_path / "out.jsonl"
    with pytest.raises(BadOption, match=r"workers counts Ray workers: give ray='local'"):
        explain(model, table, out, workers=2)
    with pytest.raises(BadOption, match="a runner contradict"):
        explain(model, table, out, ray="local", runner=stop_after(1))
    with pytest.raises(BadOption, match="ray=True is no address"):
        explain(model, table, out, ray=True)
