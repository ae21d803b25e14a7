"""clearhead explain."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.commands import TEXT, assert_one_line, child, records
from helpers.timing import quickest
from PIL import Image

import clearhead


def test_explain_prints_plain_text_into_a_pipe(run, model):
    code, output, errors = run("explain", TEXT, "--model", model, "--method", "att-cat")
    assert (code, errors) == (0, "")
    assert TEXT in output
    assert "\x1b" not in output
    assert "att-cat" in output


def in_a_terminal(arguments: list[str], **environment: str) -> str:
    """What a command writes to a terminal."""
    import pty

    output = bytearray()
    source = str(Path(clearhead.__file__).parents[1])
    variables = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    variables |= {"PYTHONPATH": source, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
    leader, follower = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "clearhead", *arguments], stdout=follower, env=variables):
        os.close(follower)
        while True:
            try:
                chunk = os.read(leader, 4096)
            except OSError:
                break
            if not chunk:
                break
            output += chunk
    os.close(leader)
    return output.decode()


def test_colours_in_a_terminal_unless_unwanted(model):
    pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    command = ["explain", TEXT, "--model", model, "--method", "att-cat"]
    assert "\x1b[" in in_a_terminal(command)
    plain = in_a_terminal(command, NO_COLOR="1")
    assert TEXT in plain
    assert "\x1b" not in plain


def test_output_that_cannot_write_every_character(model):
    done = child("-m", "clearhead", "explain", "café", "--model", model, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "caf\\xe9" in done.stdout


def test_json_is_utf8_wherever_it_goes(model):
    done = child("-m", "clearhead", "explain", "café 😀", "--model", model, "--json", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["text"] == "café 😀"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize(
    ("command", "stdout", "code", "message"),
    [
        ("explain", "full", 2, "No space left"),
        ("explain", "gone", 0, "Wrote"),
        ("explain", "closed", 0, "Wrote"),
        ("compare", "gone", 0, "Wrote"),
        ("words", "gone", 0, "Wrote"),
    ],
)
def test_a_file_is_written_whatever_becomes_of_the_rest(model, tmp_path, command, stdout, code, message):
    out = tmp_path / "page.html"
    done = poured([command, TEXT, "--model", model, "--out", str(out)], stdout)
    assert (done.returncode, out.exists(), "Traceback" in done.stderr) == (code, True, False), done.stderr
    assert message in done.stderr


def poured(arguments, where):
    """Runs a command whose output goes to a full device, to a pipe that nobody reads, or nowhere."""
    command = [sys.executable, "-m", "clearhead", *arguments]
    source = {**os.environ, "PYTHONPATH": str(Path(clearhead.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    if where == "closed":
        command, stdout = ["sh", "-c", 'exec "$@" >&-', "sh", *command], None
    elif where == "full":
        stdout = os.open("/dev/full", os.O_WRONLY)
    else:
        end, stdout = os.pipe()
        os.close(end)
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=source, check=False)
    if stdout is not None:
        os.close(stdout)
    return done


def test_nothing_on_standard_input(model):
    source = {**os.environ, "PYTHONPATH": str(Path(clearhead.__file__).parents[1])}
    command = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "clearhead", "explain", "-", "--model", model]
    done = subprocess.run(command, capture_output=True, text=True, env=source, check=False)
    assert_one_line(done.returncode, done.stdout, done.stderr, "Standard input was empty")


def test_a_mark_at_the_beginning_and_other_line_ends_of_standard_input(model):
    done = subprocess.run(
        [sys.executable, "-m", "clearhead", "explain", "-", "--model", model, "--json"],
        input="\ufeffa film\r\n".encode(),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(Path(clearhead.__file__).parents[1]), "PYTHONUTF8": "1"},
        check=True,
    )
    assert json.loads(done.stdout)["text"] == "a film"


def test_a_large_photo_is_drawn_quickly(run, image_model, tmp_path):
    photo = tmp_path / "photo.jpg"
    Image.effect_noise((600, 400), 60).convert("RGB").resize((6000, 4000)).save(photo)
    for ending, size in ((".html", None), (".png", (2048, 1365))):
        out = tmp_path / f"x{ending}"
        assert (
            quickest(
                lambda out=out: run("explain", str(photo), "-m", image_model, "--no-check", "--out", str(out)), 12, 3
            )
            <= 12
        )
        assert size is None or Image.open(out).size == size


def test_json_is_what_python_gives(run, model):
    _, output, _ = run(
        "explain", TEXT, "-m", model, "--method", "att-cat", "-o", "hidden=input", "--target", "negative", "--json"
    )
    (record,) = records(output)
    explanation = clearhead.explain(clearhead.load(model), TEXT, "att-cat", "negative", hidden="input")
    assert [token["relevance"] for token in record["tokens"]] == pytest.approx(explanation.relevance.tolist())
    assert record["label"] == "negative"
    assert record["probability"] == pytest.approx(explanation.probability)
    assert record["options"] == {"hidden": "input", "backward": "gradient", "heads": False}
    assert record["target"] == {"index": 0, "versus": None, "span": None}


def test_target_by_number_and_contrast(run, model):
    (record,) = records(run("explain", TEXT, "-m", model, "--target", "1", "--versus", "NEGATIVE", "--json")[1])
    assert record["target"] == {"index": 1, "versus": 0, "span": None}
    assert record["label"] == "positive rather than negative"


def test_inputs_of_every_kind(run, model, tmp_path):
    (tmp_path / "one.txt").write_text("a good film\nwith two lines\n")
    (tmp_path / "rows.csv").write_text('label,sentence\n1,"a ""good"", film"\n0,bad\n')
    (tmp_path / "rows.tsv").write_text('sentence\tlabel\nan "unclosed quote\t1\n')
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "review": "never"}\n\n{"id": 2, "review": "heart"}\n')
    files = [str(tmp_path / name) for name in ("one.txt", "rows.csv", "rows.tsv", "rows.jsonl")]
    _, output, errors = run("explain", "plain text", "-", *files, "-m", model, "--json", stdin="from a pipe\n")
    assert errors == ""
    assert [record["text"] for record in records(output)] == [
        "plain text",
        "from a pipe",
        "a good film\nwith two lines",
        'a "good", film',
        "bad",
        'an "unclosed quote',
        "never",
        "heart",
    ]


def test_tables_are_read_as_tasks_are(run, model, tmp_path):
    from clearhead.data.read import read_task

    files = {
        "named.tsv": "topic\ttext\nSports\ta good film\n",
        "pairs.tsv": "index\tsentence1\tsentence2\tlabel\n0\ta film\tbad\t1\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        rows = records(run("explain", str(tmp_path / name), "-m", model, "--json")[1])
        inputs = [example.input for example in read_task(tmp_path / name).examples]
        assert [row["text"] for row in rows] == [list(text) if isinstance(text, tuple) else text for text in inputs]
    (tmp_path / "remarks.csv").write_text("remark\na good film\n")
    assert records(run("explain", str(tmp_path / "remarks.csv"), "-m", model, "--json")[1])[0]["text"] == "a good film"
    bare = str(tmp_path / "bare.tsv")
    (tmp_path / "bare.tsv").write_text("Business\ta bad film\nSports\ta good film\nSports\tnever\n")
    (first, *_) = records(run("compare", bare, "--text-column", "1", "-m", model, "--json")[1])
    assert first["text"] == "Business"
    assert run("words", bare, "--text-column", "2", "-m", model)[0] == 0
    asked = "Use --text-column 1 ('Business') or --text-column 2 ('a bad film'), or the column's name"
    assert_one_line(*run("words", bare, "-m", model), asked)
    assert_one_line(*run("explain", bare, "--gold", "2", "--out", str(tmp_path / "x.html"), "-m", model), asked)
    (tmp_path / "remarks.tsv").write_text("remark\twhy\na bad film\tbad\n")
    marked = ["--text-column", "remark", "--gold", "why", "--out", str(tmp_path / "x.html")]
    assert run("explain", str(tmp_path / "remarks.tsv"), "-m", model, *marked)[0] == 0
    assert_one_line(
        *run("explain", str(tmp_path / "remarks.tsv"), "-m", model, *marked[2:]), "--text-column: remark, why"
    )


def test_pairs_from_arguments_and_columns(run, model, tmp_path):
    (record,) = records(run("explain", "a film", "never", "--pair", "-m", model, "--json")[1])
    assert record["text"] == ["a film", "never"]
    table = tmp_path / "pairs.csv"
    table.write_text("premise,hypothesis\na film,bad\n")
    (record,) = records(run("explain", str(table), "--text-column", "premise,hypothesis", "-m", model, "--json")[1])
    assert record["text"] == ["a film", "bad"]


def test_parquet_in_and_out(run, model, tmp_path):
    pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    from clearhead.data.parquet import read_parquet, to_parquet

    (tmp_path / "in.parquet").write_bytes(to_parquet([{"text": "a film", "n": 1}, {"text": "bad", "n": 2}]))
    flags = ["-m", model, "--tokens", "--out", str(tmp_path / "out.parquet")]
    code, _, errors = run("explain", str(tmp_path / "in.parquet"), *flags)
    assert code == 0, errors
    rows = read_parquet(tmp_path / "out.parquet")
    assert [(row["text"], row["n"]) for row in rows] == [("a film", 1), ("bad", 2)]
    assert [token["token"] for token in rows[0]["tokens"]] == ["[CLS]", "a", "film", "[SEP]"]


def test_out_by_its_ending(run, model, tmp_path):
    for ending in ("html", "png", "svg", "pdf", "json", "jsonl", "md"):
        out = tmp_path / f"one.{ending}"
        code, output, errors = run("explain", TEXT, "-m", model, "--out", str(out))
        assert code == 0, errors
        assert TEXT in output
        assert errors == f"Wrote {out}\n"
        assert out.stat().st_size > 100
    assert Image.open(tmp_path / "one.png").width > 500
    assert clearhead.read(tmp_path / "one.json").text == TEXT
    assert records((tmp_path / "one.jsonl").read_text())[0]["text"] == TEXT
    assert (tmp_path / "one.html").read_text().startswith("<!doctype html>")


def test_page_has_blocks_rollout_and_both_classes(run, model, tmp_path):
    out = tmp_path / "one.html"
    run("explain", TEXT, "-m", model, "--method", "att-cat", "--target", "0", "--versus", "1", "--out", str(out))
    page = out.read_text()
    assert '<th scope="row">Rollout</th>' in page
    assert page.count("<h3>") == 2


def test_a_whole_table_becomes_one_page(run, model, tmp_path):
    table, out = tmp_path / "rows.jsonl", tmp_path / "all.html"
    table.write_text("".join(json.dumps({"text": f"film number {number}"}) + "\n" for number in range(70)))
    code, output, _ = run("explain", str(table), "-m", model, "--method", "raw-attention", "--out", str(out))
    assert code == 0
    assert "… and 60 more in the file." in output
    # The words of each class, and one table.
    assert out.read_text().count("<article") == 2
    assert out.read_text().count('role="row"') == 71


def test_long_texts(run, model):
    long = "film " * 100
    code, _, errors = run("explain", long, "-m", model)
    assert code == 2
    assert "102 tokens" in errors
    assert "Use --overflow truncate" in errors and "or --overflow windows" in errors and "long=" not in errors
    assert_one_line(
        *run("explain", long, long, "--pair", "-m", model, "--overflow", "windows"), "use --overflow truncate"
    )
    (record,) = records(run("explain", long, "-m", model, "--overflow", "windows", "--json")[1])
    assert len(record["tokens"]) == 100
    assert records(run("explain", long, "-m", model, "--overflow", "truncate", "--json")[1])[0]["tokens"][-1]["special"]


@pytest.mark.parametrize("command", ["explain", "compare", "plan", "words"])
def test_the_former_name_of_overflow_still_works_but_is_not_shown(run, model, command):
    long = "film " * 100
    shown = run(command, "--help")[1]
    assert "--overflow" in shown and "--long" not in shown
    assert run(command, long, "-m", model, "--long", "truncate", "--json")[0] == 0
    assert_one_line(*run(command, long, "-m", model, "--long", "error"), "Use --overflow truncate")


def test_images(run, image_model, tmp_path):
    photo = tmp_path / "photo.png"
    Image.effect_noise((90, 60), 60).convert("RGB").save(photo)
    unchecked = ["explain", str(photo), "-m", image_model, "--no-check"]
    code, output, errors = run(*unchecked, "--out", str(tmp_path / "out.png"))
    assert code == 0, errors
    assert "balanced-cat" in output
    assert Image.open(tmp_path / "out.png").size == (90, 60)
    (tmp_path / "list.csv").write_text("image\nphoto.png\nphoto.png\n")
    explanations = records(run("explain", str(tmp_path / "list.csv"), "-m", image_model, "--json")[1])
    assert [explanation["grid"] for explanation in explanations] == [[4, 4], [4, 4]]
