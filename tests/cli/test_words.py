"""clearhead words."""

import sys

import pytest
from helpers.commands import TEXT, assert_one_line, records

import clearhead


def test_words_of_each_class(run, model, tmp_path):
    (tmp_path / "a.csv").write_text("text\na bad film\nBad heart !\na good film\n")
    table = str(tmp_path / "a.csv")
    classes = records(run("words", table, "-m", model, "--target", "negative", "--json")[1])
    explanations = clearhead.explain(
        clearhead.load(model), ["a bad film", "Bad heart !", "a good film"], target="negative"
    )
    shares = {}
    for explanation in explanations:
        relevance = {word.text.casefold(): word.relevance for word in explanation.words() if word.text != "!"}
        for word, value in relevance.items():
            shares.setdefault(word, []).append(value / sum(map(abs, relevance.values())))
    assert [line["label"] for line in classes] == ["negative"]
    for line in classes[0]["words"]:
        assert line["weight"] == pytest.approx(sum(shares[line["word"]]) / 3)
        assert line["texts"] == len(shares[line["word"]]) and line["low"] <= line["weight"] <= line["high"]
    (often,) = records(run("words", table, "-m", model, "--target", "negative", "--min-texts", "2", "--json")[1])
    assert {line["word"] for line in often["words"]} <= {"a", "bad", "film"}
    assert run("words", "a film", "-m", model, "--reference", table, "--text-column", "text")[0] == 0
    code, output, errors = run("words", table, "-m", model, "--reference", table, "--out", str(tmp_path / "w.html"))
    assert code == 0, errors
    assert "film" in output
    assert "Words that speak for each class" in (tmp_path / "w.html").read_text()


def test_no_explanation_is_checked(run, model, monkeypatch):
    monkeypatch.setattr("clearhead.api.check_batches", lambda *_: pytest.fail("an explanation was checked"))
    code, output, errors = run("words", "a bad film", "a good film", "-m", model)
    assert code == 0, errors
    assert "film" in output


def test_clouds_without_their_library_are_refused_before_any_work(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wordcloud", None)
    monkeypatch.setattr("clearhead.cli.options.load_model", lambda *_, **options: pytest.fail("the model was opened"))
    assert_one_line(*run("words", TEXT, "--clouds", "--out", str(tmp_path / "w.html")), "clearhead[clouds]")


def test_a_page_of_many_texts_begins_with_the_words_of_each_class(run, model, tmp_path):
    (tmp_path / "a.csv").write_text("text\n" + "a bad film\n" * 21)
    out = tmp_path / "page.html"
    code, _, errors = run("explain", str(tmp_path / "a.csv"), "-m", model, "--target", "negative", "--out", str(out))
    assert code == 0, errors
    assert out.read_text().count("Words that speak for each class") == 1
