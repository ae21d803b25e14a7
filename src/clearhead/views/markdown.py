"""Markdown for issues and notes: the text with its strong words emphasised, and a table of them."""

from collections.abc import Iterator, Mapping, Sequence

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views import answer_markdown
from clearhead.views.answers import list_notes
from clearhead.views.captions import format_headline, name_span
from clearhead.views.heads import HeadGrid
from clearhead.views.joint_scale import describe_shares, list_members, share_scale
from clearhead.views.markdown_parts import emphasise, escape, quote
from clearhead.views.scale import Scale, make_scale
from clearhead.views.text_spans import default_level, is_image, split_segments, strongest_spans
from clearhead.views.trust import format_check, summarise_checks

MAX_TABLE_ROWS = 10


def document(explanations: Sequence[Explanation]) -> str:
    """Render the share that holds, and a section per explanation."""
    sections = list(map(section, explanations))
    summary = summarise_checks(explanations)
    if summary:
        sections.insert(0, f"{escape(summary)}\n")
    return "\n".join(sections)


def comparison(explanations: Mapping[str, Explanation]) -> str:
    """Render a section per method."""
    return "\n".join(map(section, explanations.values()))


def section(explanation: Explanation | JointExplanation) -> str:
    """Render heading, quoted text with strong words emphasised, tables, check, and notes."""
    if isinstance(explanation, JointExplanation):
        return _render_joint(explanation)
    scale = make_scale(explanation)
    return _render_section(explanation, scale, caption=scale.caption)


def _render_joint(joint: JointExplanation) -> str:
    """Render a section per input, and once what the numbers of all of them mean."""
    scales = share_scale(joint)
    sections = []
    for explanation, scale in zip(list_members(joint), scales, strict=True):
        sections.append(_render_section(explanation, scale, caption=""))
    notes = [scales[0].caption, describe_shares(joint)]
    return "\n".join([*sections, *(f"{escape(note)}\n" for note in notes)])


def _render_section(explanation: Explanation, scale: Scale, *, caption: str) -> str:
    lines = [f"## {escape(format_headline(explanation))}", ""]
    lines += _render_body(explanation, scale)
    # A blank line ends the table.
    lines.append("")
    lines += _list_heads(explanation)
    lines += [f"{escape(note)}\n" for note in _list_notes(explanation, caption)]
    return "\n".join(lines)


def _render_body(explanation: Explanation, scale: Scale) -> Iterator[str]:
    if isinstance(explanation, AnswerExplanation):
        yield from answer_markdown.render(explanation)
        return
    yield from _quote_text(explanation, scale)
    yield from _list_strongest(explanation, scale)


def _list_notes(explanation: Explanation, caption: str) -> Iterator[str]:
    """Iterate over the meaning of the numbers, the check, the model, and notes."""
    notes = [caption, format_check(explanation), explanation.model]
    return filter(None, [*notes, *list_notes(explanation)])


def _quote_text(explanation: Explanation, scale: Scale) -> Iterator[str]:
    """Iterate over the lines of the text; words for the class are bold, words against it in italics."""
    if is_image(explanation):
        return
    for text in _emphasise_segments(explanation, scale):
        yield from quote(text)
        yield ">"
    yield f"> **bold** speaks for {escape(explanation.label)}, *italics* against it"
    yield ""


def _emphasise_segments(explanation: Explanation, scale: Scale) -> Iterator[str]:
    is_word_level = default_level(explanation) != "token"
    for segment in split_segments(explanation):
        yield "".join(emphasise(span, scale, is_word_level) for span in segment)


def _list_strongest(explanation: Explanation, scale: Scale) -> Iterator[str]:
    yield f"| {_name_rows(explanation)} | {scale.column} |"
    yield "|:--|--:|"
    for span in strongest_spans(explanation, MAX_TABLE_ROWS):
        yield f"| {escape(name_span(span))} | {scale.format(span.relevance_or_zero)} |"


def _list_heads(explanation: Explanation) -> list[str]:
    """Return a table of the strongest attention heads, if the explanation has them."""
    if explanation.heads is None:
        return []
    grid = HeadGrid(explanation)
    rows = [f"| {head.name} | {grid.scale.format(head.relevance)} |" for head in grid.strongest(MAX_TABLE_ROWS)]
    return ["| attention head | share |", "|:--|--:|", *rows, ""]


def _name_rows(explanation: Explanation) -> str:
    if is_image(explanation):
        return "patch"
    return default_level(explanation)
