"""Pages in a real browser: no requests, no console messages, accessible, fast, and text shown literally."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.answers import CHAT, contrasted_answer, explained_answer
from helpers.browser import find_violations, launch_browser, needs_axe, needs_chromium
from helpers.explanations import HOSTILE, explained, pictured, review
from helpers.timing import quickest

from clearhead.evaluation.top_words import overlap_rows, top_words, word_records
from clearhead.views import annotations, class_words, html, html_parts, line_chart, notebook

SCHEMES = ("light", "dark")
pytestmark = needs_chromium


def render_everything() -> str:
    """A page with every view on it."""
    blocks = review(layers=np.random.default_rng(0).normal(size=(4, 14)))
    line = line_chart.Curve("att-cat", (0.0, 0.5, 1.0), (0.9, 0.3, 0.1), (0.8, 0.2, 0.0), (1.0, 0.4, 0.2))
    random = line_chart.Curve("random", (0.0, 0.5, 1.0), (0.9, 0.7, 0.1))
    mask = np.zeros((40, 60))
    mask[10:20, 30:40] = 1
    other = review(label="positive", relevance=-review().relevance)
    records = word_records([review(), other])
    bodies = [
        html.card(blocks, rollout=review(method="rollout")),
        html.classes([review(), other]),
        html.methods({"att-cat": review(), "trans-att": review()}),
        html.card(pictured()),
        html.classes([pictured(), pictured(label="dog")]),
        annotations.text_with_rationale([review(), other], [(2, 9)]),
        annotations.image_with_mask([pictured()], mask),
        html_parts.card(line_chart.chart([line, random], title="Hiding the strongest tokens")),
        render_many_curves(),
        class_words.summary(top_words(records), overlap_rows(records)),
        html.card(explained_answer()),
        html.card(explained_answer(CHAT, with_matrix=False)),
        html.card(contrasted_answer()),
        html.methods({"attn-lrp": explained_answer(), "cp-lrp": explained_answer()}),
        html.card(explained(HOSTILE)),
        html.card(explained("هذا الفيلم ممل جدا 👩‍👧")),
    ]
    return html.page(bodies, "Everything")


def render_many_curves() -> str:
    """A card with a chart whose table of numbers is wider than the page."""
    values = (0.9, 0.3, 0.1)
    curves = [line_chart.Curve(f"method-{index}", (0.0, 0.5, 1.0), values, values, values) for index in range(9)]
    return html_parts.card(line_chart.chart(curves, title="Nine methods"))


@pytest.fixture(scope="module")
def browser():
    with launch_browser() as opened:
        yield opened


@pytest.fixture
def visit(browser, tmp_path):
    """Return a function that opens a page and records its requests and messages."""
    contexts = []

    def open_page(source: str, scheme: str = "light"):
        file = tmp_path / "page.html"
        file.write_text(source, "utf-8")
        contexts.append(browser.new_context(color_scheme=scheme, offline=True))
        page = contexts[-1].new_page()
        page.messages = []
        page.requests = []
        page.on("console", lambda message: page.messages.append(message.text))
        page.on("pageerror", lambda error: page.messages.append(str(error)))
        page.on("dialog", lambda dialog: (page.messages.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_page_requests_nothing_and_logs_nothing(visit, scheme):
    page = visit(render_everything(), scheme)
    assert page.messages == []
    outside = [url for url in page.requests if not url.startswith(("file:", "data:"))]
    assert outside == []
    assert sum(url.startswith("file:") for url in page.requests) == 1


@needs_axe
@pytest.mark.parametrize("scheme", SCHEMES)
def test_accessible(browser, tmp_path, scheme):
    """axe-core finds no violation, with everything unfolded; its script enters despite the page's own policy."""
    file = tmp_path / "page.html"
    file.write_text(render_everything(), "utf-8")
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    violations = find_violations(page)
    context.close()
    assert violations == {}


