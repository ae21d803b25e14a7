"""The page in a real browser: ask, see, test, keep, compare; by mouse and by keyboard; with texts and photos."""

import base64
import json
import re
from pathlib import Path

import pytest
from browsing import launched, needs_axe, needs_chromium, playwright, violations
from samples import save_answer_model, save_image_model, save_regression_model, save_text_model
from served import photo, save_photo_run, save_run, serving

pytest.importorskip("fastapi", reason="the page needs clearhead[web]")
PATIENCE = 30_000
TEXT = "a good , tedious film never bad"
expect = playwright.expect
expect.set_options(timeout=PATIENCE)
pytestmark = needs_chromium


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    folders = [save_text_model(home / "text-one"), save_text_model(home / "text-two"), save_image_model(home / "photo")]
    run = save_run(home, folders[0])
    photos, data = save_photo_run(home, folders[2])
    folders += [save_regression_model(home / "stars"), save_answer_model(home / "answers")]
    models = [part for folder in folders for part in ("--model", str(folder))]
    with serving(*models, "--run", str(run), "--run", str(photos), "--data", str(data)) as (_, found):
        yield found


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture
def visit(browser, address):
    """Opens the page; whatever it complains about, or asks of another host, fails the test."""
    contexts, said = [], []

    def visited(part="", **settings):
        context = browser.new_context(**settings)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
        page.on("request", lambda one: one.url.startswith((address, "data:", "blob:")) or said.append(one.url))
        page.goto(address + part)
        page.wait_for_selector("body[data-ready]")
        return page

    visited.said = said
    yield visited
    for context in contexts:
        context.close()
    assert said == []


def explain(page, text=TEXT):
    page.fill("#text", text)
    page.click("#explain")
    measured(page)
    return page


def measured(page):
    page.wait_for_selector("body:not(.busy) #chart[aria-busy=false] svg")


def drop(page, content=None):
    page.set_input_files("#picture", {"name": "<b>pet.png", "mimeType": "image/png", "buffer": content or photo()})
    measured(page)
    return page


# Whatever a test looks at may still be on its way, so each of these waits for it.


def says(page, selector, text):
    expect(page.locator(selector)).to_contain_text(text)


def reads(page, selector, text):
    expect(page.locator(selector)).to_have_text(text, use_inner_text=True)


def counts(page, selector, number):
    expect(page.locator(selector)).to_have_count(number)


def holds(page, selector, value):
    expect(page.locator(selector)).to_have_value(value)


