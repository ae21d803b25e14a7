"""The page with a model that labels words, beside a classifier, in a browser."""

import pytest
from helpers.browser import needs_chromium
from helpers.page import expect, expect_contains, expect_value, explain, read_address, wait_until_measured
from helpers.page_server import start_server
from helpers.saved_models import save_text_model
from helpers.tiny_heads import head_network
from helpers.tiny_tokenizers import word_piece_tokenizer

pytestmark = needs_chromium

TEXT = "a joyless film is not very good"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    home = tmp_path_factory.mktemp("focus")
    head_network("words", "bert").float().save_pretrained(home / "my-ner")
    word_piece_tokenizer().save_pretrained(home / "my-ner")
    text = save_text_model(home / "text")
    with start_server("--model", str(text), "--model", str(home / "my-ner")) as (_, served_address):
        yield served_address


def choose_word(page, word):
    """Explain the label of a word and wait for everything that follows."""
    page.select_option("#model", "my-ner")
    page.fill("#focus", word)
    return explain(page, TEXT)


def test_a_word_is_chosen_where_the_model_has_an_output_for_each(visit):
    page = visit()
    expect(page.locator("#focus-choice")).to_be_hidden()
    choose_word(page, "film")
    expect_contains(page, "#focus-hint", "A word or phrase of the text, #N for a token")
    expect_contains(page, "#verdict", "at “film”")
    choose_word(page, "#8")
    expect_contains(page, "#verdict", "at “good”")


def test_another_model_does_not_get_the_word(visit):
    page = choose_word(visit(), "film")
    page.select_option("#model", "text")
    expect(page.locator("#focus-choice")).to_be_hidden()
    wait_until_measured(page)
    expect_contains(page, "#verdict", "tive ")


def test_the_link_brings_the_word_back(visit):
    page = choose_word(visit(), "film")
    link = read_address(page)
    again = visit(link[link.index("#") :])
    wait_until_measured(again)
    expect_value(again, "#focus", "film")
    expect_contains(again, "#verdict", "at “film”")


def test_a_word_that_is_not_in_the_text_is_told(visit):
    page = choose_word(visit(), "film")
    page.fill("#focus", "river")
    expect(page.locator("#stale")).to_be_visible()
    page.click("#explain")
    expect_contains(page, "#problems", "'river' does not occur in the text")
    expect_contains(page, "#verdict", "at “film”")
    visit.messages.clear()
