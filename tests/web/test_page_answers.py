"""The page with a language model beside classifiers, in a browser."""

import re

import pytest
from helpers.browser import find_violations, needs_axe, needs_chromium
from helpers.page import (
    expect,
    expect_contains,
    expect_count,
    expect_text,
    expect_value,
    explain,
    hold_requests,
    read_address,
    wait_until,
)
from helpers.page_server import start_server
from helpers.saved_models import save_language_model, save_text_model

pytestmark = needs_chromium
PROMPT = "the capital of france is long. the river in paris is"
ANSWER = "paris and long"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    home = tmp_path_factory.mktemp("answers")
    folders = [save_text_model(home / "text"), save_language_model(home / "writer")]
    arguments = [argument for folder in folders for argument in ("--model", str(folder))]
    with start_server(*arguments) as (_, served_address):
        yield served_address


def ask(page, prompt=PROMPT, answer=ANSWER, foil=""):
    """Fill in the form of a language model, press Ask and wait for everything that follows."""
    page.click("#kinds label:has([value=prompt])")
    for selector, value in {"#prompt": prompt, "#answer-text": answer, "#foil": foil}.items():
        page.fill(selector, value)
    page.click("#explain")
    wait_until_measured(page)
    return page


def wait_until_measured(page):
    page.wait_for_selector("body:not(.busy) #bars[aria-busy=false] div")


def read_colors(page):
    return page.eval_on_selector_all("#relevance .word", "words => words.map(word => word.className)")


def read_tokens(page):
    """Return how many words of the prompt are hidden."""
    return page.locator("#relevance .word.is-hidden").count()


def test_the_model_writes_an_answer_and_it_is_explained(visit):
    page = ask(visit(), answer="")
    assert page.inner_text("#explain") == "Ask"
    assert page.locator("#answer .ch-step").count() > 0
    expect_contains(page, "#answer-summary", "log p")
    expect_contains(page, "#shares", "prompt")
    expect_value(page, "#method", "attn-lrp")
    expect_count(page, "#relevance .word", len(PROMPT.split()))
    expect(page.locator("#prediction")).to_be_hidden()


def test_words_of_an_answer_are_chosen_with_arrow_keys(visit):
    page = ask(visit())
    expect_count(page, "[name=word]", 4)
    whole = read_colors(page)
    page.focus("[name=word]:checked")
    page.keyboard.press("ArrowRight")
    expect_contains(page, "#answer-summary", "“paris”")
    wait_until(page, lambda: read_colors(page) != whole)
    page.keyboard.press("ArrowRight")
    expect_contains(page, "#answer-summary", "“and”")
    expect_contains(page, "#legend", "“and”")
    page.click("#answer label:has([value=''])")
    expect_contains(page, "#answer-summary", "whole answer")
    wait_until(page, lambda: read_colors(page) == whole)


def test_the_grid_has_a_row_for_each_word_and_one_for_the_answer(visit):
    page = ask(visit())
    page.click("#grid summary")
    expect_contains(page, "#grid-progress", "own scale")
    names = page.locator("#grid-rows tbody th").all_inner_texts()
    assert names == ["paris", "and", "long", "whole answer"]
    expect_count(page, "#grid-rows thead th", len(PROMPT.split()) + 1)


def test_the_grid_of_a_slow_method_waits_until_it_is_opened(visit):
    page = ask(visit())
    page.select_option("#method", "trans-att")
    expect_contains(page, "#grid-progress", "0 of 3 words")
    expect_count(page, "#grid-rows tr", 0)
    page.click("#grid summary")
    expect_contains(page, "#grid-progress", "own scale")
    expect_count(page, "#grid-rows tbody tr", 4)


def test_hiding_a_word_and_a_sentence_moves_the_log_probability(visit):
    page = ask(visit())
    before = page.inner_text("#bars .share")
    page.click("#relevance .word >> nth=3")
    expect_contains(page, "#bars .now", "1 of 11 words")
    expect_contains(page, "#hidden-summary", f"log p {before} →")
    expect_contains(page, "#test-result", "at random")
    page.click("#source-list button >> nth=1")
    expect_contains(page, "#bars .now", "6 of 11 words")
    expect(page.locator("#source-list button >> nth=1")).to_have_attribute("aria-pressed", "true")
    page.click("#reset")
    wait_until(page, lambda: read_tokens(page) == 0)
    expect_count(page, "#bars div", 1)
    expect_text(page, "#bars .share", before)


def test_the_slider_hides_the_most_relevant_words(visit):
    page = ask(visit())
    page.focus("#share")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect_text(page, "#share-name", "2 of 11 words")
    wait_until(page, lambda: read_tokens(page) == 2)


