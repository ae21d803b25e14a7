"""clearhead ask, and clearhead explain with a language model."""

import json

import pytest
from helpers.commands import assert_one_line, records
from helpers.picture_models import make_picture, make_picture_model
from helpers.saved_models import save_language_model, save_text_model

import clearhead
from clearhead.cli.answers import read_sources
from clearhead.errors import BadFile
from clearhead.model.focus import parse_focus

PROMPT = "the capital of france is"
METHOD = ("--method", "gradient-x-input")


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    return str(save_language_model(tmp_path_factory.mktemp("language-model")))


def test_ask_writes_and_explains_an_answer(run, writer):
    code, output, errors = run("ask", PROMPT, "--model", writer, *METHOD, "--max-new-tokens", "3", "--json")
    assert (code, errors) == (0, "")
    (record,) = records(output)
    assert len(record["answer"]["steps"]) == 3
    assert record["text"][0] == PROMPT
    assert sum(record["answer"]["shares"].values()) == pytest.approx(1)
    assert record["answer"]["matrix"] is None


def test_a_given_answer_against_another(run, writer):
    code, output, _ = run("ask", PROMPT, "-m", writer, *METHOD, "--answer", "paris", "--versus", "london")
    assert code == 0
    assert "paris rather than london" in output
    code, output, _ = run(
        "explain", PROMPT, "-m", writer, *METHOD, "--answer", "paris", "--versus", "london", "--json", "--matrix"
    )
    (record,) = records(output)
    assert record["label"] == "paris rather than london"
    (step,) = record["answer"]["steps"]
    assert step["versus"].endswith("london")
    assert step["explained"] is True
    assert len(record["answer"]["matrix"]) == 1


def test_a_focus_explains_a_part(run, writer):
    flags = ("-m", writer, *METHOD, "--answer", "paris and london", "--json")
    _, by_words, _ = run("ask", PROMPT, *flags, "--focus", "and")
    _, by_step, _ = run("ask", PROMPT, *flags, "--focus", "#1")
    _, by_characters, _ = run("ask", PROMPT, *flags, "--focus", "6:9")
    assert json.loads(by_words)["label"] == "and"
    assert by_words == by_step == by_characters


@pytest.mark.parametrize(
    ("text", "focus"),
    [(None, None), ("Paris", "Paris"), ("#0", 0), ("#2", 2), ("#-1", -1), ("3:9", (3, 9)), ("a:b", "a:b")],
)
def test_focus_flags(text, focus):
    assert parse_focus(text) == focus


def test_a_chat_goes_through_the_template(run, writer):
    flags = ("-m", writer, *METHOD, "--answer", "paris", "--json")
    _, plain, _ = run("ask", PROMPT, *flags)
    _, chat, _ = run("ask", PROMPT, *flags, "--system", "be short")
    assert json.loads(plain)["text"][0] == PROMPT
    assert json.loads(chat)["text"][0].startswith("<|system|>\nbe short\n<|user|>")


def test_a_table_of_prompts(run, writer, tmp_path):
    table = tmp_path / "prompts.jsonl"
    table.write_text('{"prompt": "the river in paris"}\n{"prompt": "the river in london is"}\n')
    page = tmp_path / "answers.html"
    arguments = ("ask", str(table), "--text-column", "prompt", "-m", writer, *METHOD, "--answer", "grey")
    code, output, errors = run(*arguments, "--out", str(page), "--json")
    assert code == 0
    assert [record["text"][0] for record in records(output)] == ["the river in paris", "the river in london is"]
    assert page.read_text("utf-8").count("<article") == 2
    assert errors == f"Wrote {page}\n"


@pytest.fixture
def answered(tmp_path):
    """A table of prompts with answers and foils; the second row has no prompt, the last an answer without a token."""
    path = tmp_path / "answered.jsonl"
    rows = [
        ("a", "the river in france is", "paris", "london"),
        ("b", "", "paris", "london"),
        ("c", PROMPT, "london", "paris"),
        ("d", PROMPT, " ", "paris"),
    ]
    lines = [json.dumps(dict(zip(("id", "prompt", "answer", "foil"), row, strict=True))) for row in rows]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("command", ["ask", "explain"])
def test_answers_and_foils_come_from_columns(run, writer, answered, command):
    flags = ("--answer", "column:answer", "--versus", "column:foil", "--no-check", "--json")
    code, output, errors = run(command, str(answered), "-m", writer, *METHOD, *flags)
    found = records(output)
    assert code == 0, errors
    assert [record["answer"]["text"].strip() for record in found] == ["paris", "london"]
    assert [record["source"]["id"] for record in found] == ["a", "c"]
    assert "could not be explained: 2; the first: Row 2 of" in " ".join(errors.split())
    _, alone, _ = run(command, PROMPT, "-m", writer, *METHOD, "--answer", "london", "--versus", "paris", *flags[4:])
    by_itself, in_batch = records(alone)[0]["tokens"], found[1]["tokens"]
    assert [token["token"] for token in by_itself] == [token["token"] for token in in_batch]
    # Kernels are chosen by the size of a batch, and round differently on some CPUs.
    relevance = [token["relevance"] for token in by_itself]
    assert relevance == pytest.approx([token["relevance"] for token in in_batch], rel=1e-5, abs=1e-8)


def test_answers_that_are_not_asked_for_are_named(run, writer, answered):
    flags = ("-m", writer, *METHOD, "--max-new-tokens", "2", "--no-check")
    _, _, errors = run("ask", str(answered), *flags, "--json")
    assert "The column 'answer'" in errors
    assert "--answer column:answer" in errors


