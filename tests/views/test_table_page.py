"""The page of a whole table."""

import re

from clearhead.views.table_page import page

WORDS = [{"word": "never", "relevance": -2.0, "segment": 0, "start": 0, "end": 5}]


def make_record(number, certainty, **values):
    diagnostics = {"predicted": "positive", "predicted_probability": certainty}
    record = {"row": number, "id": None, "text": "never dull", "words": WORDS, "diagnostics": diagnostics}
    predicted = {"predicted": "positive", "label": "positive", "probability": certainty, "wrong": False}
    return {**record, **predicted, "gold": "positive", "error": None, **values}


def read_rows(text):
    return re.findall(r'<div role="row" class="[^"]*" style="([^"]*)">(.*?)</div>', text)


def test_the_predicted_class_has_its_own_probability():
    wrong = make_record(1, 0.956, label="negative", probability=0.044, gold="negative", wrong=True)
    (style, row), (_, other) = read_rows(page([wrong, make_record(2, 0.7)]))
    assert "✗ positive" in row and "gold: negative" in row and "explained: negative 4.4 %" in row
    assert '<span role="cell">95.6 %</span>' in row
    assert "explained" not in other and ">70.0 %<" in other
    # The least certain prediction comes first, whatever is explained.
    assert "--sure:1" in style


def test_a_contrast_is_named():
    (_, row), *_ = read_rows(page([make_record(1, 0.9, label="positive rather than negative")]))
    assert "explained: positive rather than negative</small>" in row and ">90.0 %<" in row


def test_flat_records_have_the_probability_of_what_is_explained_only():
    rows = [make_record(1, 0.9, diagnostics=None), make_record(2, 0.1, diagnostics=None, label="negative")]
    (_, row), (_, other) = read_rows(page(rows))
    assert ">90.0 %<" in row and "10.0 %" not in other


def test_rows_that_cannot_be_explained_keep_what_is_known():
    reason = "a very long reason " * 20
    empty = {"words": None, "predicted": None, "label": None, "probability": None, "wrong": None, "diagnostics": None}
    failed = make_record(1, None, **empty, error=reason, text="too long", gold="negative", source="web", note="")
    (style, row), *_ = read_rows(page([failed, make_record(2, 0.4)]))
    assert "too long" in row and reason in row and "gold: negative" in row
    assert "source: web" in row and "note" not in row
    assert "--sure:1" in style


def test_what_is_counted_are_all_rows_and_not_those_that_are_shown(monkeypatch):
    monkeypatch.setattr("clearhead.views.table_page.MAX_ROWS", 2)
    wrong = {"gold": "negative", "wrong": True, "check": "fails"}
    rows = [make_record(1, 0.9, check="holds"), make_record(2, 0.9, **wrong), make_record(3, 0.9, **wrong)]
    text = page([*rows, make_record(4, 0.9, gold=None, wrong=None)])
    assert "2 of 4 rows are shown" in text and len(read_rows(text)) == 2
    assert "2 of 3 predictions differ from the gold label." in text
    assert "Check: 1 of 3 explanations hold" in text


def test_the_first_column_has_rows_and_ids():
    assert 'columnheader">row</span>' in page([make_record(1, 0.9)])
    text = page([make_record(3, 0.9, id="r17")])
    assert 'columnheader">row, id</span>' in text and 'role="cell">3<small>r17</small>' in text


def test_the_colours_of_words_are_explained():
    assert "<span>against</span>" in page([make_record(1, 0.9)])
    assert "for what is explained" not in page([make_record(1, 0.9, words=None)])
    text = page([make_record(1, 0.9, words=[{**WORDS[0], "relevance": 2.0}])])
    assert "for what is explained" in text and "<span>against</span>" not in text


def test_a_long_source_has_its_colour_as_far_as_it_is_shown():
    source = {"word": "x" * 900, "relevance": 2.0, "segment": 0, "start": 0, "end": 900}
    (_, row), *_ = read_rows(page([make_record(1, 0.9, text="x" * 900, words=[source])]))
    assert f'<b class="f9">{"x" * 500}</b>…' in row


def test_missing_numbers_of_a_data_frame_are_not_shown():
    assert "age" not in page([make_record(1, 0.9, age=float("nan"))])
    assert "age: 0.0" in page([make_record(1, 0.9, age=0.0)])


def test_a_picture_inside_a_table_is_not_shown_as_its_bytes():
    text = page([make_record(0, 0.9, image=b"\xff\xd8", photo={"bytes": b"\xff", "path": None})])
    assert "image: 2 bytes" in text and "xff" not in text


def test_a_page_without_checks_says_how_to_get_them():
    assert "--check 5" in page([make_record(1, 0.9)])
    assert "--check 5" not in page([make_record(1, 0.9), make_record(2, 0.9, check="holds")])


def test_effects_have_the_colours_of_every_other_view():
    effect = {"unit": "probability", "base": 0.5, "prediction": 0.51}
    small = [{**WORDS[0], "relevance": 0.01}]
    record = make_record(1, 0.51, words=small, diagnostics={"effect": effect})
    text = page([record])
    (_, row), *_ = read_rows(text)
    # An effect of one point of 50 has no colour, although it is the largest of its row.
    assert "<b" not in row
    assert "an effect of 50 points" in text and "no common unit" not in text
    assert 'class="f9"' in page([{**record, "words": [{**WORDS[0], "relevance": 0.5}]}])
    value = {**effect, "unit": "value"}
    assert "half of the prediction" in page([make_record(1, None, diagnostics={"effect": value})])


def test_the_share_that_holds_is_told():
    verdicts = ["holds", "weak", "fails", "holds", None]
    text = page([make_record(number, 0.9, check=verdict) for number, verdict in enumerate(verdicts, 1)])
    assert "Check: 2 of 4 explanations hold (50&nbsp;%), 1 weak, 1 failed." in text and "not checked" not in text
    # One verdict is no share; it stands in its row.
    assert "explanations hold" not in page([make_record(1, 0.9, check="holds")])
    assert "not checked" in page([make_record(1, 0.9, check=None)])