def until(page, true):
    """Waits by asking again: a function that waits in the page itself is refused by the page's policy."""
    for _ in range(PATIENCE // 50):
        if true():
            return
        page.wait_for_timeout(50)
    assert true()


def changed(page, script, before):
    """What a script finds, once it is something else."""
    until(page, lambda: page.evaluate(script) != before)
    return page.evaluate(script)


def link_in(page):
    """The address as the page knows it; the driver hears of it later."""
    return page.evaluate("location.href")


def shares(page):
    return [float(text.removesuffix(" %")) for text in page.locator("#bars .share").all_inner_texts()]


def test_ask_and_see_a_text(visit):
    page = explain(visit())
    says(page, "#verdict", re.compile(r"^(negative|positive) \d+\.\d %"))
    reads(page, "#shown .reading", TEXT)
    reads(page, "#shown [role=button]", TEXT.split())
    expect(page.locator("#shown .f9, #shown .a9").first).to_be_visible()
    counts(page, "#classes li", 2)
    titles = [one.get_attribute("title") for one in page.locator("#shown .word").all()]
    assert sorted(int(title.split("rank ")[1].split()[0]) for title in titles) == list(range(1, 8))


def test_another_class_and_a_contrast(visit):
    page = explain(visit())
    reads(page, "#versus option", ["No other", "negative", "positive"])
    with page.expect_response("**/api/curve"):
        page.select_option("#target", label="positive")
    says(page, "#verdict", re.compile("^positive [0-9]"))
    page.select_option("#versus", label="negative")
    says(page, "#verdict", "positive rather than negative")


def test_another_class_than_the_predicted_one_is_said_to_be_one(visit):
    page = explain(visit())
    predicted, other = [one.split("\n")[0] for one in page.locator("#classes li").all_inner_texts()]
    says(page, "#verdict", "What the model says")
    page.select_option("#target", label=other)
    says(page, "#verdict", f"The model itself predicts {predicted}.")


def test_method_layer_and_tokens(visit):
    page = explain(visit(), "tedious films")
    colours = "[...document.querySelectorAll('#shown .word')].map(one => one.title).join()"
    before = page.evaluate(colours)
    page.select_option("#method", "att-cat")
    says(page, "#method-summary", "AttCAT")
    whole = changed(page, colours, before)
    expect(page.locator("#layers")).to_be_visible()
    page.locator("#layer").focus()
    page.keyboard.press("ArrowRight")
    reads(page, "#layer-name", "1 of 2")
    page.keyboard.press("ArrowRight")
    reads(page, "#layer-name", "2 of 2")
    changed(page, colours, whole)
    page.locator("[name=level][value=token]").check()
    measured(page)
    reads(page, "#shown [role=button]", ["tedious", "film", "s"])


def test_hide_the_top_by_the_slider(visit):
    page = explain(visit())
    whole = shares(page)
    assert whole[0] == whole[1]
    page.locator("#share").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    counts(page, "#shown .gone", 2)
    strongest = sorted(
        page.locator("#shown .word").all(), key=lambda one: -float(one.get_attribute("title").split(" · ")[1])
    )
    assert all("gone" in one.get_attribute("class") for one in strongest[:2])
    reads(page, "#bars .now dt", "2 of 7 words")
    counts(page, "#chart .dot", 1)
    page.click("#reset")
    counts(page, "#shown .gone", 0)
    until(page, lambda: shares(page) == whole)


def test_hide_any_word_by_mouse_or_keyboard(visit, address):
    import httpx

    page = explain(visit())
    with page.expect_response("**/api/hide"):
        page.locator("#shown .word").nth(6).click()
        page.locator("#shown .word").nth(6).focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Space")
    says(page, "#live", "2 of 7 words hidden")
    reads(page, "#shown [aria-pressed=true]", ["film", "bad"])
    own = httpx.post(f"{address}api/hide", json={"text": TEXT, "hidden": [[5, 7]]}).json()["values"][0]
    until(page, lambda: shares(page)[1] == pytest.approx(own * 100, abs=0.051))


def test_a_photo_is_asked_seen_and_tested(visit):
    page = drop(visit())
    reads(page, "#picture-name", "<b>pet.png")
    counts(page, ".patches [role=gridcell]", 16)
    assert "heat map" in page.get_by_role("img", name="Photo with a heat map").get_attribute("aria-label")
    pixels = "document.querySelector('#shown canvas').toDataURL()"
    before = page.evaluate(pixels)
    with page.expect_response("**/api/hide"):
        page.locator(".patches button").nth(5).click()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
    says(page, "#live", "2 of 16 patches")
    counts(page, ".patches [aria-selected=true]", 2)
    smooth = changed(page, pixels, before)
    page.locator("[name=smooth][value=exact]").check()
    changed(page, pixels, smooth)
    says(page, "#diagnosis", re.compile(r"^special tokens: \S+ [+-]?\d"))


def test_files_and_a_link_that_restores_everything(visit, browser, address):
    page = explain(visit(permissions=["clipboard-read", "clipboard-write"]))
    for kind, begins in (("HTML", b"<!doctype html>"), ("PNG", b"\x89PNG"), ("JSON", b"{")):
        with page.expect_download() as saved:
            page.get_by_role("button", name=kind).click()
        assert Path(saved.value.path()).read_bytes().startswith(begins)
    page.select_option("#method", "att-cat")
    measured(page)
    page.locator("#shown .word").nth(2).click()
    page.wait_for_selector("#live:not([hidden])")
    page.click("#link")
    says(page, "#kept", "Link copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert TEXT not in link.partition("#")[0]
    other = visit(link.removeprefix(address))
    measured(other)
    reads(other, "#shown .gone", [","])
    holds(other, "#method", "att-cat")
    until(page, lambda: shares(other) == shares(page))


def test_a_photo_travels_in_a_link_and_the_visit_is_remembered(visit, address):
    page = drop(visit())
    other = visit(link_in(page).removeprefix(address))
    measured(other)
    reads(other, "#verdict", page.inner_text("#verdict"))
    page.locator("[name=kind][value=text]").check()
    explain(page)
    counts(page, "#visit li", 2)
    page.locator("#visit button").nth(1).click()
    page.wait_for_selector(".patches")
    expect(page.locator("[name=kind][value=image]")).to_be_checked()


def test_compare_methods_classes_and_models(visit):
    page = explain(visit())
    page.select_option("#other-method", "rollout")
    page.click("#beside")
    page.wait_for_selector("#columns article:nth-child(2)")
    page.select_option("#other-target", label="positive")
    page.select_option("#other-model", "text-two")
    page.click("#beside")
    page.wait_for_selector("#columns article:nth-child(3)")
    says(page, "#columns article:nth-child(3)", re.compile("^positive ·"))
    says(page, "#columns article:nth-child(3)", "rollout · text-two")
    page.get_by_role("button", name="Remove").first.click()
    counts(page, "#columns article", 2)


def test_browse_a_run(visit):
    page = visit()
    says(page, "#run-count", "6 of 6 examples")
    before = page.locator("#run-examples").inner_text()
    page.select_option("#run-method", "rollout")
    expect(page.locator("#run-examples")).not_to_have_text(before, use_inner_text=True)
    shown = page.locator("#run-examples li span:last-child")
    values = shown.all_inner_texts()
    assert float(values[0]) > float(values[-1])
    assert [float(value) for value in values] == sorted(map(float, values), reverse=True)
    page.select_option("#run-order", label="lowest values")
    expect(shown.first).to_have_text(values[-1])
    text = page.locator("#run-examples li span").first.inner_text()
    page.locator("#run-examples button").first.click()
    measured(page)
    reads(page, "#shown .reading", text)
    holds(page, "#method", "rollout")
    with page.context.expect_page() as opened:
        page.click("#report")
    expect(opened.value.locator("table").first).to_be_visible()


def test_more_of_a_run_is_more_of_the_list_that_is_shown(visit):
    """Another method is chosen, and more is asked for, before its list is there; then a list cannot be had."""
    page, held = visit(), []
    says(page, "#run-count", "6 of 6 examples")

    def longer(route):
        answer = route.fetch(url=route.request.url.replace("start=6", "start=0")).json()
        route.fulfill(json={**answer, "total": 18})

    page.route("**/examples?*", longer)
    page.select_option("#run-order", label="lowest values")
    reads(page, "#run-count", "6 of 18 examples")
    page.click("#run-more")
    reads(page, "#run-count", "12 of 18 examples")
    page.route("**/examples?*", lambda one: held.append(one))
    page.select_option("#run-method", "rollout")
    expect(page.locator("#run-more")).to_be_hidden()
    until(page, lambda: held)
    held[0].fallback()
    reads(page, "#run-count", "6 of 18 examples")
    page.route("**/examples?*", lambda one: one.fulfill(status=503, json={"error": "too busy"}))
    page.select_option("#run-method", "att-cat")
    says(page, "#problems", "too busy")
    counts(page, "#run-examples li", 0)
    visit.said.clear()


def test_a_photo_of_a_run_is_opened(visit):
    page = visit()
    page.select_option("#run", "photo-run")
    says(page, "#run-count", "4 of 4 examples")
    name = page.locator("#run-examples span").first.inner_text()
    page.locator("#run-examples button").first.click()
    measured(page)
    reads(page, "#picture-name", name.removeprefix("picture "))
    counts(page, ".patches [role=gridcell]", 16)
    holds(page, "#model", "photo")


def test_a_number_is_asked_and_tested(visit):
    page = visit()
    page.select_option("#model", "stars")
    expect(page.locator("#target")).to_be_hidden()
    explain(page)
    says(page, "#verdict", re.compile(r"^stars -?\d"))
    page.locator("#share").focus()
    page.keyboard.press("End")
    says(page, "#finding", "The answer goes")
    assert "%" not in page.inner_text("#bars")
    assert "%" not in page.locator("#chart svg").get_attribute("aria-label")


def test_an_answer_in_a_text_is_asked_and_tested(visit):
    page = visit()
    page.locator("#kinds [value=pair]").check()
    page.select_option("#model", "answers")
    expect(page.locator("#target")).to_be_hidden()
    page.fill("#second", "never a good heart")
    explain(page, "a bad film ?")
    says(page, "#verdict", "…")
    counts(page, "#classes li", 0)
    page.locator("#share").focus()
    page.keyboard.press("ArrowRight")
    says(page, "#live", "1 of 8 words hidden")


def test_pixels_opacity_and_options_of_a_method(visit):
    page = drop(visit())
    drawn = "document.querySelector('#shown canvas').toDataURL()"
    reads(page, "#smooth-name", "Smooth")
    before = page.evaluate(drawn)
    page.locator("#opacity").fill("20")
    changed(page, drawn, before)
    page.select_option("#method", "integrated-gradients")
    says(page, "#smooth-name", "Pixels")
    measured(page)
    pixels = page.evaluate(drawn)
    page.locator("[name=smooth][value=exact]").check()
    changed(page, drawn, pixels)
    page.locator("#options summary").click()
    with page.expect_response("**/api/curve"), page.expect_request("**/api/explain") as sent:
        page.fill("#option-steps", "4")
        page.keyboard.press("Tab")
    assert sent.value.post_data_json["options"] == {"steps": 4}
    measured(page)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    holds(page, "#option-steps", "4")
    holds(page, "#opacity", "20")
    measured(page)
    visit.said.clear()
    page.fill("#option-steps", "100000")
    page.keyboard.press("Tab")
    says(page, "#problems", "more than this server computes")
    visit.said.clear()


def test_another_kind_of_input_leaves_what_does_not_fit(visit):
    page = drop(visit())
    page.click("#beside")
    page.wait_for_selector("#columns article:nth-child(2)")
    page.locator("#kinds [value=text]").check()
    explain(page)
    counts(page, "#columns article", 0)
    reads(page, "#problems", "")


def test_what_is_chosen_is_asked_in_its_time(visit):
    """While the page still fetches other methods for a photo, choosing another kind of input changes no question."""
    page, held = visit(), []
    page.route("**/api/explain", lambda one: held.append(one) if "rollout" in one.request.post_data else one.fallback())
    drop(page)
    until(page, lambda: held)
    page.locator("#kinds [value=text]").check()
    with page.expect_request("**/api/explain") as sent:
        held[0].continue_()
    assert sent.value.post_data_json["image"].startswith("data:image/png")
    page.locator("#shown [role=gridcell]").first.click()
    says(page, "#live", "1 of")


def test_options_that_are_refused_are_taken_back(visit):
    page = explain(visit())
    page.select_option("#method", "occlusion")
    measured(page)
    page.locator("#options summary").click()
    page.fill("#option-window", "0")
    page.keyboard.press("Tab")
    says(page, "#problems", "window")
    visit.said.clear()
    holds(page, "#option-window", "1")
    expect(page.locator("[id^=option-]:focus")).to_be_visible()


def test_what_follows_is_about_what_is_shown(visit):
    """After a question that was refused, and while one is under way, the page tests and keeps what it shows."""
    page = explain(visit())
    told = page.inner_text("#verdict")
    page.fill("#text", "film " * 300)
    page.click("#explain")
    says(page, "#problems", "tokens")
    visit.said.clear()
    page.locator("#shown [role=button]").first.click()
    says(page, "#live", "1 of 7 words hidden")
    with page.expect_request("**/api/file/json") as sent, page.expect_download():
        page.click("[data-file=json]")
    assert sent.value.post_data_json["text"] == TEXT
    held = []
    page.route("**/api/explain", lambda one: held.append(one))
    page.fill("#text", "a bad film")
    page.select_option("#model", "text-two")
    page.click("#explain")
    page.wait_for_selector("body.busy")
    with page.expect_request("**/api/hide") as sent:
        page.locator("#shown [role=button]").nth(1).click()
    assert (sent.value.post_data_json["text"], sent.value.post_data_json["model"]) == (TEXT, "text-one")
    reads(page, "#verdict", told)
    held[0].fallback()
    says(page, "#shown .reading", "a bad film")
    counts(page, "#shown .gone", 0)


def refuse_occlusion(route):
    if "occlusion" in route.request.post_data:
        route.fulfill(status=422, json={"error": "no such thing"})
    else:
        route.fallback()


def test_a_method_that_cannot_be_had_is_not_chosen(visit):
    page = explain(visit())
    page.route("**/api/explain", refuse_occlusion)
    page.select_option("#method", "occlusion")
    says(page, "#problems", "no such thing")
    visit.said.clear()
    holds(page, "#method", "trans-att")
    expect(page.locator("#option-window")).to_be_hidden()


def test_a_text_that_was_not_asked_yet_survives_a_photo(visit):
    page = visit()
    page.fill("#text", TEXT)
    drop(page)
    page.locator("#kinds [value=text]").check()
    holds(page, "#text", TEXT)


def test_a_photo_comes_back_with_its_name(visit):
    page = drop(visit())
    page.set_input_files("#picture", {"name": "other.png", "mimeType": "image/png", "buffer": photo(seed=1)})
    says(page, "#visit", "other.png")
    page.locator("#visit button").nth(1).click()
    says(page, "#picture-name", "<b>pet.png")


def test_a_pair(visit):
    page = visit()
    page.locator("[name=kind][value=pair]").check()
    page.fill("#second", "never a heart")
    explain(page)
    reads(page, "#shown .reading", [TEXT, "never a heart"])


def test_the_first_part_of_a_long_text(visit):
    page = visit()
    page.fill("#text", "a bad film " * 50)
    page.click("#explain")
    says(page, "#problems", "First part only")
    visit.said.clear()
    page.select_option("#long", label="First part only")
    page.click("#explain")
    measured(page)
    reads(page, "#problems", "")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    measured(page)
    holds(page, "#long", "truncate")


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
    measured(page)
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className.split(' ').at(-1)"))
    assert {"method", "word", "share", "other-method", "beside", "link"} <= reached


def test_mistakes_and_errors_are_shown(visit):
    page = visit()
    page.click("#explain")
    says(page, "[role=alert]", "Type a text first")
    page.fill("#text", "film " * 300)
    page.click("#explain")
    says(page, "#problems", "tokens")
    visit.said.clear()
    page.evaluate("setTimeout(() => { throw new Error('a fault in the page') })")
    says(page, "#problems", "a fault in the page")
    assert [one for one in visit.said if "a fault in the page" not in one] == []
    visit.said.clear()


def link_of(**changes):
    """A link as another server, or a careless hand, might have written it."""
    given = {"kind": "text", "text": TEXT, "model": "text-one", **changes}
    return "#" + base64.urlsafe_b64encode(json.dumps(given).encode()).decode().rstrip("=")


def told_by(page):
    """What the page's own link says."""
    given = link_in(page).partition("#")[2]
    return base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode()


def test_a_damaged_link_is_said_to_be_one(visit):
    page = visit("#bm9uc2Vuc2U")
    says(page, "#problems .problem", "This link is damaged.")
    counts(page, "#model option", 4)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "sound"},
        {"kind": "toString"},
        {"model": "elsewhere"},
        {"model": "photo"},
        {"method": "tea-leaves"},
        {"target": "7"},
        {"versus": 1},
        {"long": "perhaps"},
        {"level": "letter"},
        {"layer": 1.5},
        {"hidden": [-1]},
        {"hidden": "all"},
        {"beside": [None]},
        {"options": None},
    ],
    ids=str,
)
def test_a_link_that_does_not_fit_is_refused_whole(visit, change):
    page = visit(link_of(**change))
    says(page, "#problems", f"This link does not fit this page: its {next(iter(change))} is")
    expect(page.locator("#seen")).to_be_hidden()
    holds(page, "#text", "")
    explain(page)


