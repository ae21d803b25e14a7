"""Answers of language models: what `ask` and `explain` share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import outputs
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.answer_explanation import Focus
    from clearhead.attribution.method import MethodSpec
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model

# Prompts per call of the library: few, because writing answers takes long and a bar should move.
MAX_CHUNK = 4
STEP_MARK = "#"


@dataclass(frozen=True)
class AnswerFlags:
    """The flags that only language models have, as they were given."""

    answer: str | None = None
    versus: str | None = None
    focus: str | None = None
    matrix: bool = False
    scale: str | None = None
    max_new_tokens: int | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of `clearhead.explain`, without those that were not given."""
        settings = {
            "answer": self.answer,
            "versus": self.versus,
            "focus": parse_focus(self.focus),
            "matrix": self.matrix or None,
            "scale": self.scale,
            "generation": self._generation,
        }
        return {name: value for name, value in settings.items() if value is not None}

    @property
    def _generation(self) -> dict[str, int] | None:
        if self.max_new_tokens is None:
            return None
        if self.answer is not None:
            raise BadOption("--max-new-tokens limits what the model writes, but --answer gives the answer: omit one.")
        return {"max_new_tokens": self.max_new_tokens}


def parse_focus(text: str | None) -> "Focus":
    """Return words of the answer, the step of #N, or the characters of START:END."""
    if text is None:
        return None
    if text.startswith(STEP_MARK) and text[1:].lstrip("-").isdecimal():
        return int(text[1:])
    start, colon, end = text.partition(":")
    if colon and start.isdecimal() and end.isdecimal():
        return int(start), int(end)
    return text


def make_chats(prompts: Sequence[str], system: str | None) -> list[list[dict[str, str]]]:
    """Return each prompt as the message of a user, after the system's message if there is one."""
    before = [] if system is None else [{"role": "system", "content": system}]
    return [[*before, {"role": "user", "content": prompt}] for prompt in prompts]


def require_texts(prompts: Sequence[Any]) -> None:
    """Raise BadOption for pairs of texts."""
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise BadOption("A prompt is one text: name one column with --text-column, and leave out --pair.")


def explain_answers(
    model: "Model", prompts: Sequence[Any], spec: "MethodSpec", settings: Mapping[str, Any]
) -> "list[Explanation]":
    """Explain the answer to each prompt, with a spinner or a bar on a terminal."""
    from clearhead.progress import spinner

    if len(prompts) == 1:
        label = "explaining" if "answer" in settings else "writing and explaining"
        with spinner(f"{model.name} is {label}"):
            return list(_explain_chunks(model, prompts, spec, settings))
    return list(_explain_chunks(model, prompts, spec, settings))


def _explain_chunks(
    model: "Model", prompts: Sequence[Any], spec: "MethodSpec", settings: Mapping[str, Any]
) -> "Iterator[Explanation]":
    from clearhead.api import explain
    from clearhead.progress import progress

    with progress(len(prompts), "answers") as advance:
        for start in range(0, len(prompts), MAX_CHUNK):
            chunk = prompts[start : start + MAX_CHUNK]
            yield from explain(model, list(chunk), spec, **settings)
            advance(len(chunk))


def deliver(explanations: "Sequence[Explanation]", spec: "MethodSpec", *, out: Path | None, json: bool) -> None:
    """Write and print the explanations of answers."""
    outputs.deliver(
        [(spec.text, explanation) for explanation in explanations],
        out=out,
        json=json,
        render_page=partial(_render_page, explanations),
        show=partial(outputs.show_explanations, explanations, everything=out is None),
    )


def _render_page(explanations: "Sequence[Explanation]") -> list[str]:
    from clearhead.views import html

    return html.cards(explanations)
