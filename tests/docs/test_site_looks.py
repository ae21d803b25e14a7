"""The documentation site in a browser, in wide and narrow windows."""

import pytest
from helpers.browser import launch_browser, needs_chromium

pytest.importorskip("mkdocs", reason="the docs extra is not installed")
pytestmark = needs_chromium

WIDE, NARROW = 1280, 390
# A page with commands, one with sentences in tables, one with reports' tables, and outputs of notebooks.
PAGES = [
    "guide.html",
    "contributing.html",
    "measurements/2026-11-19-default-agnews-base.html",
    "notebooks/text.html",
]
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"
COUNT_SCROLLED = """selector => [...document.querySelectorAll(selector)]
    .filter(element => element.scrollWidth > element.clientWidth + 1).length"""


@pytest.fixture(scope="module")
def browser():
    with launch_browser() as chromium:
        yield chromium


@pytest.fixture
def visit(browser, site):
    contexts = []

    def open_page(address, width):
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.goto((site / address).as_uri())
        page.wait_for_load_state("load")
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("address", PAGES)
def test_no_page_is_wider_than_the_window(visit, address, width):
    assert visit(address, width).evaluate(OVERFLOW) <= 0


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_commands_wrap(visit, width):
    page = visit("guide.html", width)
    assert page.locator(".language-console code").count() > 3
    assert page.evaluate(COUNT_SCROLLED, ".language-console code") == 0


def test_tables_of_reports_fit_a_wide_window(visit):
    page = visit("measurements/2026-11-19-default-agnews-base.html", WIDE)
    page.wait_for_selector(".md-typeset__scrollwrap")
    assert page.evaluate(COUNT_SCROLLED, ".md-typeset__scrollwrap") == 0


def test_sentences_in_tables_have_room_in_a_narrow_window(visit):
    cells = visit("contributing.html", NARROW).locator("td.long")
    widths = [cell.bounding_box()["width"] for cell in cells.all()]
    assert widths
    assert min(widths) > 100
