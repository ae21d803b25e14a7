"""The page in a real browser: ask, see, test, keep, compare; by mouse and by keyboard; with texts and photos."""

import re
from pathlib import Path

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
    read_address,
    reject_occlusion,
    wait_until,
    wait_until_measured,
)
from helpers.pictures import make_photo

pytestmark = needs_chromium


def wait_for_change(page, script, before):
    """What a script finds, once it is something else."""
    wait_until(page, lambda: page.evaluate(script) != before)
    return page.evaluate(script)


def read_shares(page):
    return [float(text.removesuffix(" %")) for text in page.locator("#bars .share").all_inner_texts()]


def test_ask_and_see_a_text(visit):
    page = explain(visit())
    expect_contains(page, "#verdict", re.compile(r"^(negative|positive) \d+\.\d %"))
    expect_text(page, "#relevance .reading", TEXT)
    expect_text(page, "#relevance [role=button]", TEXT.split())
    expect(page.locator("#relevance .f9, #relevance .a9").first).to_be_visible()
    expect_count(page, "#classes li", 2)
    titles = [word.get_attribute("title") for word in page.locator("#relevance .word").all()]
    assert sorted(int(title.split("rank ")[1].split()[0]) for title in titles) == list(range(1, 8))


def test_heads_are_shown_if_they_are_asked_for(visit):
    page = explain(visit())
    page.select_option("#method", "attn-lrp")
    expect(page.locator("#heads")).to_be_hidden()
    page.locator("#options summary").click()
    page.locator("#option-heads").check()
    page.locator("#heads summary").click()
    expect(page.locator("#heads td.f9, #heads td.a9").first).to_be_visible()
    names = page.locator("#heads tbody th").all_inner_texts()
    assert names == [f"block {block}" for block in reversed(range(len(names)))]
    assert re.match(r"block 0, head 0 · [+-]?\d", page.locator("#heads tr:last-child td").first.get_attribute("title"))


def test_another_class_and_a_contrast(visit):
    page = explain(visit())
    expect_text(page, "#versus option", ["No contrast", "negative", "positive"])
    with page.expect_response("**/api/curve"):
        page.select_option("#target", label="positive")
    expect_contains(page, "#verdict", re.compile("^positive [0-9]"))
    page.select_option("#versus", label="negative")
    expect_contains(page, "#verdict", "positive rather than negative")


def test_another_class_than_the_predicted_one_is_said_to_be_one(visit):
    page = explain(visit())
    predicted, other = [row.split("\n")[0] for row in page.locator("#classes li").all_inner_texts()]
    expect_contains(page, "#verdict", "The model's prediction")
    page.select_option("#target", label=other)
    expect_contains(page, "#verdict", f"The model itself predicts {predicted}.")


def test_method_layer_and_tokens(visit):
    page = explain(visit(), "tedious films")
    colours = "[...document.querySelectorAll('#relevance .word')].map(word => word.title).join()"
    before = page.evaluate(colours)
    page.select_option("#method", "att-cat")
    expect_contains(page, "#method-summary", "AttCAT")
    whole = wait_for_change(page, colours, before)
    expect(page.locator("#layers")).to_be_visible()
    page.locator("#layer").focus()
    page.keyboard.press("ArrowRight")
    expect_text(page, "#layer-name", "1 of 2")
    page.keyboard.press("ArrowRight")
    expect_text(page, "#layer-name", "2 of 2")
    wait_for_change(page, colours, whole)
    page.locator("[name=level][value=token]").check()
    wait_until_measured(page)
    expect_text(page, "#relevance [role=button]", ["tedious", "film", "s"])


def test_hide_the_top_by_the_slider(visit):
    page = explain(visit())
    whole = read_shares(page)
    assert whole[0] == whole[1]
    page.locator("#share").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect_count(page, "#relevance .is-hidden", 2)
    strongest = sorted(
        page.locator("#relevance .word").all(),
        key=lambda word: -float(word.get_attribute("title").partition("relevance ")[2]),
    )
    assert all("is-hidden" in word.get_attribute("class") for word in strongest[:2])
    expect_text(page, "#bars .now dt", "2 of 7 words")
    expect_count(page, "#chart .dot", 1)
    page.click("#reset")
    expect_count(page, "#relevance .is-hidden", 0)
    wait_until(page, lambda: read_shares(page) == whole)


