"""Data on the page: a table of examples whose predictions are computed as they are needed, at a bounded cost."""

import pytest
from helpers.api import HOME, TestClient
from helpers.joined_models import joined_model
from helpers.pictures import make_photo
from helpers.tiny_heads import filling_bert, labelling_bert

import clearhead
from clearhead.cli import main
from clearhead.data.read import read_task
from clearhead.data.task import Example, Task
from clearhead.errors import BadOption
from clearhead.web import server
from clearhead.web import tasks as task_tables
from clearhead.web.app import build_app
from clearhead.web.tasks import Tasks

TEXTS = ["a good film", "never a bad film", "tedious , bad film", "a heart", "good , never tedious"]


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "dev.tsv"
    path.write_text("label\tsentence\n" + "".join(f"{number % 2}\t{text}\n" for number, text in enumerate(TEXTS)))
    return read_task(path)


@pytest.fixture
def client(models, task):
    app = build_app(models, tasks=Tasks([task], models))
    with TestClient(app, base_url=HOME, raise_server_exceptions=False) as test_client:
        yield test_client


def list_examples(client, **choices):
    return client.get("/api/tasks/dev.tsv/examples", params={"model": "text", **choices}).json()


def predict(client, **changes):
    return client.post("/api/predict", json={"task": "dev.tsv", "model": "text", **changes})


def predict_all(client):
    progress = predict(client).json()
    while progress["done"] < progress["total"]:
        progress = predict(client).json()


def test_data_is_listed_with_the_models_that_read_it(client):
    assert client.get("/api/tasks").json() == [{"name": "dev.tsv", "examples": 5, "models": ["text"]}]


def test_examples_are_listed_before_anything_is_computed(client, models):
    listed = list_examples(client)
    assert [example["text"] for example in listed["examples"]] == [[text] for text in TEXTS]
    assert [example["gold"] for example in listed["examples"]][:2] == list(models["text"].labels[:2])
    assert {example["predicted"] for example in listed["examples"]} == {None}
    assert (listed["wrong"], listed["right"]) == (0, 0)
    assert listed["predicted"] == {"done": 0, "total": 5}


def test_each_request_predicts_a_few_examples(client, monkeypatch):
    monkeypatch.setattr(task_tables, "ROWS_AT_ONCE", 2)
    assert predict(client).json() == {"done": 2, "total": 5}
    listed = list_examples(client)
    assert [example["predicted"] is not None for example in listed["examples"]] == [True, True, False, False, False]
    assert [predict(client).json()["done"] for _ in range(3)] == [4, 5, 5]


def test_predictions_are_those_of_explain(client, models):
    predict_all(client)
    for example in list_examples(client)["examples"]:
        diagnostics = clearhead.explain(models["text"], example["text"][0], check=False).diagnostics
        assert example["predicted"] == diagnostics["predicted"]
        assert example["probability"] == pytest.approx(diagnostics["predicted_probability"], abs=1e-6)
        assert example["wrong"] == (example["gold"] != example["predicted"])


def test_examples_are_searched_sliced_and_ordered(client):
    predict_all(client)
    assert [example["text"][0] for example in list_examples(client, search="BAD")["examples"]] == TEXTS[1:3]
    wrong = list_examples(client, slice="wrong")
    right = list_examples(client, slice="right")
    assert (wrong["wrong"], right["right"]) == (wrong["total"], right["total"])
    assert wrong["total"] + right["total"] == 5
    least = [example["probability"] for example in list_examples(client, order="uncertain")["examples"]]
    most = [example["probability"] for example in list_examples(client, order="certain")["examples"]]
    assert least == sorted(least) and most == sorted(most, reverse=True)
    page = list_examples(client, start=1, count=2)
    assert [example["text"][0] for example in page["examples"]] == TEXTS[1:3]
    assert page["total"] == 5


def test_what_is_not_there_is_told(client):
    assert client.get("/api/tasks/other/examples", params={"model": "text"}).status_code == 404
    assert client.get("/api/tasks/dev.tsv/examples", params={"model": "image"}).status_code == 404
    assert client.get("/api/tasks/dev.tsv/picture", params={"example": "1"}).status_code == 404
    assert predict(client, task="other").status_code == 404
    assert client.post("/api/predict", json={"task": "dev.tsv"}).status_code == 422


def test_images_are_predicted_and_shown(models, tmp_path):
    for number in range(3):
        file = tmp_path / "pets" / ("cat", "dog")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(make_photo(seed=number))
    (tmp_path / "pets" / "dog" / "broken.png").write_bytes(b"no image")
    task = read_task(tmp_path / "pets")
    with TestClient(build_app(models, tasks=Tasks([task], models)), base_url=HOME) as client:
        assert client.post("/api/predict", json={"task": "pets", "model": "image"}).json()["done"] == len(task)
        examples = client.get("/api/tasks/pets/examples", params={"model": "image"}).json()["examples"]
        readable = [example for example in examples if "broken" not in example["example"]]
        assert len(readable) == 3 and all(example["predicted"] for example in readable)
        assert all(example["picture"] for example in examples)
        image = client.get("/api/tasks/pets/picture", params={"example": readable[0]["example"]})
        assert image.headers["content-type"] == "image/png"


def test_labels_that_the_model_does_not_have_are_neither_right_nor_wrong(models):
    labelled = Task("mixed", [Example("1", "a film", "unheard-of"), Example("2", "a film")])
    with TestClient(build_app(models, tasks=Tasks([labelled], models)), base_url=HOME) as client:
        client.post("/api/predict", json={"task": "mixed", "model": "text"})
        listed = client.get("/api/tasks/mixed/examples", params={"model": "text"}).json()
    assert [example["gold"] for example in listed["examples"]] == ["unheard-of", None]
    assert [example["wrong"] for example in listed["examples"]] == [None, None]
    assert all(example["predicted"] for example in listed["examples"])


@pytest.mark.parametrize("make_model", [joined_model, labelling_bert, filling_bert])
def test_models_of_other_tasks_are_left_out(models, make_model):
    others = {"text": models["text"], "other": make_model()}
    table = Tasks([Task("mine", [Example("1", "a film")])], others)["mine"]
    assert list(table.models) == ["text"]


@pytest.mark.parametrize("source", ["a film", [{"role": "user", "content": "a film"}]])
def test_data_without_a_model_is_a_mistake(models, source):
    with pytest.raises(BadOption, match="No model of this server sorts the inputs of 'mine'"):
        Tasks([Task("mine", [Example("1", source)])], {"image": models["image"]})


def test_two_tasks_of_one_name_are_a_mistake(models, task):
    with pytest.raises(BadOption, match="Two tasks would be called"):
        Tasks([task, task], models)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "missing.csv"], "There is no file or folder 'missing.csv'"),
        (["--task", "dev.tsv", "--text-column", "headline"], "headline"),
        (["--task", "dev.tsv", "--limit", "0"], "--limit"),
    ],
)
def test_mistakes_are_told_before_models_are_loaded(task, tmp_path, monkeypatch, capsys, arguments, message):
    (tmp_path / "dev.tsv").write_text("label\tsentence\n0\ta film\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server, "load_models", lambda *_, **__: pytest.fail("models were loaded"))
    with pytest.raises(SystemExit) as left:
        main(["serve", "--no-open", "--port", "0", *arguments])
    assert left.value.code == 2
    assert message in capsys.readouterr().err
