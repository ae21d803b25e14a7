"""What the views of answers share: words with their probabilities, choices, the first token, shares and sources."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from clearhead.answer_explanation import AnswerExplanation, Step
from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.model.unspaced import is_beside_unspaced
from clearhead.views.captions import clip, name_span
from clearhead.views.notes import MAX_SPECIAL_TOKENS, format_coverage, format_notes, format_trust
from clearhead.views.numbers import format_percent, format_share
from clearhead.views.scale import Scale, make_scale
from clearhead.views.sink import Segments, has_sink, split_sink
from clearhead.views.text_spans import TextSpan, choose_word_level, escape_hidden, special_tokens, split_segments

# A page holds a colour per choice and word; more would make it slow to open.
MAX_CHOICE_COLORS = 300_000
# How tokenizers write blanks, tabs and line breaks.
BLANKS = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n", "ĉ": "\t"})
VISIBLE_BLANKS = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})
SHARE_NAMES = {"prompt": "prompt", "own": "its own earlier words", "special": "special tokens", "pictures": "pictures"}
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
class ColoredWord:
    """A word of an answer with its step of the colour scale, and whether a line begins with it."""

    word: AnswerWord
    step: int
    begins_line: bool


@dataclass(frozen=True)
class Share:
    """How much of the absolute relevance lies on tokens of a group: first, prompt, pictures, own or special."""

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
    continues = JOINS.get(level or "") or JOINS[choose_word_level(explanation)]
    groups = _group_steps(explanation.steps, partial(continues, explanation.answer))
    return [_make_word(explanation, group) for group in groups]


def _group_steps(steps: Sequence[Step], continues: Callable[[Step, Step], bool]) -> list[list[int]]:
    """Group steps each of which continues the one before; those of blanks belong to no group."""
    groups: list[list[int]] = []
    for index, step in enumerate(steps):
        if is_blank(step):
            continue
        if groups and continues(steps[groups[-1][-1]], step):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _continues_word(answer: str, previous: Step, step: Step) -> bool:
    # A blank between them would be a character of neither.
    if step.start > previous.end:
        return False
    # In scripts that have no blanks between words, tokens are words; the bytes of a character may be several.
    return step.start <= previous.start or not is_beside_unspaced(answer, step.start)


def _continues_character(_: str, previous: Step, step: Step) -> bool:
    # The bytes of a character, such as an emoji, may be several tokens.
    return step.start < previous.end


JOINS = {"word": _continues_word, "token": _continues_character}


def _make_word(explanation: AnswerExplanation, group: list[int]) -> AnswerWord:
    steps = [explanation.steps[index] for index in group]
    start, end = steps[0].start, steps[-1].end
    # A character whose last bytes were never written has a name only.
    text = explanation.answer[start:end] or spell_token(steps[0].token)
    return AnswerWord(text, start, end, tuple(group), *_join_probabilities(steps))


def _join_probabilities(steps: Sequence[Step]) -> tuple[float, str, float | None]:
    """Return the probability of some steps together, their foil, and its probability."""
    # A product, because each is the probability of a token after those before it.
    return math.prod(map(attrgetter("probability"), steps)), *_join_foils(steps)


def _join_foils(steps: Iterable[Step]) -> tuple[str, float | None]:
    """Return the text and the probability of the foils of some steps."""
    foils = list(filter(_is_contrasted, steps))
    if not foils:
        return "", None
    return spell_foil(foils), math.prod(map(foil_probability, foils))


def _is_contrasted(step: Step) -> bool:
    return step.versus is not None


def spell_foil(foils: Iterable[Step]) -> str:
    """Return the text of the foils of some steps."""
    # Together, because a blank between two words is the first character of the second.
    return spell_token("".join(step.versus or "" for step in foils))


def foil_probability(step: Step) -> float:
    """Return the probability of a step's foil; 0 where it is unknown."""
    return step.versus_probability or 0.0


def color_answer(explanation: AnswerExplanation, segments: Segments) -> Iterator[ColoredWord]:
    """Iterate over the words of the answer on their colours."""
    words = list_words(explanation)
    steps = color_words(explanation, segments, words)
    for (before, word), step in zip(iterate_answer(explanation, words), steps, strict=True):
        yield ColoredWord(word, step, "\n" in before)


def color_words(explanation: AnswerExplanation, segments: Segments, words: Sequence[AnswerWord]) -> list[int]:
    """Return the steps of the colour scale of words of the answer."""
    scale = make_scale(explanation)
    return [scale.find_step(relevance) for relevance in answer_relevance(segments, words)]


