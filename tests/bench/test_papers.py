"""The papers' tables and figures."""

import io
import json

import numpy as np
import pytest
import torch
import transformers
from helpers.saved_models import save_image_model
from PIL import Image

import clearhead
from clearhead.bench import report
from clearhead.bench.plan import expand_layers
from clearhead.bench.run_folder import RunFolder
from clearhead.data.parquet import to_parquet

PAPERS = [
    *("attcat-table1", "attcat-table2", "attcat-figure3"),
    *("decoded-table1", "decoded-table2", "decoded-figure2", "decoded-figure3", "decoded-figure4", "decoded-figure5"),
    *("decoded-figure6", "decoded-figure9"),
    *("transatt-table1", "transatt-table2", "transatt-table3", "transatt-figure4"),
]


def test_the_papers_tables_are_there():
    assert sorted(clearhead.benchmarks()) == sorted(PAPERS)


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_tables_name_methods_and_metrics_that_exist(name):
    from clearhead.attribution.method import parse_method
    from clearhead.evaluation.metric import parse_metric

    benchmark = clearhead.benchmarks()[name]
    assert [parse_method(method) for method in expand_layers(benchmark.methods, 12)]
    assert [parse_metric(metric) for metric in benchmark.metrics]


def pixels(seed: int, low: int, high: int) -> bytes:
    buffer = io.BytesIO()
    values = np.random.default_rng(seed).integers(low, high, (32, 32, 3) if high > 4 else (32, 32), dtype=np.uint8)
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def material(model, task, tmp_path_factory):
    """By kind of data: the task, the model, and what else the command needs."""
    folder = tmp_path_factory.mktemp("material")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    config = transformers.AutoConfig.from_pretrained(model)
    torch.manual_seed(0)
    transformers.BertForMaskedLM(config).save_pretrained(folder / "lm")
    transformers.BertForQuestionAnswering(config).save_pretrained(folder / "qa")
    tokenizer.save_pretrained(folder / "qa")
    passage = "a good film has a heart"
    answer = {"id": "1", "question": "what has a film", "answers": [{"text": "a heart", "answer_start": 16}]}
    squad = {"data": [{"paragraphs": [{"context": passage, "qas": [answer, {**answer, "id": "2"}]}]}]}
    (folder / "squad.json").write_text(json.dumps(squad))
    marked = {"text": "a bad film , never good", "label": 0, "rationale_char_spans": [[2, 5]]}
    (folder / "movies.jsonl").write_text(json.dumps(marked) + "\n" + json.dumps({**marked, "label": 1}) + "\n")
    pets = [
        {"image": pixels(n, 0, 256), "trimap": pixels(n, 1, 4), "breed_id": n % 2, "breed": ("cat", "dog")[n % 2]}
        for n in range(4)
    ]
    (folder / "pets.parquet").write_bytes(to_parquet(pets))
    image_model = str(save_image_model(folder / "vit"))
    return {
        "attcat-figure3": [str(folder / "squad.json"), "--model", str(folder / "qa")],
        "attcat": [task, "--model", model],
        "decoded": [task, "--model", model, "--lm-head", str(folder / "lm")],
        "transatt-figure4": [str(folder / "movies.jsonl"), "--model", model],
        "transatt": [str(folder / "pets.parquet"), "--model", image_model],
    }


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_table_runs_on_ones_own_model_and_data(run, material, tmp_path, name):
    material_name = name if name in material else name.split("-")[0]
    code, output, errors = run(
        name, "--limit", "2", "--out", str(tmp_path / "run"), "--json", "--task", *material[material_name]
    )
    assert code == 0, errors
    rows = [json.loads(line) for line in output.splitlines()]
    benchmark = clearhead.benchmarks()[name]
    assert {row["method"] for row in rows} == set(expand_layers(benchmark.methods, 2)), errors
    assert {row["metric"] for row in rows} == set(benchmark.metrics)
    assert report.page(RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run").summary())


def test_methods_can_be_chosen_within_a_papers_table(run, model, task, tmp_path):
    arguments = ["attcat-table2", "--methods", "cat", "--task", task, "--model", model, "--json"]
    code, output, _ = run(*arguments, "--out", str(tmp_path / "run"))
    assert code == 0
    assert [json.loads(line)["method"] for line in output.splitlines()] == ["cat"]
