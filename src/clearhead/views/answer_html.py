"""Answers as HTML: choosing a word of the answer colours the prompt and the words before it, without a script.

Every word has its colour for each choice as a custom property, and a rule per choice selects which of them counts.
The choices are radio buttons, so that keyboard and screen readers work as everywhere.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from clearhead.answer_explanation import AnswerExplanation, Step
from clearhead.views import answer_grid, answer_pictures, blocks, heads, html_parts
from clearhead.views.answer_pictures import describe_pictures, format_full
from clearhead.views.answers import (
    AnswerWord,
    Share,
    color_words,
    format_foil,
    format_rounded,
    format_shares,
    format_sink,
    format_special,
    is_explained,
    iterate_answer,
    list_choices,
    list_shares,
    list_source_cells,
    list_sources,
    list_step_cells,
    list_word_cells,
    list_words,
    name_share,
    name_start,
    name_step_columns,
    spell_token,
    strongest_words,
)
from clearhead.views.captions import clip, format_word
from clearhead.views.html_parts import escape, escape_attribute
from clearhead.views.notes import format_trust
from clearhead.views.numbers import format_percent
from clearhead.views.scale import Scale, make_scale
from clearhead.views.sink import Segments
from clearhead.views.text_spans import TextSpan, default_level, split_segments

MAX_TABLE_ROWS = 10
MAX_SPOKEN_WORDS = 5
HINT = "Choose a word to see what led to it."


@dataclass(frozen=True)
class _Choice:
    """What may be chosen: the explanation of some of the answer's words."""

    explanation: AnswerExplanation
    name: str
    level: str

    @cached_property
    def segments(self) -> Segments:
        return split_segments(self.explanation, self.level)

    @cached_property
    def scale(self) -> Scale:
        return make_scale(self.explanation)

    @cached_property
    def prompt_colors(self) -> list[int]:
        return [self.scale.find_step(span.relevance) for span in self.segments[0]]

    @cached_property
    def answer_colors(self) -> list[int]:
        return color_words(self.explanation, self.segments, list_words(self.explanation, self.level))

    @cached_property
    def strongest(self) -> list[TextSpan]:
        return strongest_words(self.explanation, MAX_TABLE_ROWS, self.level)

    @property
    def legend(self) -> str:
        return html_parts.render_legend(self.scale, self.name)


@dataclass(frozen=True)
class _Card:
    """An answer with its choices; `group` is a name of the radio buttons that no other card of a document has."""

    explanation: AnswerExplanation
    words: Sequence[AnswerWord]
    choices: Sequence[_Choice]
    group: str

    @property
    def has_choices(self) -> bool:
        return len(self.choices) > 1

    @property
    def start(self) -> _Choice:
        return self.choices[0]


def card(explanation: AnswerExplanation, *, group: str | None = None) -> str:
    """Render an answer in full; `group` is a name of the radio buttons that no other card of a document has."""
    words = list_words(explanation)
    choices = [_make_start(explanation), *_make_choices(explanation, words)]
    shown = _Card(explanation, words, choices, group or _hash(explanation))
    return f'<article class="ch-card ch-answer">{"".join(_render_parts(shown))}</article>'


def _make_start(explanation: AnswerExplanation) -> _Choice:
    return _Choice(explanation, name_start(explanation), default_level(explanation))


def _make_choices(explanation: AnswerExplanation, words: Sequence[AnswerWord]) -> Iterator[_Choice]:
    level = default_level(explanation)
    # There may be no choices, or as many as words.
    for word, chosen in zip(words, list_choices(explanation, words), strict=False):
        yield _Choice(chosen, clip(word.text), level)


def _hash(explanation: AnswerExplanation) -> str:
    """Return a name that differs between explanations."""
    # Not a counter: the same explanation must give the same document every time.
    content = repr((explanation.text, explanation.method, explanation.relevance.tobytes()))
    return f"ch{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _render_parts(shown: _Card) -> Iterator[str]:
    yield _render_rules(len(shown.choices))
    yield html_parts.render_heading(shown.explanation)
    yield _render_answer(shown)
    yield _render_prompt(shown)
    yield answer_pictures.render_html([choice.explanation for choice in shown.choices])
    yield from map(_render_choice, range(len(shown.choices)), shown.choices)
    yield from _render_details(shown.explanation)


def _render_details(explanation: AnswerExplanation) -> Iterator[str]:
    """Iterate over what does not depend on the choice."""
    yield html_parts.render_check(explanation)
    yield _render_sources(explanation)
    yield answer_grid.render(explanation)
    yield html_parts.details("Steps of the answer", _render_steps(explanation))
    yield from _render_blocks(explanation)
    yield from _render_footer(explanation)


