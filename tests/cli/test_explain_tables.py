"""clearhead explain on tables."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from helpers.commands import assert_one_line, records
from helpers.pictures import photo

import clearhead
from clearhead.cluster import Cluster
from clearhead.tables.explain_table import run_locally
from clearhead.tables.ray_runner import RayRunner

ROWS = "id,text,label\nr1,a good film,positive\nr2,a bad film,negative\nr3,never,positive\n"
FAST = ("--method", "raw-attention")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


def test_a_table_becomes_a_table(run, model, table, tmp_path):
    out = tmp_path / "out.jsonl"
    code, output, errors = run("explain", str(table), "-m", model, *FAST, "--out", str(out), "--columns", "label")
    assert (code, output) == (0, "")
    assert "3 rows. " in errors and f"Wrote {out}" in errors
    rows = records(out.read_text())
    assert [(row["id"], row["row"], row["gold"]) for row in rows] == [
        ("r1", 1, "positive"),
        ("r2", 2, "negative"),
        ("r3", 3, "positive"),
    ]
    assert rows[0]["input_label"] == "positive" and rows[0]["words"]
    code, _, _ = run("explain", str(table), "-m", model, *FAST, "--out", str(out), "--flat", "--target", "column:label")
    assert code == 0
    flat = records(out.read_text())
    assert "words" not in flat[0] and [row["label"] for row in flat] == ["positive", "negative", "positive"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--target", "column:gold"), "gold"),
        (("--label-column", "lable"), "Did you mean 'label'"),
        (("--columns", "labels"), "Did you mean 'label'"),
        (("--json",), "--json"),
        (("--image-column", "text"), "the model reads text"),
        (("--curves",), "--out FILE.html"),
    ],
)
def test_mistakes_about_tables(run, model, table, tmp_path, flags, message):
    assert_one_line(*run("explain", str(table), "-m", model, "--out", str(tmp_path / "out.jsonl"), *flags), message)


@pytest.mark.parametrize("command", ["explain", "compare", "ask"])
def test_no_input_is_replaced_by_the_output(run, model, tmp_path, monkeypatch, command):
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"text": "a good film"}\n')
    monkeypatch.chdir(tmp_path)
    code, _, errors = run(command, "rows.jsonl", "-m", model, "--out", str(lines))
    assert code == 2 and "'rows.jsonl' is an input, which the output would replace: choose another --out." in errors
    assert lines.read_text() == '{"text": "a good film"}\n'


def test_no_picture_of_a_prompt_is_replaced(run, tmp_path):
    picture = tmp_path / "picture.png"
    photo().save(picture)
    content = picture.read_bytes()
    for command in ("explain", "ask"):
        code, _, errors = run(command, "what is this?", "--image", str(picture), "--out", str(picture))
        assert code == 2 and "is an input" in errors and picture.read_bytes() == content


def test_a_run_that_is_refused_leaves_nothing_behind(run, model, table, tmp_path):
    code, _, errors = run(
        "explain", str(table), "-m", model, *FAST, "--out", str(tmp_path / "a.jsonl"), "--target", "5"
    )
    assert code == 2 and "5" in errors
    assert list(tmp_path.iterdir()) == [table]


def test_tables_can_be_written_as_csv(run, model, table, tmp_path):
    code, _, errors = run("explain", str(table), "-m", model, "--out", str(tmp_path / "a.xlsx"))
    assert code == 2 and ".csv" in errors and ".html" in errors
    code, _, errors = run("explain", "a film", "-m", model, "--out", str(tmp_path / "a.xlsx"))
    assert code == 2 and ".csv" not in errors


@pytest.mark.parametrize(("name", "content"), [("a.csv", "text,n\ncafé,1\n"), ("a.jsonl", '{"text": "café"}\n')])
def test_another_encoding_is_named(run, model, tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    for out in ("out.csv", "out.html"):
        code, _, errors = run("explain", str(tmp_path / name), "-m", model, *FAST, "--out", str(tmp_path / out))
        assert code == 2 and "--encoding latin-1" in errors


def test_a_folder_of_photos_is_named_by_its_photos(run, model, tmp_path):
    for name in ("a.PNG", "b.png", "notes.txt"):
        (tmp_path / name).touch()
    code, _, errors = run("explain", str(tmp_path), "-m", model)
    assert code == 2 and f"for example {tmp_path}/*.png" in errors


GAPS = "id,text,label\nr1,a good film,positive\nr2,,negative\nr3,never,positive\n"
LEFT_OUT = "Rows that could not be explained: 1; the first: Row 2 of "


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("explain", ()),
        ("explain", ("--target", "column:label")),
        ("explain", ("--target", "negative")),
        ("compare", ()),
        ("words", ()),
        ("plan", ()),
    ],
)
def test_a_row_without_text_does_not_stop_the_others(run, model, tmp_path, command, flags):
    table, out = tmp_path / "gaps.csv", tmp_path / "out.html"
    table.write_text(GAPS)
    method = () if command in ("compare", "plan") else FAST
    written = () if command == "plan" else ("--out", str(out))
    code, output, errors = run(command, str(table), "-m", model, *method, *flags, *written)
    assert code == 0 and output and LEFT_OUT in errors
    assert "no text in column 'text'" in errors
    if command == "explain":
        page = out.read_text()
        assert "id r1" in page and "id r3" in page and "Rows that could not be explained: 1" in page


@pytest.mark.parametrize("command", ["explain", "compare", "words", "plan"])
def test_a_damaged_line_does_not_stop_the_others(run, model, tmp_path, command):
    table = tmp_path / "damaged.jsonl"
    table.write_text('{"text": "a good film", "why": "good"}\n{"text": "a\n{"text": "never", "why": "never"}\n')
    page = tmp_path / "page.html"
    gold = ("--gold", "why", "--out", str(page)) if command == "explain" else ()
    code, output, errors = run(command, str(table), "-m", model, *gold)
    assert code == 0 and output
    assert f"{LEFT_OUT}'{table}', line 2: not JSON" in errors
    if command == "explain":
        # The annotations of the third line stay with its text.
        assert all(f'<mark class="ch-gold">{word}</mark>' in page.read_text() for word in ("good", "never"))
    table.write_text('{"text": "a\n')
    assert_one_line(*run(command, str(table), "-m", model), f"No row of '{table}' can be read: line 1: not JSON")


@pytest.mark.parametrize("command", ["explain", "compare", "words", "plan"])
@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("bytes.csv", b"text\na good film\ncaf\xe9\nnever\n", "is not UTF-8 text"),
        ("halves.jsonl", b'{"text": "a good film"}\n{"text": "a \\ud800"}\n{"text": "never"}\n', "lone surrogate"),
        ("columns.jsonl", b'{"id": 7, "text": "never"}\n{"id": 1}\n{"text": "a good film"}\n', "no text in column"),
        ("late.jsonl", b'{"text": "never", "id": 2}\n{"id": 1}\n{"text": "a good film"}\n', "no text in column"),
    ],
)
def test_a_row_of_no_encoding_does_not_stop_the_others(run, model, tmp_path, command, name, content, reason):
    table = tmp_path / name
    table.write_bytes(content)
    code, output, errors = run(command, str(table), "-m", model)
    assert code == 0 and output
    assert f"{LEFT_OUT}'{table}'" in errors and reason in errors


@pytest.mark.parametrize("command", ["explain", "compare", "words", "plan"])
def test_the_first_row_need_not_have_the_text_column(run, model, tmp_path, command):
    table = tmp_path / "late.jsonl"
    table.write_text('{"id": "r1"}\n{"id": "r2", "text": "a good film"}\n')
    code, output, errors = run(command, str(table), "-m", model)
    assert code == 0 and output
    assert f"Row 1 of '{table}' has no text in column 'text'" in errors


def test_a_damaged_first_line_beside_another_input(run, model, tmp_path):
    table = tmp_path / "damaged.jsonl"
    table.write_text('{"text": "a\n{"text": "never", "id": "r2"}\n')
    code, output, errors = run("explain", str(table), "a good film", "-m", model)
    assert code == 0 and "id r2" in output
    assert f"Row 1 of '{table}', line 1: not JSON" in errors


@pytest.mark.parametrize("command", ["compare", "plan"])
@pytest.mark.parametrize(
    ("content", "reason"), [(None, "There is no image at"), (b"none", "cannot be read as an image")]
)
def test_a_missing_or_damaged_picture_does_not_stop_the_others(run, image_model, tmp_path, command, content, reason):
    photo().save(tmp_path / "photo.png")
    if content is not None:
        (tmp_path / "other.png").write_bytes(content)
    table = tmp_path / "photos.csv"
    table.write_text("id,image\nr1,photo.png\nr2,other.png\n")
    code, output, errors = run(command, str(table), "-m", image_model, "--methods", "raw-attention")
    assert code == 0 and output
    assert f"{LEFT_OUT}'{table}': " in errors and reason in errors


def test_a_row_without_a_picture(run, image_model, tmp_path):
    photo().save(tmp_path / "photo.png")
    table, out = tmp_path / "photos.csv", tmp_path / "out.html"
    table.write_text("id,image\nr1,photo.png\nr2,\n")
    code, _, errors = run("explain", str(table), "-m", image_model, *FAST, "--out", str(out))
    assert code == 0 and "has no picture in column 'image'" in errors
    code, _, errors = run("explain", str(table), "-m", image_model, *FAST, "--out", str(tmp_path / "out.jsonl"))
    assert code == 0 and "no picture in column 'image'" in errors
    table.write_text("id,image\nr2,\n")
    code, _, errors = run("explain", str(table), "-m", image_model, *FAST, "--out", str(out))
    assert code == 2 and "No row can be explained. Row 1 of" in errors


def test_a_row_that_cannot_be_explained_does_not_stop_a_page(run, model, image_model, tmp_path):
    texts, out = tmp_path / "texts.csv", tmp_path / "out.html"
    texts.write_text(f"id,text\nr1,a good film\nr2,{'film ' * 200}\n")
    code, _, errors = run("explain", str(texts), "-m", model, *FAST, "--out", str(out))
    assert code == 0 and "Row 2 of" in errors and "--overflow truncate" in errors
    assert "r1" in out.read_text()
    photo().save(tmp_path / "photo.png")
    photos = tmp_path / "photos.csv"
    photos.write_text("id,image\nr1,photo.png\nr2,missing.png\n")
    code, _, errors = run("explain", str(photos), "-m", image_model, *FAST, "--out", str(out))
    assert code == 0 and "There is no image at" in errors and "missing.png" in errors


def test_what_to_do_about_a_row_of_a_written_table_is_said_by_flags(run, model, tmp_path):
    table, out = tmp_path / "texts.csv", tmp_path / "out.jsonl"
    table.write_text(f"id,text\nr1,a good film\nr2,{'film ' * 200}\n")
    code, _, errors = run("explain", str(table), "-m", model, *FAST, "--out", str(out))
    assert code == 0 and "Use --overflow truncate" in errors
    assert "Use --overflow truncate" in records(out.read_text())[1]["error"]
    summary = clearhead.explain_table(clearhead.load(model), table, out, "raw-attention")
    assert "Use overflow='truncate'" in str(summary)


@pytest.mark.parametrize("command", ["explain", "compare", "plan"])
def test_pictures_inside_a_parquet_file(run, image_model, tmp_path, command):
    arrow = pytest.importorskip("pyarrow.parquet", reason="the tables extra is not installed")
    from pyarrow import Table

    photo().save(tmp_path / "photo.png")
    stored = {"bytes": (tmp_path / "photo.png").read_bytes(), "path": None}
    images = [stored, {"bytes": None, "path": "photo.png"}]
    # The caption is no path of a picture.
    rows = [{"text": "a caption", "image": image} for image in images]
    arrow.write_table(Table.from_pylist(rows), tmp_path / "photos.parquet")
    flags = {"explain": ("--out", str(tmp_path / "out.html"), *FAST), "compare": ("--methods", "raw-attention")}
    code, _, errors = run(command, str(tmp_path / "photos.parquet"), "-m", image_model, *flags.get(command, ()))
    assert code == 0 and "not be explained" not in errors


def test_flags_of_tables_without_a_table(run, model, tmp_path):
    assert_one_line(*run("explain", "a film", "-m", model, "--flat"), "--flat is for tables")
    assert_one_line(*run("explain", "a film", "-m", model, "--target", "column:label"), "column:NAME is for tables")
    assert_one_line(*run("explain", "a film", "-m", model, "--out", str(tmp_path / "x.csv")), "must be one of")


def test_inputs_keep_their_identity(run, model, image_model, table, tmp_path):
    _, output, _ = run("explain", str(table), "a text", "-m", model, *FAST, "--json")
    sources = [record["source"] for record in records(output)]
    assert [source.get("id") for source in sources] == ["r1", "r2", "r3", None]
    wrong = sources[1].pop("wrong")
    assert sources[1] == {
        "file": "rows.csv",
        "row": 2,
        "id": "r2",
        "gold": "negative",
        "columns": {"label": "negative"},
    }
    assert wrong is (records(output)[1]["label"] != "negative")
    page = tmp_path / "page.html"
    run("explain", str(table), "-m", model, *FAST, "--out", str(page))
    assert "id r2 · rows.csv · row 2 · gold negative" in page.read_text()
    assert page.read_text().count("✗ wrong") == sum(record["source"].get("wrong", False) for record in records(output))
    photo().save(tmp_path / "leo.png")
    run("explain", str(tmp_path / "leo.png"), "-m", image_model, "--out", str(page))
    assert "leo.png" in page.read_text()
    saved = tmp_path / "one.json"
    run("explain", str(tmp_path / "leo.png"), "-m", image_model, "--out", str(saved))
    assert clearhead.read(saved).source == {"file": "leo.png"}


def test_inputs_of_one_name_in_two_folders_are_told_apart(run, model, image_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("may", "june"):
        Path(folder).mkdir()
        Path(folder, "rows.csv").write_text("text\na good film\n")
        photo().save(Path(folder, "leo.png"))
    _, output, _ = run("explain", "may/rows.csv", "june/rows.csv", "-m", model, *FAST, "--json")
    assert [record["source"]["file"] for record in records(output)] == ["may/rows.csv", "june/rows.csv"]
    _, output, _ = run("explain", "may/rows.csv", "june/rows.csv", "a film", "-m", model, *FAST, "--json")
    assert [record["source"].get("file") for record in records(output)] == ["may/rows.csv", "june/rows.csv", None]
    _, output, _ = run("explain", "may/leo.png", "june/leo.png", "-m", image_model, *FAST, "--json")
    assert [record["source"]["file"] for record in records(output)] == ["may/leo.png", "june/leo.png"]


def test_columns_as_targets_on_a_page(run, model, table, tmp_path):
    out = tmp_path / "page.html"
    code, _, errors = run("explain", str(table), "-m", model, *FAST, "--target", "column:label", "--out", str(out))
    assert code == 0, errors
    (first, *_) = records(run("explain", str(table), "-m", model, *FAST, "--target", "column:label", "--json")[1])
    assert first["label"] == "positive" and first["source"]["gold"] == "positive"


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
def test_ctrl_c_says_what_is_kept_and_the_same_command_goes_on(model, tmp_path):
    table, out = tmp_path / "many.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps({"text": f"film number {number} " * 4}) + "\n" for number in range(40_000)]
    table.write_text("".join(lines))
    flags = ["-m", model, "--method", "att-cat", "--shard", "8", "--out", str(out)]
    command = [sys.executable, "-m", "clearhead", "explain", str(table), *flags]
    environment = {**os.environ, "PYTHONPATH": str(Path(clearhead.__file__).parents[1])}
    # What runs in the background of a shell ignores interruptions, and so would its children.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=heed) as process:
        deadline = time.monotonic() + 120
        shards = tmp_path / ".out.jsonl.run" / "shards"
        while len(list(shards.glob("*.jsonl"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        errors = process.communicate()[1]
    assert process.returncode == 130
    assert "rows are kept; the same command goes on from there." in errors and "Traceback" not in errors
    assert len(list(shards.glob("*.jsonl"))) >= 3


def test_flags_of_ray_are_for_tables_and_for_ray(run, model, table, tmp_path):
    command = ("explain", str(table), "-m", model, *FAST, "--out", str(tmp_path / "out.jsonl"), "--workers", "2")
    assert_one_line(*run(*command), "--workers counts Ray workers: give --ray local")
    assert_one_line(*run("explain", "a film", "-m", model, *FAST, "--ray", "local"), "--ray is for tables")


def test_with_ray_the_device_is_that_of_the_workers(run, model, table, tmp_path, monkeypatch):
    runners = []

    def explain_here(self, explainer, shards, bar):
        runners.append((self.cluster, self.device, explainer.model.device.type))
        return run_locally(explainer, shards, bar)

    monkeypatch.setattr(RayRunner, "__call__", explain_here)
    out = tmp_path / "out.jsonl"
    flags = ("--ray", "ray://head:10001", "--workers", "3", "--device", "cuda")
    code, _, errors = run("explain", str(table), "-m", model, *FAST, "--out", str(out), *flags)
    assert code == 0, errors
    assert runners == [(Cluster("ray://head:10001", 3), "cuda", "cpu")]
    assert len(records(out.read_text())) == 3


@pytest.mark.parametrize("name", ["t.arrow", "t.feather", "t.ipc", "t.ndjson", "t.tab", "t.csv.gz"])
def test_every_table_that_help_names_is_read_with_and_without_a_file(run, model, tmp_path, name):
    table = tmp_path / name
    write_table(table)
    printed = run("explain", str(table), "-m", model, "--no-check", "--json")
    assert printed[0] == 0, printed
    assert [record["text"] for record in records(printed[1])] == ["a bad film", "a good film"]
    code, _, errors = run("explain", str(table), "-m", model, "--no-check", "--out", str(tmp_path / "out.jsonl"))
    assert code == 0, errors
    _, page, _ = run("explain", "--help")
    assert table.suffix.replace(".gz", ".csv") in page


def write_table(path):
    rows = [{"text": "a bad film"}, {"text": "a good film"}]
    if path.suffix == ".ndjson":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif path.suffix == ".tab":
        path.write_text("text\tlabel\na bad film\t0\na good film\t1\n")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(b"text\na bad film\na good film\n"))
    else:
        feather = pytest.importorskip("pyarrow.feather", reason="Arrow files need pyarrow")
        import pyarrow

        feather.write_feather(pyarrow.Table.from_pylist(rows), path)
