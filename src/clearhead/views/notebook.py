"""Notebook cells, without style sheet and script, so that a cell is hardly larger than the explanation's data.

Colours are translucent and text has the notebook's own colour, which is legible in any theme; no rule of the cell can
affect the rest of the notebook.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views import answer_html, html
from clearhead.views.captions import format_probability, format_source, format_tooltip
from clearhead.views.color import STEPS, translucent_tint
from clearhead.views.heads import Head, HeadGrid
from clearhead.views.notes import format_notes, format_reliability
from clearhead.views.scale import Scale, make_scale
from clearhead.views.text_spans import (
    TextSpan,
    default_level,
    escape_hidden,
    has_text,
    is_image,
    other_level,
    select_scored,
    split_segments,
)
from clearhead.views.trust import describe_removal, describe_verdict, summarise_checks, summarise_methods

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
    yield _render_check(explanation)
    yield from _render_footer(explanation)
    yield _render_other_level(explanation, level)
    yield _render_heads(explanation)


def listing(explanations: Sequence[Explanation]) -> str:
    """Render many explanations: the share that holds, and the input of each, at most a hundred."""
    shown = explanations[:MAX_SHOWN]
    summary = _render_summary(summarise_checks(explanations))
    rest = _render_rest(explanations)
    if _need_style(shown):
        # Cards of images or answers share one style sheet.
        return html.with_style([summary, *_render_cards(shown), rest])
    return "".join([summary, *_render_fragments(shown), rest])


def _render_summary(summary: str) -> str:
    return "".join(f"<p>{_escape(line)}</p>" for line in summary.splitlines())


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
    rows = group_by_input(explanations)
    summary = _render_summary(summarise_methods(rows))
    shown = rows[:MAX_SHOWN]
    if any(_need_style(row.values()) for row in shown):
        return html.with_style([summary, *map(html.methods, shown)])
    return "".join([summary, *map(_render_methods, shown)])


def _need_style(explanations: Iterable[Explanation]) -> bool:
    return any(map(_needs_style, explanations))


def _needs_style(explanation: Explanation | JointExplanation) -> bool:
    if isinstance(explanation, AnswerExplanation | JointExplanation):
        return True
    return is_image(explanation)


def group_by_input(explanations: Mapping[str, Explanation | Sequence[Explanation]]) -> list[dict[str, Explanation]]:
    """Return the explanations of each input by method."""
    columns = map(_as_list, explanations.values())
    return [dict(zip(explanations, row, strict=True)) for row in zip(*columns, strict=True)]


def _as_list(explanations: Explanation | Sequence[Explanation]) -> Sequence[Explanation]:
    if isinstance(explanations, Explanation | JointExplanation):
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
    text = _render_text(explanation, default_level(explanation))
    return _render_frame([_render_heading(explanation), *text, _render_check(explanation)])


def _render_methods(explanations: Mapping[str, Explanation]) -> str:
    return _render_frame(_list_methods(explanations))


def _list_methods(explanations: Mapping[str, Explanation]) -> Iterator[str]:
    # Label and probability are those of the input, the same for every method.
    first = next(iter(explanations.values()))
    yield _render_heading(first, method=False)
    for name, explanation in explanations.items():
        yield f"<div>{_render_small(name)}</div>"
        yield from _render_text(explanation, default_level(explanation))
        yield _render_check(explanation)
        yield from map(_render_note, format_reliability(explanation))


def _render_note(note: str) -> str:
    return f"<div>{_render_small(note)}</div>"


def _render_check(explanation: Explanation) -> str:
    check = explanation.check
    if check is None:
        return ""
    evidence = f"{describe_verdict(check)}. {describe_removal(explanation, check)}"
    return f"<div><small>Check <b>{check.verdict}</b>: {_escape(evidence)}</small></div>"


def _render_text(explanation: Explanation, level: str) -> Iterator[str]:
    """Render the coloured text and its legend."""
    scale = make_scale(explanation)
    yield from _render_paragraphs(split_segments(explanation, level), scale)
    yield _render_legend(scale, explanation.label)


def _render_legend(scale: Scale, label: str) -> str:
    bar = _render_color_bar(scale.signed)
    ends = f"{_format_lowest(scale)} {bar} {scale.highest} for {_escape(label)}"
    return f"<div><small>{ends}<br>{scale.caption}</small></div>"


def _format_lowest(scale: Scale) -> str:
    if not scale.signed:
        return "0"
    return f"against {scale.lowest}"


def _render_color_bar(signed: bool) -> str:
    # #0000 is transparent: relevance 0 has no colour.
    colors = ["#0000", translucent_tint(STEPS)]
    if signed:
        colors.insert(0, translucent_tint(-STEPS))
    return f'<i style="padding:0 3em;background:linear-gradient(90deg,{",".join(colors)})"></i>'


def _render_footer(explanation: Explanation) -> Iterator[str]:
    """Render notes on special tokens, the error bar and diagnostics."""
    yield from map(_render_note, format_notes(explanation))


def _render_other_level(explanation: Explanation, level: str) -> str:
    """Render the text by token instead of by word, or the other way round, folded away."""
    other = other_level(level)
    if not other or not has_text(explanation):
        return ""
    summary = _render_small(f"{other.title()}s")
    paragraphs = _render_paragraphs(split_segments(explanation, other), make_scale(explanation))
    return f"<details><summary>{summary}</summary>{''.join(paragraphs)}</details>"


def _render_heads(explanation: Explanation) -> str:
    """Render the relevance of attention heads as a table, folded away."""
    if explanation.heads is None:
        return ""
    grid = HeadGrid(explanation)
    rows = "".join(_render_head_row(name, heads, grid) for name, heads in grid.rows())
    numbers = "".join(f"<th>{number}</th>" for number in grid.columns)
    table = f'<table style="white-space:nowrap"><tr><th>head</th>{numbers}</tr>{rows}</table>'
    return f"<details><summary>{_render_small('Heads')}</summary>{table}</details>"


def _render_head_row(name: str, heads: Iterable[Head], grid: HeadGrid) -> str:
    cells = "".join(_render_head_cell(head, grid) for head in heads)
    return f"<tr><th>{name}</th>{cells}</tr>"


def _render_head_cell(head: Head, grid: HeadGrid) -> str:
    if not head.exists:
        return "<td></td>"
    step = grid.scale.find_step(head.relevance)
    style = f"background:{translucent_tint(step)};text-align:center;min-width:2em"
    return f'<td style="{style}" title="{grid.describe(head)}">{_choose_sign(step)}</td>'


def _choose_sign(step: int) -> str:
    # The sign can be read without colour; the number is in the tooltip, since a row of numbers would be too wide.
    if step == 0:
        return "·"
    return "+" if step > 0 else "−"


def _render_paragraphs(segments: Sequence[Sequence[TextSpan]], scale: Scale) -> Iterator[str]:
    # Ranks go over all texts of the input.
    count = len(select_scored(segments))
    for segment in segments:
        yield _render_paragraph(segment, scale, count)


def _render_paragraph(spans: Sequence[TextSpan], scale: Scale, count: int) -> str:
    words = "".join(_render_span(span, scale, count) for span in spans)
    return f'<p dir="auto" style="{PARAGRAPH_STYLE}">{words}</p>'


def _render_span(span: TextSpan, scale: Scale, count: int) -> str:
    text = _escape(span.text)
    if not span.is_read:
        return f"<s>{text}</s>"
    if span.relevance is None:
        return text
    title = f'title="{_escape(format_tooltip(scale, span, count))}"'
    step = scale.find_step(span.relevance)
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
