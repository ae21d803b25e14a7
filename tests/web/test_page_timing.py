"""Late, overtaken and failing answers on the page; columns, focus, themes."""

import re

import pytest
from helpers.browser import find_violations, needs_axe, needs_chromium
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
    read_address,
    reject_occlusion,
    wait_until,
    wait_until_measured,
)
from helpers.page_server import start_server
from helpers.pictures import make_photo
from helpers.saved_models import save_text_model

pytestmark = needs_chromium


def test_what_is_measured_late_is_not_shown(visit):
    """The model's answer to an earlier choice of hidden words comes after a later one."""
    page = explain(visit())
    held = hold_requests(page, "**/api/hide")
    lowest = page.locator("#relevance .word").nth(find_least_relevant(page))
    with page.expect_request("**/api/hide"):
        lowest.click()
    page.locator("#share").press("End")
    expect_contains(page, "#hidden-summary", "7 of 7 words hidden")
    for route in held:
        route.fallback()
    page.wait_for_timeout(300)
    expect_contains(page, "#hidden-summary", "7 of 7 words hidden")
    page.locator("#share").press("Home")
    with page.expect_request("**/api/hide"):
        lowest.click()
    explain(page, "a film")
    expect(page.locator("#hidden-summary")).to_be_hidden()
    expect_count(page, "#relevance .is-hidden", 0)


def find_least_relevant(page):
    """Return the index of the word with the lowest relevance."""
    titles = [word.get_attribute("title") for word in page.locator("#relevance .word").all()]
    return next(index for index, title in enumerate(titles) if f"rank {len(titles)} of" in title)


def test_the_slider_tells_of_the_top_only(visit):
    page = explain(visit())
    page.locator("#relevance .word").nth(find_least_relevant(page)).click()
    expect_contains(page, "#hidden-summary", "1 of 7 words hidden")
    expect_text(page, "#share-name", "…")


def test_a_question_that_is_overtaken_leaves_nothing_behind(visit):
    """Explain is pressed, and another method chosen before the answer is there."""
    page = explain(visit())
    page.locator("#relevance .word").nth(6).click()
    expect_contains(page, "#hidden-summary", "1 of 7 words hidden")
    hold_requests(page, "**/api/explain", containing="balanced-cat")
    page.fill("#text", "a film")
    with page.expect_request("**/api/explain"):
        page.click("#explain")
    page.select_option("#method", "att-cat")
    expect_contains(page, "#relevance .reading", "a film")
    wait_until_measured(page)
    expect_count(page, "#relevance .is-hidden", 0)
    expect_contains(page, "#history li:first-child", re.compile("^a film"))


def test_a_curve_that_fails_leaves_no_other(visit):
    page = explain(visit())
    page.click("#add-comparison")
    page.wait_for_selector("#method-curves[aria-busy=false]")
    page.route("**/api/curve", lambda route: route.fulfill(status=503, json={"error": "too busy"}))
    page.select_option("#method", "att-cat")
    expect_contains(page, "#problems", "too busy")
    expect_contains(page, "#columns article:first-child", "att-cat")
    # Of the test, and of both columns.
    wait_until(page, lambda: sum("503" in message for message in visit.messages) == 3)
    visit.messages.clear()
    expect_count(page, "#bars *, #chart *", 0)


def test_a_column_that_cannot_be_had_can_be_removed(visit):
    page = explain(visit())
    page.route("**/api/explain", reject_occlusion)
    page.select_option("#other-method", "occlusion")
    page.click("#add-comparison")
    expect_contains(page, "#columns article:nth-child(2)", "no such thing")
    visit.messages.clear()
    expect_contains(page, "#columns article:first-child", "balanced-cat")
    page.get_by_role("button", name="Remove occlusion").click()
    expect_count(page, "#columns article", 0)


def test_classes_beside_are_those_of_the_model_beside(visit):
    page = explain(visit())
    page.select_option("#other-target", label="positive")
    page.select_option("#other-model", "stars")
    expect(page.locator("#other-target")).to_be_hidden()
    page.click("#add-comparison")
    expect_contains(page, "#columns article:nth-child(2)", "stars")


def test_the_right_column_is_removed(visit):
    page = explain(visit())
    for method in ("rollout", "att-cat"):
        page.select_option("#other-method", method)
        page.click("#add-comparison")
        page.get_by_role("button", name=f"Remove {method}").wait_for()
    held = hold_requests(page, "**/api/explain")
    page.select_option("#other-method", "occlusion")
    page.click("#add-comparison")
    page.get_by_role("button", name="Remove rollout").click()
    page.get_by_role("button", name="Remove att-cat").click()
    expect(page.locator("#add-comparison")).to_be_focused()
    page.unroute("**/api/explain")
    for route in held:
        route.fallback()
    page.get_by_role("button", name="Remove occlusion").wait_for()
    expect_count(page, "#columns article", 2)


