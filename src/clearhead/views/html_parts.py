"""HTML fragments that pages are built from; text of a user or a tokenizer always passes through `escape`."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape as escape_html
from importlib.resources import files
from itertools import starmap

from clearhead.explanation import Explanation
from clearhead.views.captions import (
    format_label,
    format_probability,
    format_source,
    format_tooltip,
    format_word,
    name_span,
)
from clearhead.views.color import (
    DARK,
    LEGEND_STEPS,
    LIGHT,
    NEGATIVE_LEGEND_STEPS,
    STEPS,
    Rgb,
    background_color,
    format_hex,
)
from clearhead.views.notes import format_notes
from clearhead.views.numbers import format_relevance
from clearhead.views.scale import Scale
from clearhead.views.text_spans import (
    TextSpan,
    escape_hidden,
    has_text,
    is_hidden,
    other_level,
    select_scored,
    spell_out,
    split_segments,
    strongest_spans,
)
from clearhead.views.trust import describe_removal, describe_verdict

MAX_TABLE_ROWS = 20
MAX_SPOKEN_WORDS = 5
# Variables of the style sheet and the fields of a theme that they hold.
COLOR_VARIABLES = {
    "paper": "paper",
    "ink": "ink",
    "faint": "faint",
    "line": "line",
    "for": "above",
    "against": "below",
    "warm": "positive",
    "cold": "negative",
    "prompt": "prompt",
    "own": "own",
    "pictures": "pictures",
}


def escape(text: str) -> str:
    """Escape text so that a browser shows every character of it, hidden ones included.

    Hidden characters stay in place, so that copying gives the original, but are isolated and labelled; controls,
    which HTML does not allow, are replaced by their labels.
    """
    if _is_plain(text):
        return escape_html(text)
    return "".join(_escape_character(text, index) for index in range(len(text)))


def _is_plain(text: str) -> bool:
    # A page has thousands of words, and most of them have no hidden character.
    return text.isascii() and text.isprintable()


def _escape_character(text: str, index: int) -> str:
    if is_hidden(text, index):
        return _label_hidden(text[index])
    return escape_html(text[index])


def _label_hidden(character: str) -> str:
    if _is_forbidden(character):
        return f'<span class="ch-hidden">{spell_out(character)}</span>'
    code = ord(character)
    return f'<span class="ch-hidden" data-code="{code:04X}">&#x{code:X};</span>'


def _is_forbidden(character: str) -> bool:
    """Return whether HTML does not allow the character, not even as a reference."""
    is_control = character < "\xa0"
    is_surrogate = "\ud800" <= character <= "\udfff"
    return is_control or is_surrogate


def escape_attribute(text: str) -> str:
    """Escape text for a title or an aria-label, where no element can isolate hidden characters."""
    return escape(escape_hidden(text))


@cache
def style_sheet() -> tuple[str, ...]:
    """Return the rules of the style sheet; each applies only inside .clearhead."""
    # style.css has one rule per line, so that `style_element` can leave out unused ones.
    written = (files("clearhead.views") / "style.css").read_text("utf-8")
    return (*written.splitlines(), _color_variables(), *_color_rules())


def style_element(body: str | None = None) -> str:
    """Return the style sheet, reduced to the rules that `body` uses if it is given."""
    rules: Iterable[str] = style_sheet()
    if body is not None:
        rules = (rule for rule in rules if _is_used(rule, body))
    return f"<style>{''.join(rules)}</style>"


def _is_used(rule: str, body: str) -> bool:
    names = _list_classes(rule)
    # A rule without any of these classes is always used.
    return not names or any(name in body for name in names)


def _list_classes(rule: str) -> list[str]:
    """Return the classes ch-… and those of the colour steps in the selector."""
    return re.findall(r"\.(ch-[a-z]+|[fa]\d)\b", rule.partition("{")[0])


def _color_variables() -> str:
    declarations = "".join(starmap(_declare_color, COLOR_VARIABLES.items()))
    return f".clearhead{{{declarations}}}"


def _declare_color(name: str, field: str) -> str:
    return f"--ch-{name}:{_theme_color(field)};"


def _theme_color(field: str) -> str:
    return _light_dark(getattr(LIGHT, field), getattr(DARK, field))


def _color_rules() -> Iterator[str]:
    # Step 0 has no background.
    return map(_color_rule, filter(None, range(-STEPS, STEPS + 1)))


def _color_rule(step: int) -> str:
    return f".clearhead .{css_class(step)}{{background:{_step_color(step)}}}"


def _step_color(step: int) -> str:
    return _light_dark(background_color(step, LIGHT), background_color(step, DARK))


def _light_dark(light: Rgb, dark: Rgb) -> str:
    return f"light-dark({format_hex(light)},{format_hex(dark)})"


def css_class(step: int) -> str:
    """Return the class of a step: f1 … f9 for the explained class, a1 … a9 against it, "" for step 0."""
    if step > 0:
        return f"f{step}"
    if step < 0:
        return f"a{-step}"
    return ""


def render_text(segments: Sequence[Sequence[TextSpan]], scale: Scale, css: str = "") -> str:
    """Render one paragraph per text of the input, each word on its colour."""
    # Ranks go over all texts of the input.
    count = len(select_scored(segments))
    return "".join(_render_paragraph(segment, scale, count, css) for segment in segments)


def _render_paragraph(spans: Sequence[TextSpan], scale: Scale, count: int, css: str) -> str:
    words = "".join(_render_span(span, scale, count) for span in spans)
    # The language is that of the user's text, not of the page, and the text itself tells its direction.
    return f'<p class="ch-text {css}" dir="auto" lang="">{words}</p>'


def _render_span(span: TextSpan, scale: Scale, count: int) -> str:
    if span.relevance is not None:
        return _render_word(span, scale, count)
    if span.is_read:
        return escape(span.text)
    return f'<span class="ch-unread">{escape(span.text)}</span>'


def _render_word(span: TextSpan, scale: Scale, count: int) -> str:
    tooltip = escape_attribute(format_tooltip(scale, span, count))
    css = _class_attribute(scale.find_step(span.relevance)) if span.is_read else 'class="ch-unread" '
    return f'<span {css}title="{tooltip}">{escape(span.text)}</span>'


def _class_attribute(step: int) -> str:
    # Most words of a long text have no colour: an empty attribute each would make the page larger.
    if step == 0:
        return ""
    return f'class="{css_class(step)}" '


def render_levels(explanation: Explanation, level: str, scale: Scale) -> str:
    """Render the text at one level and, behind a check box, at the other one, on the same scale."""
    # Without the original text there are only tokens.
    if not has_text(explanation):
        return render_text(split_segments(explanation), scale)
    # The style sheet hides .ch-token until the box is checked: there is no script.
    other = other_level(level)
    if not other:
        return render_text(split_segments(explanation, level), scale)
    shown = _render_level(explanation, level, scale, "ch-word")
    hidden = _render_level(explanation, other, scale, "ch-token")
    return shown + hidden + _render_check_box(other)


def _render_level(explanation: Explanation, level: str, scale: Scale, css: str) -> str:
    return render_text(split_segments(explanation, level), scale, css)


def _render_check_box(level: str) -> str:
    return f'<label><input type="checkbox" class="ch-tokens"> Show {level}s</label>'


def render_heading(explanation: Explanation, *, method: bool = True, tag: str = "h2") -> str:
    """Render the explained class, its probability, and where the numbers come from."""
    heading = f"<{tag}>{escape(format_label(explanation))}{format_probability(explanation)}</{tag}>"
    source = format_source(explanation, method=method)
    if source:
        heading += render_faint(source)
    return heading


def render_faint(text: str) -> str:
    """Render a paragraph of secondary text."""
    return f'<p class="ch-faint">{_bind_units(escape(text))}</p>'


def _bind_units(text: str) -> str:
    """Keep per cent signs on the line of their number."""
    return text.replace(" %", "&nbsp;%")


def render_legend(scale: Scale, label: str) -> str:
    """Render what the colours and the numbers mean."""
    lowest = f"against {scale.lowest}" if scale.signed else None
    return render_colors(lowest, f"{scale.highest} for {label}") + render_faint(scale.caption)


def render_colors(lowest: str | None, highest: str) -> str:
    """Render the colours between what is written at their ends; without the lower one only those above 0."""
    negative = ""
    if lowest is not None:
        negative = f"<span>{escape(lowest)}</span>{_render_swatches(NEGATIVE_LEGEND_STEPS)}"
    positive = f"{_render_swatches(LEGEND_STEPS)}<span>{escape(highest)}</span>"
    return f'<p class="ch-legend">{negative}<span>0</span>{positive}</p>'


def _render_swatches(steps: Iterable[int]) -> str:
    return f"<b>{''.join(map(_render_swatch, steps))}</b>"


def _render_swatch(step: int) -> str:
    return f'<i class="{css_class(step)}"></i>'


def render_check(explanation: Explanation) -> str:
    """Render the verdict of the check and what was hidden; nothing if there was no check."""
    check = explanation.check
    if check is None:
        return ""
    verdict = f'<b class="ch-{check.verdict}">{check.verdict}</b>'
    evidence = _bind_units(escape(describe_removal(explanation, check)))
    return f'<p class="ch-check">Check {verdict}: {escape(describe_verdict(check))}. <span>{evidence}</span></p>'


def render_spoken_summary(explanation: Explanation, level: str, scale: Scale) -> str:
    """Render what a screen reader reads first: the strongest words in a sentence."""
    spans = strongest_spans(explanation, MAX_SPOKEN_WORDS, level)
    words = ", ".join(format_word(scale, span) for span in spans)
    # .ch-sr is visible to screen readers only.
    return f'<p class="ch-sr">Strongest {level}s: {escape(words)}.</p>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table of HTML cells: the first of each row is its heading, the others are numbers."""
    head = "".join(map(_render_column_heading, columns))
    body = "".join(map(_render_row, rows))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _render_column_heading(text: str) -> str:
    return f'<th scope="col">{text}</th>'


