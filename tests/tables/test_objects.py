"""Objects of other libraries as inputs, and results as their tables."""

import pytest
from helpers.pictures import photo

import clearhead
from clearhead.errors import BadInput, BadOption, UnknownName
from clearhead.explanation import Comparison

METHOD = "raw-attention"
TEXTS = ["a good film", "a bad film", "never"]


class PolarsLike:
    """What of a polars Series and DataFrame is used."""

    def __init__(self, rows):
        self.rows, self.columns = rows, list(rows[0])

    def iter_rows(self, named):
        assert named
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)


class SeriesLike:
    """What of a polars Series is used."""

    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def to_list(self):
        return self.values


def containers():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    arrow = pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = [{"text": text, "n": number} for number, text in enumerate(TEXTS)]
    data_set = datasets.Dataset.from_list(rows)
    frame = pandas.DataFrame(rows, index=[5, 6, 7])
    return {
        "generator": (text for text in TEXTS),
        "series": frame["text"],
        "frame": frame,
        "array": frame["text"].to_numpy(),
        "arrow array": arrow.array(TEXTS),
        "arrow column": arrow.Table.from_pylist(rows)["text"],
        "arrow table": arrow.Table.from_pylist(rows),
        "data set": data_set,
        "data set column": data_set["text"],
        "stream": data_set.to_iterable_dataset(),
        "polars series": SeriesLike(TEXTS),
        "polars frame": PolarsLike(rows),
    }


def test_explain_takes_columns_and_tables(model):
    expected = [list(explanation.relevance) for explanation in clearhead.explain(model, TEXTS, METHOD)]
    for name, inputs in containers().items():
        explanations = clearhead.explain(model, inputs, METHOD)
        assert [list(explanation.relevance) for explanation in explanations] == expected, name


def test_targets_from_a_column(model):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    targets = pandas.Series(["negative", "positive", "negative"])
    explanations = clearhead.explain(model, TEXTS, METHOD, targets)
    assert [explanation.label for explanation in explanations] == list(targets)


def test_explain_table_takes_them_too(model, tmp_path):
    import json

    for name, table in containers().items():
        out = tmp_path / "out.jsonl"
        clearhead.explain_table(model, table, out, METHOD, shard=2)
        records = [json.loads(line) for line in out.read_text().splitlines()]
        assert [record["text"] for record in records] == TEXTS, name
        assert [record["row"] for record in records] == [1, 2, 3]


def make_tables():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    arrow = pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = [
        {"id": number, "review": text, "label": label, "stars": 3}
        for number, text, label in zip((5, 6, 7), TEXTS, ("positive", "negative", "positive"), strict=True)
    ]
    return [pandas.DataFrame(rows), arrow.Table.from_pylist(rows), datasets.Dataset.from_list(rows), PolarsLike(rows)]


def test_explain_keeps_the_columns_of_a_table(model, tmp_path):
    import json

    out = tmp_path / "out.jsonl"
    for table in make_tables():
        clearhead.explain_table(model, table, out, METHOD, flat=True)
        expected = [json.loads(line) for line in out.read_text().splitlines()]
        explanations = clearhead.explain(model, table, METHOD, check=False)
        assert explanations.to_records(flat=True) == expected
        assert explanations[0].source["id"] == "5" and explanations[0].source["columns"]["stars"] == 3
        assert [explanation.is_wrong for explanation in explanations] == [record["wrong"] for record in expected]
        assert [explanation.source["row"] for explanation in explanations[1:]] == [2, 3]


@pytest.mark.parametrize("setting", ["target", "versus"])
def test_explain_takes_classes_from_a_column(model, tmp_path, setting):
    import json

    out = tmp_path / "out.jsonl"
    for table in make_tables():
        clearhead.explain_table(model, table, out, METHOD, **{setting: "column:label"})
        expected = [json.loads(line) for line in out.read_text().splitlines()]
        explanations = clearhead.explain(model, table, METHOD, **{setting: "column:label"})
        assert [explanation.label for explanation in explanations] == [record["label"] for record in expected]
        assert explanations.to_records()[0]["words"] == expected[0]["words"]
    with pytest.raises(UnknownName, match="lable"):
        clearhead.explain(model, make_tables()[0], METHOD, target="column:lable")


def test_models_are_compared_on_the_columns_of_a_table(model):
    comparison = clearhead.compare({"one": model, "two": model}, make_tables()[0], [METHOD, "att-cat"])
    assert [explanation.source["id"] for explanation in comparison["two"]["att-cat"]] == ["5", "6", "7"]