def test_a_link_may_leave_things_out_and_hide_what_is_not_there(visit):
    page = visit(link_of(hidden=[0, 2, 999], layer=9))
    measured(page)
    reads(page, "#shown .gone", ["good"])


def test_a_link_opened_while_another_is_answered(visit):
    """The page was opened by a link and still fetches other methods for it."""
    page, held = visit(), []
    page.route("**/api/explain", lambda one: held.append(one) if "rollout" in one.request.post_data else one.fallback())
    explain(page)
    page.reload()
    says(page, "#shown .reading", TEXT)
    page.evaluate("link => { location.hash = link }", link_of(text="never a bad film", hidden=[2]))
    says(page, "#shown .reading", "never a bad film")
    measured(page)
    reads(page, "#shown .gone", ["a"])
    holds(page, "#text", "never a bad film")


def test_a_link_that_cannot_be_answered_changes_nothing(visit):
    page = explain(visit())
    page.evaluate("link => { location.hash = link }", link_of(text="film " * 300, hidden=[2], level="token"))
    says(page, "#problems", "tokens")
    visit.said.clear()
    page.locator("#shown .word").first.click()
    says(page, "#live", "1 of 7 words hidden")
    reads(page, "#shown .gone", ["a"])


def test_a_link_holds_its_own_input_alone(visit):
    page = drop(visit())
    page.locator("#kinds [value=text]").check()
    explain(page)
    assert "image" not in json.loads(told_by(page))
    page.locator("#visit button").nth(1).click()
    page.wait_for_selector(".patches")
    assert TEXT not in told_by(page)


