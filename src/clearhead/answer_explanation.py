"""The explanation of a language model's answer: which words of the prompt, and of the answer itself, led to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearhead.arrays import Array
from clearhead.errors import BadInput, BadOption
from clearhead.explanation import Explanation, Word
from clearhead.model.focus import find_characters, overlap
from clearhead.model.picture_span import PictureSpan
from clearhead.model.source_span import SourceSpan

Focus = str | int | tuple[int, int] | None
"""What part of an answer: words as they stand in it, the index of a step, start and end characters, or all of it."""


PIXELS_PER_PART = 16
"""Width and height of a picture's part where only tensors of it were given."""


@dataclass(frozen=True)
class Step:
    """One token of an answer, as the model predicted it.

    `start` and `end` are its characters in the answer. With a foil, `versus` is the token it is contrasted with.
    """

    token: str
    start: int
    end: int
    probability: float
    versus: str | None = None
    versus_probability: float | None = None


@dataclass(frozen=True)
class Source:
    """A part of the prompt with its relevance, the sum over its tokens.

    `start` and `end` are its characters in the prompt.
    """

    name: str
    text: str
    start: int
    end: int
    relevance: float


@dataclass(frozen=True, eq=False, repr=False)
class AnswerExplanation(Explanation):
    """Relevance of the prompt and of the answer's own earlier tokens for an answer, or for a part of it.

    `text` is the pair of prompt and answer; the first `prompt_length` of the `tokens` are the prompt's. `steps` are all
    tokens of the answer, `explained` the indices of those that are explained. `matrix` has a row of relevance for each
    step, zero where a token comes after it; None unless it was asked for. `source_spans` are the documents or other
    sources of the prompt, by default its sentences. `picture_spans` are the pictures among its words. `has_encoder`
    says that an encoder read the prompt, whose first token is a word like any other.
    """

    answer: str = ""
    prompt_length: int = 0
    steps: tuple[Step, ...] = ()
    explained: tuple[int, ...] = ()
    matrix: Array | None = None
    source_spans: tuple[SourceSpan, ...] = ()
    picture_spans: tuple[PictureSpan, ...] = ()
    has_encoder: bool = False

    @property
    def pictures(self) -> tuple[Explanation, ...]:
        """The pictures of the prompt with the relevance of their parts, which is that of the tokens they stand for."""
        return tuple(map(self._explain_picture, self.picture_spans))

    def _explain_picture(self, span: PictureSpan) -> Explanation:
        rows, columns = span.grid
        return Explanation(
            tokens=tuple(f"patch {row},{column}" for row in range(rows) for column in range(columns)),
            relevance=span.place(self.relevance),
            special=np.zeros(rows * columns, dtype=bool),
            target=self.target,
            label=self.label,
            method=self.method,
            grid=span.grid,
            image=span.image,
            box=span.box or (0, 0, PIXELS_PER_PART * columns, PIXELS_PER_PART * rows),
            probability=self.probability,
            options=self.options,
            model=self.model,
            changed_options=self.changed_options,
        )

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the prompt; methods that hide whole sources share their relevance among their tokens."""
        return tuple(self._make_source(span) for span in self.source_spans)

    def _make_source(self, span: SourceSpan) -> Source:
        relevance = float(self.relevance[self._find_tokens(span)].sum())
        return Source(span.name, self.prompt[span.start : span.end], span.start, span.end, relevance)

    def _find_tokens(self, span: SourceSpan) -> list[int]:
        """Return the tokens of the prompt that start in a span."""
        offsets = (self.offsets or ())[: self.prompt_length]
        tokens = []
        for index, offset in enumerate(offsets):
            if not self.special[index] and span.start <= offset[-2] < span.end:
                tokens.append(index)
        return tokens

    @property
    def prompt(self) -> str:
        return self.text[0] if isinstance(self.text, tuple) else ""

    @property
    def shares(self) -> dict[str, float]:
        """How the absolute relevance divides among the prompt, the answer's earlier tokens, and special tokens.

        A prompt with pictures has their share as well.
        """
        weights = np.abs(self.relevance)
        total = float(weights.sum())
        # Without any relevance every share is zero.
        return {name: float(weights[mask].sum()) / (total or 1.0) for name, mask in self._list_parts().items()}

    def _list_parts(self) -> dict[str, Array]:
        """Return which tokens belong to each part of the input (see `shares`)."""
        in_prompt = np.arange(len(self.relevance)) < self.prompt_length
        masks = {"prompt": in_prompt & ~self.special, "answer": ~in_prompt & ~self.special, "special": self.special}
        if self.picture_spans:
            in_picture = self.is_picture_token
            masks["special"] = masks["special"] & ~in_picture
            masks["pictures"] = in_picture
        return masks

    @property
    def is_picture_token(self) -> Array:
        """Which tokens stand for a part of a picture."""
        mask = np.zeros(len(self.relevance), dtype=bool)
        for span in self.picture_spans:
            mask[list(span.tokens)] = True
        return mask

    @property
    def first_token_share(self) -> float:
        """The share of absolute relevance on the very first token, where some decoders leave what they do not need."""
        total = float(np.abs(self.relevance).sum())
        return float(abs(self.relevance[0])) / total if total else 0.0

    def prompt_words(self, reduction: str | None = None) -> list[Word]:
        """Return the words of the prompt with their relevance."""
        return [word for word in self.words(reduction) if word.segment == 0]

    def answer_words(self, reduction: str | None = None) -> list[Word]:
        """Return the words of the answer with their relevance for what follows them."""
        return [word for word in self.words(reduction) if word.segment == 1]

    def span(self, focus: Focus) -> "AnswerExplanation":
        """Return the explanation of a part of the answer, the sum of its rows of the matrix.

        `focus` is the words as they stand in the answer, the index of a step, or a pair of characters (start, end).
        """
        if self.matrix is None:
            raise BadOption(
                "This explanation has no matrix of steps: explain with matrix=True, or give focus= at once."
            )
        return self.select_steps(find_steps(self.answer, [(step.start, step.end) for step in self.steps], focus))

    def select_steps(self, steps: tuple[int, ...]) -> "AnswerExplanation":
        """Return the explanation of these steps, the sum of their rows of the matrix."""
        assert self.matrix is not None
        label = name_steps(self.answer, self.steps, steps)
        probability = float(np.prod([self.steps[step].probability for step in steps]))
        relevance = self.matrix[list(steps)].sum(0)
        # Only the relevance of tokens is known for each step, not what was checked, nor where effects lead to.
        tokens_only = replace(self, layers=None, heads=None, check=None, diagnostics=_keep_unit(self.diagnostics))
        return replace(tokens_only, relevance=relevance, explained=steps, label=label, probability=probability)


WHOLE_ANSWER = ("score", "completeness_gap", "completeness_error", "conservation_gap", "agreement", "rounding_error")
"""Diagnostics that are about all explained steps together."""


def _keep_unit(diagnostics: Mapping[str, Any]) -> dict[str, Any]:
    """Return diagnostics whose effect has its unit only, without the scores and errors of the whole answer."""
    kept = {name: value for name, value in diagnostics.items() if name not in WHOLE_ANSWER}
    effect = kept.get("effect")
    if isinstance(effect, Mapping):
        kept["effect"] = {**effect, "base": None, "prediction": None}
    return kept


def find_steps(answer: str, offsets: Sequence[tuple[int, int]], focus: Focus) -> tuple[int, ...]:
    """Return the indices of the steps that a focus means; raise BadInput if there are none."""
    if focus is None:
        return tuple(range(len(offsets)))
    if isinstance(focus, int) and not isinstance(focus, bool):
        return (_resolve_step(focus, len(offsets)),)
    start, end = find_characters(answer, focus, "answer")
    steps = tuple(index for index, offset in enumerate(offsets) if overlap(offset, start, end))
    _require_steps(answer, focus, steps)
    return steps


def _require_steps(answer: str, focus: Focus, steps: Sequence[int]) -> None:
    if not steps:
        raise BadInput(f"No token of the answer lies in {focus!r}. The answer is {answer!r}.")


def _resolve_step(step: int, count: int) -> int:
    if not -count <= step < count:
        raise BadInput(f"Invalid step {step}: the answer has steps 0 … {count - 1}.")
    return step % count


def name_steps(answer: str, steps: Sequence[Step], explained: Sequence[int]) -> str:
    """Return the text of the explained steps; '…' stands between those that do not follow each other."""
    pieces: list[str] = []
    for group in group_consecutive(explained):
        text = answer[steps[group[0]].start : steps[group[-1]].end].strip()
        # Tokens of nothing but blanks have a name only.
        pieces.append(text or steps[group[0]].token)
    return " … ".join(pieces)


def group_consecutive(numbers: Sequence[int]) -> list[list[int]]:
    """Split increasing integers into runs without gaps."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
