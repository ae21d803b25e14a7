"""What the views of answers share: the words of the answer, choices among them, shares, the first token, sources."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.answer_explanation import AnswerExplanation, Step
from clearhead.arrays import Array
from clearhead.views.captions import clip, format_percent, format_relevance
from clearhead.views.text_spans import (
    TextSpan,
    default_level,
    escape_hidden,
    max_relevance,
    select_scored,
    special_tokens,
    split_segments,
)

MAX_SPECIAL_TOKENS = 6
# A page holds a colour per choice and word; more would make it slow to open.
MAX_CHOICE_COLORS = 300_000
# How tokenizers write blanks, tabs and line breaks.
BLANKS = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n", "ĉ": "\t"})
VISIBLE_BLANKS = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})
SHARE_NAMES = {"prompt": "prompt", "own": "its own earlier words", "special": "special tokens"}
SINK_NOTE = "decoders often leave there what they do not need"


@dataclass(frozen=True)
class AnswerWord:
    """A word of an answer with the probability of its steps, and the foil of those that are contrasted."""

    text: str
    start: int
    end: int
    steps: tuple[int, ...]
    probability: float
    versus: str = ""
    versus_probability: float | None = None


@dataclass(frozen=True)
class Share:
    """How much of the absolute relevance lies on tokens of a group: first, prompt, own or special."""

    group: str
    name: str
    size: float


def spell_token(token: str) -> str:
    """Return the name of a token as people write it; tokens of nothing but blanks show them as symbols."""
    text = token.translate(BLANKS)
    return text.strip() or text.translate(VISIBLE_BLANKS)


def is_blank(step: Step) -> bool:
    """Return whether a step writes nothing but blanks."""
    return not step.token.translate(BLANKS).strip()


def list_words(explanation: AnswerExplanation, level: str | None = None) -> list[AnswerWord]:
    """Return the words of the answer, or its tokens where the script has no blanks between words."""
    if (level or default_level(explanation)) == "word":
        groups = _group_by_word(explanation)
    else:
        groups = _group_by_token(explanation)
    return [_make_word(explanation, group) for group in groups]


def _group_by_word(explanation: AnswerExplanation) -> list[list[int]]:
    """Return the steps of each word between blanks."""
    groups: list[list[int]] = []
    end = -1
    for index, step in enumerate(explanation.steps):
        if is_blank(step):
            continue
        # Without a blank between them two tokens are of one word.
        if groups and step.start <= end:
            groups[-1].append(index)
        else:
            groups.append([index])
        end = step.end
    return groups


def _group_by_token(explanation: AnswerExplanation) -> list[list[int]]:
    """Return a group per token; those that share a character, such as the bytes of an emoji, are one."""
    groups: list[list[int]] = []
    is_complete = True
    for index, step in enumerate(explanation.steps):
        if is_blank(step):
            continue
        if is_complete:
            groups.append([index])
        else:
            groups[-1].append(index)
        is_complete = step.end > step.start
    return groups


def _make_word(explanation: AnswerExplanation, group: list[int]) -> AnswerWord:
    steps = [explanation.steps[index] for index in group]
    start, end = steps[0].start, steps[-1].end
    # A character whose last bytes were never written has a name only.
    text = explanation.answer[start:end] or spell_token(steps[0].token)
    contrasts = [step for step in steps if step.versus is not None]
    probability = math.prod(step.probability for step in steps)
    versus = "".join(str(step.versus) for step in contrasts)
    return AnswerWord(
        text, start, end, tuple(group), probability, spell_token(versus) if versus else "", _join_foils(contrasts)
    )


def _join_foils(contrasts: Sequence[Step]) -> float | None:
    if not contrasts:
        return None
    return math.prod(step.versus_probability or 0.0 for step in contrasts)


def is_explained(explanation: AnswerExplanation, word: AnswerWord) -> bool:
    """Return whether a word is part of what is explained."""
    return not set(word.steps).isdisjoint(explanation.explained)


def name_start(explanation: AnswerExplanation) -> str:
    """Return what is explained before a word is chosen."""
    is_whole = len(explanation.explained) == len(explanation.steps) > 1
    if is_whole and not has_foil(explanation):
        return "whole answer"
    return clip(explanation.label)


def has_foil(explanation: AnswerExplanation) -> bool:
    """Return whether any step is contrasted with another token."""
    return any(step.versus is not None for step in explanation.steps)


def list_choices(explanation: AnswerExplanation, words: Sequence[AnswerWord]) -> list[AnswerExplanation]:
    """Return the explanation of each word; none without a matrix, or if there would be too many colours."""
    is_large = len(words) * len(explanation.tokens) > MAX_CHOICE_COLORS
    # A single word is the whole answer.
    if explanation.matrix is None or is_large or len(words) < 2:
        return []
    return [explanation.select_steps(word.steps) for word in words]


def has_sink(explanation: AnswerExplanation) -> bool:
    """Return whether the very first token has more relevance than any other, as an attention sink has."""
    sizes = np.abs(explanation.relevance)
    return len(sizes) > 1 and bool(sizes[0] > 0) and int(sizes.argmax()) == 0


def split_sink(
    explanation: AnswerExplanation, segments: Sequence[Sequence[TextSpan]]
) -> tuple[TextSpan | None, list[TextSpan]]:
    """Return the word of a sink, None if there is none in the text, and all other words."""
    scored = select_scored(segments)
    if has_sink(explanation) and not explanation.special[0] and scored:
        return scored[0], scored[1:]
    return None, scored


def full_scale(explanation: AnswerExplanation, segments: Sequence[Sequence[TextSpan]]) -> float:
    """Return the relevance of the full colour; a sink, which would leave the others pale, does not count."""
    _, others = split_sink(explanation, segments)
    return max_relevance(others)


def strongest_words(explanation: AnswerExplanation, count: int, level: str | None = None) -> list[TextSpan]:
    """Return the words with the largest absolute relevance, without a sink."""
    _, others = split_sink(explanation, split_segments(explanation, level))
    return sorted(others, key=lambda span: -abs(span.relevance_or_zero))[:count]


def list_shares(explanation: AnswerExplanation) -> list[Share]:
    """Return the shares of absolute relevance, the first token's apart; none where there is no relevance."""
    weights = np.abs(explanation.relevance)
    total = float(weights.sum())
    if total == 0:
        return []
    shares = []
    for group, mask in _group_tokens(explanation).items():
        size = float(weights[mask].sum()) / total
        if size > 0:
            shares.append(Share(group, _name_group(explanation, group), size))
    return shares


