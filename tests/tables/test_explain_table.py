"""Tables in, tables out: columns, formats, targets and errors."""

import csv
import json
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from helpers.pictures import photo
from helpers.saved_models import save_answer_model, save_language_model, save_regression_model

import clearhead
from clearhead.errors import BadFile, BadInput, BadOption, UnknownName
from clearhead.tables.columns import ClassReader
from clearhead.tables.run_folder import folder_of
from clearhead.tables.source import TableRow, open_table

METHOD = "raw-attention"


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def explain(model, table, out, **options):
    clearhead.explain_table(model, table, out, options.pop("method", METHOD), **options)
    return read_lines(out)


def test_records_are_what_explain_gives(model, write_rows, make_rows, tmp_path):
    records = explain(model, write_rows(10), tmp_path / "out.jsonl", method="att-cat", shard=3)
    rows = make_rows(10)
    explanations = clearhead.explain(model, [row["text"] for row in rows], "att-cat")
    assert [record["id"] for record in records] == [row["id"] for row in rows]
    assert [record["row"] for record in records] == list(range(1, 11))
    for record, row, explanation in zip(records, rows, explanations, strict=True):
        assert (record["file"], record["stars"], record["text"]) == ("rows.jsonl", row["stars"], row["text"])
        assert (record["label"], record["predicted"]) == (explanation.label, explanation.label)
        assert record["probability"] == pytest.approx(explanation.probability, rel=1e-5)
        words = explanation.words()
        assert [word["word"] for word in record["words"]] == [word.text for word in words]
        assert [(word["start"], word["end"]) for word in record["words"]] == [(word.start, word.end) for word in words]
        relevance = [word["relevance"] for word in record["words"]]
        assert relevance == pytest.approx([word.relevance for word in words], rel=1e-4, abs=1e-9)
        assert record["gold"] == row["label"]
        assert record["wrong"] == (explanation.label != row["label"])
        assert record["method"] == "att-cat" and record["error"] is None


def test_every_format_holds_the_same(model, write_rows, tmp_path):
    pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    from clearhead.data.parquet import read_parquet

    table = write_rows(7)
    lines = explain(model, table, tmp_path / "out.jsonl", shard=3)
    clearhead.explain_table(model, table, tmp_path / "out.parquet", METHOD, shard=3)
    clearhead.explain_table(model, table, tmp_path / "out.csv", METHOD, shard=3)
    clearhead.explain_table(model, table, tmp_path / "flat.jsonl", METHOD, shard=3, flat=True)
    columns = read_parquet(tmp_path / "out.parquet")
    with open(tmp_path / "out.csv", newline="") as file:
        cells = list(csv.DictReader(file))
    for line, row, cell, flat in zip(lines, columns, cells, read_lines(tmp_path / "flat.jsonl"), strict=True):
        assert list(line) == list(row)
        assert json.loads(row["diagnostics"]) == line["diagnostics"]
        assert [word["word"] for word in row["words"]] == [word["word"] for word in line["words"]]
        assert "words" not in flat and "words" not in cell and list(flat) == list(cell)
        assert (cell["id"], cell["wrong"], cell["top_words"]) == (
            row["id"],
            str(row["wrong"]).lower(),
            row["top_words"],
        )


def test_columns_that_change_their_type_and_their_names(model, tmp_path):
    pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    from clearhead.data.parquet import read_parquet

    extra = [{"n": 1}, {"n": None}, {"n": 2.5}, {"n": "many", "new": [1, 2]}, {"label": "x", "words": "mine"}]
    rows = [{"text": "a film", **values} for values in extra]
    clearhead.explain_table(model, rows, tmp_path / "out.parquet", METHOD, shard=2)
    columns = read_parquet(tmp_path / "out.parquet")
    assert [row["n"] for row in columns] == ["1", None, "2.5", "many", None]
    assert columns[3]["new"] == [1, 2]
    assert columns[4]["input_words"] == "mine" and len(columns[4]["words"]) == 2
    assert columns[4]["input_label"] == "x"
    clearhead.explain_table(model, rows, tmp_path / "out.csv", METHOD, shard=2)
    with open(tmp_path / "out.csv", newline="") as file:
        assert [row["new"] for row in csv.DictReader(file)] == ["", "", "", "[1, 2]", ""]