def test_the_skip_link_leaves_the_question_alone(visit):
    page = explain(visit())
    page.fill("#text", "not asked yet")
    before = link_in(page)
    page.locator(".skip").press("Enter")
    expect(page.locator("#see")).to_be_focused()
    assert (link_in(page), page.input_value("#text"), page.inner_text("#problems")) == (before, "not asked yet", "")


def test_what_is_measured_late_is_not_shown(visit):
    """The model's answer to an earlier choice of hidden words comes after a later one."""
    page, held = explain(visit()), []
    page.route("**/api/hide", lambda one: held.append(one))
    lowest = page.locator("#shown .word").nth(least(page))
    with page.expect_request("**/api/hide"):
        lowest.click()
    page.locator("#share").press("End")
    says(page, "#live", "7 of 7 words hidden")
    for one in held:
        one.fallback()
    page.wait_for_timeout(300)
    says(page, "#live", "7 of 7 words hidden")
    page.locator("#share").press("Home")
    with page.expect_request("**/api/hide"):
        lowest.click()
    explain(page, "a film")
    expect(page.locator("#live")).to_be_hidden()
    counts(page, "#shown .gone", 0)


def least(page):
    """The place of the word that matters least."""
    titles = [one.get_attribute("title") for one in page.locator("#shown .word").all()]
    return next(place for place, title in enumerate(titles) if f"rank {len(titles)} of" in title)


