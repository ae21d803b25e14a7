"""The command line: what it prints and writes, and how it answers mistakes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from samples import save_image_model, save_text_model
from timing import quickest

import clearhead
from clearhead.cli import main
from clearhead.cli.options import method_names
from clearhead.version import __version__

TEXT = "A bad ,  tedious film never"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_text_model(tmp_path_factory.mktemp("text-model")))


@pytest.fixture(scope="module")
def image_model(tmp_path_factory):
    return str(save_image_model(tmp_path_factory.mktemp("image-model")))


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs a command and gives exit code, output and errors."""

    def command(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        if stdin is not None:
            import io

            monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return command


def records(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines()]


# --- answers at once -------------------------------------------------------------------------------------------


def child(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(clearhead.__file__).parents[1])
    variables = {**os.environ, "PYTHONPATH": source, **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=variables, check=False)


def test_help_imports_nothing_heavy():
    code = (
        "import sys, runpy\nsys.argv = ['clearhead', '--help']\n"
        "try: runpy.run_module('clearhead', run_name='__main__')\n"
        "except SystemExit as left: assert not left.code\n"
        "heavy = {'torch', 'transformers', 'numpy', 'PIL', 'pyarrow', 'wordcloud', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = child("-c", code)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("explain", "compare", "list", "--version", "--install-completion"))


def test_help_takes_less_than_a_third_of_a_second():
    """Processor time of the fastest of five, so that a busy machine does not decide."""
    times = []
    for _ in range(5):
        before = os.times()
        child("-m", "clearhead", "--help")
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 0.3


def test_version(run):
    assert run("--version") == (0, f"clearhead {__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["explain", "--help"], ["compare", "-h"], ["words", "-h"], ["plan", "-h"], ["list", "--help"]],
)
def test_help_of_every_command(run, arguments):
    code, output, _ = run(*arguments)
    assert code == 0
    assert "Usage" in output


def test_shell_completion_knows_the_methods():
    completing = {
        "_CLEARHEAD_COMPLETE": "complete_bash",
        "COMP_WORDS": "clearhead explain x --method att",
        "COMP_CWORD": "4",
    }
    done = child("-c", "import sys; sys.argv = ['clearhead']; from clearhead.cli import main; main()", **completing)
    assert set(done.stdout.split()) == {name for name in clearhead.methods() if name.startswith("att")}
    assert sorted(method_names("")) == sorted(clearhead.methods())


# --- explain ---------------------------------------------------------------------------------------------------


def test_explain_prints_plain_text_into_a_pipe(run, model):
    code, output, errors = run("explain", TEXT, "--model", model, "--method", "att-cat")
    assert (code, errors) == (0, "")
    assert TEXT in output
    assert "\x1b" not in output
    assert "att-cat" in output


def in_a_terminal(arguments: list[str], **environment: str) -> str:
    """What a command writes to a terminal."""
    import pty

    found = bytearray()
    source = str(Path(clearhead.__file__).parents[1])
    variables = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    variables |= {"PYTHONPATH": source, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
    leader, follower = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "clearhead", *arguments], stdout=follower, env=variables):
        os.close(follower)
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:
                break
            if not part:
                break
            found += part
    os.close(leader)
    return found.decode()


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
    ("command", "stdout", "code", "said"),
    [
        ("explain", "full", 2, "No space left"),
        ("explain", "gone", 0, "Wrote"),
        ("explain", "closed", 0, "Wrote"),
        ("compare", "gone", 0, "Wrote"),
        ("words", "gone", 0, "Wrote"),
    ],
)
def test_a_file_is_written_whatever_becomes_of_the_rest(model, tmp_path, command, stdout, code, said):
    out = tmp_path / "page.html"
    done = poured([command, TEXT, "--model", model, "--out", str(out)], stdout)
    assert (done.returncode, out.exists(), "Traceback" in done.stderr) == (code, True, False), done.stderr
    assert said in done.stderr


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
    one_line(done.returncode, done.stdout, done.stderr, "Standard input was empty")


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
        assert quickest(lambda out=out: run("explain", str(photo), "-m", image_model, "--out", str(out)), 12, 3) <= 12
        assert size is None or Image.open(out).size == size