def iterate_answer(explanation: AnswerExplanation, words: Sequence[AnswerWord]) -> Iterator[tuple[str, AnswerWord]]:
    """Iterate over the words, each with the characters before it."""
    position = 0
    for word in words:
        yield explanation.answer[position : word.start], word
        position = max(position, word.end)


def is_explained(explanation: AnswerExplanation, word: AnswerWord) -> bool:
    """Return whether a word is part of what is explained."""
    return not set(word.steps).isdisjoint(explanation.explained)


def has_foil(explanation: AnswerExplanation) -> bool:
    """Return whether any step is contrasted with another token."""
    return any(map(_is_contrasted, explanation.steps))


def name_start(explanation: AnswerExplanation) -> str:
    """Return what is explained before a word is chosen."""
    if _is_whole(explanation) and not has_foil(explanation):
        return "whole answer"
    return clip(explanation.label)


def _is_whole(explanation: AnswerExplanation) -> bool:
    return len(explanation.explained) == len(explanation.steps) > 1


def list_choices(explanation: AnswerExplanation, words: Sequence[AnswerWord]) -> list[AnswerExplanation]:
    """Return the explanation of each word; none without a matrix, or if there would be too many colours."""
    colors = len(words) * len(explanation.tokens)
    # A single word is the whole answer.
    if explanation.matrix is None or len(words) < 2 or colors > MAX_CHOICE_COLORS:
        return []
    return [explanation.select_steps(word.steps) for word in words]


def _drop_sink(explanation: AnswerExplanation, segments: Segments) -> list[TextSpan]:
    return split_sink(explanation, segments)[1]


def strongest_words(explanation: AnswerExplanation, count: int, level: str | None = None) -> list[TextSpan]:
    """Return the words with the largest absolute relevance, without a sink."""
    words = _drop_sink(explanation, split_segments(explanation, level))
    return sorted(words, key=_negate_size)[:count]


def _negate_size(span: TextSpan) -> float:
    # Sorting by it puts the strongest first and keeps the order of equals.
    return -abs(span.relevance_or_zero)


def answer_relevance(segments: Segments, words: Sequence[AnswerWord]) -> list[float]:
    """Return the relevance of each word of the answer for what follows it."""
    # Without the original text there is one segment of tokens, and the answer has no colours.
    positions: list[tuple[int, float]] = []
    if len(segments) > 1:
        positions = list(_locate_spans(segments[1]))
    return [_sum_within(positions, word) for word in words]


def _locate_spans(spans: Iterable[TextSpan]) -> Iterator[tuple[int, float]]:
    """Iterate over the first character and the relevance of each span."""
    start = 0
    for span in spans:
        yield start, span.relevance_or_zero
        start += len(span.text)


def _sum_within(positions: Sequence[tuple[int, float]], word: AnswerWord) -> float:
    """Return the relevance of the spans that begin in a word, or of the one that it stands in."""
    first = bisect_left(positions, word.start, key=itemgetter(0))
    last = bisect_left(positions, word.end, key=itemgetter(0))
    # A sentence that is relevant as a whole has several words; a part of an emoji has no characters.
    if first == last and word.start < word.end:
        first = max(0, first - 1)
    return math.fsum(map(itemgetter(1), positions[first:last]))


def list_shares(explanation: AnswerExplanation) -> list[Share]:
    """Return the shares of absolute relevance, the first token's apart; none where there is no relevance."""
    shares = [_make_share(explanation, *group) for group in _group_tokens(explanation).items()]
    # An empty group has no bar.
    return list(filter(attrgetter("size"), shares))


def _make_share(explanation: AnswerExplanation, group: str, mask: Array) -> Share:
    sizes = np.abs(explanation.relevance)
    # Without any relevance all shares are 0.
    total = float(sizes.sum()) or 1.0
    return Share(group, _name_group(explanation, group), float(sizes[mask].sum()) / total)


def _group_tokens(explanation: AnswerExplanation) -> dict[str, Array]:
    position = np.arange(len(explanation.tokens))
    is_first = (position == 0) & (not explanation.has_encoder)
    is_word = ~explanation.special & ~is_first
    in_prompt = position < explanation.prompt_length
    in_picture = explanation.is_picture_token & ~is_first
    return {
        "first": is_first,
        "prompt": in_prompt & is_word,
        "pictures": in_picture,
        "own": ~in_prompt & is_word,
        "special": explanation.special & ~is_first & ~in_picture,
    }


def _name_first_token(explanation: AnswerExplanation) -> str:
    """Return the characters of the first token: those of a byte-level vocabulary may have other names."""
    start, end = explanation.offsets[0][-2:] if explanation.offsets else (0, 0)
    return explanation.prompt[start:end].strip() or spell_token(explanation.tokens[0])


