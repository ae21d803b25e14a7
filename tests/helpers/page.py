"""The page in a browser: what tests do to it and wait for."""

from helpers.browser import playwright
from helpers.page_server import photo

PATIENCE = 30_000


TEXT = "a good , tedious film never bad"


expect = playwright.expect
expect.set_options(timeout=PATIENCE)


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


def link_in(page):
    """The address as the page knows it; the driver hears of it later."""
    return page.evaluate("location.href")


def refuse_occlusion(route):
    if "occlusion" in route.request.post_data:
        route.fulfill(status=422, json={"error": "no such thing"})
    else:
        route.fallback()
