"""clearhead explain for labels of words, masked words and multiple choice."""

import html
import json

import pytest
import transformers as hf
from helpers.commands import assert_one_line, records
from helpers.tiny_heads import head_network
from helpers.tiny_models import network
from helpers.tiny_tokenizers import plot_tokenizer, word_piece_tokenizer

TEXT = "a joyless film is not very good"
QUESTION = ("a film with no plot is it", "really good", "bad", "or a fine film")


def save(folder, net, tokenizer):
    net.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def labeller(tmp_path_factory):
    return save(tmp_path_factory.mktemp("labeller"), head_network("words", "bert"), word_piece_tokenizer())


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    return save(tmp_path_factory.mktemp("filler"), head_network("masks", "bert"), word_piece_tokenizer())


@pytest.fixture(scope="module")
def chooser(tmp_path_factory):
    net = network("bert", network_class=hf.BertForMultipleChoice)
    return save(tmp_path_factory.mktemp("chooser"), net, plot_tokenizer())


@pytest.mark.parametrize(("focus", "word"), [("joyless", "joyless"), ("#4", "film"), ("10:14", "film")])
def test_a_word_of_a_text(run, labeller, focus, word):
    code, output, _ = run("explain", TEXT, "--model", labeller, "--focus", focus, "--target", "PER", "--json")
    assert code == 0
    assert records(output)[0]["label"] == f"B-PER at “{word}”"


def test_the_word_and_its_label_are_on_the_page(run, labeller, tmp_path):
    page = tmp_path / "word.html"
    code, output, _ = run(
        "explain", TEXT, "--model", labeller, "--focus", "film", "--target", "LOC", "--out", str(page)
    )
    assert code == 0
    assert "B-LOC at “film”" in output and "B-LOC at “film”" in page.read_text("utf-8")


def test_a_masked_word_against_another(run, filler):
    text = "the [MASK] is not very good"
    code, output, _ = run("explain", text, "--model", filler, "--target", "film", "--versus", "heart", "--no-check")
    assert code == 0
    assert "film rather than heart at [MASK]" in output


def test_a_choice_against_the_others(run, chooser, tmp_path):
    page = tmp_path / "choice.html"
    flags = ("--target", "bad", "--versus", "others", "--out", str(page))
    code, output, _ = run("explain", *QUESTION, "--model", chooser, *flags)
    assert code == 0
    assert "bad rather than the others" in output and "rather than" in page.read_text("utf-8")


def test_mistakes_are_one_line(run, labeller, filler, chooser, tmp_path):
    assert_one_line(*run("explain", TEXT, "--model", labeller, "--focus", "plot"), "'plot' does not occur in the text")
    assert_one_line(
        *run("explain", TEXT, "--model", labeller, "--focus", "film", "--target", "ORG"), "No label is called"
    )
    assert_one_line(*run("explain", TEXT, "--model", filler), "write [MASK]")
    assert_one_line(*run("explain", *QUESTION[:2], "--model", chooser), "2 INPUTS are no multiple choice")
    curves = ("--curves", "--out", str(tmp_path / "page.html"))
    assert_one_line(*run("explain", *QUESTION, "--model", chooser, *curves), "--curves is not for multiple choice")


def test_methods_are_compared_at_a_word(run, labeller):
    arguments = ("compare", TEXT, "--model", labeller, "--methods", "gae,random", "--no-check", "--json")
    code, output, _ = run(*arguments, "--focus", "film", "--target", "PER")
    assert code == 0
    assert {record["label"] for record in records(output)} == {"B-PER at “film”"}


def test_methods_are_compared_on_one_question(run, chooser):
    arguments = (*QUESTION, "--model", chooser)
    code, output, _ = run("compare", *arguments, "--methods", "gae,random", "--no-check", "--json")
    assert code == 0
    assert [record["method"] for record in records(output)] == ["gae", "random"]
    assert_one_line(*run("compare", *arguments, "--focus", "bad"), "not for multiple choice")
    assert_one_line(*run("plan", *arguments), "several inputs together")


@pytest.fixture
def bench(run, tmp_path):
    """Run a benchmark of two sentences; return what `run` returns."""
    (tmp_path / "dev.csv").write_text("text,label\na fine film is not bad,1\nnot a very good plot,0\n")

    def start(model, *flags, metric="aopc"):
        flags = ("--methods", "gae", "--metrics", metric, "--out", str(tmp_path / "run"), *flags)
        return run("bench", "--model", model, "--task", str(tmp_path / "dev.csv"), "--json", *flags)

    return start