def _group_tokens(explanation: AnswerExplanation) -> dict[str, Array]:
    position = np.arange(len(explanation.tokens))
    in_prompt = position < explanation.prompt_length
    is_first = position == 0
    content = ~explanation.special & ~is_first
    return {
        "first": is_first,
        "prompt": in_prompt & content,
        "own": ~in_prompt & content,
        "special": explanation.special & ~is_first,
    }


def _name_group(explanation: AnswerExplanation, group: str) -> str:
    if group == "first":
        return f"first token “{escape_hidden(spell_token(explanation.tokens[0]))}”"
    return SHARE_NAMES[group]


def format_shares(explanation: AnswerExplanation) -> str:
    """Format the shares of relevance in one line."""
    return " · ".join(f"{share.name} {format_percent(share.size)}" for share in list_shares(explanation))


def format_sink(explanation: AnswerExplanation) -> str:
    """Format the relevance of the first token if it is a sink, else return ""."""
    if not has_sink(explanation):
        return ""
    token = escape_hidden(spell_token(explanation.tokens[0]))
    relevance = format_relevance(float(explanation.relevance[0]))
    return f"First token, ranked apart: {token} {relevance} ({SINK_NOTE})."


def format_special(explanation: AnswerExplanation) -> str:
    """Format the strongest tokens outside of the words: special tokens, and those of blanks; "" if there are none."""
    tokens = sorted(special_tokens(explanation), key=lambda entry: -abs(entry[1]))
    if not tokens:
        return ""
    named = [f"{escape_hidden(spell_token(token))} {format_relevance(size)}" for token, size in tokens]
    rest = len(named) - MAX_SPECIAL_TOKENS
    if rest > 0:
        named[MAX_SPECIAL_TOKENS:] = [f"and {rest} more"]
    return f"Special tokens and blanks: {', '.join(named)}"


def format_word_probability(word: AnswerWord) -> str:
    """Format the probability of a word, rounded to fit below it."""
    return format_rounded(word.probability)


def format_foil(word: AnswerWord) -> str:
    """Format the foil of a word with its probability, "" if it has none."""
    if word.versus_probability is None:
        return ""
    return f"{escape_hidden(word.versus)} {format_rounded(word.versus_probability)}"


def format_rounded(probability: float) -> str:
    """Format a probability in few characters."""
    percent = probability * 100
    if percent >= 10:
        return f"{percent:.0f} %"
    if percent >= 0.1:
        return f"{percent:.1f} %"
    return "<0.1 %"


def answer_colors(segments: Sequence[Sequence[TextSpan]], words: Sequence[AnswerWord]) -> list[float]:
    """Return the relevance of each word of the answer for what follows it."""
    # Without the original text there is one segment of tokens, and the answer has no colours.
    positions = _locate_spans(segments[1]) if len(segments) > 1 else []
    return [_sum_between(positions, word.start, word.end) for word in words]


def _locate_spans(spans: Iterable[TextSpan]) -> list[tuple[int, float]]:
    """Return the first character and the relevance of each span."""
    positions = []
    start = 0
    for span in spans:
        positions.append((start, span.relevance_or_zero))
        start += len(span.text)
    return positions


def _sum_between(positions: Iterable[tuple[int, float]], start: int, end: int) -> float:
    return math.fsum(relevance for position, relevance in positions if start <= position < end)


def list_sources(explanation: AnswerExplanation) -> list[Any]:
    """Return the sources of the prompt by relevance, if there are at least two to compare."""
    sources: Iterable[Any] = getattr(explanation, "sources", ())
    ranked = sorted(sources, key=lambda source: -source.relevance)
    return ranked if len(ranked) > 1 else []


def describe_source(source: Any) -> str:
    """Return the name of a source, and the beginning of its text."""
    return clip(f"{source.name}: {source.text}" if source.name else source.text)


def iterate_answer(explanation: AnswerExplanation, words: Sequence[AnswerWord]) -> Iterator[tuple[str, AnswerWord]]:
    """Iterate over the words, each with the characters before it."""
    position = 0
    for word in words:
        yield explanation.answer[position : word.start], word
        position = max(position, word.end)
