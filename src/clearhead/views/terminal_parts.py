"""Parts that the terminal views share: headings, styles of words, legends, bars and shades."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from clearhead.explanation import Explanation
from clearhead.views.captions import format_certainty, format_label, format_relevance, format_source
from clearhead.views.color import (
    LEGEND_STEPS,
    LIGHT,
    NEGATIVE_LEGEND_STEPS,
    STEPS,
    background_color,
    color_step,
    format_hex,
)
from clearhead.views.text_spans import TextSpan, escape_hidden, max_relevance

# Characters of the bar of the strongest word.
BAR_WIDTH = 12
# From none to the full relevance; blocks and lines differ without colour.
POSITIVE_SHADES = " ░▒▓█"
NEGATIVE_SHADES = " ·-=≡"


def render_heading(explanation: Explanation, *, method: bool = True) -> Text:
    """Return label and probability, then where the numbers come from."""
    line = Text(escape_hidden(format_label(explanation)), style="bold")
    certainty = format_certainty(explanation)
    if certainty:
        line.append(f"  {certainty}", style="bold")
    source = escape_hidden(format_source(explanation, method=method))
    return line.append(f"   {source}", style="dim")


def word_style(step: int) -> str:
    """Return the style of a word; negative words are underlined twice."""
    if step == 0:
        return ""
    underline = _choose_underline(step)
    # On a dark terminal the palest background would stand out most, so the lowest step has none.
    if abs(step) == 1:
        return underline
    return f"{underline} {_format_colors(step)}"


def _format_colors(step: int) -> str:
    # Dark ink on the light scale is legible in any terminal.
    return f"{format_hex(LIGHT.ink)} on {format_hex(background_color(step, LIGHT))}"


def _choose_underline(step: int) -> str:
    # The sign can be read without colour.
    if step > 0:
        return "underline"
    return "underline2"


def render_legend(full: float, label: str, signed: bool) -> Text:
    """Return what the colours mean."""
    line = Text(style="dim")
    if signed:
        line.append_text(_render_negative_legend(full))
    line.append("0 ").append_text(_render_swatches(LEGEND_STEPS))
    return line.append(f" {format_relevance(full)} for {escape_hidden(label)}")


def _render_negative_legend(full: float) -> Text:
    return Text(f"against {format_relevance(-full)} ").append_text(_render_swatches(NEGATIVE_LEGEND_STEPS)).append(" ")


def _render_swatches(steps: Iterable[int]) -> Text:
    return Text.assemble(*map(_render_swatch, steps))


def _render_swatch(step: int) -> Text:
    # The shade of the block shows the sign without colour.
    return Text(_sign_block(step), style=f"not dim {format_hex(background_color(step, LIGHT))}")


def _sign_block(value: float) -> str:
    """Return a full block for the class, a light one against it."""
    if value > 0:
        return "█"
    return "░"


def render_ranking(spans: Sequence[TextSpan]) -> Table:
    """Return words with their relevance as numbers and bars."""
    full = max_relevance(spans)
    table = Table.grid(padding=(0, 2))
    for span in spans:
        table.add_row(*_render_row(span, full))
    return table


def _render_row(span: TextSpan, full: float) -> tuple[Text, Text, Text]:
    relevance = span.relevance_or_zero
    number = Text(format_relevance(relevance), justify="right")
    return Text(escape_hidden(span.text)), number, _render_bar(relevance, full)


def _render_bar(relevance: float, full: float) -> Text:
    return Text(_sign_block(relevance) * _bar_length(relevance, full), style=sign_color(relevance))


def _bar_length(relevance: float, full: float) -> int:
    return abs(color_step(relevance, full)) * BAR_WIDTH // STEPS


def sign_color(relevance: float) -> str:
    """Return the colour of relevance for or against what is explained."""
    if relevance > 0:
        return format_hex(LIGHT.positive)
    return format_hex(LIGHT.negative)


def choose_shade(step: int) -> str:
    """Return the character of a step of the scale."""
    # A shade per quarter of the scale; the first, a space, is for less than an eighth.
    return _choose_shades(step)[round(abs(step) / STEPS * 4)]


def _choose_shades(step: int) -> str:
    if step > 0:
        return POSITIVE_SHADES
    return NEGATIVE_SHADES
