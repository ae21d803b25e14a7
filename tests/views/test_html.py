"""HTML pages and cards."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.explanations import HOSTILE, explained, pictured, review
from helpers.html_reader import TEXTS, shown

from clearhead.views import html, html_parts

GOLDEN = Path(__file__).parent / "pages"


@pytest.mark.parametrize("text", [text for name, text in TEXTS.items() if name != "hostile"])
def test_html_shows_the_text_at_both_levels(text):
    assert shown(html.card(explained(text))).paragraphs == [text, text]


def test_html_shows_hostile_text_literally():
    reader = shown(html.page([html.card(explained(HOSTILE))], HOSTILE))
    assert "script" not in reader.tags
    # Controls and lone surrogates are not allowed in HTML and are spelled out; the rest is there as it was.
    expected = HOSTILE.replace("\x1b", "⟨U+001B⟩").replace("\x00", "⟨U+0000⟩").replace("\ud800", "⟨U+D800⟩")
    assert reader.paragraphs == [expected, expected]


@pytest.mark.parametrize("field", ["label", "model", "method"])
def test_html_escapes_names_too(field):
    source = html.page([html.card(review(**{field: HOSTILE})), html.classes([review(**{field: HOSTILE})])], "x")
    assert "script" not in shown(source).tags
    source.encode()


def test_html_of_hostile_tokens():
    bad = review()
    bad = review(tokens=tuple(HOSTILE for _ in bad.tokens), layers=np.ones((2, len(bad.tokens))))
    assert "script" not in shown(html.page([html.card(bad), html.methods({HOSTILE: bad})], "x")).tags


def test_html_needs_nothing_from_outside():
    source = html.page([html.card(review()), html.card(pictured())], "x")
    assert "http://" not in source
    assert "https://" not in source
    assert "default-src 'none'" in source


def test_style_stays_below_its_class():
    rules = html_parts.style_element().removeprefix("<style>").removesuffix("</style>").replace("@media print{", "")
    selector_lists = [rule.rpartition("{")[0] for rule in rules.split("}") if "{" in rule]
    assert len(selector_lists) > 30
    for selector in ",.".join(selector_lists).split(",."):
        assert "clearhead" in selector or selector.startswith("vscode")


def test_html_of_a_long_text_is_small():
    words = " ".join(f"word{index}" for index in range(1005))
    long = explained(words)
    assert (~long.special).sum() == 2000
    assert len(html.page([html.card(long)], "long").encode()) < 1_000_000


def test_many_explanations_are_drawn_briefly():
    bodies = html.cards([review()] * 60)
    assert bodies == [html.brief_card(review())] * 60


def test_without_text_tokens_are_shown():
    bare = replace(explained("a film"), text=None, offsets=None)
    assert shown(html.card(bare)).paragraphs == ["a film"]


def cases() -> dict[str, str]:
    pair = explained(('He said <b>"no"</b>', "a\u202eb & c"), label="a < b", probability=None)
    small = explained("a tedious film", layers=np.array([[0, 0.1, 0.2, -0.1, 0.05, 0], [0, 0.1, 0.4, 0.2, -0.2, 0]]))
    return {
        "review": html.card(review()),
        "pair": html.card(pair),
        "blocks": html.card(small, rollout=explained("a tedious film", method="rollout")),
    }


@pytest.mark.parametrize("name", ["review", "pair", "blocks"])
def test_golden_html(name):
    """CLEARHEAD_GOLDEN=write writes the current output; look at the difference before committing it."""
    file = GOLDEN / f"{name}.html"
    source = cases()[name].replace("><", ">\n<") + "\n"
    if os.environ.get("CLEARHEAD_GOLDEN") == "write":
        file.write_text(source, "utf-8")
    assert source == file.read_text("utf-8")
