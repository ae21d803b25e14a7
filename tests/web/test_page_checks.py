"""The check of explanations on the page, the comparison with random choices, and flipped predictions."""

import re

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
    read_address,
    wait_until,
    wait_until_measured,
)

pytestmark = needs_chromium
VERDICT = re.compile("^Check (holds|weak|fails): ")
CONTROLS = {"mean": 0.5, "low": 0.2, "high": 0.8, "sets": 19}


def wait_until_checked(page):
    page.wait_for_selector("#check[aria-busy=false] .ch-check")


def answer_hide(page, value, classes, verdict="unclear"):
    """Answer every request to hide something with this output."""

    def fulfil(route):
        controls = [{**CONTROLS, "verdict": verdict}] if route.request.post_data_json["controls"] else None
        route.fulfill(json={"values": [value], "classes": [classes], "controls": controls})

    page.route("**/api/hide", fulfil)


def read_classes(page):
    return page.locator("#classes li span:first-child").all_inner_texts()


def test_an_explanation_has_its_check_and_its_error_bar(visit):
    page = explain(visit())
    wait_until_checked(page)
    expect_contains(page, "#check", VERDICT)
    expect_contains(page, "#check", "Hiding ")
    expect_contains(page, "#check", "Error bar: ")
    assert "Error bar" not in page.inner_text("#diagnosis")


def test_a_photo_and_a_comparison_have_their_checks(visit):
    page = choose_photo(visit())
    wait_until_checked(page)
    expect_contains(page, "#check .ch-check", "strongest patches")
    page.select_option("#other-method", "rollout")
    page.click("#add-comparison")
    expect_count(page, "#columns .ch-check", 2)
    expect_text(page, "#columns article:first-child .ch-check", page.inner_text("#check .ch-check"))


def test_an_explanation_is_there_before_its_check(visit):
    page = visit()
    held = hold_requests(page, "**/api/explain", containing='"check":true')
    page.fill("#text", TEXT)
    page.click("#explain")
    expect_text(page, "#relevance .reading", TEXT)
    expect_text(page, "#check", "Checking …")
    wait_until_measured(page)
    wait_until(page, lambda: held)
    held[0].continue_()
    expect_contains(page, "#check", VERDICT)


def test_a_check_that_fails_leaves_the_explanation(visit):
    page = visit()

    def reject_check(route):
        if "check" in route.request.post_data_json:
            route.fulfill(status=503, json={"error": "too busy"})
        else:
            route.fallback()

    page.route("**/api/explain", reject_check)
    explain(page)
    expect_contains(page, "#problems", "too busy")
    visit.messages.clear()
    expect_text(page, "#check", "")
    expect_text(page, "#relevance .reading", TEXT)


def test_the_check_can_be_switched_off_and_a_link_remembers(visit, address):
    page = explain(visit())
    wait_until_checked(page)
    page.click("#checks label:has([value=off])")
    expect(page.locator("#check")).to_be_hidden()
    wait_until_measured(page)
    with page.expect_request("**/api/explain") as sent:
        page.select_option("#method", "gae")
    assert "check" not in sent.value.post_data_json
    wait_until_measured(page)
    other = visit(read_address(page).removeprefix(address))
    wait_until_measured(other)
    expect(other.locator("[name=check][value=off]")).to_be_checked()
    expect(other.locator("#check")).to_be_hidden()
    other.click("#checks label:has([value=on])")
    expect_contains(other, "#check", VERDICT)


def test_a_saved_page_has_the_check(visit):
    page = explain(visit())
    wait_until_checked(page)
    with page.expect_download() as saved:
        page.click("[data-file=html]")
    content = saved.value.path().read_text("utf-8").replace("&nbsp;", " ")
    assert page.inner_text("#check .ch-check span") in content


def test_inside_the_range_of_random_choices_nothing_can_be_told(visit):
    page = explain(visit())
    labels = read_classes(page)
    answer_hide(page, 0.4, [0.5] * len(labels))
    page.locator("#share").press("ArrowRight")
    expect_contains(page, "#test-result", "cannot be told: 19 random choices range from 20.0 % to 80.0 %.")
    page.unroute("**/api/hide")
    answer_hide(page, 0.1, [0.5] * len(labels), verdict="more")
    page.locator("#share").press("ArrowRight")
    expect_contains(page, "#test-result", "matter more than random ones: none of 19 random choices")


def test_a_flipped_prediction_is_told(visit):
    page = explain(visit())
    predicted, other = read_classes(page)
    classes = [0.1, 0.1]
    classes[["negative", "positive"].index(other)] = 0.9
    answer_hide(page, 0.1, classes)
    page.locator("#relevance .word").first.click()
    expect_text(page, "#hidden-summary strong", f"The prediction changes from {predicted} to {other} (90.0 %).")
    page.unroute("**/api/hide")
    answer_hide(page, 0.6, classes[::-1])
    page.locator("#relevance .word").nth(1).click()
    expect_contains(page, "#hidden-summary", "60.0 %")
    expect_text(page, "#hidden-summary strong", "")


def test_the_block_that_is_shown_is_tested(visit):
    page = explain(visit())
    page.select_option("#method", "att-cat")
    wait_until_measured(page)
    with page.expect_request("**/api/curve") as sent:
        page.locator("#layer").press("ArrowRight")
    assert sent.value.post_data_json["block"] == 1
    expect_contains(page, "#test-hint", "in block 1")
    expect_contains(page, "#check", "of all blocks together")
    wait_until_measured(page)
    page.locator("#share").press("ArrowRight")
    hidden = page.locator("#relevance .is-hidden")
    expect(hidden).to_have_count(1)
    assert "rank 1 of" in hidden.get_attribute("title")


def test_the_menu_tells_the_default_and_auto(visit):
    page = visit()
    names = page.locator("#method option").all_inner_texts()
    assert "balanced-cat – balanced relevance of all blocks (the default)" in names
    assert "auto – the best on this input" in names
    explain(page)
    page.select_option("#method", "auto")
    expect_contains(page, "#diagnosis", "auto chose")
    expect_contains(page, "#check", VERDICT)
    expect_value(page, "#method", "auto")


def test_a_method_chosen_for_the_model_is_called_so(visit):
    page = visit()

    def choose(route):
        models = route.fetch().json()
        route.fulfill(json=[{**model, "method": "gae", "chosen": True} for model in models])

    page.route("**/api/models", choose)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    names = page.locator("#method option").all_inner_texts()
    assert "gae – attention times gradient, rolled out (chosen for this model)" in names
    assert "balanced-cat – balanced relevance of all blocks" in names