def test_a_benchmark_measures_one_word_of_every_text(bench, labeller, tmp_path):
    code, output, _ = bench(labeller, "--focus", "#2")
    assert code == 0
    assert records(output)[0]["n"] == 2
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["plan"]["focus"] == "#2"
    # Another word is another run.
    assert_one_line(*bench(labeller, "--focus", "#3"), "focus")


def test_texts_without_the_word_are_skipped(bench, labeller):
    code, output, error = bench(labeller, "--focus", "film")
    assert code == 0, error
    assert records(output)[0]["n"] == 1


def test_mistakes_of_a_benchmark_are_one_line(bench, run, labeller, chooser, tmp_path):
    assert_one_line(*bench(labeller, "--focus", "river"), "'river' does not occur in the text")
    assert_one_line(*bench(chooser), "chooses among several texts")
    assert_one_line(*bench("clearhead/sst2-minilm", "--focus", "film"), "leave out focus")
    assert_one_line(*run("serve", "--model", chooser, "--no-open", "--port", "0"), "The page reads single texts")


@pytest.fixture
def labelled_table(tmp_path):
    path = tmp_path / "names.csv"
    path.write_text("text,label\na good film,O\na bad heart,B-PER\nfilm never good,O\n")
    return str(path)


def test_labels_of_rows_are_not_those_of_the_entity_that_is_found(run, labeller, labelled_table, tmp_path):
    out = tmp_path / "out.jsonl"
    code, _, errors = run("explain", labelled_table, "--model", labeller, "--no-check", "--out", str(out))
    assert code == 0, errors
    assert "Column 'label' is not compared with predictions" in errors
    rows = records(out.read_text())
    assert [(row["gold"], row["wrong"]) for row in rows] == [("O", None), ("B-PER", None), ("O", None)]
    _, output, _ = run("explain", labelled_table, "--model", labeller, "--no-check", "--json")
    assert ["wrong" in record["source"] for record in records(output)] == [False] * 3


def test_a_table_has_the_same_rows_in_every_file_if_only_some_have_the_focus(run, labeller, labelled_table, tmp_path):
    flags = ["explain", labelled_table, "--model", labeller, "--no-check", "--focus", "film"]
    out = tmp_path / "out.jsonl"
    code, _, errors = run(*flags, "--out", str(out))
    assert code == 0, errors
    rows = records(out.read_text())
    # With a focus, the label of a row is that of the word.
    assert [row["wrong"] is None for row in rows] == [False, True, False]
    reason = "'film' does not occur in the text 'a bad heart'"
    assert [reason in (row["error"] or "") for row in rows] == [False, True, False]
    page = tmp_path / "out.html"
    code, _, errors = run(*flags, "--out", str(page))
    assert code == 0, errors
    assert f"Rows that could not be explained: 1; the first: Row 2 of '{labelled_table}': {reason}" in errors
    content = html.unescape(page.read_text())
    assert f"Row 2 of '{labelled_table}': {reason}" in content
    _, output, _ = run(*flags, "--json")
    printed = records(output)
    for row, record in zip([rows[0], rows[2]], printed, strict=True):
        assert (row["label"], row["wrong"]) == (record["label"], record["source"]["wrong"])
        assert row["label"] in content


def test_a_focus_that_no_row_has_is_one_line(run, labeller, labelled_table, tmp_path):
    flags = ["explain", labelled_table, "--model", labeller, "--no-check", "--focus", "nowhere"]
    for name in ("out.jsonl", "out.html"):
        assert_one_line(*run(*flags, "--out", str(tmp_path / name)), "No row can be explained. Row 1")


@pytest.mark.parametrize("overflow", ["error", "windows"])
def test_a_long_text_of_labelled_words_is_refused_in_one_line(run, labeller, overflow):
    result = run("explain", f"{TEXT} . " * 30, "--model", labeller, "--overflow", overflow)
    assert_one_line(*result, "use --overflow truncate, or give the passage around it")


def test_windows_are_not_advised_where_there_are_none(run, labeller):
    code, _, errors = run("explain", f"{TEXT} . " * 30, "--model", labeller, "--overflow", "truncate", "--no-check")
    assert code == 0
    assert "1 of 1 texts were cut off" in errors and "windows" not in errors
