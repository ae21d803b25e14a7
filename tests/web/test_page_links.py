"""Links that restore a question on the page, also damaged ones."""

import base64
import json

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
    wait_until_measured,
)

pytestmark = needs_chromium


def make_link(**changes):
    """Return a link as another server, or another program, might have written it."""
    snapshot = {"kind": "text", "text": TEXT, "model": "text-one", **changes}
    return "#" + base64.urlsafe_b64encode(json.dumps(snapshot).encode()).decode().rstrip("=")


def decode_link(page):
    """Return the JSON in the page's own link."""
    fragment = read_address(page).partition("#")[2]
    return base64.urlsafe_b64decode(fragment + "=" * (-len(fragment) % 4)).decode()


def test_a_damaged_link_is_said_to_be_one(visit):
    page = visit("#bm9uc2Vuc2U")
    expect_contains(page, "#problems .problem", "This link is damaged.")
    expect_count(page, "#model option", 4)


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
        {"overflow": "perhaps"},
        {"level": "letter"},
        {"layer": 1.5},
        {"hidden": [-1]},
        {"hidden": "all"},
        {"compared": [None]},
        {"options": None},
    ],
    ids=str,
)
def test_a_link_that_does_not_fit_is_refused_whole(visit, change):
    page = visit(make_link(**change))
    expect_contains(page, "#problems", f"Invalid {next(iter(change))} in this link:")
    expect(page.locator("#explanation-body")).to_be_hidden()
    expect_value(page, "#text", "")
    explain(page)


def test_links_with_former_names_of_fields_still_open(visit):
    compared = [{"method": "rollout", "options": {}, "target": "", "model": "text-two"}]
    page = visit(make_link(text="a bad film " * 50, long="truncate", beside=compared))
    expect_contains(page, "#columns article:nth-child(2)", "rollout · text-two")
    expect_value(page, "#overflow", "truncate")


def test_a_link_may_leave_things_out_and_hide_what_is_not_there(visit):
    page = visit(make_link(hidden=[0, 2, 999], layer=9))
    wait_until_measured(page)
    expect_text(page, "#relevance .is-hidden", ["good"])


def test_a_link_opened_while_another_is_answered(visit):
    """The page was opened by a link and still fetches other methods for it."""
    page = visit()
    hold_requests(page, "**/api/explain", containing="rollout")
    explain(page)
    page.reload()
    expect_contains(page, "#relevance .reading", TEXT)
    page.evaluate("link => { location.hash = link }", make_link(text="never a bad film", hidden=[2]))
    expect_contains(page, "#relevance .reading", "never a bad film")
    wait_until_measured(page)
    expect_text(page, "#relevance .is-hidden", ["a"])
    expect_value(page, "#text", "never a bad film")


def test_a_link_that_cannot_be_answered_changes_nothing(visit):
    page = explain(visit())
    page.evaluate("link => { location.hash = link }", make_link(text="film " * 300, hidden=[2], level="token"))
    expect_contains(page, "#problems", "tokens")
    visit.messages.clear()
    page.locator("#relevance .word").first.click()
    expect_contains(page, "#hidden-summary", "1 of 7 words hidden")
    expect_text(page, "#relevance .is-hidden", ["a"])


def test_a_link_holds_its_own_input_alone(visit):
    page = choose_photo(visit())
    page.locator("#kinds [value=text]").check()
    explain(page)
    assert "image" not in json.loads(decode_link(page))
    page.locator("#history button").nth(1).click()
    page.wait_for_selector(".patches")
    assert TEXT not in decode_link(page)


def test_the_skip_link_leaves_the_question_alone(visit):
    page = explain(visit())
    page.fill("#text", "not asked yet")
    before = read_address(page)
    page.locator(".skip").press("Enter")
    expect(page.locator("#explanation")).to_be_focused()
    assert (read_address(page), page.input_value("#text"), page.inner_text("#problems")) == (
        before,
        "not asked yet",
        "",
    )


def test_the_method_of_a_link_is_chosen_at_once(visit):
    page = explain(visit())
    hold_requests(page, "**/api/explain", containing="occlusion")
    with page.expect_request("**/api/explain"):
        page.evaluate("link => { location.hash = link }", make_link(method="occlusion"))
    expect_value(page, "#method", "occlusion")
    expect_value(page, "#option-window", "1")


def test_a_link_with_options_that_are_refused_is_no_dead_end(visit):
    page = visit(make_link(method="occlusion", options={"window": 0}))
    expect_contains(page, "#problems", "window")
    visit.messages.clear()
    page.click("#explain")
    wait_until_measured(page)
    expect_value(page, "#method", "balanced-cat")


def test_a_link_without_its_photo_asks_for_it(visit):
    page = visit(make_link(kind="image", model="photo", method="rollout", hidden=[2], image=None))
    expect_contains(page, "#problems", "too large for this link")
    choose_photo(page)
    expect_value(page, "#method", "rollout")
    expect_contains(page, "#hidden-summary", "1 of")


def test_a_text_link_leaves_the_photo_in_the_form(visit):
    page = choose_photo(visit())
    page.evaluate("link => { location.hash = link }", make_link(image=None, imageName="", second=""))
    expect_contains(page, "#relevance .reading", TEXT)
    page.locator("#kinds [value=image]").check()
    page.click("#explain")
    page.wait_for_selector(".patches")
    expect_text(page, "#picture-name", "<b>pet.png")
