"""Batches of Ray Data: the values of explain_table."""

import json

import pytest
from helpers.ray_cluster import start_cluster

import clearhead
from clearhead.tables.batch_explainer import BatchExplainer
from clearhead.tables.explainer import RowTargets

METHOD = "raw-attention"
pa = pytest.importorskip("pyarrow", reason="the tables extra is not installed")


def read_words(row):
    return [(word["word"], pytest.approx(word["relevance"])) for word in row["words"]]


def check_rows(rows, expected):
    assert len(rows) == len(expected)
    for row, other in zip(rows, expected, strict=True):
        for name in ("id", "text", "gold", "predicted", "wrong", "label", "stars", "error"):
            assert row[name] == other[name]
        assert read_words(row) == read_words(other)


@pytest.fixture
def expected(model, write_rows, tmp_path):
    out = tmp_path / "out.jsonl"
    clearhead.explain_table(model, write_rows(10), out, METHOD, "column:label")
    return list(map(json.loads, out.read_text().splitlines()))


def test_a_batch_holds_what_explain_table_writes(folder, make_rows, expected):
    explain = BatchExplainer(str(folder), METHOD, RowTargets("column:label"))
    table = explain(pa.Table.from_pylist(make_rows(10)))
    assert "row" not in table.column_names and "file" not in table.column_names
    check_rows(table.to_pylist(), expected)


def test_ray_data_maps_batches(folder, make_rows, expected):
    data = pytest.importorskip("ray.data", reason="the ray extra is not installed")
    settings = {"model": str(folder), "method": METHOD, "targets": RowTargets("column:label")}
    with start_cluster(2):
        data.DataContext.get_current().enable_progress_bars = False
        dataset = data.from_arrow(pa.Table.from_pylist(make_rows(10))).map_batches(
            BatchExplainer, batch_format="pyarrow", batch_size=4, concurrency=1, fn_constructor_kwargs=settings
        )
        rows = sorted(dataset.take_all(), key=lambda row: row["id"])
    check_rows(rows, expected)
