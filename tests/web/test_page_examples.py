"""The page in a browser: unread text, examples with right labels, edits, menus, messages and small windows."""

import re

import pytest
from helpers.browser import needs_chromium
from helpers.page import (
    TEXT,
    choose_photo,
    expect,
    expect_contains,
    expect_count,
    expect_text,
    expect_value,
    explain,
    hold_requests,
    reject_occlusion,
    wait_until,
    wait_until_measured,
)

pytestmark = needs_chromium

IN_WINDOW = """selector => {
  const {top, bottom} = document.querySelector(selector).getBoundingClientRect();
  return top >= -1 && bottom <= innerHeight + 1;
}"""

ALL_WRONG = "[...document.querySelectorAll('#run-examples tr')].every(row => row.querySelector('.wrong'))"


def wait_until_in_window(page, selector):
    wait_until(page, lambda: page.evaluate(IN_WINDOW, selector))


def test_what_was_cut_off_is_grey_and_told(visit):
    page = visit()
    page.select_option("#overflow", "truncate")
    explain(page, "good film " * 100)
    expect_contains(page, "#coverage", re.compile(r"Only \d+\.\d % of the text was read"))
    expect(page.locator("#relevance .ch-unread")).to_contain_text("good film good film")


def test_unknown_words_are_grey_and_told(visit):
    page = explain(visit(), "a good 猫 film")
    expect_contains(page, "#coverage", "25.0 % of the tokens are unknown to the model, which reads [UNK]")
    expect_text(page, "#relevance .ch-unread", ["猫"])
    explain(page, "a good film")
    expect_text(page, "#coverage", "")


def test_examples_are_searched_sliced_and_opened_one_after_the_other(visit):
    page = visit()
    expect_contains(page, "#run-count", re.compile(r"^6 of 6 examples, \d of 6 wrong$"))
    page.fill("#run-search", "heart")
    expect_contains(page, "#run-count", "2 of 2 examples")
    page.fill("#run-search", "")
    expect_contains(page, "#run-count", "6 of 6 examples")
    page.select_option("#run-slice", "wrong")
    wait_until(page, lambda: page.evaluate(ALL_WRONG))
    page.select_option("#run-slice", "all")
    expect_contains(page, "#run-count", "6 of 6 examples")
    page.select_option("#run-gold", "positive")
    expect_contains(page, "#run-count", "3 of 3 examples")
    expect_text(page, "#run-examples td:nth-child(2)", ["positive"] * 3)
    texts = page.locator("#run-examples span").all_inner_texts()
    page.locator("#run-examples button").first.click()
    expect_text(page, "#relevance .reading", texts[0])
    expect_contains(page, "#gold", "Right label: positive")
    # It leaves the bars of the classes beside the verdict.
    assert page.locator("#classes").bounding_box()["x"] > page.locator("#gold").bounding_box()["x"] + 100
    expect(page.locator("#run-previous")).to_be_disabled()
    page.click("#run-next")
    expect_text(page, "#relevance .reading", texts[1])
    expect(page.locator("#run-examples tr").nth(1)).to_have_class("open")


def test_examples_of_data_are_predicted_while_one_looks(visit):
    page = visit()
    page.select_option("#run", "task:task.tsv")
    expect_contains(page, "#run-count", re.compile(r"^6 of 6 examples, \d of 6 wrong$"))
    expect(page.locator("#run-method")).to_be_hidden()
    expect_text(page, "#run-model option", ["text-one", "text-two"])
    page.select_option("#run-gold", "positive")
    expect_contains(page, "#run-count", "3 of 3 examples")
    expect(page.locator("#run-examples td:nth-child(3)").first).to_contain_text("%")
    page.select_option("#run-model", "text-two")
    expect_contains(page, "#run-count", re.compile(r"^3 of 3 examples, \d of 3 wrong$"))
    text = page.locator("#run-examples span").first.inner_text()
    page.locator("#run-examples button").first.click()
    expect_text(page, "#relevance .reading", text)
    expect_value(page, "#model", "text-two")
    expect_contains(page, "#gold", "Right label: positive")
    page.click("#run-next")
    expect(page.locator("#run-examples tr").nth(1)).to_have_class("open")


def forget_predictions(route):
    """List examples as if none had been predicted: the server keeps the predictions of earlier tests."""
    answer = route.fetch().json()
    unknown = {"label": "", "predicted": None, "probability": None, "wrong": None}
    examples = [{**example, **unknown} for example in answer["examples"]]
    progress = {"done": 0, "total": answer["predicted"]["total"]}
    route.fulfill(json={**answer, "examples": examples, "wrong": 0, "right": 0, "predicted": progress})


def test_predictions_that_are_being_computed_are_counted(visit):
    page = visit()
    held = hold_requests(page, "**/api/predict")
    page.route("**/api/tasks/*/examples?*", forget_predictions)
    page.select_option("#run", "task:task.tsv")
    expect_contains(page, "#run-count", "6 of 6 examples · predicting: 0 of 6 so far")
    expect_text(page, "#run-examples td:nth-child(3)", ["…"] * 6)
    wait_until(page, lambda: held)
    page.unroute("**/api/tasks/*/examples?*")
    held[0].fallback()
    expect_contains(page, "#run-count", re.compile(r"^6 of 6 examples, \d of 6 wrong$"))


def test_the_right_label_is_that_of_the_example_only(visit):
    page = visit()
    page.locator("#run-examples button").first.click()
    expect_contains(page, "#gold", "Right label:")
    explain(page, "another film")
    expect(page.locator("#gold")).to_be_hidden()