def render_input(explanation: AnswerExplanation) -> str:
    """Render answer and prompt on their colours with a legend, without choices."""
    start = _make_start(explanation)
    shown = _Card(explanation, list_words(explanation), [start], "")
    pictures = answer_pictures.render_html([explanation])
    return f'<div class="ch-answer">{_render_answer(shown)}{_render_prompt(shown)}{pictures}{start.legend}</div>'


def _render_rules(count: int) -> str:
    """Render the rules by which a choice selects its colours and its details."""
    if count < 2:
        return ""
    return f"<style>{''.join(map(_render_rule, range(1, count)))}</style>"


def _render_rule(index: int) -> str:
    # The start needs no rule, because its colours are the default.
    chosen = f'.clearhead .ch-answer:has([value="{index}"]:checked)'
    return f"{chosen} .ch-tint{{--s:var(--c{index},0)}}{chosen} .ch-k{index}{{display:block}}"


def _render_answer(shown: _Card) -> str:
    """Render the answer, each word with its probability; a radio button each if there are choices."""
    text = "".join(_render_words(shown))
    paragraph = f'<p class="ch-text" dir="auto" lang="">{text}</p>'
    # A group of radio buttons is named by its legend, for screen readers too.
    if not shown.has_choices:
        return f'<h3>Answer</h3><div class="ch-steps">{paragraph}</div>'
    legend = f'<legend>Answer <span class="ch-faint">{HINT}</span></legend>'
    return f'<fieldset class="ch-steps" role="radiogroup">{legend}{_render_start(shown)}{paragraph}</fieldset>'


def _render_start(shown: _Card) -> str:
    return f'<label class="ch-step">{_render_button(shown, 0)}<span>{escape(shown.start.name)}</span></label>'


def _render_words(shown: _Card) -> Iterator[str]:
    for index, (before, word) in enumerate(iterate_answer(shown.explanation, shown.words)):
        yield escape(before)
        yield _render_word(shown, word, index)


def _render_button(shown: _Card, index: int) -> str:
    if not shown.has_choices:
        return ""
    # The whole answer is shown until a word is chosen.
    checked = " checked" * (index == 0)
    return f'<input type="radio" class="ch-sr" name="{shown.group}" value="{index}"{checked}>'


def _render_word(shown: _Card, word: AnswerWord, index: int) -> str:
    colors = _style_colors(choice.answer_colors[index] for choice in shown.choices)
    # Only the word is coloured: its probability would be hard to read.
    text = f'<span class="ch-tint"{colors}>{escape(word.text)}</span>'
    body = f"{_render_button(shown, index + 1)}{text}{_render_probabilities(word)}"
    return _wrap_word(shown, word, body)


def _wrap_word(shown: _Card, word: AnswerWord, body: str) -> str:
    tag = _choose_tag(shown)
    tooltip = escape_attribute(_format_steps(shown.explanation, word))
    return f'<{tag} class="{_name_class(shown.explanation, word)}" title="{tooltip}">{body}</{tag}>'


def _choose_tag(shown: _Card) -> str:
    # A click on a label chooses its button, which itself is not visible.
    if shown.has_choices:
        return "label"
    return "span"


def _name_class(explanation: AnswerExplanation, word: AnswerWord) -> str:
    # Words that are not explained are faint, so that one sees what the colours are about.
    if is_explained(explanation, word):
        return "ch-step"
    return "ch-step ch-dim"


def _render_probabilities(word: AnswerWord) -> str:
    probability = _render_small(format_rounded(word.probability))
    foil = format_foil(word)
    if not foil:
        return probability
    return probability + _render_small(f"rather than {foil}")


def _render_small(text: str) -> str:
    return f"<small>{escape(text)}</small>"


def _format_steps(explanation: AnswerExplanation, word: AnswerWord) -> str:
    return " · ".join(_format_step(explanation.steps[index]) for index in word.steps)


def _format_step(step: Step) -> str:
    return f"{spell_token(step.token)} {format_percent(step.probability)}"


def _style_colors(steps: Iterable[int]) -> str:
    """Return a style with the colour for each choice; 0, which has none, is the default."""
    colors = ";".join(_declare_colors(steps))
    if not colors:
        return ""
    return f' style="{colors}"'


