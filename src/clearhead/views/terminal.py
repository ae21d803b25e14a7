"""Explanations in a terminal: the words of the original text on signed colours, or plain text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.text import Text

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.views import answer_terminal
from clearhead.views.captions import (
    format_diagnostics,
    format_relevance,
    format_tokens,
    format_word,
)
from clearhead.views.color import color_step
from clearhead.views.heads import Head, HeadGrid
from clearhead.views.terminal_parts import (
    NEGATIVE_SHADES,
    POSITIVE_SHADES,
    choose_shade,
    render_heading,
    render_legend,
    render_ranking,
    sign_color,
    word_style,
)
from clearhead.views.text_spans import (
    TextSpan,
    content_relevance,
    escape_hidden,
    has_negative,
    is_image,
    max_relevance,
    scored_spans,
    select_scored,
    special_tokens,
    split_segments,
    strongest_spans,
)

MAX_SPECIAL_TOKENS = 6
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


def view(explanation: Explanation, *, level: str | None = None, count: int = 8) -> RenderableType:
    """Return heading, text or patches, legend, the `count` strongest words, special tokens and diagnostics."""
    renderables: list[RenderableType] = [render_heading(explanation), Text()]
    if isinstance(explanation, AnswerExplanation):
        body = answer_terminal.render(explanation, level, count)
        return Group(*renderables, *body, *_render_heads(explanation))
    if is_image(explanation):
        renderables.append(_render_patches(explanation))
    else:
        renderables += _render_words(explanation, level, count)
    return Group(*renderables, *_render_footer(explanation), *_render_heads(explanation))


def _render_words(explanation: Explanation, level: str | None, count: int) -> Iterator[RenderableType]:
    yield from _render_texts(explanation, level)
    yield Text()
    spans = scored_spans(explanation, level)
    yield render_legend(max_relevance(spans), explanation.label, has_negative(spans))
    yield Text()
    yield render_ranking(strongest_spans(explanation, count, level))


def methods(explanations: Mapping[str, Explanation], *, level: str | None = None) -> RenderableType:
    """Return several methods on the same input below each other."""
    first = next(iter(explanations.values()))
    renderables: list[RenderableType] = [render_heading(first, method=False), Text()]
    for name, explanation in explanations.items():
        renderables.append(Text(name, style="bold"))
        renderables += _render_compared(explanation, level)
        renderables.append(Text())
    return Group(*renderables)


def _render_compared(explanation: Explanation, level: str | None) -> Sequence[RenderableType]:
    if isinstance(explanation, AnswerExplanation):
        return answer_terminal.render_input(explanation, level)
    if is_image(explanation):
        return [_render_patches(explanation)]
    return [*_render_texts(explanation, level), _render_short_list(explanation)]


def _render_texts(explanation: Explanation, level: str | None) -> list[Text]:
    segments = split_segments(explanation, level)
    full = max_relevance(select_scored(segments))
    return [_render_text(segment, full) for segment in segments]


def _render_text(spans: Sequence[TextSpan], full: float) -> Text:
    # Folding breaks a long word instead of cutting it off at the edge.
    line = Text(overflow="fold")
    for span in spans:
        line.append(escape_hidden(span.text), style=word_style(color_step(span.relevance, full)))
    return line


def _render_short_list(explanation: Explanation) -> Text:
    words = map(format_word, strongest_spans(explanation, MAX_COMPARED_WORDS))
    return Text("  ".join(words), style="dim")


def _render_patches(explanation: Explanation) -> Text:
    """Render the patches of an image, two characters each: blocks speak for the class, lines against it."""
    values = content_relevance(explanation).reshape(explanation.grid or (0, 0))
    full = float(abs(values).max(initial=0.0))
    text = Text()
    for row in values.tolist():
        text.append_text(_render_patch_row(row, full))
    return text.append_text(_render_patch_legend(values, full, explanation.label))


def _render_patch_row(values: Iterable[float], full: float) -> Text:
    patches = [_render_patch(value, full) for value in values]
    return Text.assemble(*patches, "\n")


def _render_heads(explanation: Explanation) -> list[Text]:
    """Render the relevance of attention heads as a grid, two characters each, and name the strongest."""
    if explanation.heads is None:
        return []
    grid = HeadGrid(explanation)
    lines = [Text(), Text(f"{'head':{HEAD_NAME_WIDTH}}{_number_heads(grid.columns)}", style="dim")]
    for name, heads in grid.rows():
        lines.append(_render_head_row(name, heads, grid.full))
    strongest = "  ".join(head.caption for head in grid.strongest(MAX_COMPARED_WORDS))
    return [*lines, _render_patch_legend(grid.values, grid.full, explanation.label), Text(strongest, style="dim")]


def _render_head_row(name: str, heads: Iterable[Head], full: float) -> Text:
    line = Text(f"{name:{HEAD_NAME_WIDTH}}", style="dim")
    cells = [_render_patch(head.relevance, full) for head in heads]
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


def _render_patch(value: float, full: float) -> Text:
    step = color_step(value, full)
    if step == 0:
        return Text("  ")
    return Text(2 * choose_shade(step), style=sign_color(value))


def _render_patch_legend(values: Array, full: float, label: str) -> Text:
    legend = Text("\n")
    if (values < 0).any():
        legend.append(f"{NEGATIVE_SHADES[-1]} {format_relevance(-full)} against   ", style="dim")
    positive = f"{POSITIVE_SHADES[-1]} {format_relevance(full)} for {escape_hidden(label)}"
    return legend.append(positive, style="dim")


def _render_footer(explanation: Explanation) -> list[Text]:
    notes = list(filter(None, [_format_special_tokens(explanation), format_diagnostics(explanation)]))
    if notes:
        notes.insert(0, "")
    return [Text(note, style="dim") for note in notes]


def _format_special_tokens(explanation: Explanation) -> str:
    tokens = special_tokens(explanation)
    if not tokens:
        return ""
    return f"special  {_list_tokens(tokens)}"


def _list_tokens(tokens: Sequence[tuple[str, float]]) -> str:
    shown = format_tokens(tokens[:MAX_SPECIAL_TOKENS])
    rest = len(tokens) - MAX_SPECIAL_TOKENS
    if rest > 0:
        shown.append(f"and {rest} more")
    return "  ".join(shown)