def test_the_slider_tells_of_the_top_only(visit):
    page = explain(visit())
    page.locator("#shown .word").nth(least(page)).click()
    says(page, "#live", "1 of 7 words hidden")
    reads(page, "#share-name", "…")


def test_a_question_that_is_overtaken_leaves_nothing_behind(visit):
    """Explain is pressed, and another method chosen before the answer is there."""
    page, held = explain(visit()), []
    page.locator("#shown .word").nth(6).click()
    says(page, "#live", "1 of 7 words hidden")
    page.route(
        "**/api/explain", lambda one: held.append(one) if "trans-att" in one.request.post_data else one.fallback()
    )
    page.fill("#text", "a film")
    with page.expect_request("**/api/explain"):
        page.click("#explain")
    page.select_option("#method", "att-cat")
    says(page, "#shown .reading", "a film")
    measured(page)
    counts(page, "#shown .gone", 0)
    says(page, "#visit li:first-child", re.compile("^a film"))


def test_a_curve_that_fails_leaves_no_other(visit):
    page = explain(visit())
    page.click("#beside")
    page.wait_for_selector("#columns article:nth-child(2)")
    page.route("**/api/curve", lambda one: one.fulfill(status=503, json={"error": "too busy"}))
    page.select_option("#method", "att-cat")
    says(page, "#problems", "too busy")
    says(page, "#columns article:first-child", "att-cat")
    visit.said.clear()
    counts(page, "#bars *, #chart *", 0)


