"""The page with two-tower models beside classifiers, in a browser."""

import pytest
from helpers.browser import find_violations, needs_axe, needs_chromium
from helpers.page import (
    expect,
    expect_contains,
    expect_count,
    expect_value,
    explain,
    read_address,
    reject_occlusion,
    wait_until,
)
from helpers.page_server import start_server
from helpers.pictures import make_photo
from helpers.saved_models import save_text_model
from helpers.two_towers import TEXTS, save_sentence_folder, save_tower_folder

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    home = tmp_path_factory.mktemp("similarity")
    folders = [
        save_text_model(home / "text"),
        save_tower_folder(home / "my-clip"),
        save_sentence_folder(home / "my-encoder"),
    ]
    arguments = [argument for folder in folders for argument in ("--model", str(folder))]
    with start_server(*arguments) as (_, served_address):
        yield served_address


def compare_photo(page, texts=TEXTS):
    """Choose a photo, enter texts, press Explain and wait for the check."""
    page.click("#kinds label:has([value=caption])")
    page.set_input_files("#picture", {"name": "<b>pet.png", "mimeType": "image/png", "buffer": make_photo()})
    expect_contains(page, "#picture-name", "pet.png")
    page.fill("#texts", "\n".join(texts))
    page.click("#explain")
    wait_until_checked(page)
    return page


def compare_texts(page, first=TEXTS[0], texts=TEXTS[1:]):
    page.click("#kinds label:has([value=similarity])")
    page.fill("#text", first)
    page.fill("#texts", "\n".join(texts))
    page.click("#explain")
    wait_until_checked(page)
    return page


def wait_until_checked(page):
    page.wait_for_selector("body:not(.busy) #check[aria-busy=false] .ch-check")


def read_map(page):
    return page.evaluate("document.querySelector('#relevance canvas').toDataURL()")


def test_a_photo_and_texts_stand_side_by_side(visit):
    page = compare_photo(visit())
    expect_count(page, "#compared-rows .compared", len(TEXTS))
    expect_count(page, "#relevance section", 2)
    expect_contains(page, "#similarity-verdict", "The most similar of 3 texts")
    expect_contains(page, "#legend", "Shares of the relevance on each input. Full colour: ")
    # One legend for both inputs.
    expect_count(page, "#explanation .ch-legend", 1)
    expect_contains(page, "#check", "Photo ·")
    expect_contains(page, "#diagnosis", "% on the picture")
    expect_contains(page, "#no-test", "the check hides")
    for selector in ("#test", "#compare", "#prediction"):
        expect(page.locator(selector)).to_be_hidden()


def test_arrow_keys_choose_the_text_that_colours_the_photo(visit):
    page = compare_photo(visit())
    before = read_map(page)
    chosen = int(page.locator("[name=compared]:checked").get_attribute("value"))
    following = (chosen + 1) % len(TEXTS)
    page.focus("[name=compared]:checked")
    page.keyboard.press("ArrowDown")
    expect_contains(page, "#similarity-verdict", TEXTS[following])
    expect(page.locator(f"[name=compared][value='{following}']")).to_be_focused()
    expect_contains(page, "#relevance section:nth-of-type(2) .reading", TEXTS[following])
    wait_until(page, lambda: read_map(page) != before)
    page.click(f"#compared-rows label:nth-of-type({chosen + 1})")
    expect_contains(page, "#similarity-verdict", TEXTS[chosen])
    wait_until(page, lambda: read_map(page) == before)


def test_a_link_brings_back_photo_texts_and_the_chosen_text(visit):
    page = compare_photo(visit())
    page.click("#compared-rows label:nth-of-type(3)")
    expect_contains(page, "#similarity-verdict", TEXTS[2])
    wait_until(page, lambda: page.locator("[name=compared]:checked").get_attribute("value") == "2")
    fragment = "#" + read_address(page).partition("#")[2]
    opened = visit(fragment)
    wait_until_checked(opened)
    expect_value(opened, "#texts", "\n".join(TEXTS))
    expect_contains(opened, "#similarity-verdict", TEXTS[2])
    expect(opened.locator("[name=compared][value='2']")).to_be_checked()


def test_two_texts_are_compared_and_a_classifier_follows(visit):
    page = compare_texts(visit(), texts=TEXTS[1:2])
    expect_contains(page, "#similarity-verdict", "The similarity")
    expect_contains(page, "#relevance section:nth-of-type(1)", "First text")
    expect_contains(page, "#relevance section:nth-of-type(2) .reading", TEXTS[1])
    expect(page.locator("#smoothness")).to_be_hidden()
    expect_count(page, "[name=compared]", 0)
    page.click("#kinds label:has([value=text])")
    explain(page)
    for selector in ("#similarity", "#no-test"):
        expect(page.locator(selector)).to_be_hidden()
    expect(page.locator("#prediction")).to_be_visible()
    page.click("#history li:nth-of-type(2) button")
    expect_contains(page, "#similarity-verdict", "The similarity")


def test_errors_leave_the_explanation_and_the_form_as_they_are(visit):
    page = visit()
    page.click("#kinds label:has([value=caption])")
    page.click("#explain")
    expect_contains(page, "#problems", "Choose a photo first")
    compare_photo(page)
    expect_count(page, "#problems p", 0)
    page.fill("#texts", "\n".join(["a film"] * 17))
    page.click("#explain")
    expect_contains(page, "#problems", "at most 16 texts")
    page.fill("#texts", "film " * 60)
    page.click("#explain")
    expect_contains(page, "#problems", "tokens")
    page.route("**/api/similarity", reject_occlusion)
    page.select_option("#method", "occlusion")
    expect_contains(page, "#problems", "no such thing")
    expect_value(page, "#method", "balanced-cat")
    expect_count(page, "#compared-rows .compared", len(TEXTS))
    visit.messages.clear()


def test_a_saved_page_has_every_text(visit):
    page = compare_photo(visit())
    with page.expect_download() as download:
        page.click("[data-file=html]")
    assert download.value.path().read_text("utf-8").count("<details name=") == len(TEXTS)


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_similarities_break_no_rule_of_accessibility(visit, scheme):
    assert find_violations(compare_photo(visit(color_scheme=scheme, bypass_csp=True))) == {}


def test_similarities_fit_into_a_narrow_window(visit):
    page = compare_photo(visit(viewport={"width": 390, "height": 844}), (*TEXTS, "a fine film " * 8))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