def _render_row(cells: Sequence[str]) -> str:
    numbers = "".join(map(_render_number, cells[1:]))
    return f'<tr><th scope="row" dir="auto">{cells[0]}</th>{numbers}</tr>'


def _render_number(text: str) -> str:
    return f'<td class="ch-n">{text}</td>'


def scrollable(label: str, body: str) -> str:
    """Render a body that scrolls sideways if it is wider than the page."""
    # Without a tabindex the region could not be scrolled with the keyboard.
    return f'<div class="ch-scroll" tabindex="0" role="group" aria-label="{escape_attribute(label)}">{body}</div>'


def details(title: str, body: str) -> str:
    """Render a body that opens on a click or a key."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def card(*bodies: str) -> str:
    """Render a framed section of the page."""
    return f'<article class="ch-card">{"".join(bodies)}</article>'


def side_by_side(columns: Iterable[str]) -> str:
    """Render columns that wrap below each other in a narrow window."""
    cells = "".join(f"<div>{column}</div>" for column in columns)
    return f'<div class="ch-side">{cells}</div>'


def render_image(url: str, size: tuple[int, int], description: str, css: str) -> str:
    """Render an image; screen readers skip one without a description."""
    width, height = size
    return f'<img class="{css}" src="{url}" width="{width}" height="{height}" alt="{escape_attribute(description)}">'


def render_numbers(explanation: Explanation, level: str, scale: Scale) -> str:
    """Render the strongest words as a folded table."""
    rows = [_number_cells(span, scale) for span in strongest_spans(explanation, MAX_TABLE_ROWS, level)]
    columns = (level, scale.column, "raw relevance")
    return details(f"Strongest {level}s as numbers", table(columns, rows))


def _number_cells(span: TextSpan, scale: Scale) -> tuple[str, str, str]:
    relevance = span.relevance_or_zero
    return escape(name_span(span)), scale.format(relevance), format_relevance(relevance)


def render_footer(explanation: Explanation) -> str:
    """Render notes on special tokens, the error bar and diagnostics."""
    return "".join(map(render_faint, format_notes(explanation)))