def test_a_foil_and_a_chat(visit):
    page = ask(visit(), answer="paris", foil="london")
    expect_contains(page, "#answer", "rather than london")
    expect_contains(page, "#test-hint", "difference of logits")
    page.click("#formats label:has([value=chat])")
    page.fill("#system", "the river is grey")
    page.fill("#foil", "")
    page.click("#explain")
    expect_contains(page, "#relevance", "<|system|>")
    wait_until_measured(page)
    expect_contains(page, "#shares", "special tokens")


def test_a_link_brings_back_prompt_answer_word_and_hidden_words(visit):
    page = ask(visit())
    page.click("#answer label:has-text('and')")
    expect_contains(page, "#answer-summary", "“and”")
    page.click("#relevance .word >> nth=2")
    expect_contains(page, "#bars .now", "1 of 11 words")
    expect_contains(page, "#bars", "As many at random")
    fragment = "#" + read_address(page).partition("#")[2]
    opened = visit(fragment)
    wait_until_measured(opened)
    expect_value(opened, "#prompt", PROMPT)
    expect_value(opened, "#answer-text", ANSWER)
    expect_contains(opened, "#answer-summary", "“and”")
    wait_until(opened, lambda: read_tokens(opened) == 1)
    # The random choices are measured last.
    expect_contains(opened, "#bars", "As many at random")
    expect_text(opened, "#bars", page.inner_text("#bars"))


def test_another_method_keeps_the_chosen_word(visit):
    page = ask(visit())
    page.click("#answer label:has-text('and')")
    expect_contains(page, "#answer-summary", "“and”")
    page.select_option("#method", "gradient-x-input")
    expect_contains(page, "#method-summary", "radient")
    wait_until_measured(page)
    expect_contains(page, "#answer-summary", "“and”")
    expect(page.locator("#answer label:has-text('and') input")).to_be_checked()


def test_errors_leave_the_answer_and_the_form_as_they_are(visit):
    page = ask(visit())
    page.fill("#foil", "paris is long and grey and the river")
    page.click("#explain")
    expect_contains(page, "#problems", "The foil")
    expect_contains(page, "#answer-summary", "whole answer")
    page.fill("#foil", "")
    page.fill("#length", "0")
    page.fill("#answer-text", "")
    page.click("#explain")
    expect_contains(page, "#problems", "Invalid length of the answer")
    page.fill("#prompt", " ")
    page.click("#explain")
    expect_contains(page, "#problems", "Enter a prompt first")
    visit.messages.clear()


def test_a_question_can_be_stopped(visit):
    page = ask(visit())
    held = hold_requests(page, "**/api/explain", "grey")
    page.fill("#prompt", "the river in london is grey")
    page.click("#explain")
    wait_until(page, lambda: held)
    expect_contains(page, "#working", re.compile(r"Explaining … \d+ s"))
    page.click("#stop")
    page.wait_for_selector("body:not(.busy)")
    expect(page.locator("#working")).to_be_hidden()
    expect_contains(page, "#relevance", "the capital of france")
    for route in held:
        route.abort()
    visit.messages.clear()


def test_texts_and_prompts_have_models_and_methods_of_their_own(visit):
    page = ask(visit())
    page.click("#kinds label:has([value=text])")
    explain(page)
    expect_value(page, "#method", "balanced-cat")
    expect_value(page, "#model", "text")
    for selector in ("#answer-view", "#shares", "#grid", "#sources"):
        expect(page.locator(selector)).to_be_hidden()
    page.click("#kinds label:has([value=prompt])")
    page.click("#explain")
    wait_until_measured(page)
    expect_value(page, "#method", "attn-lrp")
    expect(page.locator("#chart")).to_be_hidden()


def test_a_saved_page_has_the_choice_of_words(visit):
    page = ask(visit())
    with page.expect_download() as download:
        page.click("[data-file=html]")
    content = download.value.path().read_text("utf-8")
    assert content.count('type="radio"') == 4


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_answer_breaks_no_rule_of_accessibility(visit, scheme):
    page = ask(visit(color_scheme=scheme, bypass_csp=True))
    page.click("#grid summary")
    expect_contains(page, "#grid-progress", "own scale")
    page.click("#source-list button >> nth=1")
    expect_contains(page, "#bars .now", "5 of 11 words")
    assert find_violations(page) == {}


def test_an_answer_fits_into_a_narrow_window(visit):
    page = ask(visit(viewport={"width": 390, "height": 844}))
    page.click("#grid summary")
    expect_contains(page, "#grid-progress", "own scale")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
