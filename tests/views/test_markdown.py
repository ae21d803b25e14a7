"""Explanations as Markdown."""

from helpers.explanations import explained, pictured, review

from clearhead.views import markdown, markdown_parts


def test_markdown_escapes_and_ranks():
    text = markdown.document([explained("a <b> | tedious *film* `x`")])
    assert "\\<b\\> \\|" in text
    assert "| tedious | +79 % |" in text
    assert "\\- no list" in markdown_parts.escape("- no list")
    assert "**tedious**" in text and "**bold** speaks for negative" in text
    assert "*tedious*" in markdown.section(review(relevance=-review().relevance))
    assert "| patch | share |" in markdown.section(pictured())
