"""diff() of models, of saved snapshots, and of both; its errors and its views."""

import json
import re
from dataclasses import replace

import pytest
from helpers.language_models import make_decoder, make_tokenizer
from helpers.reasons import make_reasons, make_snapshot
from helpers.tiny_models import text_model
from helpers.tiny_tokenizers import letter_tokenizer

import clearhead
from clearhead.drift.snapshot_file import read_snapshot, write_snapshot
from clearhead.errors import BadInput, BadOption
from clearhead.model.weight_noise import with_weight_noise
from clearhead.views import diff_html, diff_markdown, diff_record, diff_terminal, static_image, terminal
from clearhead.views.diff_explanations import show_first
from clearhead.views.scale import make_scale

TEXTS = ["a bad film", "the film is not very bad", "a dull , joyless film", "its heart is good !"]


@pytest.fixture(scope="module")
def second():
    return text_model(seed=2)


@pytest.fixture(scope="module")
def diff(text, second):
    return clearhead.diff(text, second, TEXTS, noise=1)


def test_snapshots_compare_as_the_models_do(text, second, diff, tmp_path):
    first_path = write_snapshot(clearhead.snapshot(text, TEXTS, noise=1), tmp_path / "a.json")
    second_path = write_snapshot(clearhead.snapshot(second, TEXTS, noise=0), tmp_path / "b.json", texts=False)
    saved = clearhead.diff(first_path, str(second_path))
    assert saved.verdict == diff.verdict
    assert saved.words == diff.words
    half = clearhead.diff(read_snapshot(first_path), second, TEXTS)
    assert half.verdict == diff.verdict
    other_half = clearhead.diff(text, second_path, TEXTS, noise=1)
    assert other_half.verdict == diff.verdict
    assert json.dumps(diff_record.record(saved)) == json.dumps(diff_record.record(diff))


def test_rows_with_the_same_answer_come_first(diff):
    answers = [row.has_same_answer for row in diff.rows]
    assert answers == sorted(answers, reverse=True)
    for group in (True, False):
        shifts = [row.agreement.shift for row in diff.rows if row.has_same_answer is group]
        assert shifts == sorted(shifts, reverse=True)


def test_models_with_other_tokenizers_are_compared_on_words(text):
    tokenizer = letter_tokenizer()
    other = text_model(vocab_size=len(tokenizer))
    letters = clearhead.load(other.network, tokenizer)
    compared = clearhead.diff(text, letters, TEXTS, noise=0)
    for row in compared.rows:
        assert row.first.words == row.second.words == tuple(row.first.text.split())


def test_models_of_other_sizes_are_compared(text):
    deep = text_model(num_hidden_layers=5)
    assert len(clearhead.diff(text, deep, TEXTS, noise=0).blocks) <= 3


def test_language_models_are_compared_on_the_prompt():
    prompts = ["the film is good and", "we see the heart of it"]
    first, second = (clearhead.load(make_decoder("gpt2", seed=seed), make_tokenizer()) for seed in (0, 1))
    compared = clearhead.diff(first, second, prompts, noise=0)
    assert sorted(row.first.words for row in compared.rows) == sorted(tuple(prompt.split()) for prompt in prompts)
    assert not any(row.has_same_answer for row in compared.rows)


def test_what_does_not_match_is_refused(text):
    first = make_snapshot([make_reasons("a b", [0.5, 0.5], id="7")])
    with pytest.raises(BadInput, match="different classes: 'tiny' negative, positive; 'tiny' cat, dog"):
        clearhead.diff(first, replace(first, labels=("cat", "dog")))
    with pytest.raises(BadInput, match=r"by cat .*take both snapshots with the same method"):
        clearhead.diff(first, replace(first, method="cat"))
    with pytest.raises(BadInput, match="same method and options"):
        clearhead.diff(first, replace(first, options={"heads": True}))
    other = make_snapshot([make_reasons("a c", [0.5, 0.5])])
    with pytest.raises(BadInput, match=r"Only in the first: 7"):
        clearhead.diff(first, other)
    with pytest.raises(BadOption, match="leave out inputs"):
        clearhead.diff(first, first, TEXTS)
    with pytest.raises(BadInput, match="either inputs"):
        clearhead.diff(text, text)


def test_classes_may_be_in_another_order(text):
    names = {0: "positive", 1: "negative", 2: "neutral"}
    renamed = text_model(id2label=names, label2id={label: index for index, label in names.items()})
    compared = clearhead.diff(text, renamed, TEXTS, noise=0)
    assert not any(row.has_same_answer for row in compared.rows)
    assert len(compared.changed) == len(TEXTS)


def test_noise_of_the_second_snapshot_is_used_if_the_first_has_none(text):
    first = clearhead.snapshot(text, TEXTS, noise=0)
    second = clearhead.snapshot(with_weight_noise(text, 5), TEXTS, noise=1)
    assert any("has none" in note for note in clearhead.diff(first, second).notes)


def test_pages_have_no_scripts_and_escape_texts(text, second):
    texts = ["a <script>alert(1)</script> film", "a bad | film"]
    compared = clearhead.diff(text, second, texts, noise=0)
    page = diff_html.page(compared)
    assert "<script" not in page
    assert "&lt;script" in page
    assert compared.verdict.sentence.split(":")[0] in page
    assert "What changed" in page
    assert "Agreement by block" in page
    assert "<script" not in compared._repr_html_()
    rows = [line for line in diff_markdown.document(compared).splitlines() if line.startswith("|")]
    assert any("bad" in line for line in rows)
    assert not re.search(r"(?<!\\)<script", diff_markdown.document(compared))


def test_a_terminal_shows_verdict_and_examples(diff):
    printed = terminal.capture(diff_terminal.view(diff), width=200)
    assert " ".join(diff.verdict.sentence.split()) in " ".join(printed.split())
    assert "Words whose weight rose or fell" in printed
    assert re.search(r"weight noise 0 +\d", printed)


def test_the_example_that_moved_most_is_drawn(diff):
    explanations = show_first(diff)
    assert [explanation.label for explanation in explanations[:2]] == [
        diff.rows[0].first.prediction,
        diff.rows[0].second.prediction,
    ]
    assert explanations[2].relevance.tolist() == (diff.rows[0].second.shares - diff.rows[0].first.shares).tolist()
    assert make_scale(explanations[2]).caption == "Effects in points of all relevance."
    assert static_image.png(static_image.draw(explanations)).startswith(b"\x89PNG")


def test_diffs_without_texts_are_shown_without_words():
    first = make_snapshot([make_reasons(None, [0.5, 0.5], spans=((0, 0, 1), (0, 2, 3)))])
    second = replace(first, examples=(replace(first.examples[0], shares=first.examples[0].shares[::-1]),))
    compared = clearhead.diff(first, second)
    assert any("words cannot be named" in note for note in compared.notes)
    assert "Example 0" in diff_html.page(compared)
    with pytest.raises(BadInput, match=r"use \.html or \.md"):
        show_first(compared)