def test_a_column_that_cannot_be_had_can_be_removed(visit):
    page = explain(visit())
    page.route("**/api/explain", refuse_occlusion)
    page.select_option("#other-method", "occlusion")
    page.click("#beside")
    says(page, "#columns article:nth-child(2)", "no such thing")
    visit.said.clear()
    says(page, "#columns article:first-child", "trans-att")
    page.get_by_role("button", name="Remove occlusion").click()
    counts(page, "#columns article", 0)


def test_classes_beside_are_those_of_the_model_beside(visit):
    page = explain(visit())
    page.select_option("#other-target", label="positive")
    page.select_option("#other-model", "stars")
    expect(page.locator("#other-target")).to_be_hidden()
    page.click("#beside")
    says(page, "#columns article:nth-child(2)", "stars")


def test_the_right_column_is_removed(visit):
    page, held = explain(visit()), []
    for method in ("rollout", "att-cat"):
        page.select_option("#other-method", method)
        page.click("#beside")
        page.get_by_role("button", name=f"Remove {method}").wait_for()
    page.route("**/api/explain", lambda one: held.append(one))
    page.select_option("#other-method", "occlusion")
    page.click("#beside")
    page.get_by_role("button", name="Remove rollout").click()
    page.get_by_role("button", name="Remove att-cat").click()
    expect(page.locator("#beside")).to_be_focused()
    page.unroute("**/api/explain")
    for one in held:
        one.fallback()
    page.get_by_role("button", name="Remove occlusion").wait_for()
    counts(page, "#columns article", 2)


