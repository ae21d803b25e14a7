"""Parts that the terminal views share: headings, styles of words, legends, bars and shades."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from clearhead.check import FAILS, HOLDS, WEAK
from clearhead.explanation import Explanation
from clearhead.views.captions import format_certainty, format_label, format_source, name_span
from clearhead.views.color import LEGEND_STEPS, LIGHT, NEGATIVE_LEGEND_STEPS, STEPS, background_color, format_hex
from clearhead.views.scale import Scale
from clearhead.views.text_spans import TextSpan, escape_hidden
from clearhead.views.trust import describe_hidden, describe_shown, describe_verdict

# Characters of the bar of the strongest word.
BAR_WIDTH = 12
# From none to the full relevance; blocks and lines differ without colour.
POSITIVE_SHADES = " ░▒▓█"
NEGATIVE_SHADES = " ·-=≡"
VERDICT_COLORS = {HOLDS: "green", WEAK: "yellow", FAILS: "red"}


def render_heading(explanation: Explanation, *, method: bool = True) -> Text:
    """Return label and probability, then where the numbers come from."""
    line = Text(escape_hidden(format_label(explanation)), style="bold")
    certainty = format_certainty(explanation)
    if certainty:
        line.append(f"  {certainty}", style="bold")
    source = escape_hidden(format_source(explanation, method=method))
    return line.append(f"   {source}", style="dim")


def render_check(explanation: Explanation) -> list[Text]:
    """Return the verdict of the check and what was hidden, after an empty line; nothing if there was no check."""
    check = explanation.check
    if check is None:
        return []
    verdict = Text("Check ").append(check.verdict, style=f"bold {VERDICT_COLORS[check.verdict]}")
    verdict.append(f": {describe_verdict(check)}.")
    hidden = Text(describe_hidden(explanation, check), style="dim")
    return [Text(), verdict, hidden, Text(describe_shown(explanation, check), style="dim")]


def span_style(span: TextSpan, scale: Scale) -> str:
    """Return the style of a word or of the text between words; what the model did not read is dim and struck out."""
    if not span.is_read:
        return "dim strike"
    return word_style(scale.find_step(span.relevance))


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


def render_legend(scale: Scale, label: str) -> Text:
    """Return what the colours mean."""
    line = Text(style="dim")
    if scale.signed:
        line.append_text(_render_negative_legend(scale))
    line.append("0 ").append_text(_render_swatches(LEGEND_STEPS))
    return line.append(f" {scale.highest} for {escape_hidden(label)}")


def _render_negative_legend(scale: Scale) -> Text:
    swatches = _render_swatches(NEGATIVE_LEGEND_STEPS)
    return Text(f"against {scale.lowest} ").append_text(swatches).append(" ")


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


def render_ranking(scale: Scale, spans: Sequence[TextSpan]) -> Table:
    """Return words with their shares or effects as numbers and bars."""
    table = Table.grid(padding=(0, 2))
    for span in spans:
        table.add_row(*_render_row(scale, span))
    return table


def _render_row(scale: Scale, span: TextSpan) -> tuple[Text, Text, Text]:
    relevance = span.relevance_or_zero
    number = Text(scale.format(relevance), justify="right")
    return Text(escape_hidden(name_span(span))), number, _render_bar(scale, relevance)


def _render_bar(scale: Scale, relevance: float) -> Text:
    length = abs(scale.find_step(relevance)) * BAR_WIDTH // STEPS
    return Text(_sign_block(relevance) * length, style=sign_color(relevance))


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


def render_patch(value: float, scale: Scale) -> Text:
    """Render a patch or cell as two characters: blocks speak for the class, lines against it."""
    step = scale.find_step(value)
    if step == 0:
        return Text("  ")
    return Text(2 * choose_shade(step), style=sign_color(value))