def test_hide_any_word_by_mouse_or_keyboard(visit, address):
    import httpx

    page = explain(visit())
    with page.expect_response("**/api/hide"):
        page.locator("#relevance .word").nth(6).click()
        page.locator("#relevance .word").nth(6).focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Space")
    expect_contains(page, "#hidden-summary", "2 of 7 words hidden")
    expect_text(page, "#relevance [aria-pressed=true]", ["film", "bad"])
    expected = httpx.post(f"{address}api/hide", json={"text": TEXT, "hidden": [[5, 7]]}).json()["values"][0]
    wait_until(page, lambda: read_shares(page)[1] == pytest.approx(expected * 100, abs=0.051))


def test_a_photo_is_asked_seen_and_tested(visit):
    page = choose_photo(visit())
    expect_text(page, "#picture-name", "<b>pet.png")
    expect_count(page, ".patches [role=gridcell]", 16)
    assert "heat map" in page.get_by_role("img", name="Photo with a heat map").get_attribute("aria-label")
    pixels = "document.querySelector('#relevance canvas').toDataURL()"
    before = page.evaluate(pixels)
    with page.expect_response("**/api/hide"):
        page.locator(".patches button").nth(5).click()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
    expect_contains(page, "#hidden-summary", "2 of 16 patches")
    expect_count(page, ".patches [aria-selected=true]", 2)
    smooth = wait_for_change(page, pixels, before)
    page.locator("[name=smooth][value=exact]").check()
    wait_for_change(page, pixels, smooth)
    expect_contains(page, "#diagnosis", re.compile(r"^Not counted: \S+ \d"))