def test_columns_wait_for_their_answer(visit):
    page, held = explain(visit()), []
    page.click("#beside")
    page.wait_for_selector("#columns article:nth-child(2)")
    page.route("**/api/curve", lambda one: held.append(one))
    page.fill("#text", "a film")
    page.click("#explain")
    says(page, "#shown .reading", "a film")
    expect(page.locator("#columns")).to_have_attribute("aria-busy", "true")
    until(page, lambda: held)
    held[0].fallback()
    reads(page, "#columns[aria-busy=false] .reading", ["a film"] * 2)


def test_a_class_chosen_while_the_first_answer_is_awaited(visit):
    page, held = visit(), []
    page.route("**/api/explain", lambda one: held.append(one) if not held else one.fallback())
    page.fill("#text", TEXT)
    with page.expect_request("**/api/explain"):
        page.click("#explain")
    for label in ("negative", "positive"):
        page.select_option("#target", label=label)
        says(page, "#verdict", label)
        measured(page)


def test_the_method_of_a_link_is_chosen_at_once(visit):
    page, held = explain(visit()), []
    page.route(
        "**/api/explain", lambda one: held.append(one) if "occlusion" in one.request.post_data else one.fallback()
    )
    with page.expect_request("**/api/explain"):
        page.evaluate("link => { location.hash = link }", link_of(method="occlusion"))
    holds(page, "#method", "occlusion")
    holds(page, "#option-window", "1")


def test_a_link_with_options_that_are_refused_is_no_dead_end(visit):
    page = visit(link_of(method="occlusion", options={"window": 0}))
    says(page, "#problems", "window")
    visit.said.clear()
    page.click("#explain")
    measured(page)
    holds(page, "#method", "trans-att")


def test_a_link_without_its_photo_asks_for_it(visit):
    page = visit(link_of(kind="image", model="photo", method="rollout", hidden=[2], image=None))
    says(page, "#problems", "too large to travel")
    drop(page)
    holds(page, "#method", "rollout")
    says(page, "#live", "1 of")


