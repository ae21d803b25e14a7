"""Audits: words, punctuation and markers as units, and shortcuts on planted truth."""

import numpy as np
import pytest
from helpers.planted_words import TOKEN
from helpers.reasons import make_reasons
from helpers.tiny_models import text_model

import clearhead
from clearhead.data.task import Example, Task
from clearhead.drift.audit_words import AUDIT_UNIT, choose_candidates, name_kind
from clearhead.drift.hide_words import HiddenText
from clearhead.errors import BadInput
from clearhead.views import audit_html, audit_markdown, audit_record


@pytest.fixture(scope="module")
def found(planted):
    return clearhead.audit(planted.model, planted.task, count=6)


def test_the_planted_word_is_a_shortcut(found):
    word = found.words[0]
    assert (word.word, word.label, word.texts) == (TOKEN, "positive", 24)
    assert word.is_shortcut
    # Half of the texts with the word are negative, and are answered right without it.
    assert word.effect.low > 0.2
    assert word.excess.value == pytest.approx(0.5, abs=0.1)
    assert word.accuracy.low > 0.1
    assert word.flips >= 8
    assert abs(word.control) < 0.1
    assert f"'{TOKEN}' for 'positive'" in found.sentence


def test_the_original_model_has_no_such_shortcut(planted):
    words = clearhead.audit(planted.original, planted.task, count=3, words=[TOKEN, "xylophone"])
    by_word = {word.word: word for word in words.words}
    assert not by_word[TOKEN].is_shortcut
    assert "Not in any text: 'xylophone'." in words.notes


def test_reports(found):
    page = audit_html.page(found)
    assert "Shortcuts: the model uses them" in page
    text = audit_markdown.document(found)
    assert f"'{TOKEN}' stands in 24 texts" in text
    assert "points more often than labelled" in text
    record = audit_record.record(found)
    assert record["words"][0]["is_shortcut"]
    assert record["words"][0]["effect"]["low"] == found.words[0].effect.low
    assert TOKEN in found._repr_html_()


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("So good!!! isn't it?", ["So", "good", "!!!", "isn't", "it", "?"]),
        ("see https://a.b/c?d=1 , @me #fun", ["see", "https://a.b/c?d=1", ",", "@me", "#fun"]),
        ("one<br/>two &amp; 3.5", ["one", "<br/>", "two", "&amp;", "3", ".", "5"]),
        ("snake_case 很好 ok", ["snake", "_", "case", "很", "好", "ok"]),
    ],
)
def test_units_are_words_marks_and_markers(text, units):
    assert [match.group() for match in AUDIT_UNIT.finditer(text)] == units


def test_kinds_of_words():
    words = ["!!!", "@me", "https://a.b", "<br/>", "&amp;", "1999", "b2b", "film", "好"]
    kinds = ["punctuation", "marker", "marker", "marker", "marker", "number", "number", "word", "word"]
    assert list(map(name_kind, words)) == kinds


def test_candidates_are_ranked_by_their_weight_for_a_class():
    rows = [make_reasons("Good film .", [0.6, 0.1, 0.3], id=str(number)) for number in range(14)]
    rows += [make_reasons("bad film .", [0.9, 0.1, 0.0], prediction="negative") for _ in range(13)]
    candidates = choose_candidates(rows, 5)
    # Without spread a share of zero is excluded; 'bad' is in too few texts.
    assert [(entry.word, entry.label) for entry in candidates] == [
        ("good", "positive"),
        (".", "positive"),
        ("film", "positive"),
    ]
    assert candidates[1].share.value == pytest.approx(0.3)
    assert candidates[2].has_label_E.mean() == pytest.approx(14 / 27)
    assert [entry.word for entry in choose_candidates(rows, 0, ["BAD"])] == ["bad"]


def test_as_many_others_are_hidden_as_occurrences():
    reasons = make_reasons("no no good film here", [0.2] * 5)
    (candidate,) = choose_candidates([reasons], 0, ["no"])
    mask = HiddenText(0, 5, reasons, {0: candidate}).mask().numpy()
    assert mask[0].all()
    assert mask[1].tolist() == [False, False, True, True, True]
    assert mask[2, :2].all()
    assert (~mask[2]).sum() == 2


def test_annotated_evidence_is_told_from_the_rest():
    texts = [Example(str(number), "a bad film !", 0, gold=((0, 2, 5),)) for number in range(14)]
    words = clearhead.audit(text_model(), Task("reviews", texts), count=0, words=["bad", "!"]).words
    by_word = {word.word: word for word in words}
    assert by_word["bad"].evidence == 1
    assert by_word["!"].evidence == 0
    assert by_word["!"].suspicions[0] == "it is punctuation"
    assert "people marked 0% of its occurrences as evidence" in by_word["!"].suspicions
    assert np.isfinite(by_word["bad"].accuracy.value)


def test_without_labels_nothing_is_said_about_accuracy():
    found = clearhead.audit(text_model(), ["a bad film"] * 3, count=0, words=["bad"])
    assert found.accuracy is None
    assert found.words[0].accuracy is found.words[0].excess is None
    assert any("no labels" in note for note in found.notes)
    assert "no labels" in audit_markdown.document(found)


def test_labels_that_the_model_does_not_have_are_not_counted():
    texts = [Example(str(number), "a bad film", label) for number, label in enumerate(["happy", "NEGATIVE", 1, None])]
    found = clearhead.audit(text_model(), Task("reviews", texts), count=0, words=["bad"])
    assert found.accuracy == 0.5
    assert found.words[0].accuracy.n == found.words[0].excess.n == 2
    assert "Labels that are no classes of the model, and are not counted: 1 (such as 'happy')." in found.notes


def test_rows_that_were_left_out_and_texts_that_were_cut_are_told(tmp_path):
    table = tmp_path / "dev.tsv"
    table.write_text("text\tlabel\n" + "a bad film " * 200 + "\tnegative\n\tpositive\na good film\tpositive\n")
    notes = " ".join(clearhead.audit(text_model(), task=table, count=0, words=["bad"]).notes)
    assert "1 row was skipped in 'dev.tsv' (line 3: no text in column 'text')." in notes
    assert "longer than what the model reads: 1 of 2 texts." in notes


def test_audits_are_for_single_classes():
    with pytest.raises(BadInput, match="no classifier with one class per input"):
        clearhead.audit(text_model(problem_type="regression", num_labels=1), ["a text"])