def _declare_colors(steps: Iterable[int]) -> Iterator[str]:
    for index, step in enumerate(steps):
        # Most colours are 0: without them a page has a fraction of the size.
        if step:
            yield f"--c{index}:{step}"


def _render_prompt(shown: _Card) -> str:
    # Choices differ in relevance only, so that all have the same spans.
    columns = zip(*(choice.prompt_colors for choice in shown.choices), strict=True)
    render = partial(_render_span, shown.start.scale)
    words = "".join(map(render, shown.start.segments[0], columns))
    return f'<h3>Prompt</h3><p class="ch-text" dir="auto" lang="">{words}</p>'


def _render_span(scale: Scale, span: TextSpan, colors: Sequence[int]) -> str:
    if span.relevance is not None:
        tooltip = f"{scale.format(span.relevance)} · rank {span.rank}"
        return f'<span class="ch-tint"{_style_colors(colors)} title="{tooltip}">{escape(span.text)}</span>'
    return _render_unscored(span.text)


def _render_unscored(text: str) -> str:
    if not text.strip():
        return escape(text)
    # The template of a chat, whose tokens are special.
    return f'<span class="ch-dim">{escape(text)}</span>'


def _render_choice(index: int, choice: _Choice) -> str:
    return f'<div class="ch-choice ch-k{index}">{"".join(_describe_choice(choice))}</div>'


def _describe_choice(choice: _Choice) -> Iterator[str]:
    """Iterate over spoken summary, legend, shares and strongest words of a choice."""
    yield _render_spoken(choice)
    yield choice.legend
    yield _render_shares(choice.explanation)
    yield from _render_notes([*describe_pictures(choice.explanation), format_full(choice.explanation)])
    yield from _render_notes([format_sink(choice.explanation)])
    yield _render_numbers(choice)


def _render_spoken(choice: _Choice) -> str:
    words = ", ".join(format_word(choice.scale, span) for span in choice.strongest[:MAX_SPOKEN_WORDS])
    # Screen readers announce it when another word is chosen.
    return f'<p class="ch-sr" role="status">Strongest {choice.level}s for {escape(choice.name)}: {escape(words)}.</p>'


def _render_numbers(choice: _Choice) -> str:
    rows = [list_word_cells(choice.scale, span) for span in choice.strongest]
    table = _render_table((choice.level, choice.scale.column), rows)
    return html_parts.details(f"Strongest {choice.level}s as numbers", table)


def _render_shares(explanation: AnswerExplanation) -> str:
    """Render where the relevance lies as a bar with its legend."""
    shares = list_shares(explanation)
    if not shares:
        return ""
    # The bar is an image to screen readers, whose numbers are in the label.
    label = escape_attribute(f"Shares of the relevance: {format_shares(explanation)}")
    bar = f'<div class="ch-shares" role="img" aria-label="{label}">{"".join(map(_render_bar, shares))}</div>'
    return f'{bar}<p class="ch-legend">{"".join(map(_render_share, shares))}</p>'


def _render_bar(share: Share) -> str:
    return f'<i class="ch-{share.group}" style="width:{share.size * 100:.1f}%"></i>'


def _render_share(share: Share) -> str:
    return f'<span class="ch-share"><i class="ch-{share.group}"></i><span>{escape(name_share(share))}</span></span>'


def _render_sources(explanation: AnswerExplanation) -> str:
    sources = list_sources(explanation)
    if not sources:
        return ""
    scale = make_scale(explanation)
    rows = [list_source_cells(scale, source) for source in sources]
    return f"<h3>Sources</h3>{_render_table(('source', scale.column), rows)}"


def _render_steps(explanation: AnswerExplanation) -> str:
    """Render every token of the answer with its probability, and with its foil."""
    return _render_table(name_step_columns(explanation), map(list_step_cells, explanation.steps))


def _render_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return html_parts.table(columns, map(_escape_cells, rows))


def _escape_cells(cells: Iterable[str]) -> list[str]:
    return list(map(escape, cells))


def _render_blocks(explanation: AnswerExplanation) -> Iterator[str]:
    """Iterate over scores per block and per head, as far as there are any."""
    if explanation.layers is not None:
        yield html_parts.details("Block by block", blocks.heat_map(explanation))
    if explanation.heads is not None:
        yield html_parts.details("Head by head", heads.heat_map(explanation))


def _render_footer(explanation: AnswerExplanation) -> Iterator[str]:
    return _render_notes([format_special(explanation), *format_trust(explanation)])


def _render_notes(notes: Iterable[str]) -> Iterator[str]:
    return map(html_parts.render_faint, filter(None, notes))
