"""Two models on the page: both explanations side by side, what changed as colours, and the agreement in words."""

import re

import pytest
from helpers.browser import needs_chromium
from helpers.page import (
    choose_photo,
    expect,
    expect_contains,
    expect_count,
    explain,
    hold_requests,
    reject_occlusion,
    wait_until,
)
from helpers.saved_models import save_image_model, save_text_model

pytestmark = needs_chromium

DIFFERENCE = "#differences article"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    from helpers.page_server import start_server

    home = tmp_path_factory.mktemp("two-models")
    stars = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}
    folders = [
        save_text_model(home / "old"),
        save_text_model(home / "new", hidden_act="relu", intermediate_size=40),
        save_text_model(home / "stars", **stars),
        save_image_model(home / "photo-old"),
        save_image_model(home / "photo-new", patch_size=16),
    ]
    arguments = [argument for folder in folders for argument in ("--model", str(folder))]
    with start_server(*arguments) as (_, served_address):
        yield served_address


def add_model(page, name, method="balanced-cat"):
    """Add another model's explanation of what each of them predicts, by default by the method that is shown."""
    page.select_option("#other-method", method)
    page.select_option("#other-target", label="Predicted")
    page.select_option("#other-model", name)
    page.click("#add-comparison")


def test_the_difference_of_two_models_is_shown_word_by_word(visit):
    page = explain(visit())
    add_model(page, "new")
    expect_contains(page, DIFFERENCE, "From old to new")
    expect(page.locator(f"{DIFFERENCE} .conclusion")).to_contain_text(
        re.compile("(Both predict|They predict different things).* of the relevance moved")
    )
    expect_contains(page, DIFFERENCE, "rank correlation")
    expect_contains(page, DIFFERENCE, "clearhead diff compares two models on a data set")
    expect_contains(page, f"{DIFFERENCE} .reading", "tedious film")
    # The word that changed most has the full colour, in one direction or the other.
    expect(page.locator(f"{DIFFERENCE} :is(.f9, .a9)").first).to_be_visible()
    expect_contains(page, f"{DIFFERENCE} .ch-legend", "counts more")
    # Both predictions stand in the columns above it, too.
    expect_count(page, "#columns article", 2)


LINES = "#method-chart polyline"


def test_compared_methods_have_a_curve_each(visit):
    page = explain(visit())
    expect(page.locator("#method-curves")).to_be_hidden()
    add_model(page, "old", "attn-lrp")
    expect_count(page, LINES, 3)
    for name in ("balanced-cat", "attn-lrp", "at random"):
        expect(page.locator("#method-chart").get_by_text(name, exact=True)).to_be_visible()
    means = r"lower is better: balanced-cat \d+\.\d %, attn-lrp \d+\.\d %, at random \d+\.\d %\.$"
    expect_contains(page, "#method-means", re.compile(means))
    page.get_by_role("button", name="Remove").click()
    expect(page.locator("#method-curves")).to_be_hidden()


def test_curves_of_two_models_name_them(visit):
    page = explain(visit())
    add_model(page, "new")
    expect_count(page, LINES, 2)
    expect_contains(page, "#method-means", re.compile(r"balanced-cat( · \w+)? · old .*balanced-cat( · \w+)? · new"))


def test_a_curve_that_cannot_be_measured_leaves_the_others(visit):
    page = explain(visit())
    page.route("**/api/curve", reject_occlusion)
    for method in ("occlusion", "attn-lrp"):
        add_model(page, "old", method)
        expect_contains(page, "#columns", method)
    expect_count(page, LINES, 3)
    expect_contains(page, "#method-means", "attn-lrp")
    visit.messages.clear()


def test_the_difference_goes_with_its_column(visit):
    page = explain(visit())
    add_model(page, "new")
    expect_count(page, DIFFERENCE, 1)
    page.get_by_role("button", name="Remove").click()
    expect_count(page, DIFFERENCE, 0)


def test_other_methods_and_the_same_model_have_no_difference(visit):
    page = explain(visit())
    page.select_option("#other-method", "rollout")
    page.click("#add-comparison")
    add_model(page, "new", method="rollout")
    expect_count(page, "#columns article", 3)
    expect(page.locator("#differences")).to_have_attribute("aria-busy", "false")
    expect_count(page, DIFFERENCE, 0)


def test_models_with_other_classes_say_why_they_are_not_compared(visit):
    page = explain(visit())
    add_model(page, "stars")
    expect_contains(page, DIFFERENCE, "These models answer different questions")
    visit.messages.clear()


def test_the_difference_of_photos_is_shown_patch_by_patch(visit):
    page = choose_photo(visit())
    add_model(page, "photo-new")
    expect_contains(page, DIFFERENCE, "of the relevance moved")
    # Patches of 8 and of 16 pixels are compared at the coarser grid.
    picture = page.locator(f"{DIFFERENCE} canvas")
    expect(picture).to_have_attribute("aria-label", re.compile("what changed between two models.* of 2, column . of 2"))
    expect_contains(page, f"{DIFFERENCE} .ch-legend", "counts more")


def test_the_difference_of_an_earlier_text_is_not_shown(visit):
    page = explain(visit())
    add_model(page, "new")
    expect_count(page, DIFFERENCE, 1)
    held = hold_requests(page, "**/api/difference")
    explain(page, "another bad film")
    wait_until(page, lambda: held)
    expect_count(page, DIFFERENCE, 0)
    held[0].continue_()
    expect_contains(page, f"{DIFFERENCE} .reading", "another bad film")


def test_the_comparison_is_part_of_the_link(visit):
    page = explain(visit())
    add_model(page, "new")
    expect_count(page, DIFFERENCE, 1)
    again = visit("#" + page.evaluate("location.hash").removeprefix("#"))
    expect_contains(again, DIFFERENCE, "From old to new")