def test_hostile_text_shows_literally_and_in_order(visit):
    page = visit(html.page([html.card(explained("ab\u202ecd\u2066ef\u200bgh <script>alert(1)</script> \"'&"))], "x"))
    shown = page.locator(".ch-word").first
    assert shown.evaluate("node => node.textContent").endswith("<script>alert(1)</script> \"'&")
    assert page.messages == []
    assert page.locator("script").count() == 0
    left = page.evaluate(
        """() => {
            const words = document.querySelector('.ch-word');
            const walker = document.createTreeWalker(words, NodeFilter.SHOW_TEXT);
            const places = {};
            while (walker.nextNode())
                for (let at = 0; at < walker.currentNode.data.length; at++) {
                    const range = document.createRange();
                    range.setStart(walker.currentNode, at);
                    range.setEnd(walker.currentNode, at + 1);
                    places[walker.currentNode.data[at]] ??= range.getBoundingClientRect().left;
                }
            return [...'abcdefgh'].map(letter => places[letter]);
        }"""
    )
    assert left == sorted(left)
    assert len(set(left)) == 8


def test_hidden_characters_have_a_label(visit):
    page = visit(html.page([html.card(explained("ab\u202ecd"))], "x"))
    content = page.locator(".ch-word .ch-hidden").first.evaluate("node => getComputedStyle(node, '::before').content")
    assert content == '"202E"'


def test_keyboard_reaches_every_control(visit):
    page = visit(html.page([html.card(replace(review(), layers=np.ones((2, 14)))), html.card(pictured())], "x"))
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.className || document.activeElement.tagName"))
    assert reached[:6] == ["ch-tokens", "SUMMARY", "SUMMARY", "ch-opacity", "ch-patches", "ch-contour"]


def test_tokens_and_layers_of_a_photo_are_switched_without_script(visit):
    page = visit(html.page([html.card(review()), html.card(pictured())], "x"))
    words, tokens = page.locator(".ch-word"), page.locator(".ch-token")
    assert (words.is_visible(), tokens.is_visible()) == (True, False)
    page.locator(".ch-tokens").focus()
    page.keyboard.press("Space")
    assert (words.is_visible(), tokens.is_visible()) == (False, True)
    exact = page.locator(".ch-heat.ch-exact")
    assert exact.is_visible() is False
    page.locator(".ch-patches").check()
    assert exact.is_visible() is True
    page.locator(".ch-opacity").select_option("25")
    assert exact.evaluate("node => getComputedStyle(node).opacity") == "0.25"


def test_the_outline_belongs_to_the_view_that_is_shown(visit):
    page = visit(html.page([html.card(pictured())], "x"))
    visible_layers = """[...document.querySelectorAll('.ch-stack img')]
        .filter(image => image.checkVisibility()).map(image => image.className)"""
    assert page.evaluate(visible_layers) == ["ch-photo", "ch-heat ch-smooth"]
    page.locator(".ch-contour").check()
    assert page.evaluate(visible_layers) == ["ch-photo", "ch-heat ch-smooth", "ch-outline ch-smooth"]
    page.locator(".ch-patches").check()
    assert page.evaluate(visible_layers) == ["ch-photo", "ch-heat ch-exact", "ch-outline ch-exact"]
    page.locator(".ch-contour").uncheck()
    assert page.evaluate(visible_layers) == ["ch-photo", "ch-heat ch-exact"]


def test_arrow_keys_choose_a_word_of_an_answer(visit):
    page = visit(html.page([html.card(explained_answer()), html.card(contrasted_answer())], "x"))
    color = "node => getComputedStyle(node).backgroundImage + getComputedStyle(node).backgroundColor"
    capital = page.locator(".ch-tint", has_text="capital").first
    whole = capital.evaluate(color)
    assert page.get_by_text("for whole answer").first.is_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.closest('label').innerText").startswith("on")
    assert page.locator("label:has(:focus-visible)").evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
    assert capital.evaluate(color) != whole
    assert page.locator(".ch-k2 .ch-legend").first.is_visible()
    assert not page.locator(".ch-k0 .ch-legend").first.is_visible()
    # What comes after the chosen word did not lead to it.
    later = page.locator(".ch-step .ch-tint", has_text="the").first
    assert later.evaluate("node => getComputedStyle(node).getPropertyValue('--s')").strip() == "0"
    assert page.messages == []