def test_json_is_what_python_gives(run, model):
    _, output, _ = run(
        "explain", TEXT, "-m", model, "--method", "att-cat", "-o", "hidden=input", "--target", "negative", "--json"
    )
    (found,) = records(output)
    wanted = clearhead.explain(clearhead.load(model), TEXT, "att-cat", "negative", hidden="input")
    assert [token["relevance"] for token in found["tokens"]] == pytest.approx(wanted.relevance.tolist())
    assert found["label"] == "negative"
    assert found["probability"] == pytest.approx(wanted.probability)
    assert found["options"] == {"hidden": "input"}
    assert found["target"] == {"index": 0, "versus": None, "span": None}


def test_target_by_number_and_contrast(run, model):
    (found,) = records(run("explain", TEXT, "-m", model, "--target", "1", "--versus", "NEGATIVE", "--json")[1])
    assert found["target"] == {"index": 1, "versus": 0, "span": None}
    assert found["label"] == "positive rather than negative"


def test_inputs_of_every_kind(run, model, tmp_path):
    (tmp_path / "one.txt").write_text("a good film\nwith two lines\n")
    (tmp_path / "rows.csv").write_text('label,sentence\n1,"a ""good"", film"\n0,bad\n')
    (tmp_path / "rows.tsv").write_text('sentence\tlabel\nan "unclosed quote\t1\n')
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "review": "never"}\n\n{"id": 2, "review": "heart"}\n')
    files = [str(tmp_path / name) for name in ("one.txt", "rows.csv", "rows.tsv", "rows.jsonl")]
    _, output, errors = run("explain", "plain text", "-", *files, "-m", model, "--json", stdin="from a pipe\n")
    assert errors == ""
    assert [found["text"] for found in records(output)] == [
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
        found = records(run("explain", str(tmp_path / name), "-m", model, "--json")[1])
        wanted = [example.input for example in read_task(tmp_path / name).examples]
        assert [one["text"] for one in found] == [list(one) if isinstance(one, tuple) else one for one in wanted]
    (tmp_path / "remarks.csv").write_text("remark\na good film\n")
    assert records(run("explain", str(tmp_path / "remarks.csv"), "-m", model, "--json")[1])[0]["text"] == "a good film"
    bare = str(tmp_path / "bare.tsv")
    (tmp_path / "bare.tsv").write_text("Business\ta bad film\nSports\ta good film\nSports\tnever\n")
    (first, *_) = records(run("compare", bare, "--text-column", "1", "-m", model, "--json")[1])
    assert first["text"] == "Business"
    assert run("words", bare, "--text-column", "2", "-m", model)[0] == 0
    asked = "Say --text-column 1 ('Business') or --text-column 2 ('a bad film'), or say its name"
    one_line(*run("words", bare, "-m", model), asked)
    one_line(*run("explain", bare, "--gold", "2", "--out", str(tmp_path / "x.html"), "-m", model), asked)
    (tmp_path / "remarks.tsv").write_text("remark\twhy\na bad film\tbad\n")
    marked = ["--text-column", "remark", "--gold", "why", "--out", str(tmp_path / "x.html")]
    assert run("explain", str(tmp_path / "remarks.tsv"), "-m", model, *marked)[0] == 0
    one_line(*run("explain", str(tmp_path / "remarks.tsv"), "-m", model, *marked[2:]), "--text-column: remark, why")


def test_pairs_from_arguments_and_columns(run, model, tmp_path):
    (found,) = records(run("explain", "a film", "never", "--pair", "-m", model, "--json")[1])
    assert found["text"] == ["a film", "never"]
    table = tmp_path / "pairs.csv"
    table.write_text("premise,hypothesis\na film,bad\n")
    (found,) = records(run("explain", str(table), "--text-column", "premise,hypothesis", "-m", model, "--json")[1])
    assert found["text"] == ["a film", "bad"]


def test_parquet_in_and_out(run, model, tmp_path):
    pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    from clearhead.data.parquet import read_parquet, to_parquet

    (tmp_path / "in.parquet").write_bytes(to_parquet([{"text": "a film", "n": 1}, {"text": "bad", "n": 2}]))
    code, _, errors = run("explain", str(tmp_path / "in.parquet"), "-m", model, "--out", str(tmp_path / "out.parquet"))
    assert code == 0, errors
    rows = read_parquet(tmp_path / "out.parquet")
    assert [row["text"] for row in rows] == ["a film", "bad"]
    assert [token["token"] for token in rows[0]["tokens"]] == ["[CLS]", "a", "film", "[SEP]"]


def test_out_by_its_ending(run, model, tmp_path):
    for ending in ("html", "png", "svg", "json", "jsonl", "md"):
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
    table.write_text("".join(json.dumps({"text": f"film number {place}"}) + "\n" for place in range(70)))
    code, output, _ = run("explain", str(table), "-m", model, "--method", "raw-attention", "--out", str(out))
    assert code == 0
    assert "… and 60 more in the file." in output
    assert out.read_text().count("<article") == 71


def test_long_texts(run, model):
    long = "film " * 100
    code, _, errors = run("explain", long, "-m", model)
    assert code == 2
    assert "102 tokens" in errors
    assert "Use --long truncate" in errors and "or --long windows" in errors and "long=" not in errors
    one_line(*run("explain", long, long, "--pair", "-m", model, "--long", "windows"), "use --long truncate")
    (found,) = records(run("explain", long, "-m", model, "--long", "windows", "--json")[1])
    assert len(found["tokens"]) == 100
    assert records(run("explain", long, "-m", model, "--long", "truncate", "--json")[1])[0]["tokens"][-1]["special"]


def test_images(run, image_model, tmp_path):
    photo = tmp_path / "photo.png"
    Image.effect_noise((90, 60), 60).convert("RGB").save(photo)
    code, output, errors = run("explain", str(photo), "-m", image_model, "--out", str(tmp_path / "out.png"))
    assert code == 0, errors
    assert "trans-att" in output
    assert Image.open(tmp_path / "out.png").size == (90, 60)
    (tmp_path / "list.csv").write_text("image\nphoto.png\nphoto.png\n")
    found = records(run("explain", str(tmp_path / "list.csv"), "-m", image_model, "--json")[1])
    assert [one["grid"] for one in found] == [[4, 4], [4, 4]]


# --- compare, list ---------------------------------------------------------------------------------------------


def test_compare_by_names_and_spellings(run, model, tmp_path):
    flags = ["--methods", "att-cat,rollout", "--methods", "layer-gradcam:layer=1"]
    _, output, _ = run("compare", TEXT, "-m", model, *flags, "--json")
    assert [found["name"] for found in records(output)] == ["att-cat", "rollout", "layer-gradcam:layer=1"]
    code, output, errors = run("compare", TEXT, "-m", model, *flags, "--out", str(tmp_path / "all.html"))
    assert code == 0, errors
    assert output.count(TEXT) == 3
    assert (tmp_path / "all.html").read_text().count("<h3>") == 3


def test_plan_tells_memory_and_time(run, model, image_model, tmp_path):
    code, output, errors = run("plan", TEXT, "a bad film", "-m", model, "--methods", "trans-att,att-cat")
    assert code == 0, errors
    first, second, *rest = output.splitlines()
    assert first.startswith("2 inputs, ") and "trans-att, att-cat, 2 at a time" in second
    assert [line.split()[0] for line in rest] == ["memory", "way", "time"]
    found = json.loads(run("plan", TEXT, "-m", model, "--json")[1])
    assert found["memory_blockwise"] < found["memory_whole"] < found["memory_free"]
    assert found["way"] == "whole" and found["seconds"] > 0
    told = (Path(__file__).parents[1] / "docs" / "json.md").read_text().split("`clearhead plan … --json`")[1]
    assert all(f"`{key}`" in told for key in found)
    assert "per explanation" not in run("plan", "--help")[1]
    Image.new("RGB", (40, 40)).save(tmp_path / "grey.png")
    assert run("plan", str(tmp_path / "grey.png"), "-m", image_model)[1].startswith("1 picture\n")
    code, _, errors = run("plan", TEXT, "-m", model, "--methods", "no-such")
    assert code == 2 and "no-such" in errors
    one_line(*run("plan", TEXT, "-m", model, "--batch-size", "0"), "at least 1")


def test_plan_counts_every_window(run, model, monkeypatch):
    tried = []
    monkeypatch.setattr(
        "clearhead.engine.memory.estimate_seconds", lambda work, sizes: tried.append(list(sizes)) or 1.0
    )
    long = "film " * 100
    windows = clearhead.explain(clearhead.load(model), long, long="windows").diagnostics["windows"]
    flags = ["-m", model, "--long", "windows", "--batch-size", "2"]
    found = json.loads(run("plan", long, "a film", *flags, "--json")[1])
    assert (found["inputs"], found["windows"], found["longest"], found["seconds"]) == (2, windows, 102, 2.0)
    explaining, predicting = tried
    assert len(explaining) == 1 + len(predicting) == 1 + (windows + 1) // 2
    assert f"102 at most, {windows} windows\n" in run("plan", long, *flags)[1]
    one_line(*run("plan", long, "film", "--pair", *flags), "cannot be cut into windows")


def test_compare_takes_many_inputs(run, model, tmp_path):
    (tmp_path / "a.csv").write_text("text\na bad film\na good film\n")
    inputs = [TEXT, str(tmp_path / "a.csv")]
    _, output, _ = run("compare", *inputs, "-m", model, "--methods", "att-cat,rollout", "--json")
    found = records(output)
    texts = [TEXT, "a bad film", "a good film"]
    assert [(one["text"], one["name"]) for one in found] == [(t, n) for t in texts for n in ("att-cat", "rollout")]
    out = tmp_path / "all.html"
    code, output, errors = run("compare", *inputs, "-m", model, "--methods", "att-cat,rollout", "--out", str(out))
    assert code == 0, errors
    assert output.count("a good film") == 2
    assert out.read_text().count("<article") == 3


def test_gold_marks_of_a_text_a_table_and_a_photo(run, model, image_model, tmp_path):
    out = tmp_path / "gold.html"
    classes = ["--target", "0", "--versus", "1"]
    marks = ["--gold", "bad", "--gold", "never"]
    code, _, errors = run("explain", TEXT, "-m", model, *marks, *classes, "--out", str(out))
    assert code == 0, errors
    page = out.read_text()
    assert page.count('<mark class="ch-gold">') == 2
    assert page.count("of the 2 most relevant words are marked") == 2
    (tmp_path / "a.csv").write_text("text,why\na bad film,bad\na good film,\nnever a heart,never|heart\n")
    code, _, errors = run("explain", str(tmp_path / "a.csv"), "-m", model, "--gold", "why", "--out", str(out))
    assert code == 0, errors
    assert out.read_text().count('<mark class="ch-gold">') == 3
    Image.effect_noise((40, 30), 60).convert("RGB").save(tmp_path / "photo.png")
    Image.new("L", (40, 30), 255).save(tmp_path / "mask.png")
    photo = [str(tmp_path / "photo.png"), "-m", image_model, "--gold", str(tmp_path / "mask.png")]
    code, _, errors = run("explain", *photo, "--out", str(out))
    assert code == 0, errors
    assert "100 % of the positive relevance lies inside" in out.read_text()


def test_words_of_each_class(run, model, tmp_path):
    (tmp_path / "a.csv").write_text("text\na bad film\nBad heart !\na good film\n")
    table = str(tmp_path / "a.csv")
    found = records(run("words", table, "-m", model, "--target", "negative", "--json")[1])
    one = clearhead.explain(clearhead.load(model), ["a bad film", "Bad heart !", "a good film"], target="negative")
    wanted = sum(word.relevance for several in one for word in several.words() if word.text.casefold() == "bad")
    assert [line["label"] for line in found] == ["negative"]
    assert {line["word"]: line["weight"] for line in found[0]["words"]}["bad"] == pytest.approx(wanted)
    assert run("words", "a film", "-m", model, "--reference", table, "--text-column", "text")[0] == 0
    code, output, errors = run("words", table, "-m", model, "--reference", table, "--out", str(tmp_path / "w.html"))
    assert code == 0, errors
    assert "film" in output
    assert "Words that speak for each class" in (tmp_path / "w.html").read_text()


def test_clouds_without_their_library_are_refused_before_any_work(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wordcloud", None)
    monkeypatch.setattr("clearhead.cli.options.load_model", lambda *_: pytest.fail("the model was opened"))
    one_line(*run("words", TEXT, "--clouds", "--out", str(tmp_path / "w.html")), "clearhead[clouds]")


def test_curves_are_the_models_own_answers(run, model, image_model, tmp_path):
    out = tmp_path / "curves.html"
    methods = ["--methods", "att-cat,rollout"]
    code, _, errors = run(
        "compare", "a bad film", "-m", model, *methods, "--target", "0", "--curves", "--out", str(out)
    )
    assert code == 0, errors
    page = out.read_text()
    assert page.count("<polyline") == 6
    assert page.count("Random order: the mean of 5 random orders; the band is their range, lowest to highest.") == 1
    whole = clearhead.explain(clearhead.load(model), "a bad film", target=0).probability
    hidden = clearhead.explain(clearhead.load(model), "[MASK] [MASK] [MASK]", target=0).probability
    for chart, first, last in zip(page.split("<svg")[1:], (whole, hidden), (hidden, whole), strict=True):
        rows = chart.split("<tbody>")[1].split("</tbody>")[0].split("<tr>")[1:]
        for row, known in ((rows[0], first), (rows[-1], last)):
            assert row.count(f">{known:.3g}<") + row.count(f">{known:.3g} [{known:.3g}, {known:.3g}]<") == 3
    photo = tmp_path / "photo.png"
    Image.effect_noise((40, 40), 60).convert("RGB").save(photo)
    code, _, errors = run("explain", str(photo), "-m", image_model, "--curves", "--out", str(out))
    assert code == 0, errors
    assert "patches hidden" in out.read_text()


def test_list_methods(run):
    code, output, _ = run("list", "methods")
    assert code == 0
    assert all(name in output for name in clearhead.methods())
    found = records(run("list", "methods", "--json")[1])
    assert {one["name"]: one["signed"] for one in found}["att-cat"] is True


@pytest.mark.parametrize("kind", ["metrics", "tasks", "models"])
def test_list_says_so_where_there_is_nothing(run, kind):
    code, output, _ = run("list", kind)
    assert code == 0
    assert output.strip()


# --- mistakes --------------------------------------------------------------------------------------------------

MISTAKES = {
    "no such command": (["expain"], "Did you mean 'explain'"),
    "no such option": (["explain", "x", "--metod", "y"], "--method"),
    "no input": (["explain"], "INPUT"),
    "method": (["explain", "x", "--method", "attcat"], "Did you mean 'att-cat'?"),
    "method option": (["explain", "x", "--method", "att-cat", "-o", "hiden=input"], "Did you mean 'hidden'?"),
    "option form": (["explain", "x", "-o", "hidden"], "key=value"),
    "ending": (["explain", "x", "--out", "x.pdf"], ".html, .png"),
    "curves": (["explain", "x", "--curves", "--out", "x.png"], "--out FILE.html"),
    "gold": (["explain", "x", "--gold", "x"], "--out FILE.html"),
    "clouds": (["words", "x", "--clouds"], "--out FILE.html"),
    "words into a picture": (["words", "x", "--out", "x.png"], ".html"),
    "column of a text": (["explain", "good", "--text-column", "remark"], "a text has no columns"),
    "column of a text, compared": (["compare", "good", "--text-column", "remark"], "a text has no columns"),
    "column of a text, planned": (["plan", "good", "--text-column", "remark"], "a text has no columns"),
    "column of a text's words": (["words", "good", "--text-column", "remark"], "a text has no columns"),
    "folder": (["explain", "x", "--out", "nowhere/x.html"], "no folder 'nowhere'"),
    "option twice": (["explain", "x", "-o", "layer=1", "-o", "layer=2"], "given twice"),
    "list": (["list", "method"], "Did you mean 'methods'?"),
    "batch": (["explain", "x", "--batch-size", "many"], "--batch-size"),
}
LATE = {
    "label": (["--target", "positve"], "Did you mean 'positive'?"),
    "class number": (["--target", "7"], "classes 0 … 1"),
    "itself": (["--target", "0", "--versus", "0"], "cannot be contrasted with itself: choose another --versus."),
    "long": (["--long", "cut"], "--long cut is not a choice. Use one of error, truncate, windows"),
    "precision": (["--precision", "float63"], "float32, float64"),
    "device": (["--device", "gpu"], "gpu"),
    "no device": (["--device", "meta"], "Nothing is computed on 'meta'"),
    "no number": (["--target", "²"], "No label is called '²'"),
    "batch size": (["--batch-size", "0"], "--batch-size 0 must be a whole number, at least 1"),
    "value": (["--method", "att-cat", "-o", "hidden=middle"], "'output' or 'input'"),
}


def one_line(code: int, output: str, errors: str, wanted: str) -> None:
    assert code == 2
    assert output == ""
    assert errors.count("\n") == 1
    assert errors.startswith("clearhead: ")
    assert wanted in errors


@pytest.mark.parametrize(("arguments", "wanted"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(run, arguments, wanted):
    one_line(*run(*arguments), wanted)


@pytest.mark.parametrize(("arguments", "wanted"), LATE.values(), ids=LATE)
def test_a_mistake_about_the_model_is_one_line(run, model, arguments, wanted):
    one_line(*run("explain", TEXT, "-m", model, *arguments), wanted)


FILES = {
    "missing": (None, "review.txt", "no file"),
    "kind": (b"x", "page.pdf", "not read"),
    "encoding": (b"\xff\xfe\xfa", "a.txt", "UTF-8"),
    "empty table": (b"text\n", "a.csv", "no rows"),
    "column": (b"a,b\n1,2\n", "a.csv", "--text-column"),
    "empty cell": (b"text,n\nx,1\n,2\n", "a.csv", "Row 2"),
    "json": (b'{"text": "x"}\n{oops\n', "a.jsonl", "Line 2"),
    "ragged": (b"text,n\nx,1\ny,2,3\n", "a.csv", "Line 3"),
    "no header": (b"a\tb\tc\td\n", "a.tsv", "--text-column 2"),
    "encoding of a table": (b"text,n\n\xff\xfe,1\n", "a.csv", "UTF-8"),
    "another encoding": ("text,n\na film,1\n".encode("utf-16"), "a.csv", "UTF-16"),
    "depth": (b"[" * 100_000, "a.jsonl", "Line 1"),
    "digits": (b'{"text": "a", "n": ' + b"1" * 6000 + b"}", "a.jsonl", "Line 1"),
    "numbers": (b'{"text": 5}', "a.jsonl", "holds no text but int"),
    "no object": (b"[1]\n", "a.jsonl", "named columns"),
    "picture": (
        b"not a picture",
        "a.png",
        "a.png' is a picture, but the model reads text. Choose --model clearhead/pets-vit.",
    ),
    "empty text": (b"  \n", "a.txt", "empty"),
}


@pytest.mark.parametrize(("content", "name", "wanted"), FILES.values(), ids=FILES)
def test_a_bad_file_is_one_line(run, model, tmp_path, content, name, wanted):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    one_line(*run("explain", str(tmp_path / name), "-m", model), wanted)


def test_a_word_with_a_stroke_is_a_text(run, model):
    status, out, _ = run("explain", "/film", "good/bad", "/r/movies", "-m", model)
    assert status == 0
    assert "good/bad" in out


def test_other_bad_inputs(run, model, image_model, tmp_path):
    one_line(*run("explain", "-", "-m", model, stdin="\n"), "Standard input was empty")
    one_line(*run("explain", str(tmp_path), "-m", model), "is a folder")
    one_line(*run("explain", "", "-m", model), "The text is empty")
    one_line(*run("explain", "bad \udcff film", "-m", model), "Character 5")
    one_line(*run("explain", "a", "b", "c", "--pair", "-m", model), "exactly two texts")
    one_line(*run("explain", "a film", "--gold", "heart", "-m", model, "--out", str(tmp_path / "x.html")), "not stand")
    for place in ("./missing", "../no-such/review", "~/missing", str(tmp_path / "missing")):
        one_line(*run("explain", place, "-m", model), f"There is no file '{place}'")
    one_line(*run("explain", "text_column.csv", "-m", model), "There is no file 'text_column.csv'")
    one_line(*run("words", "x", "-m", image_model), "have no words")
    one_line(*run("explain", "x", "-m", str(tmp_path / "nothing")), "cannot be loaded")
    one_line(*run("explain", "x", "-m", image_model), "no image")
    (tmp_path / "a.csv").write_text("a,text\n1,2\n")
    one_line(*run("explain", str(tmp_path / "a.csv"), "--text-column", "txt", "-m", model), "Did you mean 'text'?")


def test_one_picture_holds_one_explanation(run, model, tmp_path):
    one_line(*run("explain", "a film", "bad", "-m", model, "--out", str(tmp_path / "x.png")), "use .html")
    one_line(*run("compare", "a", "-m", model, "--methods", "cat,grads", "--out", str(tmp_path / "x.json")), ".jsonl")
    one_line(*run("compare", "a", "b", "-m", model, "--out", str(tmp_path / "x.png")), "use .html")
    assert list(tmp_path.iterdir()) == []
    assert run("compare", "a", "-m", model, "--methods", "cat", "--out", str(tmp_path / "x.json"))[0] == 0
    assert clearhead.read(tmp_path / "x.json").method == "cat"
    told = " ".join(re.sub("[│\\s]+", " ", run("compare", "--help")[1]).split())
    assert "of one explanation .json" in told


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("clearhead.cli.outputs.check", lambda out, parts: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["explain", "x"])
