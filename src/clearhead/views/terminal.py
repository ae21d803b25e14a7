"""Explanations in a terminal: the words of the original text on signed colours, or plain text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.text import Text

from clearhead.answer_explanation import AnswerExplanation
from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views import answer_terminal, joint_terminal, model_grid
from clearhead.views.captions import format_word
from clearhead.views.diff_terminal import render_table
from clearhead.views.heads import Head, HeadGrid
from clearhead.views.notes import format_notes, format_reliability
from clearhead.views.scale import Scale, make_scale
from clearhead.views.terminal_parts import (
    NEGATIVE_SHADES,
    POSITIVE_SHADES,
    render_check,
    render_heading,
    render_legend,
    render_patch,
    render_ranking,
    span_style,
)
from clearhead.views.text_spans import (
    TextSpan,
    content_relevance,
    escape_hidden,
    is_image,
    split_segments,
    strongest_spans,
)

MAX_COMPARED_WORDS = 5
# Characters of "block 99", and a space.
HEAD_NAME_WIDTH = 9
# Terminals may be 80 characters wide.
MAX_WIDE_HEADS = 23
# Texts come from users: nothing in them is markup, an emoji code or a number to highlight.
LITERAL: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}


def console(*, plain: bool, width: int | None = None) -> Console:
    """Return a console that prints text literally; `plain` writes no escape sequences at all."""
    if plain:
        return Console(no_color=True, color_system=None, force_terminal=False, width=width, **LITERAL)
    return Console(no_color=False, color_system=_choose_color_system(), width=width, **LITERAL)


def _choose_color_system() -> Literal["256", "truecolor"]:
    # Terminals that do not report their colours get 256: with 16, for and against would look alike.
    if Console(**LITERAL).color_system == "truecolor":
        return "truecolor"
    return "256"


def render(explanation: Explanation, *, level: str | None = None, width: int = 100, color: bool = False) -> str:
    """Render the explanation as text, with escape sequences if `color`."""
    return capture(view(explanation, level=level), width=width, color=color)


def capture(renderable: RenderableType, *, width: int = 100, color: bool = False) -> str:
    """Return what a console would print, without trailing spaces."""
    target = _make_recorder(width, color)
    with target.capture() as captured:
        target.print(renderable)
    return _strip_lines(captured.get())


def _strip_lines(text: str) -> str:
    # Rich fills the lines of a table with spaces.
    return "\n".join(map(str.rstrip, text.splitlines())) + "\n"


def _make_recorder(width: int, color: bool) -> Console:
    return Console(
        width=width,
        color_system="truecolor" if color else None,
        force_terminal=color,
        # On old Windows consoles rich would call the console API instead of writing escape sequences.
        legacy_windows=False,
        **LITERAL,
    )


def view(explanation: Explanation | JointExplanation, *, level: str | None = None, count: int = 8) -> RenderableType:
    """Return heading, text or patches, legend, the `count` strongest words, check and notes."""
    if isinstance(explanation, JointExplanation):
        return joint_terminal.view(explanation, partial(_render_member, level=level, count=count))
    renderables: list[RenderableType] = [render_heading(explanation), Text()]
    if isinstance(explanation, AnswerExplanation):
        body = answer_terminal.render(explanation, level, count)
        return Group(*renderables, *body, *_render_heads(explanation))
    renderables += _render_input(explanation, make_scale(explanation), level=level, count=count)
    renderables += render_check(explanation)
    return Group(*renderables, *_render_footer(explanation), *_render_heads(explanation))


def _render_input(explanation: Explanation, scale: Scale, *, level: str | None, count: int) -> Iterator[RenderableType]:
    if is_image(explanation):
        return _render_patches(explanation, scale)
    return _render_words(explanation, scale, level, count)


def _render_member(
    explanation: Explanation, scale: Scale, *, level: str | None, count: int
) -> Iterator[RenderableType]:
    """Render one of several inputs, which have a common legend."""
    if is_image(explanation):
        yield from _render_patch_rows(explanation, scale)
        return
    yield from _render_texts(explanation, scale, level)
    yield Text()
    yield render_ranking(scale, strongest_spans(explanation, count, level))


def _render_words(explanation: Explanation, scale: Scale, level: str | None, count: int) -> Iterator[RenderableType]:
    yield from _render_texts(explanation, scale, level)
    yield Text()
    yield render_legend(scale, explanation.label)
    yield Text(scale.caption, style="dim")
    yield Text()
    yield render_ranking(scale, strongest_spans(explanation, count, level))


def methods(explanations: Mapping[str, Explanation], *, level: str | None = None) -> RenderableType:
    """Return several methods on the same input below each other."""
    first = next(iter(explanations.values()))
    renderables: list[RenderableType] = [render_heading(first, method=False), Text()]
    for name, explanation in explanations.items():
        renderables.append(Text(name, style="bold"))
        renderables += [*_render_checked(explanation, level), *_render_reliability(explanation), Text()]
    return Group(*renderables)


def _render_reliability(explanation: Explanation) -> list[Text]:
    # Error bars belong to the inputs of a joint explanation.
    if isinstance(explanation, JointExplanation):
        return []
    return [Text(note, style="dim") for note in format_reliability(explanation)]


def models(row: Mapping[str, Mapping[str, Explanation]], *, level: str | None = None) -> RenderableType:
    """Return one input as several models explain it below each other, for each method, and how far they agree."""
    renderables: list[RenderableType] = []
    for method, by_model in row.items():
        renderables += [Text(method, style="bold"), Text()]
        for explanation in by_model.values():
            renderables += _render_model(explanation, level)
        renderables += _render_agreement(by_model)
    return Group(*renderables)


def _render_model(explanation: Explanation, level: str | None) -> list[RenderableType]:
    checked = [*_render_checked(explanation, level), Text()]
    # Both have a heading with the model's name.
    if isinstance(explanation, JointExplanation):
        return checked
    return [render_heading(explanation, method=False), *checked]


def _render_checked(explanation: Explanation, level: str | None) -> Sequence[RenderableType]:
    compared = _render_compared(explanation, level)
    # Each input of a joint explanation has its check below it.
    if isinstance(explanation, JointExplanation):
        return compared
    return [*compared, *render_check(explanation)[1:]]


def _render_agreement(by_model: Mapping[str, Explanation]) -> Iterator[RenderableType]:
    words = model_grid.tabulate_words(by_model)
    if words.rows:
        yield render_table(words)
        yield Text()
    for sentence in model_grid.describe_pairs(by_model):
        yield Text(sentence)
        yield Text()


def _render_compared(explanation: Explanation | JointExplanation, level: str | None) -> Sequence[RenderableType]:
    if isinstance(explanation, JointExplanation):
        return [joint_terminal.view(explanation, partial(_render_member, level=level, count=MAX_COMPARED_WORDS))]
    if isinstance(explanation, AnswerExplanation):
        return answer_terminal.render_input(explanation, level)
    if is_image(explanation):
        return list(_render_patches(explanation, make_scale(explanation)))
    return [*_render_texts(explanation, make_scale(explanation), level), *_render_short_list(explanation)]


def _render_texts(explanation: Explanation, scale: Scale, level: str | None) -> list[Text]:
    return [_render_text(segment, scale) for segment in split_segments(explanation, level)]


def _render_text(spans: Sequence[TextSpan], scale: Scale) -> Text:
    # Folding breaks a long word instead of cutting it off at the edge.
    line = Text(overflow="fold")
    for span in spans:
        line.append(escape_hidden(span.text), style=span_style(span, scale))
    return line


def _render_short_list(explanation: Explanation) -> list[Text]:
    scale = make_scale(explanation)
    words = [format_word(scale, span) for span in strongest_spans(explanation, MAX_COMPARED_WORDS)]
    return [Text("  ".join(words), style="dim"), Text(scale.caption, style="dim")]


def _render_patches(explanation: Explanation, scale: Scale) -> Iterator[Text]:
    yield from _render_patch_rows(explanation, scale)
    yield from _render_patch_legend(scale, explanation.label, "or more for")


def _render_patch_rows(explanation: Explanation, scale: Scale) -> Iterator[Text]:
    """Render the patches of an image, two characters each: blocks speak for the class, lines against it."""
    values = content_relevance(explanation).reshape(explanation.grid or (0, 0))
    for row in values.tolist():
        yield _render_patch_row(row, scale)


def _render_patch_row(values: Iterable[float], scale: Scale) -> Text:
    return Text.assemble(*(render_patch(value, scale) for value in values))


def _render_heads(explanation: Explanation) -> list[Text]:
    """Render the relevance of attention heads as a grid, two characters each, and name the strongest."""
    if explanation.heads is None:
        return []
    grid = HeadGrid(explanation)
    lines = [Text(), Text(f"{'head':{HEAD_NAME_WIDTH}}{_number_heads(grid.columns)}", style="dim")]
    for name, heads in grid.rows():
        lines.append(_render_head_row(name, heads, grid.scale))
    strongest = "  ".join(grid.describe(head) for head in grid.strongest(MAX_COMPARED_WORDS))
    return [*lines, *_render_patch_legend(grid.scale, explanation.label), Text(strongest, style="dim")]


def _render_head_row(name: str, heads: Iterable[Head], scale: Scale) -> Text:
    line = Text(f"{name:{HEAD_NAME_WIDTH}}", style="dim")
    cells = [render_patch(head.relevance, scale) for head in heads]
    if len(cells) > MAX_WIDE_HEADS:
        return line.append(" ").append_text(Text.assemble(*(cell[:1] for cell in cells)))
    for cell in cells:
        line.append(" ").append_text(cell)
    return line


def _number_heads(columns: Sequence[int]) -> str:
    # Many heads get one character each, which leaves no space for their numbers.
    if len(columns) > MAX_WIDE_HEADS:
        return f" {columns[0]} … {columns[-1]}"
    return "".join(f"{number:>3}" for number in columns)


def _render_patch_legend(scale: Scale, label: str, words: str = "for") -> list[Text]:
    legend = Text(style="dim")
    if scale.signed:
        legend.append(f"{NEGATIVE_SHADES[-1]} {scale.lowest} against   ")
    legend.append(f"{POSITIVE_SHADES[-1]} {scale.highest} {words} {escape_hidden(label)}")
    return [Text(), legend, Text(scale.caption, style="dim")]


def _render_footer(explanation: Explanation) -> list[Text]:
    notes = format_notes(explanation)
    if notes:
        notes.insert(0, "")
    return [Text(note, style="dim") for note in notes]