def test_a_mouse_chooses_a_word_of_an_answer_and_the_other_card_stays(visit):
    other = explained_answer(answer="London on the Thames")
    page = visit(html.page([html.card(explained_answer()), html.card(other)], "x"))
    page.get_by_text("Seine", exact=True).first.click()
    first, second = page.locator(".ch-answer").all()
    assert first.locator("input:checked").get_attribute("value") == "4"
    assert second.locator("input:checked").get_attribute("value") == "0"


def test_sign_survives_without_colour(visit):
    page = visit(html.page([html.card(review())], "x"))
    style = "node => getComputedStyle(node).borderBottomStyle"
    assert page.locator(".ch-word span", has_text="tedious").evaluate(style) == "solid"
    assert page.locator(".ch-word span", has_text="heart").evaluate(style) == "dashed"


def render_cell(theme: str) -> str:
    """A page like a notebook's, with a text, a list, a comparison and a photo."""
    colors = "background:#fff;color:#212121" if theme == "light" else "background:#111;color:#e0e0e0"
    bodies = [
        notebook.fragment(review()),
        notebook.listing([review(), explained(HOSTILE)] * 3),
        notebook.comparison({"att-cat": review(), "trans-att": review()}),
        notebook.fragment(pictured()),
        notebook.fragment(explained_answer()),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>x</title><link rel="icon" href="data:,">'
        f'<body style="{colors}" data-jp-theme-light="{str(theme == "light").lower()}">'
        f'<main id="out"><h1>x</h1>{"".join(bodies)}</main>'
    )


@pytest.mark.parametrize(("theme", "paper"), [("dark", "rgb(24, 26, 31)"), ("light", "rgb(255, 255, 255)")])
def test_a_cell_follows_the_notebook(visit, theme, paper):
    page = visit(render_cell(theme))
    behind = "node => getComputedStyle(node).backgroundColor"
    assert page.locator(".clearhead").first.evaluate(behind) == paper
    ink = page.locator("#out > div > p u").first.evaluate("node => getComputedStyle(node).color")
    assert ink == ("rgb(33, 33, 33)" if theme == "light" else "rgb(224, 224, 224)")
    assert (page.messages, [url for url in page.requests if not url.startswith(("file:", "data:"))]) == ([], [])


@needs_axe
@pytest.mark.parametrize("theme", SCHEMES)
def test_a_cell_is_accessible(visit, theme):
    page = visit(render_cell(theme))
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    violations = find_violations(page, "#out")
    # The notebook itself determines the levels of headings.
    violations.pop("heading-order", None)
    assert violations == {}


@pytest.mark.parametrize("explanation", [review(), pictured(), explained_answer()])
def test_a_cell_leaves_its_surroundings_alone(visit, explanation):
    outside = "<!doctype html><title>x</title><p id=one class=f9>text</p><table id=two><tr><th>a<td>b</table>"
    measure = """() => ['one', 'two'].map(id => JSON.stringify(
        [...Object.entries(getComputedStyle(document.getElementById(id)))].filter(([key]) => isNaN(key))
            .filter(([key]) => !/width|height|size|origin|inline|block/i.test(key))))"""
    before = visit(outside).evaluate(measure)
    assert visit(outside + notebook.fragment(explanation)).evaluate(measure) == before


def test_a_narrow_window_needs_no_sideways_scrolling(visit):
    page = visit(render_everything())
    page.set_viewport_size({"width": 360, "height": 600})
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_rows_of_a_wide_table_keep_their_names_on_one_line(visit):
    page = visit(html.page([render_many_curves()], "x"))
    page.evaluate("document.querySelector('details').open = true")
    assert page.locator("tbody th").first.bounding_box()["height"] < 30


def test_a_long_text_renders_within_a_second(visit):
    source = html.page([html.card(explained(" ".join(f"word{index}" for index in range(1005))))], "long")
    assert len(source.encode()) < 1_000_000
    page = visit("<!doctype html><title>warm</title>")
    file = Path(page.url.removeprefix("file://"))
    file.write_text(source, "utf-8")

    def render():
        page.goto(file.as_uri())
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    assert quickest(render, 1) <= 1
    assert page.locator(".ch-word > span").count() == 1005