def test_a_text_link_leaves_the_photo_in_the_form(visit):
    page = drop(visit())
    page.evaluate("link => { location.hash = link }", link_of(image=None, imageName="", second=""))
    says(page, "#shown .reading", TEXT)
    page.locator("#kinds [value=image]").check()
    page.click("#explain")
    page.wait_for_selector(".patches")
    reads(page, "#picture-name", "<b>pet.png")


def test_a_recalled_question_has_the_focus(visit):
    page = explain(visit())
    explain(page, "a film")
    page.locator("#visit button").nth(1).press("Enter")
    says(page, "#shown .reading", TEXT)
    expect(page.locator("#see")).to_be_focused()
    counts(page, "#visit li", 2)


def test_a_pair_needs_both_texts_and_each_kind_keeps_its_model(visit):
    page = visit()
    page.locator("#kinds [value=pair]").check()
    page.select_option("#model", "text-two")
    page.fill("#text", TEXT)
    page.click("#explain")
    says(page, "#problems", "second text")
    page.locator("#kinds [value=image]").check()
    page.locator("#kinds [value=text]").check()
    holds(page, "#model", "text-two")


def test_hiding_that_fails_leaves_the_curve(visit):
    page = explain(visit())
    page.route("**/api/hide", lambda one: one.fulfill(status=503, json={"error": "too busy"}))
    page.locator("#shown .word").nth(least(page)).click()
    says(page, "#problems", "too busy")
    visit.said.clear()
    counts(page, "#bars *", 0)
    page.click("#reset")
    counts(page, "#bars .share", 3)


def test_the_last_photo_counts(visit):
    page = visit()
    page.evaluate(SLOW_READER)
    page.set_input_files("#picture", {"name": "slow.png", "mimeType": "image/png", "buffer": photo()})
    page.set_input_files("#picture", {"name": "quick.png", "mimeType": "image/png", "buffer": photo(seed=1)})
    measured(page)
    page.wait_for_timeout(800)
    says(page, "#visit li:first-child", re.compile("^quick.png"))
    counts(page, "#visit li", 1)


SLOW_READER = """() => {
  const read = FileReader.prototype.readAsDataURL;
  FileReader.prototype.readAsDataURL = function (file) {
    setTimeout(() => read.call(this, file), file.name === "slow.png" ? 600 : 0);
  };
}"""


def test_a_text_typed_early_stays(browser, address):
    context = browser.new_context()
    page = context.new_page()
    held = []
    page.route("**/api/models", lambda one: held.append(one))
    page.goto(address)
    page.fill("#text", TEXT)
    expect(page.locator("#explain")).to_be_disabled()
    until(page, lambda: held)
    held[0].fallback()
    page.wait_for_selector("body[data-ready]")
    holds(page, "#text", TEXT)
    context.close()


def test_hostile_text_stays_text(visit):
    hostile = "<img src=x onerror=alert(1)> a\u202eb <script>alert(1)</script>"
    page = explain(visit(), hostile)
    counts(page, "#shown img, #shown script", 0)
    says(page, "#shown", "<script>alert(1)</script>")
    reads(page, "#shown .ch-hidden", "⟨202E⟩")


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["text", "photo"])
def test_accessible(visit, scheme, kind):
    page = visit(color_scheme=scheme, bypass_csp=True)
    explain(page) if kind == "text" else drop(page)
    page.locator("#share").focus()
    page.keyboard.press("ArrowRight")
    page.click("#beside")
    page.wait_for_selector("#columns article:nth-child(2)")
    page.locator("#options summary").click()
    assert violations(page) == {}


def test_a_narrow_window_needs_no_sideways_scrolling(visit):
    page = explain(visit(viewport={"width": 360, "height": 700}))
    page.click("#beside")
    page.wait_for_selector("#columns article:nth-child(2)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_token_in_the_address_opens_the_page_and_leaves_it(browser, tmp_path):
    with serving("--model", str(save_text_model(tmp_path / "tiny")), "--token", "s3cret") as (_, address):
        context = browser.new_context()
        page = context.new_page()
        assert page.goto(address.partition("?")[0]).status == 401
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        assert "s3cret" not in link_in(page)
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
