"""A mistake on the command line is one line and exit code 2."""

import re

import pytest
from helpers.commands import TEXT, assert_one_line
from helpers.saved_models import save_answer_model

import clearhead
from clearhead.cli import main

MISTAKES = {
    "no such command": (["expain"], "Did you mean 'explain'"),
    "no such option": (["explain", "x", "--metod", "y"], "--method"),
    "no input": (["explain"], "INPUT"),
    "method": (["explain", "x", "--method", "attcat"], "Did you mean 'att-cat'?"),
    "method option": (["explain", "x", "--method", "att-cat", "-o", "hiden=input"], "Did you mean 'hidden'?"),
    "option form": (["explain", "x", "-o", "hidden"], "key=value"),
    "ending": (["explain", "x", "--out", "x.doc"], ".html, .png"),
    "curves": (["explain", "x", "--curves", "--out", "x.png"], "--out FILE.html"),
    "gold": (["explain", "x", "--gold", "x"], "--out FILE.html"),
    "clouds": (["words", "x", "--clouds"], "--out FILE.html"),
    "words into a picture": (["words", "x", "--out", "x.png"], ".html"),
    "column of a text": (["explain", "good", "--text-column", "remark"], "a text has no columns"),
    "column of images of a text": (
        ["explain", "good", "--image-column", "photo"],
        "--image-column photo names a column",
    ),
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
    "overflow": (["--overflow", "cut"], "--overflow cut is not a choice. Use one of error, truncate, windows"),
    "precision": (["--precision", "float63"], "float32, float64"),
    "device": (["--device", "gpu"], "gpu"),
    "no device": (["--device", "meta"], "Invalid device 'meta'"),
    "no number": (["--target", "²"], "No label is called '²'"),
    "batch size": (["--batch-size", "0"], "--batch-size 0 must be a whole number, at least 1"),
    "value": (["--method", "att-cat", "-o", "hidden=middle"], "Available: output, input."),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(run, arguments, message):
    assert_one_line(*run(*arguments), message)


@pytest.mark.parametrize(("arguments", "message"), LATE.values(), ids=LATE)
def test_a_mistake_about_the_model_is_one_line(run, model, arguments, message):
    assert_one_line(*run("explain", TEXT, "-m", model, *arguments), message)


FILES = {
    "missing": (None, "review.txt", "no file"),
    "kind": (b"x", "page.mp3", "unsupported file type"),
    "encoding": (b"\xff\xfe\xfa", "a.txt", "UTF-8"),
    "empty table": (b"text\n", "a.csv", "no rows"),
    "column": (b"a,b\n1,2\n", "a.csv", "--text-column"),
    "empty cell": (b"text,n\n,1\n,2\n", "a.csv", "Row 1"),
    "no header": (b"a\tb\tc\td\n", "a.tsv", "--text-column 2"),
    "encoding of a table": (b"text,n\n\xff\xfe,1\n", "a.csv", "UTF-8"),
    "another encoding": ("text,n\na film,1\n".encode("utf-16"), "a.csv", "UTF-16"),
    "depth": (b"[" * 100_000, "a.jsonl", "can be read: line 1: not JSON"),
    "digits": (b'{"text": "a", "n": ' + b"1" * 6000 + b"}", "a.jsonl", "can be read: line 1: not JSON"),
    "numbers": (b'{"text": 5}', "a.jsonl", "holds int, not text"),
    "no object": (b"[1]\n", "a.jsonl", "named columns"),
    "picture": (
        b"not a picture",
        "a.png",
        "a.png' is an image, but the model reads text. Choose --model clearhead/pets-vit.",
    ),
    "empty text": (b"  \n", "a.txt", "empty"),
}


@pytest.mark.parametrize(("content", "name", "message"), FILES.values(), ids=FILES)
def test_a_bad_file_is_one_line(run, model, tmp_path, content, name, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert_one_line(*run("explain", str(tmp_path / name), "-m", model), message)


BAD_LINES = {
    "json": (b'{"text": "x"}\n{oops\n', "a.jsonl", "a.jsonl', line 2: not JSON"),
    "ragged": (b"text,n\nx,1\ny,2,3\n", "a.csv", "a.csv', line 3: 3 columns instead of 2."),
}


@pytest.mark.parametrize(("content", "name", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_named_and_the_other_lines_are_explained(run, model, tmp_path, content, name, message):
    (tmp_path / name).write_bytes(content)
    status, out, errors = run("explain", str(tmp_path / name), "-m", model)
    assert status == 0
    assert "row 1" in out and "row 2" not in out
    assert "Rows that could not be explained: 1; the first: Row 2" in errors
    assert message in errors


def test_a_word_with_a_stroke_is_a_text(run, model):
    status, out, _ = run("explain", "/film", "good/bad", "/r/movies", "-m", model)
    assert status == 0
    assert "good/bad" in out


def test_other_bad_inputs(run, model, image_model, tmp_path):
    assert_one_line(*run("explain", "-", "-m", model, stdin="\n"), "Standard input was empty")
    assert_one_line(*run("explain", str(tmp_path), "-m", model), "is a folder")
    assert_one_line(*run("explain", "", "-m", model), "The text is empty")
    assert_one_line(*run("explain", "bad \udcff film", "-m", model), "Invalid UTF-8 at character 5")
    assert_one_line(*run("explain", "a", "b", "c", "--pair", "-m", model), "exactly two texts")
    assert_one_line(
        *run("explain", "a film", "--gold", "heart", "-m", model, "--out", str(tmp_path / "x.html")), "not occur"
    )
    for path in ("./missing", "../no-such/review", "~/missing", str(tmp_path / "missing")):
        assert_one_line(*run("explain", path, "-m", model), f"There is no file '{path}'")
    assert_one_line(*run("explain", "text_column.csv", "-m", model), "There is no file 'text_column.csv'")
    assert_one_line(*run("words", "x", "-m", image_model), "have no words")
    assert_one_line(*run("explain", "x", "-m", str(tmp_path / "nothing")), "cannot be loaded")
    assert_one_line(*run("explain", "x", "-m", image_model), "no image")
    (tmp_path / "a.csv").write_text("a,text\n1,2\n")
    assert_one_line(
        *run("explain", str(tmp_path / "a.csv"), "--text-column", "txt", "-m", model), "Did you mean 'text'?"
    )


def test_one_picture_holds_one_explanation(run, model, tmp_path):
    assert_one_line(*run("explain", "a film", "bad", "-m", model, "--out", str(tmp_path / "x.png")), "use .html")
    assert_one_line(
        *run("compare", "a", "-m", model, "--methods", "cat,grads", "--out", str(tmp_path / "x.json")), ".jsonl"
    )
    assert_one_line(*run("compare", "a", "b", "-m", model, "--out", str(tmp_path / "x.png")), "use .html")
    assert list(tmp_path.iterdir()) == []
    assert run("compare", "a", "-m", model, "--methods", "cat", "--out", str(tmp_path / "x.json"))[0] == 0
    assert clearhead.read(tmp_path / "x.json").method == "cat"
    help_text = " ".join(re.sub("[│\\s]+", " ", run("compare", "--help")[1]).split())
    assert "for one explanation .json" in help_text


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("clearhead.cli.outputs.check_path", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["explain", "x"])


def test_a_class_of_a_model_that_answers_with_a_span(run, tmp_path):
    saved = str(save_answer_model(tmp_path))
    for flag in ("--target", "--versus"):
        result = run("explain", "who?", "a good film", "--pair", "-m", saved, flag, "1", "--no-check")
        assert_one_line(*result, "leave out --target and --versus to explain its own")