def test_an_edited_text_is_compared_with_the_original(visit):
    page = explain(visit())
    page.locator("#edit summary").click()
    expect_value(page, "#edited", TEXT)
    page.fill("#edited", "a good film")
    page.click("#compare-edit")
    expect_count(page, "#edit-result article", 2)
    expect_text(page, "#edit-result .reading", [TEXT, "a good film"])
    expect_contains(page, "#edit-result .outcome", re.compile(r"goes from \d+\.\d % to \d+\.\d %"))
    expect(page.locator("#edit-result tbody tr").first).to_contain_text(re.compile(r"%|–"))
    expect_text(page, "#relevance .reading", TEXT)
    page.click("#reset-edit")
    expect_value(page, "#edited", TEXT)
    expect_count(page, "#edit-result article", 0)


def test_an_edited_input_is_marked(visit):
    page = explain(visit())
    expect(page.locator("#stale")).to_be_hidden()
    page.fill("#text", "another film")
    expect(page.locator("#stale")).to_be_visible()
    page.fill("#text", TEXT)
    expect(page.locator("#stale")).to_be_hidden()


def test_messages_are_in_the_window_wherever_it_is(visit):
    page = explain(visit())
    page.route("**/api/explain", reject_occlusion)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.select_option("#method", "occlusion")
    expect(page.locator("#problems .problem")).to_be_visible()
    wait_until_in_window(page, "#problems .problem")
    visit.messages.clear()


@pytest.mark.parametrize("size", [(1366, 650), (1400, 900)])
def test_explain_can_always_be_reached(visit, size):
    width, height = size
    page = explain(visit(viewport={"width": width, "height": height}))
    for position in (0, 200, 600):
        page.evaluate("position => scrollTo(0, position)", position)
        wait_until_in_window(page, "#explain")


def test_a_narrow_page_scrolls_to_the_explanation(visit):
    page = explain(visit(viewport={"width": 390, "height": 844}))
    wait_until_in_window(page, "#verdict")


def test_menus_are_grouped_and_offer_what_fits(visit):
    page = explain(visit())
    expect(page.locator("#method optgroup").first).to_have_attribute("label", "Recommended")
    expect(page.locator("#method option[value=occlusion]")).to_have_text("occlusion – hide one after the other")
    expect_count(page, "#method option[value=context-cite]", 0)
    page.select_option("#method", "occlusion")
    page.locator("#options summary").click()
    expect_text(page, "#option-unit option", ["automatic", "sub-word", "word", "sentence", "source"])
    choose_photo(page)
    expect_count(page, "#method option[value=decoded-gradcam]", 0)
    expect(page.locator("#option-unit option").nth(1)).to_have_text("patch")
    expect(page.locator("#relevance img.original")).to_be_visible()


def test_a_photo_comes_with_the_page(visit):
    page = visit()
    page.locator("[name=kind][value=image]").check()
    page.locator("#examples button").click()
    wait_until_measured(page)
    expect_text(page, "#picture-name", "chelsea.jpg")
    expect_count(page, ".patches [role=gridcell]", 16)


@pytest.mark.parametrize(
    ("name", "message"), [("cat.heic", "HEIC photos cannot be read here"), ("notes.txt", "notes.txt is no photo")]
)
def test_other_files_are_named(visit, name, message):
    page = visit()
    page.locator("[name=kind][value=image]").check()
    page.set_input_files("#picture", {"name": name, "mimeType": "application/octet-stream", "buffer": b"x"})
    expect_contains(page, "#problems", message)


def test_an_explanation_is_not_compared_with_its_twin(visit):
    page = explain(visit())
    expect_value(page, "#other-method", "attn-lrp")
    page.click("#add-comparison")
    expect_count(page, "#columns article", 2)
    page.click("#add-comparison")
    expect_contains(page, "#problems", "already shown")
    expect_count(page, "#columns article", 2)


def test_progress_is_told_while_a_request_waits(visit):
    page = visit()
    told = {"state": "running", "ahead": 0, "done": 3, "total": 8, "label": "passes"}
    page.route("**/api/progress/*", lambda route: route.fulfill(json=told))
    held = hold_requests(page, "**/api/explain")
    page.fill("#text", TEXT)
    page.click("#explain")
    expect_contains(page, "#working", re.compile(r"Explaining … \d+ s · 3 of 8 passes, about \d+ s left"))
    page.click("#stop")
    expect(page.locator("#working")).to_be_hidden()
    wait_until(page, lambda: held)


def test_the_theme_is_kept(visit):
    page = visit()
    page.click("#theme")
    expect_text(page, "#theme", "Theme: light")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    expect_text(page, "#theme", "Theme: light")


def test_joined_emoji_stay_whole(visit):
    page = explain(visit(), "a good 👩\u200d🚀 film")
    expect_contains(page, "#relevance .reading", "👩\u200d🚀")
    expect_count(page, "#relevance .ch-hidden", 0)


def test_the_chart_keeps_the_size_of_its_text_in_a_small_window(visit):
    page = explain(visit(viewport={"width": 390, "height": 844}))
    texts = page.locator("#chart text").all()
    heights = [text.bounding_box()["height"] for text in texts]
    assert min(heights) > 11
    legend = [text.bounding_box() for text in texts[-2:]]
    chart = page.locator("#chart").bounding_box()
    assert max(box["x"] + box["width"] for box in legend) <= chart["x"] + chart["width"]
