"""Runs on the page: right labels, search and slices, and files that are damaged."""

import json
import shutil

import pytest
from helpers.api import HOME, TestClient
from helpers.page_server import save_run
from helpers.saved_models import save_text_model

pytest.importorskip("pyarrow", reason="runs are kept in Parquet files")

from clearhead.data.parquet import read_parquet, read_small_parquet, to_parquet
from clearhead.errors import BadFile, BadOption
from clearhead.web.app import build_app
from clearhead.web.run_examples import ExampleFilter, parse_example
from clearhead.web.runs import DAMAGED, Runs

ASKED = {"method": "att-cat", "metric": "aopc"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    return save_run(home, save_text_model(home / "model"))


@pytest.fixture
def run(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "my-run")


def list_examples(client, **choices):
    return client.get("/api/runs/my-run/examples", params={**ASKED, **choices}).json()


def open_client(models, *runs):
    return TestClient(build_app(models, runs=Runs(list(runs))), base_url=HOME, raise_server_exceptions=False)


def change_values(run, change):
    """Change the rows of the run's values."""
    (path,) = (run / "shards").glob("*-values.parquet")
    path.write_bytes(to_parquet([{**row, **change(row)} for row in read_parquet(path)]))


def test_examples_have_their_right_label(models, run):
    with open_client(models, run) as client:
        listed = list_examples(client)
    labels = {example["text"][0]: (example["gold"], example["predicted"]) for example in listed["examples"]}
    assert labels["a good film"][0] == "negative"
    assert labels["never a bad film"][0] == "positive"
    wrong = [example for example in listed["examples"] if example["gold"] != example["predicted"]]
    assert all(example["wrong"] for example in wrong)
    assert (listed["wrong"], listed["right"]) == (len(wrong), 6 - len(wrong))
    assert {example["model"] for example in listed["examples"]} == {"model"}


def test_examples_are_searched_and_sliced(models, run):
    with open_client(models, run) as client:
        texts = [example["text"][0] for example in list_examples(client, search="HEART")["examples"]]
        assert sorted(texts) == ["a heart", "bad heart"]
        wrong = list_examples(client, slice="wrong")
        right = list_examples(client, slice="right")
        assert wrong["total"] + right["total"] == 6
        assert all(example["wrong"] for example in wrong["examples"])
        positive = list_examples(client, gold="positive")
        assert {example["gold"] for example in positive["examples"]} == {"positive"}
        assert list_examples(client, predicted="neither")["total"] == 0
        assert client.get("/api/runs/my-run/examples", params={**ASKED, "slice": "odd"}).status_code == 422


def test_runs_of_earlier_versions_have_no_labels():
    example = parse_example({"example": 3, "text": "a film", "second": None, "label": "bad", "probability": 0.5})
    assert (example.gold, example.predicted, example.is_wrong) == (None, None, None)
    assert ExampleFilter().accepts(example)
    assert not ExampleFilter(slice="right").accepts(example)


def test_a_damaged_run_disables_only_itself(models, run, tmp_path, caplog):
    damaged = shutil.copytree(run, tmp_path / "damaged")
    (path,) = (damaged / "shards").glob("*-values.parquet")
    path.write_bytes(b"garbage")
    with open_client(models, run, damaged) as client:
        good, bad = client.get("/api/runs").json()
        assert (good["error"], bad["error"], bad["methods"]) == ("", DAMAGED, [])
        assert list_examples(client)["total"] == 6
        refused = client.get("/api/runs/damaged/examples", params=ASKED)
        assert refused.status_code == 422
        assert str(tmp_path) not in refused.text


BROKEN_MANIFESTS = ["{", "[]", "{}", '{"format": 99}', '{"format": 1, "plan": {}, "hashes": {}, "versions": {}}']


@pytest.mark.parametrize("manifest", BROKEN_MANIFESTS)
def test_a_broken_manifest_disables_only_its_run(models, run, tmp_path, caplog, manifest):
    damaged = shutil.copytree(run, tmp_path / "damaged")
    (damaged / "manifest.json").write_text(manifest)
    with open_client(models, damaged, run) as client:
        assert "The run 'damaged' is left out" in caplog.text
        bad, good = client.get("/api/runs").json()
        assert (bad["error"], good["error"]) == (DAMAGED, "")
        assert list_examples(client)["total"] == 6
        for path in ("/api/runs/damaged/examples?method=att-cat&metric=aopc", "/runs/damaged"):
            refused = client.get(path)
            assert refused.status_code == 422
            assert str(tmp_path) not in refused.text


def test_a_folder_without_a_run_is_told_at_the_start(run, tmp_path):
    with pytest.raises(BadFile, match="is not a run folder"):
        Runs([run, tmp_path])


def test_data_of_a_damaged_run_is_no_mistake(run, saved, tmp_path):
    data = saved.parent / "task.tsv"
    with pytest.raises(BadOption, match="No run was made from"):
        Runs([run], [tmp_path])
    assert Runs([run], [data])["my-run"].data == data
    (run / "manifest.json").write_text("{")
    assert len(Runs([run], [data])) == 1


def test_values_that_are_no_numbers_are_left_out(models, run):
    change_values(run, lambda row: {"value": float("nan")} if row["example"] == "2" else {})
    with open_client(models, run) as client:
        listed = list_examples(client)
    assert listed["total"] == 5
    assert "2" not in [example["example"] for example in listed["examples"]]


def test_a_small_file_of_many_rows_is_not_read(tmp_path):
    path = tmp_path / "bomb.parquet"
    path.write_bytes(to_parquet([{"text": "x" * 1000}] * 20_000))
    assert path.stat().st_size < 50_000
    assert len(read_small_parquet(path, 100_000_000)) == 20_000
    with pytest.raises(BadFile, match="more than 10 MB"):
        read_small_parquet(path, 10_000_000)


def test_records_keep_the_right_label(run):
    (path,) = (run / "shards").glob("*-explanations.parquet")
    sources = [json.loads(row["source"]) for row in read_parquet(path)]
    assert all(source["gold"] in ("negative", "positive") for source in sources)
    assert all(isinstance(source["wrong"], bool) for source in sources)


def test_labels_cannot_read_as_others():
    row = {"example": 1, "label": "evil\u202e", "source": json.dumps({"gold": "evil\u202e"})}
    example = parse_example(row)
    assert (example.label, example.gold) == ("evil⟨U+202E⟩", "evil⟨U+202E⟩")