NESTED = json.loads("[" * 300 + "]" * 300)
ODD_COLUMNS = {
    "large": ([2**60 + 1, 2**60 + 3, 1.5, None], ["1152921504606846977", "1152921504606846979", "1.5", None]),
    "empty": ([{}, {}, {"a": 1}, None], ["{}", "{}", '{"a": 1}', None]),
    "surrogate": (["\ud800", "b", ["\ud800"], {"k": "\ud800"}], ["?", "b", '["?"]', '{"k": "?"}']),
    "deep": ([NESTED, NESTED, None, NESTED], [json.dumps(NESTED), json.dumps(NESTED), None, json.dumps(NESTED)]),
    "gaps": (["a", float("nan"), "b", None], ["a", None, "b", None]),
    "dates": ([date(2020, 1, 2), "x", None, date(2020, 1, 2)], ["2020-01-02", "x", None, "2020-01-02"]),
}


@pytest.mark.parametrize(("values", "expected"), ODD_COLUMNS.values(), ids=ODD_COLUMNS)
def test_values_that_parquet_has_no_type_for_are_text(model, tmp_path, values, expected):
    pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    from clearhead.data.parquet import read_parquet

    rows = [{"text": "a film", "odd": value} for value in values]
    clearhead.explain_table(model, rows, tmp_path / "out.parquet", METHOD, shard=2)
    assert [row["odd"] for row in read_parquet(tmp_path / "out.parquet")] == expected


def test_no_column_replaces_another_of_the_same_name(model, tmp_path):
    row = {"review": "a film", "text": "mine", "input_text": "also mine", "input_input_text": "third"}
    (record,) = explain(model, [row], tmp_path / "out.jsonl", text_column="review")
    passed = {name: record[name] for name in record if name.startswith("input_")}
    assert record["text"] == "a film"
    assert sorted(passed.values()) == ["also mine", "mine", "third"] and passed["input_text"] == "also mine"


def test_only_the_columns_that_are_named_are_passed(model, write_rows, tmp_path):
    (record, *_) = explain(model, write_rows(2), tmp_path / "out.jsonl", columns=["stars"])
    assert record["stars"] == 0 and "input_label" not in record and record["id"] == "r0"
    with pytest.raises(UnknownName, match="star"):
        explain(model, write_rows(2), tmp_path / "out.jsonl", columns=["star"])


def test_the_gold_class_and_the_prediction_against_it(model, write_rows, tmp_path):
    table = write_rows(8)
    gold = explain(model, table, tmp_path / "gold.jsonl", target="column:label")
    assert [record["label"] for record in gold] == [record["gold"] for record in gold]
    contrast = explain(model, table, tmp_path / "versus.jsonl", versus="column:label")
    assert any(record["wrong"] for record in contrast) and not all(record["wrong"] for record in contrast)
    for record in contrast:
        expected = record["predicted"]
        if record["wrong"]:
            expected += f" rather than {record['gold']}"
        assert record["label"] == expected
    with pytest.raises(UnknownName, match="gold"):
        explain(model, table, tmp_path / "x.jsonl", target="column:gold")


def test_models_without_classes_have_no_gold_class(tmp_path):
    stars = clearhead.load(str(save_regression_model(tmp_path / "stars")))
    span = clearhead.load(str(save_answer_model(tmp_path / "span")))
    rows = [{"text": "a film", "label": label} for label in (0, 1, 4.5)]
    for model in (stars, span):
        summary = clearhead.explain_table(model, rows, tmp_path / "out.jsonl", METHOD)
        assert str(summary) == "3 rows."
        records = read_lines(tmp_path / "out.jsonl")
        assert [(record["gold"], record["input_label"]) for record in records] == [(None, 0), (None, 1), (None, 4.5)]


def test_what_a_model_does_not_have_is_refused(model, write_rows, tmp_path):
    table, out = write_rows(3), tmp_path / "out.jsonl"
    for answer in ("good", "column:label"):
        with pytest.raises(BadOption, match="is no language model, which alone gives answers: leave out answer"):
            clearhead.explain_table(model, table, out, METHOD, answer=answer)
    writer = clearhead.load(str(save_language_model(tmp_path / "writer")))
    with pytest.raises(BadOption, match="has no classes: leave out target, and give answer"):
        clearhead.explain_table(writer, table, out, target="column:label")
    assert not out.exists() and not folder_of(out).exists()