def test_a_table_of_chats(run, writer, answered):
    flags = ("--answer", "column:answer", "--system", "be short", "--no-check", "--json")
    _, output, _ = run("ask", str(answered), "-m", writer, *METHOD, *flags)
    assert all(record["text"][0].startswith("<|system|>\nbe short\n<|user|>") for record in records(output))


def test_a_text_has_no_columns(run, writer):
    code, _, errors = run("ask", PROMPT, "-m", writer, *METHOD, "--answer", "column:answer")
    assert code != 0
    assert "column:NAME is for tables" in errors


@pytest.mark.parametrize("ending", ["html", "png", "svg", "md", "jsonl", "parquet", "json"])
def test_every_kind_of_file(run, writer, tmp_path, ending):
    out = tmp_path / f"answer.{ending}"
    code, _, _ = run(
        "ask", PROMPT, "-m", writer, *METHOD, "--answer", "paris and london", "--matrix", "--out", str(out)
    )
    assert code == 0
    assert out.stat().st_size > 0
    if ending == "json":
        assert clearhead.read(out).answer == "paris and london"
    if ending == "html":
        assert out.read_text("utf-8").count('type="radio"') == 4


def test_methods_are_compared_on_one_answer(run, writer, tmp_path):
    page = tmp_path / "methods.html"
    arguments = ("compare", PROMPT, "-m", writer, "--methods", "gradient-x-input,rollout", "--answer", "paris")
    code, output, _ = run(*arguments, "--out", str(page), "--json")
    assert code == 0
    assert [record["answer"]["text"] for record in records(output)] == ["paris", "paris"]
    assert page.read_text("utf-8").count("Prompt</h3>") == 2
    assert run(*arguments)[0] == 0


def test_mistakes_are_one_line(run, writer, tmp_path):
    classifier = str(save_text_model(tmp_path / "classifier"))
    assert_one_line(*run("ask", PROMPT, "-m", classifier), "does not write")
    assert_one_line(*run("explain", PROMPT, "-m", classifier, "--answer", "x"), "no language model")
    assert_one_line(*run("explain", PROMPT, "-m", writer, "--target", "1"), "--answer")
    assert_one_line(*run("explain", PROMPT, "-m", writer, "--curves", "--out", str(tmp_path / "x.html")), "--curves")
    assert_one_line(*run("ask", PROMPT, "-m", writer, "--answer", "x", "--max-new-tokens", "3"), "omit one")
    assert_one_line(*run("ask", PROMPT, "-m", writer, "--answer", "paris", "--versus", "paris and london"), "foil")
    assert_one_line(*run("ask", PROMPT, "-m", writer, "--answer", "paris", "--focus", "rome"), "rome")
    assert_one_line(*run("ask", PROMPT, "-m", writer, "--answer", " "), "empty")
    assert_one_line(*run("ask", PROMPT, "-m", writer, "--scale", "x"), "log-prob")
    # There is no --overflow: a part of a prompt would have another answer.
    assert_one_line(*run("ask", "paris is " * 3000, "-m", writer, "--answer", "x"), "Shorten the prompt.")


def test_sources_are_files_of_a_pattern_or_a_folder(tmp_path):
    (tmp_path / "b.txt").write_text("The Seine.\n")
    (tmp_path / "a.txt").write_text("The Danube.\n")
    expected = {"a.txt": "The Danube.", "b.txt": "The Seine."}
    assert read_sources([f"{tmp_path}/*.txt"]) == read_sources([str(tmp_path)]) == expected
    assert read_sources([str(tmp_path / "b.txt")]) == {"b.txt": "The Seine."}
    assert read_sources(["sentences"]) == "sentences"
    assert read_sources(None) is None
    with pytest.raises(BadFile, match="has no files"):
        read_sources([f"{tmp_path}/*.pdf"])


@pytest.mark.parametrize("command", ["ask", "explain"])
def test_no_source_is_replaced_by_the_output(run, tmp_path, command):
    notes = tmp_path / "notes.md"
    notes.write_text("The Seine.")
    result = run(command, "Which river?", "--sources", str(tmp_path / "*.md"), "--out", str(notes))
    assert_one_line(*result, "is an input, which the output would replace")


def test_files_of_one_name_are_different_sources(tmp_path):
    texts = {"france": "The Seine.", "austria": "The Danube."}
    for folder, text in texts.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "river.txt").write_text(text)
    sources = read_sources([str(tmp_path / folder) for folder in texts])
    assert sources == {str(tmp_path / folder / "river.txt"): text for folder, text in texts.items()}
    # One file that two patterns match is one source.
    assert read_sources([f"{tmp_path}/france/*", f"{tmp_path}/france/r*"]) == {"river.txt": "The Seine."}


@pytest.fixture(scope="module")
def picture_reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("picture-reader")
    network, processor = make_picture_model("llava")
    network.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def test_pictures_are_given_by_files(run, writer, picture_reader, tmp_path):
    picture = tmp_path / "photo.png"
    make_picture(40, 24).save(picture)
    flags = ("--model", picture_reader, *METHOD, "--image", str(picture), "--answer", "paris", "--no-check", "--json")
    code, output, errors = run("ask", "is it", *flags)
    assert (code, errors) == (0, "")
    (record,) = records(output)
    assert record["answer"]["pictures"][0]["grid"] == [4, 4]
    assert "[picture 1]" in record["text"][0]
    _, chat, _ = run("ask", "is it", *flags, "--chat")
    _, explained, _ = run("explain", "is it", *flags)
    assert records(chat)[0]["tokens"] == records(explained)[0]["tokens"] == record["tokens"]
    assert_one_line(
        *run("ask", PROMPT, "-m", writer, "--image", str(picture), "--answer", "paris"), "reads no pictures"
    )
    assert_one_line(*run("explain", PROMPT, "--image", str(picture)), "--image is for prompts")