def test_pictures_in_a_frame(image_model, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    path = tmp_path / "photo.png"
    photo().save(path)
    frame = pandas.DataFrame({"image": [str(path), path, photo()], "id": ["a", "b", "c"]})
    explanations = clearhead.explain(image_model, frame, METHOD)
    # A picture in memory has no name: its address differs from run to run.
    assert [explanation.source["columns"]["image"] for explanation in explanations] == [str(path), path, None]
    assert [explanation.source["id"] for explanation in explanations] == ["a", "b", "c"]
    assert len({tuple(explanation.relevance) for explanation in explanations}) == 1
    for nothing in ("", None, float("nan")):
        frame.loc[1, "image"] = nothing
        with pytest.raises(BadInput, match="Row 2 of the DataFrame: no picture in column 'image'"):
            clearhead.explain(image_model, frame, METHOD)


def test_an_empty_text_of_a_list_is_numbered(model):
    with pytest.raises(BadInput, match="Input 2 is empty"):
        clearhead.explain(model, ["fine", " ", "good"], METHOD)
    with pytest.raises(BadInput, match="The text is empty"):
        clearhead.explain(model, [""], METHOD)


def test_a_row_of_a_frame_without_text_is_named(model):
    frame = make_tables()[0]
    frame.loc[1, "review"] = ""
    with pytest.raises(BadInput, match="Row 2 of the DataFrame: no text in column 'review'"):
        clearhead.explain(model, frame, METHOD)


def test_a_frame_without_a_text_column_or_with_two(model):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    with pytest.raises(BadInput, match=r"such as table\['first'\]; it has first, second"):
        clearhead.explain(model, pandas.DataFrame({"first": TEXTS, "second": TEXTS}), METHOD)
    frame = pandas.DataFrame([(text, text) for text in TEXTS], columns=["text", "text"])
    for explain in (clearhead.explain, lambda *arguments: clearhead.explain_table(arguments[0], frame, "out.jsonl")):
        with pytest.raises(BadInput, match="2 columns called 'text'"):
            explain(model, frame, METHOD)


def test_names_of_classes_in_a_data_set(model, tmp_path):
    import json

    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    # In another order than the model's.
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["positive", "negative"])}
    )
    table = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 1]}, features=features)
    clearhead.explain_table(model, table, tmp_path / "out.jsonl", METHOD)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [record["gold"] for record in records] == ["positive", "negative", "negative"]


@pytest.mark.parametrize("name", ["numpy", "torch", "pandas", "arrow"])
def test_a_data_set_may_return_its_rows_in_any_format(model, tmp_path, name):
    import json

    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    table = datasets.Dataset.from_dict({"text": TEXTS, "label": [1, 0, 0], "n": [1, 2, 3]}).with_format(name)
    clearhead.explain_table(model, table, tmp_path / "out.jsonl", METHOD)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [record["gold"] for record in records] == ["positive", "negative", "negative"]
    assert [(record["text"], record["n"]) for record in records] == list(zip(TEXTS, (1, 2, 3), strict=True))


def test_rows_may_hold_scalars_of_numpy_and_torch(model, tmp_path):
    import json

    import numpy as np
    import torch

    labels = [np.int64(1), np.float32(0), torch.tensor(1), np.str_("negative")]
    rows = [{"text": "a film", "label": label, "score": np.float32(0.5)} for label in labels]
    clearhead.explain_table(model, rows, tmp_path / "out.jsonl", METHOD)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [record["gold"] for record in records] == ["positive", "negative", "positive", "negative"]
    assert [record["input_label"] for record in records] == [1, 0.0, 1, "negative"]


def test_results_become_records_arrow_and_pandas(model):
    pytest.importorskip("pandas", reason="pandas is not installed")
    explanations = clearhead.explain(model, TEXTS, METHOD)
    records = explanations.to_records()
    assert [record["text"] for record in records] == TEXTS and [record["row"] for record in records] == [1, 2, 3]
    frame = explanations.to_pandas()
    assert list(frame["predicted"]) == [explanation.label for explanation in explanations]
    assert "words" not in explanations.to_pandas(flat=True)
    table = explanations.to_arrow()
    assert table.num_rows == 3 and table.column("words").to_pylist()[2][0]["word"] == "never"


def test_a_comparison_has_a_row_for_each_method_and_input(model):
    pytest.importorskip("pandas", reason="pandas is not installed")
    methods = [METHOD, "random:seed=1"]
    comparison = clearhead.compare(model, TEXTS, methods)
    assert isinstance(comparison, Comparison)
    assert list(comparison.to_pandas()["method"]) == [METHOD] * 3 + ["random:seed=1"] * 3
    assert [record["method"] for record in clearhead.compare(model, TEXTS[0], methods).to_records()] == methods
    assert [record["method"] for record in comparison.to_records(flat=True)][3] == "random:seed=1"


def test_pandas_that_is_not_installed(model, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadOption, match="pip install pandas"):
        clearhead.explain(model, TEXTS, METHOD).to_pandas()


def test_empty_cells_of_pandas_are_empty_everywhere(model, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    from clearhead.data.parquet import read_parquet

    columns = {"id": [1, None, 3], "kind": pandas.Categorical(["a", "b", None])}
    columns["when"] = pandas.to_datetime(["2020-01-02", None, "2020-01-03"])
    frame = pandas.DataFrame({"text": TEXTS, **columns})
    clearhead.explain_table(model, frame, tmp_path / "out.parquet", METHOD, shard=2)
    rows = read_parquet(tmp_path / "out.parquet")
    assert [row["id"] for row in rows] == ["1", None, "3"]
    assert [row["kind"] for row in rows] == ["a", "b", None]
    assert rows[0]["when"].year == 2020 and rows[1]["when"] is None


def test_what_holds_tables_or_is_not_computed_is_no_table(model, tmp_path):
    class LazyFrame:
        columns = ("text",)
        collect = collect_schema = __iter__ = list

    with pytest.raises(BadInput, match="give one of its entries \\(train, test\\)"):
        clearhead.explain_table(model, {"train": TEXTS, "test": TEXTS}, tmp_path / "out.jsonl")
    for explain in (clearhead.explain, lambda *inputs: clearhead.explain_table(*inputs, tmp_path / "out.jsonl")):
        with pytest.raises(BadInput, match="A LazyFrame has no rows before it is computed"):
            explain(model, LazyFrame())