def test_rows_that_cannot_be_explained_are_kept_with_their_reason(model, make_rows, tmp_path):
    rows = make_rows(9)
    rows[2]["text"] = " "
    rows[4]["text"] = 5
    rows[6]["text"] = "film " * 200
    rows[7]["label"] = "sideways"
    summary = clearhead.explain_table(model, rows, tmp_path / "out.jsonl", METHOD, shard=4)
    records = read_lines(tmp_path / "out.jsonl")
    assert [record["row"] for record in records if record["error"]] == [3, 5, 7]
    assert "no text" in records[2]["error"] and "tokens" in records[6]["error"]
    assert records[7]["gold"] == "sideways" and records[7]["wrong"] is None
    assert summary.counts.errors == 3 and summary.counts.unknown == 1
    assert "1 label of column 'label' is no class of the model." in str(summary)
    assert "Rows that could not be explained: 3" in str(summary) and "row 3: no text in column 'text'" in str(summary)
    good = explain(model, make_rows(9), tmp_path / "good.jsonl", shard=4)
    for record, whole in zip(records, good, strict=True):
        if record["error"] is None:
            relevance = [word["relevance"] for word in record["words"]]
            assert relevance == pytest.approx([word["relevance"] for word in whole["words"]], rel=1e-3)


def test_a_checked_table_reports_the_share_that_holds(model, write_rows, tmp_path):
    summary = clearhead.explain_table(model, write_rows(6), tmp_path / "out.jsonl", METHOD, check=True, shard=2)
    verdicts = Counter(record["check"] for record in read_lines(tmp_path / "out.jsonl"))
    counts = summary.counts
    assert {"holds": counts.holds, "weak": counts.weak, "fails": counts.fails} == {
        "holds": 0,
        "weak": 0,
        "fails": 0,
        **verdicts,
    }
    assert f"Check: {counts.holds} of {sum(verdicts.values())} explanations hold" in str(summary)


def test_a_table_of_nothing_but_errors_is_refused(model, tmp_path):
    with pytest.raises(BadInput, match=r"No row can be explained\. Row 1: no text in column 'text'"):
        clearhead.explain_table(model, [{"text": ""}] * 3, tmp_path / "out.jsonl", METHOD)
    with pytest.raises(BadInput, match="has no rows"):
        clearhead.explain_table(model, [], tmp_path / "out.jsonl", METHOD)
    with pytest.raises(BadOption, match=r"one of \.parquet"):
        clearhead.explain_table(model, ["a"], tmp_path / "out.xlsx", METHOD)


def test_pictures_by_the_paths_in_a_column(image_model, tmp_path):
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        photo(seed=number).save(tmp_path / "pictures" / f"{number}.png")
    table = tmp_path / "pets.csv"
    table.write_text("picture,breed\n" + "".join(f"pictures/{number}.png,0\n" for number in (0, 1, 2, 9)))
    records = explain(image_model, table, tmp_path / "out.jsonl", image_column="picture")
    assert [record["picture"] for record in records] == [f"pictures/{number}.png" for number in (0, 1, 2, 9)]
    for record in records[:3]:
        rows, columns = record["grid"]
        assert len(record["patches"]) == rows * columns and record["words"] is None
    assert "9.png" in records[3]["error"]


def test_a_text_model_has_no_image_column(model, write_rows, tmp_path):
    with pytest.raises(BadOption, match="the model reads text"):
        explain(model, write_rows(2), tmp_path / "out.jsonl", image_column="text")


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet", "arrow"])
def test_files_of_every_kind_have_the_same_rows(make_rows, tmp_path, ending):
    arrow = pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    from pyarrow import ipc, parquet

    rows, path = make_rows(30), tmp_path / f"rows.{ending}"
    table = arrow.Table.from_pylist(rows)
    if ending == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif ending == "parquet":
        parquet.write_table(table, path, row_group_size=7)
    elif ending == "arrow":
        with ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=8)
    else:
        delimiter = {"csv": ",", "tsv": "\t"}[ending]
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
    opened = open_table(path)
    assert opened.count() == 30
    read = list(opened.rows())
    assert [row.number for row in read] == list(range(1, 31))
    assert [row.values["text"] for row in read] == [row["text"] for row in rows]
    assert [int(row.values["stars"]) for row in read] == [row["stars"] for row in rows]


