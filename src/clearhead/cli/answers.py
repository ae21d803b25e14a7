"""Answers of language models: what `ask` and `explain` share."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from glob import glob
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import outputs, tables
from clearhead.cli.inputs import read_text
from clearhead.errors import BadFile, BadInput, BadOption
from clearhead.model.focus import parse_focus

if TYPE_CHECKING:
    from clearhead.attribution.method import MethodSpec
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model

# How a prompt is divided into sources of its own.
DIVISIONS = ("sentences", "turns")


@dataclass(frozen=True)
class AnswerFlags:
    """The flags that only language models have, as they were given."""

    answer: str | None = None
    versus: str | None = None
    focus: str | None = None
    matrix: bool = False
    scale: str | None = None
    max_new_tokens: int | None = None
    sources: Sequence[str] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of `clearhead.explain`, without those that were not given."""
        settings = {**asdict(self), "focus": parse_focus(self.focus), "generation": self._generation}
        settings["sources"] = read_sources(self.sources)
        del settings["max_new_tokens"]
        # The library refuses these arguments for models that do not write.
        return {name: value for name, value in settings.items() if _is_given(value)}

    @property
    def _generation(self) -> dict[str, int] | None:
        if self.max_new_tokens is None:
            return None
        self._refuse_answer()
        return {"max_new_tokens": self.max_new_tokens}

    def _refuse_answer(self) -> None:
        if self.answer is not None:
            raise BadOption("--max-new-tokens limits what the model writes, but --answer gives the answer: omit one.")


def _is_given(value: Any) -> bool:
    # Not by its truth value: 0 is the first step.
    return value is not None and value is not False


def read_sources(arguments: Sequence[str] | None) -> Any:
    """Return documents by file name, or the word that says how the prompt itself is divided."""
    if not arguments:
        return None
    if _is_division(arguments):
        return arguments[0]
    paths = _list_source_files(arguments)
    counts = Counter(path.name for path in paths)
    return {_name_file(path, counts): read_text(path).strip() for path in paths}


def list_files(images: Sequence[Path] | None, sources: Sequence[str] | None) -> list[Path]:
    """Return the pictures and the documents of a prompt."""
    return [*(images or ()), *_list_source_files(sources)]


def _list_source_files(arguments: Sequence[str] | None) -> list[Path]:
    """Return the documents that --sources names, none if it says how the prompt itself is divided."""
    if not arguments or _is_division(arguments):
        return []
    # Patterns may overlap.
    return list(dict.fromkeys(chain.from_iterable(map(_find_files, arguments))))


def _is_division(arguments: Sequence[str]) -> bool:
    return len(arguments) == 1 and arguments[0] in DIVISIONS


def _name_file(path: Path, counts: Mapping[str, int]) -> str:
    """Return the name of a file, with its folders if several files have this name."""
    return path.name if counts[path.name] == 1 else str(path)


def _find_files(argument: str) -> list[Path]:
    """Return the files of a folder, of a pattern, or the one file that an argument names."""
    pattern = argument
    if Path(argument).is_dir():
        pattern = f"{argument.rstrip('/')}/*"
    paths = [Path(name) for name in glob(pattern) if Path(name).is_file()]
    if not paths:
        raise BadFile(
            f"'{argument}' has no files: give a file, a folder, a quoted pattern, or {' or '.join(DIVISIONS)}."
        )
    return sorted(paths)


@dataclass(frozen=True)
class PromptMaker:
    """What a model is given for the text of a prompt: a chat where one is asked for, and pictures that it is about."""

    chat: bool = False
    system: str | None = None
    images: Sequence[Path] | None = None

    def __call__(self, text: str) -> Any:
        prompt = self._make_messages(text)
        if not self.images:
            return prompt
        return list(self.images), _make_place(prompt, len(self.images))

    def _make_messages(self, text: str) -> Any:
        if not self.chat and self.system is None:
            return text
        message = {"role": "user", "content": text}
        if self.system is None:
            return [message]
        return [{"role": "system", "content": self.system}, message]


def _make_place(prompt: Any, count: int) -> Any:
    """Return a prompt with the places of its pictures, which come first in the last message of a chat."""
    if isinstance(prompt, str):
        return prompt
    *before, last = prompt
    entries = [{"type": "image"}] * count
    return [*before, {**last, "content": [*entries, {"type": "text", "text": last["content"]}]}]


def require_texts(prompts: Sequence[Any]) -> None:
    """Raise BadOption for pairs of texts; rows without a text have their errors."""
    if any(isinstance(prompt, tuple) for prompt in prompts):
        raise BadOption("A prompt is one text: name one column with --text-column, and leave out --pair.")


@dataclass(frozen=True)
class Questions:
    """INPUT arguments, the prompts that were read from them, and how their answers are explained."""

    arguments: Sequence[str]
    prompts: Sequence[Any]
    table: tables.TableFlags
    make_prompt: PromptMaker

    def explain_and_deliver(
        self, model: "Model", spec: "MethodSpec", settings: dict[str, Any], *, out: Path | None, json: bool
    ) -> None:
        """Write and print the explanations of the answers, and why some prompts have none."""
        deliver(self._explain(model, spec, settings), spec, out=out, json=json)

    def _explain(self, model: "Model", spec: "MethodSpec", settings: dict[str, Any]) -> "list[Explanation | BadInput]":
        """Return the explanations; those of rows of a table say which row they are about."""
        require_texts(self.prompts)
        if tables.are_tables(self.arguments):
            tables.announce_answers(self.arguments, settings.get("answer"))
            return tables.explain_prompts(model, self.arguments, spec, self.table, settings, self.make_prompt)
        if any(tables.names_column(settings.get(name)) for name in ("answer", "versus")):
            tables.require_tables(self.arguments)
        readable = tables.select_inputs(self.prompts)
        return [*explain_answers(model, list(map(self.make_prompt, readable)), spec, settings)]


def explain_answers(
    model: "Model", prompts: Sequence[Any], spec: "MethodSpec", settings: Mapping[str, Any]
) -> "list[Explanation]":
    """Explain the answer to each prompt, with a spinner or a bar on a terminal."""
    from clearhead.progress import spinner

    explanations = _explain_chunks(model, prompts, spec, settings)
    if len(prompts) > 1:
        return list(explanations)
    with spinner(f"{model.name}: {_name_work(settings)}"):
        return list(explanations)


def _name_work(settings: Mapping[str, Any]) -> str:
    if "answer" in settings:
        return "explaining the answer"
    return "writing and explaining an answer"


def _explain_chunks(
    model: "Model", prompts: Sequence[Any], spec: "MethodSpec", settings: Mapping[str, Any]
) -> "Iterator[Explanation]":
    from clearhead.api import explain

    for chunk in tables.count_chunks(prompts):
        yield from explain(model, list(chunk), spec, **settings)


def deliver(results: "Sequence[Explanation | BadInput]", spec: "MethodSpec", *, out: Path | None, json: bool) -> None:
    """Write and print the explanations of answers, and why some prompts have none."""
    explanations, errors = tables.divide_results(results)
    outputs.deliver(
        [(spec.text, explanation) for explanation in explanations],
        out=out,
        json=json,
        render_page=partial(_render_page, explanations, errors),
        show=partial(outputs.show_explanations, explanations, everything=out is None),
    )


def _render_page(explanations: "Sequence[Explanation]", errors: Sequence[BadInput]) -> list[str]:
    from clearhead.views import html

    return [*html.list_errors(errors), *html.cards(explanations)]
