"""Notebook cells, without style sheet and script, so that a cell is hardly larger than the explanation's data.

Colours are translucent and text has the notebook's own colour, which is legible in any theme; no rule of the cell can
affect the rest of the notebook.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation
from clearhead.views import answer_html, html
from clearhead.views.captions import (
    format_notes,
    format_probability,
    format_relevance,
    format_source,
    format_tooltip,
)
from clearhead.views.color import STEPS, color_step, translucent_tint
from clearhead.views.heads import Head, HeadGrid
from clearhead.views.html_parts import full_scale
from clearhead.views.text_spans import (
    TextSpan,
    default_level,
    escape_hidden,
    has_negative_text,
    has_text,
    is_image,
    other_level,
    select_scored,
    split_segments,
)

# A notebook keeps its cells in the file: more would make it slow to open.
MAX_SHOWN = 100
MAX_FULL_CARDS = 3
# A cell has no style sheet, so its few rules are attributes.
FRAME_STYLE = "max-width:75ch;margin:0 0 1em;white-space:pre-wrap;overflow-wrap:anywhere"
PARAGRAPH_STYLE = "line-height:1.9;margin:0;text-underline-offset:.3em"


def fragment(explanation: Explanation) -> str:
    """Render one explanation without its scores per block; `html.with_style([blocks.heat_map(e)])` shows those."""
    # The layers of an image, or the choices of an answer, need the style sheet; compared with them it is small.
    if _needs_style(explanation):
        return html.with_style([_render_card(explanation)])
    return _render_frame(_render_parts(explanation, default_level(explanation)))


def _render_card(explanation: Explanation) -> str:
    if not isinstance(explanation, AnswerExplanation):
        return html.card(explanation)
    # Radio buttons of one name exclude each other, also between cells that show the same explanation.
    return answer_html.card(explanation, group=f"ch{secrets.token_hex(6)}")


def _render_parts(explanation: Explanation, level: str) -> Iterator[str]:
    yield _render_heading(explanation)
    yield from _render_text(explanation, level)
    yield from _render_footer(explanation)
    yield _render_other_level(explanation, level)
    yield _render_heads(explanation)


def listing(explanations: Sequence[Explanation]) -> str:
    """Render many explanations: the input of each, at most a hundred."""
    shown = explanations[:MAX_SHOWN]
    rest = _render_rest(explanations)
    if _need_style(shown):
        # Cards of images or answers share one style sheet.
        return html.with_style([*_render_cards(shown), rest])
    return "".join(_render_fragments(shown)) + rest


def _render_cards(explanations: Sequence[Explanation]) -> Iterable[str]:
    if len(explanations) <= MAX_FULL_CARDS:
        return map(_render_card, explanations)
    return map(html.brief_card, explanations)


def _render_fragments(explanations: Sequence[Explanation]) -> Iterable[str]:
    if len(explanations) <= MAX_FULL_CARDS:
        return map(fragment, explanations)
    return map(_render_brief, explanations)


def comparison(explanations: Mapping[str, Explanation | Sequence[Explanation]]) -> str:
    """Render several methods on one input, or on each of many, at most a hundred."""
    rows = _group_by_input(explanations)[:MAX_SHOWN]
    if any(_need_style(row.values()) for row in rows):
        return html.with_style(map(html.methods, rows))
    return "".join(map(_render_methods, rows))


def _need_style(explanations: Iterable[Explanation]) -> bool:
    return any(map(_needs_style, explanations))


def _needs_style(explanation: Explanation) -> bool:
    return is_image(explanation) or isinstance(explanation, AnswerExplanation)


def _group_by_input(explanations: Mapping[str, Explanation | Sequence[Explanation]]) -> list[dict[str, Explanation]]:
    """Return the explanations of each input by method."""
    columns = map(_as_list, explanations.values())
    return [dict(zip(explanations, row, strict=True)) for row in zip(*columns, strict=True)]


def _as_list(explanations: Explanation | Sequence[Explanation]) -> Sequence[Explanation]:
    if isinstance(explanations, Explanation):
        return [explanations]
    return explanations


def _render_rest(explanations: Sequence[Explanation]) -> str:
    rest = len(explanations) - MAX_SHOWN
    if rest <= 0:
        return ""
    return f"<p>… and {rest} more.</p>"


def _render_frame(bodies: Iterable[str]) -> str:
    return f'<div style="{FRAME_STYLE}">{"".join(bodies)}</div>'


def _render_heading(explanation: Explanation, *, method: bool = True) -> str:
    label = f"{_escape(explanation.label)}{format_probability(explanation)}"
    return f"<div><b>{label}</b> {_render_small(format_source(explanation, method=method))}</div>"


def _render_brief(explanation: Explanation) -> str:
    return _render_frame([_render_heading(explanation), *_render_text(explanation, default_level(explanation))])


def _render_methods(explanations: Mapping[str, Explanation]) -> str:
    return _render_frame(_list_methods(explanations))


def _list_methods(explanations: Mapping[str, Explanation]) -> Iterator[str]:
    # Label and probability are those of the input, the same for every method.
    first = next(iter(explanations.values()))
    yield _render_heading(first, method=False)
    for name, explanation in explanations.items():
        yield f"<div>{_render_small(name)}</div>"
        yield from _render_text(explanation, default_level(explanation))


def _render_text(explanation: Explanation, level: str) -> Iterator[str]:
    """Render the coloured text and its legend."""
    # The scale of words and tokens together, so that both levels have the same colours.
    full = full_scale(explanation)
    yield from _render_paragraphs(split_segments(explanation, level), full)
    yield _render_legend(explanation, full)


def _render_legend(explanation: Explanation, full: float) -> str:
    signed = has_negative_text(explanation)
    lowest = _format_lowest(full, signed)
    bar = _render_color_bar(signed)
    return f"<div><small>{lowest} {bar} {format_relevance(full)} for {_escape(explanation.label)}</small></div>"


def _format_lowest(full: float, signed: bool) -> str:
    if not signed:
        return "0"
    return f"against {format_relevance(-full)}"


def _render_color_bar(signed: bool) -> str:
    # #0000 is transparent: relevance 0 has no colour.
    colors = ["#0000", translucent_tint(STEPS)]
    if signed:
        colors.insert(0, translucent_tint(-STEPS))
    return f'<i style="padding:0 3em;background:linear-gradient(90deg,{",".join(colors)})"></i>'


def _render_footer(explanation: Explanation) -> Iterator[str]:
    """Render special tokens and diagnostics."""
    for note in format_notes(explanation):
        yield f"<div>{_render_small(note)}</div>"


def _render_other_level(explanation: Explanation, level: str) -> str:
    """Render the text by token instead of by word, or the other way round, folded away."""
    if not has_text(explanation):
        return ""
    other = other_level(level)
    summary = _render_small(f"{other.title()}s")
    paragraphs = _render_paragraphs(split_segments(explanation, other), full_scale(explanation))
    return f"<details><summary>{summary}</summary>{''.join(paragraphs)}</details>"


def _render_heads(explanation: Explanation) -> str:
    """Render the relevance of attention heads as a table, folded away."""
    if explanation.heads is None:
        return ""
    grid = HeadGrid(explanation)
    rows = "".join(_render_head_row(name, heads, grid.full) for name, heads in grid.rows())
    numbers = "".join(f"<th>{number}</th>" for number in grid.columns)
    table = f'<table style="white-space:nowrap"><tr><th>head</th>{numbers}</tr>{rows}</table>'
    return f"<details><summary>{_render_small('Heads')}</summary>{table}</details>"


def _render_head_row(name: str, heads: Iterable[Head], full: float) -> str:
    cells = "".join(_render_head_cell(head, full) for head in heads)
    return f"<tr><th>{name}</th>{cells}</tr>"


def _render_head_cell(head: Head, full: float) -> str:
    if not head.exists:
        return "<td></td>"
    step = color_step(head.relevance, full)
    style = f"background:{translucent_tint(step)};text-align:center;min-width:2em"
    return f'<td style="{style}" title="{head.caption}">{_choose_sign(step)}</td>'


def _choose_sign(step: int) -> str:
    # The sign can be read without colour; the number is in the tooltip, since a row of numbers would be too wide.
    if step == 0:
        return "·"
    return "+" if step > 0 else "−"


def _render_paragraphs(segments: Sequence[Sequence[TextSpan]], full: float) -> Iterator[str]:
    # Ranks go over all texts of the input.
    count = len(select_scored(segments))
    for segment in segments:
        yield _render_paragraph(segment, full, count)


def _render_paragraph(spans: Sequence[TextSpan], full: float, count: int) -> str:
    words = "".join(_render_span(span, full, count) for span in spans)
    return f'<p dir="auto" style="{PARAGRAPH_STYLE}">{words}</p>'


def _render_span(span: TextSpan, full: float, count: int) -> str:
    text = _escape(span.text)
    if span.relevance is None:
        return text
    title = f'title="{_escape(format_tooltip(span, count))}"'
    step = color_step(span.relevance, full)
    if step == 0:
        return f"<span {title}>{text}</span>"
    return f'<u style="{_word_style(step)}" {title}>{text}</u>'


def _word_style(step: int) -> str:
    style = f"background:{translucent_tint(step)}"
    # The underline shows the sign without colour: dashed is against the class.
    if step < 0:
        style += ";text-decoration-style:dashed"
    return style


def _render_small(text: str) -> str:
    return f"<small>{_escape(text)}</small>"


def _escape(text: str) -> str:
    return escape(escape_hidden(text))