def test_a_table_is_not_replaced_by_its_explanations(model, write_rows, tmp_path):
    table = write_rows(2)
    content = table.read_bytes()
    link = tmp_path / "link.jsonl"
    link.symlink_to(table)
    others = write_rows(1, "others.jsonl")
    for inputs, out in ((table, table), ([others, table], table), (table, link), (link, table), (tmp_path, table)):
        with pytest.raises(BadOption, match="is an input"):
            clearhead.explain_table(model, inputs, out, METHOD)
    assert table.read_bytes() == content and link.is_symlink()


def test_a_folder_is_no_output(model, tmp_path):
    out = tmp_path / "out.jsonl"
    out.mkdir()
    # The rows are not even read.
    with pytest.raises(BadFile, match="is a folder: name a file in it"):
        clearhead.explain_table(model, tmp_path / "missing.csv", out, METHOD)


def test_labels_that_pandas_writes_as_floats(model, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("text,label\na film,1.0\na film,0.0\na film,\na film,nan\na film,-1.0\na film,0.5\na film,1\n")
    records = explain(model, table, tmp_path / "out.jsonl")
    positive, negative = model.labels[1], model.labels[0]
    assert [record["gold"] for record in records] == [positive, negative, None, None, "-1.0", "0.5", positive]
    assert [record["wrong"] is None for record in records] == [False, False, True, True, True, True, False]
    records = explain(model, table, tmp_path / "out.jsonl", target="column:label")
    assert [record["label"] for record in records] == [positive, negative, None, None, None, None, positive]


def test_a_class_may_be_called_a_float():
    classes = ClassReader(["1.0", "2.0"], {})
    assert [classes.read(TableRow(1, {"label": label}), "label") for label in ("2.0", "0.0", 1)] == [1, 0, 1]


def test_labels_of_a_frame_with_gaps(model, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"text": ["a film"] * 3, "label": [1, None, 0]})
    records = explain(model, frame, tmp_path / "out.jsonl")
    assert [record["gold"] for record in records] == [model.labels[1], None, model.labels[0]]


def test_several_files_are_one_table(model, write_rows, tmp_path):
    first, second = write_rows(3, "a.jsonl"), write_rows(2, "b.jsonl")
    records = explain(model, [first, second], tmp_path / "out.jsonl", shard=2)
    expected = [("a.jsonl", 1), ("a.jsonl", 2), ("a.jsonl", 3), ("b.jsonl", 1), ("b.jsonl", 2)]
    assert [(record["file"], record["row"]) for record in records] == expected


def test_files_of_one_name_in_two_folders_are_told_apart(model, make_rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("may/rows.jsonl", "june/rows.jsonl", "june/more.jsonl"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(json.dumps(make_rows(1)[0]) + "\n")
    records = explain(model, ["may/rows.jsonl", "june"], tmp_path / "out.jsonl")
    assert [record["file"] for record in records] == ["may/rows.jsonl", "more.jsonl", "june/rows.jsonl"]


def test_a_list_may_hold_pairs_of_texts(model, tmp_path):
    pairs = [("a good film", "never bad"), ("a film", " "), ("a", "b", "c")]
    first, blank, three = explain(model, pairs, tmp_path / "out.jsonl")
    assert (first["text"], first["second"]) == ("a good film", "never bad")
    assert first["words"][-1]["word"] == "bad" and first["words"][-1]["segment"] == 1
    assert blank["error"] == "The text is empty: there is nothing to explain."
    assert "takes text, not tuple" in three["error"]


def test_tokens_on_demand(model, write_rows, tmp_path):
    (record,) = explain(model, write_rows(1), tmp_path / "out.jsonl", tokens=True)
    assert record["tokens"][0]["token"] == "[CLS]" and record["tokens"][0]["special"]


def test_the_page_of_many_rows_is_small_and_sorts_without_scripts(model, write_rows, tmp_path):
    out = tmp_path / "out.html"
    clearhead.explain_table(model, write_rows(200), out, METHOD)
    page = out.read_text()
    assert page.count("<article") == 1 and "<script" not in page
    assert page.count('role="row"') == 201
    assert len(page) < 200 * 1500
    assert page.count("ch-wrong") >= 10 and "wrong ones first" in page
