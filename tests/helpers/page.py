"""Actions on the page in a browser, and expectations that wait until they hold."""

from helpers.browser import playwright
from helpers.pictures import make_photo

TIMEOUT_MS = 30_000


TEXT = "a good , tedious film never bad"


expect = playwright.expect
expect.set_options(timeout=TIMEOUT_MS)


def explain(page, text=TEXT):
    """Enter a text, press Explain and wait for everything that follows."""
    page.fill("#text", text)
    page.click("#explain")
    wait_until_measured(page)
    return page


def wait_until_measured(page):
    """Wait for the explanation and the curve of its test."""
    page.wait_for_selector("body:not(.busy) #chart[aria-busy=false] svg")


def choose_photo(page, content=None):
    """Choose a photo in the form and wait for everything that follows."""
    page.set_input_files("#picture", {"name": "<b>pet.png", "mimeType": "image/png", "buffer": content or make_photo()})
    wait_until_measured(page)
    return page


def expect_contains(page, selector, text):
    expect(page.locator(selector)).to_contain_text(text)


def expect_text(page, selector, text):
    expect(page.locator(selector)).to_have_text(text, use_inner_text=True)


def expect_count(page, selector, number):
    expect(page.locator(selector)).to_have_count(number)


def expect_value(page, selector, value):
    expect(page.locator(selector)).to_have_value(value)


def wait_until(page, condition):
    """Poll a condition; wait_for_function would evaluate code in the page, which its security policy forbids."""
    for _ in range(TIMEOUT_MS // 50):
        if condition():
            return
        page.wait_for_timeout(50)
    assert condition()


def read_address(page):
    """Return the address as the page knows it; Playwright's page.url is updated later."""
    return page.evaluate("location.href")


def hold_requests(page, pattern, containing=""):
    """Hold back requests whose body contains this text; return the list that they are added to."""
    held = []

    def handle(route):
        if containing in (route.request.post_data or ""):
            held.append(route)
        else:
            route.fallback()

    page.route(pattern, handle)
    return held


def reject_occlusion(route):
    """Answer requests for occlusion with an error."""
    if "occlusion" in route.request.post_data:
        route.fulfill(status=422, json={"error": "no such thing"})
    else:
        route.fallback()
