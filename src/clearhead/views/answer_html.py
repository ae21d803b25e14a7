"""Answers as HTML: choosing a word of the answer colours the prompt and the words before it, without a script.

Every word has its colour for each choice as a custom property, and a rule per choice selects which of them counts.
The choices are radio buttons, so that keyboard and screen readers work as everywhere.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clearhead.answer_explanation import AnswerExplanation
from clearhead.views import answer_grid, blocks, heads, html_parts
from clearhead.views.answers import (
    AnswerWord,
    answer_colors,
    describe_source,
    format_foil,
    format_rounded,
    format_shares,
    format_sink,
    format_special,
    format_word_probability,
    full_scale,
    is_explained,
    iterate_answer,
    list_choices,
    list_shares,
    list_sources,
    list_words,
    name_start,
    spell_token,
    strongest_words,
)
from clearhead.views.captions import clip, format_diagnostics, format_percent, format_relevance, format_word
from clearhead.views.color import color_step
from clearhead.views.html_parts import escape, escape_attribute
from clearhead.views.text_spans import TextSpan, default_level, has_negative, select_scored, split_segments

MAX_TABLE_ROWS = 10
MAX_SPOKEN_WORDS = 5
HINT = "Choose a word to see what led to it."


@dataclass(frozen=True)
class _Choice:
    """What may be chosen, with its colours: a step for each span of the prompt and for each word of the answer."""

    explanation: AnswerExplanation
    name: str
    full: float
    prompt: list[int]
    answer: list[int]
    signed: bool


def card(explanation: AnswerExplanation, *, group: str | None = None) -> str:
    """Render an answer in full; `group` is a name of the radio buttons that no other card of a document has."""
    level = default_level(explanation)
    words = list_words(explanation, level)
    choices = _make_choices(explanation, words, level)
    bodies = [
        html_parts.render_heading(explanation),
        _render_answer(explanation, words, choices, group or _name_group(explanation)),
        _render_prompt(split_segments(explanation, level)[0], choices),
        *_render_choices(choices, level),
        _render_sources(explanation),
        answer_grid.render(explanation),
        _render_steps(explanation),
        _render_blocks(explanation),
        _render_footer(explanation),
    ]
    return f'<article class="ch-card ch-answer">{_render_rules(len(choices))}{"".join(bodies)}</article>'


def render_input(explanation: AnswerExplanation) -> str:
    """Render answer and prompt on their colours with a legend, without choices."""
    level = default_level(explanation)
    words = list_words(explanation, level)
    choice = _make_choice(explanation, words, level, name_start(explanation))
    answer = _render_answer(explanation, words, [choice], "")
    prompt = _render_prompt(split_segments(explanation, level)[0], [choice])
    return f'<div class="ch-answer">{answer}{prompt}{_render_legend(choice)}</div>'


def _make_choices(explanation: AnswerExplanation, words: Sequence[AnswerWord], level: str) -> list[_Choice]:
    """Return what is explained, then each word of the answer if there is a matrix."""
    choices = [_make_choice(explanation, words, level, name_start(explanation))]
    for word, chosen in zip(words, list_choices(explanation, words), strict=False):
        choices.append(_make_choice(chosen, words, level, clip(word.text)))
    return choices


def _make_choice(explanation: AnswerExplanation, words: Sequence[AnswerWord], level: str, name: str) -> _Choice:
    segments = split_segments(explanation, level)
    full = full_scale(explanation, segments)
    prompt = [color_step(span.relevance, full) for span in segments[0]]
    answer = [color_step(relevance, full) for relevance in answer_colors(segments, words)]
    return _Choice(explanation, name, full, prompt, answer, has_negative(select_scored(segments)))


def _name_group(explanation: AnswerExplanation) -> str:
    """Return a name that differs between explanations."""
    content = repr((explanation.text, explanation.method, explanation.relevance.tobytes())).encode()
    return f"ch{hashlib.sha256(content).hexdigest()[:12]}"


def _render_rules(count: int) -> str:
    """Render the rules by which a choice selects its colours and its details."""
    if count < 2:
        return ""
    rules = "".join(map(_render_rule, range(1, count)))
    return f"<style>{rules}</style>"


def _render_rule(index: int) -> str:
    chosen = f'.clearhead .ch-answer:has([value="{index}"]:checked)'
    return f"{chosen} .ch-tint{{--s:var(--c{index},0)}}{chosen} .ch-k{index}{{display:block}}"


def _render_answer(
    explanation: AnswerExplanation, words: Sequence[AnswerWord], choices: Sequence[_Choice], group: str
) -> str:
    """Render the answer, each word with its probability; a radio button each if there are choices."""
    has_choices = len(choices) > 1
    text = ""
    for index, (before, word) in enumerate(iterate_answer(explanation, words)):
        steps = [choice.answer[index] for choice in choices]
        button = _render_button(group, index + 1) if has_choices else ""
        text += escape(before) + _render_word(explanation, word, steps, button)
    # Line breaks at the end would only be an empty line.
    text += escape(explanation.answer[words[-1].end :].rstrip() if words else "")
    paragraph = f'<p class="ch-text" dir="auto" lang="">{text}</p>'
    if not has_choices:
        return f'<h3>Answer</h3><div class="ch-steps">{paragraph}</div>'
    start = f'<label class="ch-step">{_render_button(group, 0)}<span>{escape(choices[0].name)}</span></label>'
    legend = f'<legend>Answer <span class="ch-faint">{HINT}</span></legend>'
    return f'<fieldset class="ch-steps" role="radiogroup">{legend}{start}{paragraph}</fieldset>'


def _render_button(group: str, index: int) -> str:
    checked = " checked" if index == 0 else ""
    return f'<input type="radio" class="ch-sr" name="{group}" value="{index}"{checked}>'


def _render_word(explanation: AnswerExplanation, word: AnswerWord, steps: Sequence[int], button: str) -> str:
    tag = "label" if button else "span"
    css = "ch-step" if is_explained(explanation, word) else "ch-step ch-dim"
    foil = format_foil(word)
    below = escape(format_word_probability(word))
    if foil:
        below += f"</small><small>rather than {escape(foil)}"
    tooltip = escape_attribute(_format_steps(explanation, word))
    colored = f'<span class="ch-tint"{_style_colors(steps)}>{escape(word.text)}</span>'
    return f'<{tag} class="{css}" title="{tooltip}">{button}{colored}<small>{below}</small></{tag}>'


def _format_steps(explanation: AnswerExplanation, word: AnswerWord) -> str:
    steps = [explanation.steps[index] for index in word.steps]
    return " · ".join(f"{spell_token(step.token)} {format_percent(step.probability)}" for step in steps)


def _style_colors(steps: Sequence[int]) -> str:
    """Return a style with the colour for each choice; 0, which has none, is the default."""
    colors = ";".join(f"--c{index}:{step}" for index, step in enumerate(steps) if step)
    return f' style="{colors}"' if colors else ""


def _render_prompt(spans: Sequence[TextSpan], choices: Sequence[_Choice]) -> str:
    rendered = []
    for index, span in enumerate(spans):
        rendered.append(_render_span(span, [choice.prompt[index] for choice in choices]))
    return f'<h3>Prompt</h3><p class="ch-text" dir="auto" lang="">{"".join(rendered)}</p>'


def _render_span(span: TextSpan, steps: Sequence[int]) -> str:
    if span.relevance is not None:
        tooltip = escape_attribute(f"{format_relevance(span.relevance)} · rank {span.rank}")
        return f'<span class="ch-tint"{_style_colors(steps)} title="{tooltip}">{escape(span.text)}</span>'
    if span.text.strip():
        # The template of a chat, whose tokens are special.
        return f'<span class="ch-dim">{escape(span.text)}</span>'
    return escape(span.text)


def _render_choices(choices: Sequence[_Choice], level: str) -> Iterable[str]:
    for index, choice in enumerate(choices):
        yield f'<div class="ch-choice ch-k{index}">{_render_choice(choice, level)}</div>'


def _render_choice(choice: _Choice, level: str) -> str:
    """Render legend, shares and strongest words of a choice."""
    explanation = choice.explanation
    strongest = strongest_words(explanation, MAX_TABLE_ROWS, level)
    spoken = ", ".join(map(format_word, strongest[:MAX_SPOKEN_WORDS]))
    sink = format_sink(explanation)
    return "".join(
        [
            f'<p class="ch-sr">Strongest {level}s for {escape(choice.name)}: {escape(spoken)}.</p>',
            _render_legend(choice),
            _render_shares(explanation),
            html_parts.render_faint(sink) if sink else "",
            html_parts.details(f"Strongest {level}s as numbers", _render_numbers(strongest, level)),
        ]
    )


def _render_legend(choice: _Choice) -> str:
    return html_parts.render_legend(choice.full, choice.name, choice.signed)


def _render_numbers(spans: Iterable[TextSpan], level: str) -> str:
    rows = [(escape(span.text), format_relevance(span.relevance_or_zero)) for span in spans]
    return html_parts.table((level, "relevance"), rows)


def _render_shares(explanation: AnswerExplanation) -> str:
    """Render where the relevance lies as a bar with its legend."""
    shares = list_shares(explanation)
    if not shares:
        return ""
    bars = "".join(f'<i class="ch-{share.group}" style="width:{share.size * 100:.1f}%"></i>' for share in shares)
    named = "".join(_render_share(share.group, share.name, share.size) for share in shares)
    label = escape_attribute(f"Shares of the relevance: {format_shares(explanation)}")
    return f'<div class="ch-shares" role="img" aria-label="{label}">{bars}</div><p class="ch-legend">{named}</p>'


def _render_share(group: str, name: str, size: float) -> str:
    return f'<span class="ch-share"><i class="ch-{group}"></i><span>{escape(name)} {format_percent(size)}</span></span>'


def _render_sources(explanation: AnswerExplanation) -> str:
    sources = list_sources(explanation)
    if not sources:
        return ""
    rows = [(escape(describe_source(source)), format_relevance(source.relevance)) for source in sources]
    return f"<h3>Sources</h3>{html_parts.table(('source', 'relevance'), rows)}"


def _render_steps(explanation: AnswerExplanation) -> str:
    """Render every token of the answer with its probability as a folded table."""
    has_foil = any(step.versus is not None for step in explanation.steps)
    columns = ["token", "probability"]
    if has_foil:
        columns += ["rather than", "probability"]
    rows = []
    for step in explanation.steps:
        cells = [escape(spell_token(step.token)), format_percent(step.probability)]
        if has_foil and step.versus is not None:
            cells += [escape(spell_token(step.versus)), format_rounded(step.versus_probability or 0.0)]
        rows.append(cells)
    return html_parts.details("Steps of the answer", html_parts.table(columns, rows))


def _render_blocks(explanation: AnswerExplanation) -> str:
    """Render scores per block and per head, as far as there are any."""
    body = ""
    if explanation.layers is not None:
        body += html_parts.details("Block by block", blocks.heat_map(explanation))
    if explanation.heads is not None:
        body += html_parts.details("Head by head", heads.heat_map(explanation))
    return body


def _render_footer(explanation: AnswerExplanation) -> str:
    notes = filter(None, [format_special(explanation), format_diagnostics(explanation)])
    return "".join(map(html_parts.render_faint, notes))
