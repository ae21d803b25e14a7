"""Links that restore a question on the page, also damaged ones."""

import base64
import json

import pytest
from helpers.browser import needs_chromium
from helpers.page import TEXT, counts, drop, expect, explain, holds, link_in, measured, reads, says

pytestmark = needs_chromium


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
    page = visit(link_of(**change))
    says(page, "#problems", f"Invalid {next(iter(change))} in this link:")
    expect(page.locator("#explanation-body")).to_be_hidden()
    holds(page, "#text", "")
    explain(page)


def test_a_link_may_leave_things_out_and_hide_what_is_not_there(visit):
    page = visit(link_of(hidden=[0, 2, 999], layer=9))
    measured(page)
    reads(page, "#relevance .is-hidden", ["good"])


def test_a_link_opened_while_another_is_answered(visit):
    """The page was opened by a link and still fetches other methods for it."""
    page, held = visit(), []
    page.route("**/api/explain", lambda one: held.append(one) if "rollout" in one.request.post_data else one.fallback())
    explain(page)
    page.reload()
    says(page, "#relevance .reading", TEXT)
    page.evaluate("link => { location.hash = link }", link_of(text="never a bad film", hidden=[2]))
    says(page, "#relevance .reading", "never a bad film")
    measured(page)
    reads(page, "#relevance .is-hidden", ["a"])
    holds(page, "#text", "never a bad film")


def test_a_link_that_cannot_be_answered_changes_nothing(visit):
    page = explain(visit())
    page.evaluate("link => { location.hash = link }", link_of(text="film " * 300, hidden=[2], level="token"))
    says(page, "#problems", "tokens")
    visit.said.clear()
    page.locator("#relevance .word").first.click()
    says(page, "#hidden-summary", "1 of 7 words hidden")
    reads(page, "#relevance .is-hidden", ["a"])


def test_a_link_holds_its_own_input_alone(visit):
    page = drop(visit())
    page.locator("#kinds [value=text]").check()
    explain(page)
    assert "image" not in json.loads(told_by(page))
    page.locator("#history button").nth(1).click()
    page.wait_for_selector(".patches")
    assert TEXT not in told_by(page)


def test_the_skip_link_leaves_the_question_alone(visit):
    page = explain(visit())
    page.fill("#text", "not asked yet")
    before = link_in(page)
    page.locator(".skip").press("Enter")
    expect(page.locator("#explanation")).to_be_focused()
    assert (link_in(page), page.input_value("#text"), page.inner_text("#problems")) == (before, "not asked yet", "")


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
    says(page, "#problems", "too large for this link")
    drop(page)
    holds(page, "#method", "rollout")
    says(page, "#hidden-summary", "1 of")


def test_a_text_link_leaves_the_photo_in_the_form(visit):
    page = drop(visit())
    page.evaluate("link => { location.hash = link }", link_of(image=None, imageName="", second=""))
    says(page, "#relevance .reading", TEXT)
    page.locator("#kinds [value=image]").check()
    page.click("#explain")
    page.wait_for_selector(".patches")
    reads(page, "#picture-name", "<b>pet.png")