def _name_group(explanation: AnswerExplanation, group: str) -> str:
    if group == "first":
        return f"first token “{escape_hidden(_name_first_token(explanation))}”"
    return SHARE_NAMES[group]


def name_share(share: Share) -> str:
    """Return the name of a share with its size."""
    return f"{share.name} {format_percent(share.size)}"


def format_shares(explanation: AnswerExplanation) -> str:
    """Format the shares of relevance in one line."""
    return " · ".join(map(name_share, list_shares(explanation)))


def format_sink(explanation: AnswerExplanation) -> str:
    """Format the share of the first token if it is a sink, else return ""."""
    if not has_sink(explanation):
        return ""
    first = _format_token(explanation, _name_first_token(explanation), float(explanation.relevance[0]))
    return f"First token, ranked apart: {first} of all relevance ({SINK_NOTE})."


def format_special(explanation: AnswerExplanation) -> str:
    """Format the strongest tokens outside of the words: special tokens, and those of blanks; "" if there are none."""
    names = list(_list_special(explanation))
    if not names:
        return ""
    return f"Not counted: {', '.join(names)} of all relevance, on special tokens and blanks."


def _list_special(explanation: AnswerExplanation) -> Iterator[str]:
    # Methods that hide sources or words give special tokens nothing.
    counted = [token for token in special_tokens(explanation) if token[1]]
    tokens = sorted(counted, key=lambda token: -abs(token[1]))
    yield from starmap(partial(_format_token, explanation), tokens[:MAX_SPECIAL_TOKENS])
    rest = len(tokens) - MAX_SPECIAL_TOKENS
    # The template of a chat alone has dozens.
    if rest > 0:
        yield f"and {rest} more"


def _format_token(explanation: AnswerExplanation, token: str, relevance: float) -> str:
    # Of all tokens, which the words share the rest of.
    total = float(np.abs(explanation.relevance).sum()) or 1.0
    return f"{escape_hidden(spell_token(token))} {format_share(relevance / total, signed=False)}"


def list_notes(explanation: Explanation) -> list[str]:
    """Return the notes below an explanation: special tokens, the first of an answer apart, error bar, diagnostics."""
    if not isinstance(explanation, AnswerExplanation):
        return format_notes(explanation)
    notes = [*format_coverage(explanation), format_sink(explanation), format_special(explanation)]
    return list(filter(None, [*notes, *format_trust(explanation)]))


def format_foil(word: AnswerWord) -> str:
    """Format the foil of a word with its probability, "" if it has none."""
    if word.versus_probability is None:
        return ""
    return f"{escape_hidden(word.versus)} {format_rounded(word.versus_probability)}"


def format_probabilities(word: AnswerWord, separator: str) -> str:
    """Format the probability of a word, and that of its foil if it has one."""
    return separator.join(filter(None, [format_rounded(word.probability), format_foil(word)]))


def format_rounded(probability: float) -> str:
    """Format a probability in few characters, to fit below a word."""
    percent = probability * 100
    if percent >= 10:
        return f"{percent:.0f} %"
    if percent >= 0.1:
        return f"{percent:.1f} %"
    return "<0.1 %"


def name_step_columns(explanation: AnswerExplanation) -> list[str]:
    """Return the headings of a table of steps."""
    columns = ["token", "probability"]
    if has_foil(explanation):
        columns += ["rather than", "probability"]
    return columns


def list_step_cells(step: Step) -> list[str]:
    """Return the cells of a step in a table: token and probability, and those of its foil."""
    cells = [spell_token(step.token), format_rounded(step.probability)]
    if step.versus is not None:
        cells += [spell_token(step.versus), format_rounded(foil_probability(step))]
    return cells


def list_word_cells(scale: Scale, span: TextSpan) -> list[str]:
    """Return the cells of a word in a table."""
    return [name_span(span), scale.format(span.relevance_or_zero)]


def list_source_cells(scale: Scale, source: Any) -> list[str]:
    """Return the cells of a source in a table."""
    return [describe_source(source), scale.format(source.relevance)]


def list_sources(explanation: AnswerExplanation) -> list[Any]:
    """Return the sources of the prompt by relevance, if there are at least two to compare."""
    sources = sorted(getattr(explanation, "sources", ()), key=attrgetter("relevance"), reverse=True)
    if len(sources) < 2:
        return []
    return sources


def describe_source(source: Any) -> str:
    """Return the name of a source, and the beginning of its text."""
    return clip(": ".join(filter(None, [source.name, source.text])))
