"""HTML views: cards and self-contained pages, without scripts and without external resources."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from clearhead.answer_explanation import AnswerExplanation
from clearhead.errors import BadInput
from clearhead.explanation import Explanation
from clearhead.views import answer_html, blocks, heads, heatmap, html_parts
from clearhead.views.captions import format_label
from clearhead.views.text_spans import (
    default_level,
    escape_hidden,
    has_negative_text,
    is_image,
    max_relevance,
    require_explanations,
    scored_spans,
    split_segments,
)

# More explanations than this get brief cards.
MAX_FULL_CARDS = 20
# No scripts and no requests, whatever an explained text contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
PAGE_STYLE = (
    "body.clearhead{margin:0}.clearhead main{max-width:64rem;margin:0 auto;padding:1.5rem 1rem}"
    ".clearhead h1{font-size:1.3rem;margin:0 0 1rem}"
)


def with_style(bodies: Iterable[str]) -> str:
    """Render bodies with the style rules they use, to be inserted into another page."""
    # Every cell of a notebook repeats its style, so unused rules are left out.
    body = "".join(bodies)
    return f'<div class="clearhead">{html_parts.style_element(body)}{body}</div>'


def page(bodies: Iterable[str], title: str) -> str:
    """Render bodies as one self-contained file."""
    name = escape(escape_hidden(title))
    body = "\n".join(bodies)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{_render_head(name)}</head>\n'
        f'<body class="clearhead">\n<main>\n<h1>{name}</h1>\n{body}\n</main>\n</body>\n</html>\n'
    )


def _render_head(name: str) -> str:
    return (
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # The empty icon keeps browsers from requesting /favicon.ico.
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{name}</title>\n{html_parts.style_element()}\n<style>{PAGE_STYLE}</style>\n"
    )


def card(explanation: Explanation, *, level: str | None = None, rollout: Explanation | None = None) -> str:
    """Render one explanation in full; `rollout` adds its row to the scores per block."""
    if is_image(explanation):
        return _image_card(explanation)
    if isinstance(explanation, AnswerExplanation):
        return answer_html.card(explanation)
    return _text_card(explanation, level or default_level(explanation), rollout)


def _text_card(explanation: Explanation, level: str, rollout: Explanation | None) -> str:
    # Words and tokens share one scale, so that switching between them changes no colour's meaning.
    full = html_parts.full_scale(explanation)
    return html_parts.card(
        html_parts.render_heading(explanation),
        html_parts.render_spoken_summary(explanation, level),
        html_parts.render_levels(explanation, level, full),
        _render_legend(explanation, full),
        html_parts.render_footer(explanation),
        html_parts.render_numbers(explanation, level),
        _render_blocks(explanation, rollout),
        _render_heads(explanation),
    )


def _image_card(explanation: Explanation) -> str:
    return html_parts.card(
        html_parts.render_heading(explanation),
        render_input(explanation),
        html_parts.render_footer(explanation),
        _render_heads(explanation),
    )


def _render_blocks(explanation: Explanation, rollout: Explanation | None) -> str:
    if explanation.layers is None:
        return ""
    return html_parts.details("Block by block", blocks.heat_map(explanation, rollout))


def _render_heads(explanation: Explanation) -> str:
    if explanation.heads is None:
        return ""
    return html_parts.details("Head by head", heads.heat_map(explanation))


def cards(explanations: Sequence[Explanation]) -> list[str]:
    """Render a card each; of more than 20 only the inputs."""
    if len(explanations) <= MAX_FULL_CARDS:
        return list(map(card, explanations))
    return list(map(brief_card, explanations))


def brief_card(explanation: Explanation) -> str:
    """Render only label and coloured input."""
    return html_parts.card(html_parts.render_heading(explanation), render_input(explanation))


def methods(explanations: Mapping[str, Explanation]) -> str:
    """Render the same input explained by several methods, each on its own scale."""
    _check_by_method(explanations)
    first = next(iter(explanations.values()))
    inputs = list(map(_render_named_input, explanations.keys(), explanations.values()))
    # Images are compared side by side, texts line by line below each other.
    if is_image(first):
        inputs = [html_parts.side_by_side(inputs)]
    return html_parts.card(html_parts.render_heading(first, method=False), *inputs)


def _check_by_method(explanations: Mapping[str, Explanation]) -> None:
    if not isinstance(explanations, Mapping):
        raise BadInput("This view takes explanations by the name of their method, as `compare` returns for one input.")
    require_explanations(explanations.values())


def _render_named_input(name: str, explanation: Explanation) -> str:
    return f"<h3>{html_parts.escape(name)}</h3>{render_input(explanation)}"


def classes(explanations: Sequence[Explanation]) -> str:
    """Render the same input explained for two or more classes side by side, on one scale."""
    # One scale, so that a pale class is one with little relevance.
    full = shared_full_scale(explanations)
    columns = [_render_class(explanation, full) for explanation in explanations]
    return html_parts.card(html_parts.side_by_side(columns))


def _render_class(explanation: Explanation, full: float) -> str:
    return html_parts.render_heading(explanation, tag="h3") + render_input(explanation, full)


def make_title(explanations: Sequence[Explanation]) -> str:
    """Return a title for a page of explanations."""
    labels = {explanation.label for explanation in explanations}
    if len(labels) == 1:
        return f"Why “{format_label(explanations[0])}”?"
    return f"{len(explanations)} explanations by {_list_methods(explanations)}"


def _list_methods(explanations: Sequence[Explanation]) -> str:
    # A dict instead of a set: the methods keep their order.
    names = dict.fromkeys(explanation.method for explanation in explanations)
    return ", ".join(names)


def render_input(explanation: Explanation, full: float | None = None) -> str:
    """Render the coloured text or image with its legend; `full` is the relevance of the full colour."""
    if isinstance(explanation, AnswerExplanation):
        return answer_html.render_input(explanation)
    full = full or _full_scale(explanation)
    if is_image(explanation):
        return _render_image(explanation, full)
    segments = split_segments(explanation, default_level(explanation))
    return html_parts.render_text(segments, full) + _render_legend(explanation, full)


def _render_image(explanation: Explanation, full: float) -> str:
    return heatmap.render_figure(explanation, full=full) + heatmap.render_legend(explanation, full)


def shared_full_scale(explanations: Sequence[Explanation]) -> float:
    """Return the relevance of the full colour for explanations on one scale: the largest of all."""
    require_explanations(explanations)
    return max(map(_full_scale, explanations))


def _full_scale(explanation: Explanation) -> float:
    if is_image(explanation):
        return heatmap.full_scale(explanation)
    return max_relevance(scored_spans(explanation, default_level(explanation)))


def _render_legend(explanation: Explanation, full: float) -> str:
    return html_parts.render_legend(full, explanation.label, has_negative_text(explanation))