def test_columns_wait_for_their_answer(visit):
    page = explain(visit())
    page.click("#add-comparison")
    page.wait_for_selector("#method-curves[aria-busy=false]")
    held = hold_requests(page, "**/api/curve")
    page.fill("#text", "a film")
    page.click("#explain")
    expect_contains(page, "#relevance .reading", "a film")
    expect(page.locator("#columns")).to_have_attribute("aria-busy", "true")
    wait_until(page, lambda: held)
    held[0].fallback()
    expect_text(page, "#columns[aria-busy=false] .reading", ["a film"] * 2)


def test_a_class_chosen_while_the_first_answer_is_awaited(visit):
    page = visit()
    held = []
    page.route("**/api/explain", lambda route: route.fallback() if held else held.append(route))
    page.fill("#text", TEXT)
    with page.expect_request("**/api/explain"):
        page.click("#explain")
    for label in ("negative", "positive"):
        page.select_option("#target", label=label)
        expect_contains(page, "#verdict", label)
        wait_until_measured(page)


def test_a_recalled_question_has_the_focus(visit):
    page = explain(visit())
    explain(page, "a film")
    page.locator("#history button").nth(1).press("Enter")
    expect_contains(page, "#relevance .reading", TEXT)
    expect(page.locator("#explanation")).to_be_focused()
    expect_count(page, "#history li", 2)


def test_a_pair_needs_both_texts_and_each_kind_keeps_its_model(visit):
    page = visit()
    page.locator("#kinds [value=pair]").check()
    page.select_option("#model", "text-two")
    page.fill("#text", TEXT)
    page.click("#explain")
    expect_contains(page, "#problems", "second text")
    page.locator("#kinds [value=image]").check()
    page.locator("#kinds [value=text]").check()
    expect_value(page, "#model", "text-two")


def test_hiding_that_fails_leaves_the_curve(visit):
    page = explain(visit())
    page.route("**/api/hide", lambda route: route.fulfill(status=503, json={"error": "too busy"}))
    page.locator("#relevance .word").nth(find_least_relevant(page)).click()
    expect_contains(page, "#problems", "too busy")
    visit.messages.clear()
    expect_count(page, "#bars *", 0)
    page.click("#reset")
    expect_count(page, "#bars .share", 3)


def test_the_last_photo_counts(visit):
    page = visit()
    page.evaluate(SLOW_READER)
    page.set_input_files("#picture", {"name": "slow.png", "mimeType": "image/png", "buffer": make_photo()})
    page.set_input_files("#picture", {"name": "quick.png", "mimeType": "image/png", "buffer": make_photo(seed=1)})
    wait_until_measured(page)
    page.wait_for_timeout(800)
    expect_contains(page, "#history li:first-child", re.compile("^quick.png"))
    expect_count(page, "#history li", 1)


SLOW_READER = """() => {
  const read = FileReader.prototype.readAsDataURL;
  FileReader.prototype.readAsDataURL = function (file) {
    setTimeout(() => read.call(this, file), file.name === "slow.png" ? 600 : 0);
  };
}"""


def test_a_text_typed_early_stays(browser, address):
    context = browser.new_context()
    page = context.new_page()
    held = hold_requests(page, "**/api/models")
    page.goto(address)
    page.fill("#text", TEXT)
    expect(page.locator("#explain")).to_be_disabled()
    wait_until(page, lambda: held)
    held[0].fallback()
    page.wait_for_selector("body[data-ready]")
    expect_value(page, "#text", TEXT)
    context.close()


def test_hostile_text_stays_text(visit):
    hostile = "<img src=x onerror=alert(1)> a\u202eb <script>alert(1)</script>"
    page = explain(visit(), hostile)
    expect_count(page, "#relevance img, #relevance script", 0)
    expect_contains(page, "#relevance", "<script>alert(1)</script>")
    expect_text(page, "#relevance .ch-hidden", "⟨202E⟩")


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("source", ["text", "photo"])
def test_accessible(visit, scheme, source):
    page = visit(color_scheme=scheme, bypass_csp=True)
    if source == "text":
        explain(page)
    else:
        choose_photo(page)
    page.locator("#share").focus()
    page.keyboard.press("ArrowRight")
    page.click("#add-comparison")
    page.wait_for_selector("#columns article:nth-child(2)")
    page.locator("#options summary").click()
    # What is about to be replaced is faded, and not meant to be read.
    page.wait_for_function("!document.querySelector('[aria-busy=true]')")
    assert find_violations(page) == {}


def test_a_narrow_window_needs_no_sideways_scrolling(visit):
    page = explain(visit(viewport={"width": 360, "height": 700}))
    page.click("#add-comparison")
    page.wait_for_selector("#columns article:nth-child(2)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_token_in_the_address_opens_the_page_and_leaves_it(browser, tmp_path):
    with start_server("--model", str(save_text_model(tmp_path / "tiny")), "--token", "s3cret") as (_, address):
        context = browser.new_context()
        page = context.new_page()
        assert page.goto(address.partition("?")[0]).status == 401
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        assert "s3cret" not in read_address(page)
        explain(page)
        assert page.evaluate("document.cookie") == ""
        context.close()


def test_the_theme_can_be_chosen(visit):
    page = visit(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) == light
    page.click("#theme")
    assert page.evaluate(ground) != light