def test_files_and_a_link_that_restores_everything(visit, browser, address):
    page = explain(visit(permissions=["clipboard-read", "clipboard-write"]))
    for file_type, start in (("HTML", b"<!doctype html>"), ("PNG", b"\x89PNG"), ("JSON", b"{")):
        with page.expect_download() as saved:
            page.get_by_role("button", name=file_type).click()
        assert Path(saved.value.path()).read_bytes().startswith(start)
    page.select_option("#method", "att-cat")
    wait_until_measured(page)
    page.locator("#relevance .word").nth(2).click()
    page.wait_for_selector("#hidden-summary:not([hidden])")
    page.click("#link")
    expect_contains(page, "#save-status", "Link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert TEXT not in link.partition("#")[0]
    other = visit(link.removeprefix(address))
    wait_until_measured(other)
    expect_text(other, "#relevance .is-hidden", [","])
    expect_value(other, "#method", "att-cat")
    wait_until(page, lambda: read_shares(other) == read_shares(page))


def test_a_photo_travels_in_a_link_and_the_visit_is_remembered(visit, address):
    page = choose_photo(visit())
    other = visit(read_address(page).removeprefix(address))
    wait_until_measured(other)
    expect_text(other, "#verdict", page.inner_text("#verdict"))
    page.locator("[name=kind][value=text]").check()
    explain(page)
    expect_count(page, "#history li", 2)
    page.locator("#history button").nth(1).click()
    page.wait_for_selector(".patches")
    expect(page.locator("[name=kind][value=image]")).to_be_checked()


def test_compare_methods_classes_and_models(visit):
    page = explain(visit())
    page.select_option("#other-method", "rollout")
    page.click("#add-comparison")
    page.wait_for_selector("#columns article:nth-child(2)")
    page.select_option("#other-target", label="positive")
    page.select_option("#other-model", "text-two")
    page.click("#add-comparison")
    page.wait_for_selector("#columns article:nth-child(3)")
    expect_contains(page, "#columns article:nth-child(3)", re.compile("^positive ·"))
    expect_contains(page, "#columns article:nth-child(3)", "rollout · text-two")
    page.get_by_role("button", name="Remove").first.click()
    expect_count(page, "#columns article", 2)


def test_browse_a_run(visit):
    page = visit()
    expect_contains(page, "#run-count", "6 of 6 examples")
    before = page.locator("#run-examples").inner_text()
    page.select_option("#run-method", "rollout")
    expect(page.locator("#run-examples")).not_to_have_text(before, use_inner_text=True)
    shown = page.locator("#run-examples td:last-child")
    values = shown.all_inner_texts()
    assert float(values[0]) > float(values[-1])
    assert [float(value) for value in values] == sorted(map(float, values), reverse=True)
    page.select_option("#run-order", label="lowest first")
    expect(shown.first).to_have_text(values[-1])
    text = page.locator("#run-examples span").first.inner_text()
    page.locator("#run-examples button").first.click()
    wait_until_measured(page)
    expect_text(page, "#relevance .reading", text)
    expect_value(page, "#method", "rollout")
    with page.context.expect_page() as report:
        page.click("#report")
    expect(report.value.locator("table").first).to_be_visible()


def test_more_of_a_run_is_more_of_the_list_that_is_shown(visit):
    """Another method is chosen, and more is asked for, before its list is there; then a list cannot be had."""
    page = visit()
    expect_contains(page, "#run-count", "6 of 6 examples")

    def longer(route):
        answer = route.fetch(url=route.request.url.replace("start=6", "start=0")).json()
        route.fulfill(json={**answer, "total": 18})

    page.route("**/examples?*", longer)
    page.select_option("#run-order", label="lowest first")
    expect_contains(page, "#run-count", "6 of 18 examples")
    page.click("#run-more")
    expect_contains(page, "#run-count", "12 of 18 examples")
    held = hold_requests(page, "**/examples?*")
    page.select_option("#run-method", "rollout")
    expect(page.locator("#run-more")).to_be_hidden()
    wait_until(page, lambda: held)
    held[0].fallback()
    expect_contains(page, "#run-count", "6 of 18 examples")
    page.route("**/examples?*", lambda route: route.fulfill(status=503, json={"error": "too busy"}))
    page.select_option("#run-method", "att-cat")
    expect_contains(page, "#problems", "too busy")
    expect_count(page, "#run-examples tr", 0)
    visit.messages.clear()


def test_a_photo_of_a_run_is_opened(visit):
    page = visit()
    page.select_option("#run", "photo-run")
    expect_contains(page, "#run-count", "4 of 4 examples")
    name = page.locator("#run-examples span").first.inner_text()
    page.locator("#run-examples button").first.click()
    wait_until_measured(page)
    expect_text(page, "#picture-name", name.removeprefix("image "))
    expect_count(page, ".patches [role=gridcell]", 16)
    expect_value(page, "#model", "photo")


def test_a_number_is_asked_and_tested(visit):
    page = visit()
    page.select_option("#model", "stars")
    expect(page.locator("#target")).to_be_hidden()
    explain(page)
    expect_contains(page, "#verdict", re.compile(r"^stars -?\d"))
    page.locator("#share").focus()
    page.keyboard.press("End")
    expect_contains(page, "#test-result", "The output")
    assert "%" not in page.inner_text("#bars")
    assert "%" not in page.locator("#chart svg").get_attribute("aria-label")


def test_an_answer_in_a_text_is_asked_and_tested(visit):
    page = visit()
    page.locator("#kinds [value=pair]").check()
    page.select_option("#model", "answers")
    expect(page.locator("#target")).to_be_hidden()
    page.fill("#second", "never a good heart")
    explain(page, "a bad film ?")
    expect_contains(page, "#verdict", "…")
    expect_count(page, "#classes li", 0)
    page.locator("#share").focus()
    page.keyboard.press("ArrowRight")
    expect_contains(page, "#hidden-summary", "1 of 8 words hidden")


def test_pixels_opacity_and_options_of_a_method(visit):
    page = choose_photo(visit())
    drawn = "document.querySelector('#relevance canvas').toDataURL()"
    expect_text(page, "#smooth-name", "Smooth")
    before = page.evaluate(drawn)
    page.locator("#opacity").fill("20")
    wait_for_change(page, drawn, before)
    page.select_option("#method", "integrated-gradients")
    expect_contains(page, "#smooth-name", "Pixels")
    wait_until_measured(page)
    pixels = page.evaluate(drawn)
    page.locator("[name=smooth][value=exact]").check()
    wait_for_change(page, drawn, pixels)
    page.locator("#options summary").click()
    with page.expect_response("**/api/curve"), page.expect_request("**/api/explain") as sent:
        page.fill("#option-steps", "4")
        page.keyboard.press("Tab")
    assert sent.value.post_data_json["options"] == {"steps": 4}
    wait_until_measured(page)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    expect_value(page, "#option-steps", "4")
    expect_value(page, "#opacity", "20")
    wait_until_measured(page)
    visit.messages.clear()
    page.fill("#option-steps", "100000")
    page.keyboard.press("Tab")
    expect_contains(page, "#problems", "this server computes at most 256")
    visit.messages.clear()


def test_another_kind_of_input_leaves_what_does_not_fit(visit):
    page = choose_photo(visit())
    page.click("#add-comparison")
    page.wait_for_selector("#columns article:nth-child(2)")
    page.locator("#kinds [value=text]").check()
    explain(page)
    expect_count(page, "#columns article", 0)
    expect_text(page, "#problems", "")


def test_what_is_chosen_is_asked_in_its_time(visit):
    """While the page still fetches other methods for a photo, choosing another kind of input changes no question."""
    page = visit()
    held = hold_requests(page, "**/api/explain", containing="rollout")
    choose_photo(page)
    wait_until(page, lambda: held)
    page.locator("#kinds [value=text]").check()
    with page.expect_request("**/api/explain") as sent:
        held[0].continue_()
    assert sent.value.post_data_json["image"].startswith("data:image/png")
    page.locator("#relevance [role=gridcell]").first.click()
    expect_contains(page, "#hidden-summary", "1 of")


def test_options_that_are_refused_are_taken_back(visit):
    page = explain(visit())
    page.select_option("#method", "occlusion")
    wait_until_measured(page)
    page.locator("#options summary").click()
    page.fill("#option-window", "0")
    page.keyboard.press("Tab")
    expect_contains(page, "#problems", "window")
    visit.messages.clear()
    expect_value(page, "#option-window", "1")
    expect(page.locator("[id^=option-]:focus")).to_be_visible()


def test_what_follows_is_about_what_is_shown(visit):
    """After a question that was refused, and while one is under way, the page tests and keeps what it shows."""
    page = explain(visit())
    verdict = page.inner_text("#verdict")
    page.fill("#text", "film " * 300)
    page.click("#explain")
    expect_contains(page, "#problems", "tokens")
    visit.messages.clear()
    page.locator("#relevance [role=button]").first.click()
    expect_contains(page, "#hidden-summary", "1 of 7 words hidden")
    with page.expect_request("**/api/file/json") as sent, page.expect_download():
        page.click("[data-file=json]")
    assert sent.value.post_data_json["text"] == TEXT
    held = hold_requests(page, "**/api/explain")
    page.fill("#text", "a bad film")
    page.select_option("#model", "text-two")
    # The choice of a model asks as well; the button asks again.
    page.click("#explain")
    wait_until(page, lambda: len(held) == 2)
    page.wait_for_selector("body.busy")
    with page.expect_request("**/api/hide") as sent:
        page.locator("#relevance [role=button]").nth(1).click()
    assert (sent.value.post_data_json["text"], sent.value.post_data_json["model"]) == (TEXT, "text-one")
    expect_text(page, "#verdict", verdict)
    held[1].fallback()
    expect_contains(page, "#relevance .reading", "a bad film")
    expect_count(page, "#relevance .is-hidden", 0)


def test_a_method_that_cannot_be_had_is_not_chosen(visit):
    page = explain(visit())
    page.route("**/api/explain", reject_occlusion)
    page.select_option("#method", "occlusion")
    expect_contains(page, "#problems", "no such thing")
    visit.messages.clear()
    expect_value(page, "#method", "balanced-cat")
    expect(page.locator("#option-window")).to_be_hidden()


def test_a_text_that_was_not_asked_yet_survives_a_photo(visit):
    page = visit()
    page.fill("#text", TEXT)
    choose_photo(page)
    page.locator("#kinds [value=text]").check()
    expect_value(page, "#text", TEXT)


def test_a_photo_comes_back_with_its_name(visit):
    page = choose_photo(visit())
    page.set_input_files("#picture", {"name": "other.png", "mimeType": "image/png", "buffer": make_photo(seed=1)})
    expect_contains(page, "#history", "other.png")
    page.locator("#history button").nth(1).click()
    expect_contains(page, "#picture-name", "<b>pet.png")


def test_a_pair(visit):
    page = visit()
    page.locator("[name=kind][value=pair]").check()
    page.fill("#second", "never a heart")
    explain(page)
    expect_text(page, "#relevance .reading", [TEXT, "never a heart"])


def test_the_first_part_of_a_long_text(visit):
    page = visit()
    page.fill("#text", "a bad film " * 50)
    page.click("#explain")
    expect_contains(page, "#problems", "First part only")
    visit.messages.clear()
    page.select_option("#overflow", label="First part only")
    page.click("#explain")
    wait_until_measured(page)
    expect_text(page, "#problems", "")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    wait_until_measured(page)
    expect_value(page, "#overflow", "truncate")


def test_by_keyboard_alone(visit):
    page = visit()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    for _ in range(20):
        if page.evaluate("document.activeElement.id") == "text":
            break
        page.keyboard.press("Tab")
    page.keyboard.type(TEXT)
    page.keyboard.press("Control+Enter")
    wait_until_measured(page)
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className.split(' ').at(-1)"))
    assert {"method", "word", "share", "other-method", "add-comparison", "link"} <= reached


def test_mistakes_and_errors_are_shown(visit):
    page = visit()
    page.click("#explain")
    expect_contains(page, "[role=alert]", "Enter a text first")
    page.fill("#text", "film " * 300)
    page.click("#explain")
    expect_contains(page, "#problems", "tokens")
    visit.messages.clear()
    page.evaluate("setTimeout(() => { throw new Error('a fault in the page') })")
    expect_contains(page, "#problems", "a fault in the page")
    assert [message for message in visit.messages if "a fault in the page" not in message] == []
    visit.messages.clear()
