"""snapshot(): the reasons of one model on all examples of a task."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain, repeat
from typing import Any

from clearhead.api import explain
from clearhead.attribution.method import MethodSpec, resolve_method
from clearhead.data.read import read_task
from clearhead.data.task import Example, Task, task_digest
from clearhead.drift.noise import DRAWS, MIN_NOISE_MODELS, iterate_copies, load_noise_models, measure_noise
from clearhead.drift.reasons import UNIT, extract_reasons
from clearhead.errors import BadInput, BadOption
from clearhead.model.checksum import weights_checksum
from clearhead.model.inputs import as_input_list
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.placement import with_precision
from clearhead.model_diff import Reasons, Snapshot
from clearhead.progress import progress
from clearhead.validation import require_integer
from clearhead.version import __version__

LIBRARIES = ("torch", "transformers")
# Explanations are reduced to shares chunk by chunk, so that those of a large task need not be in memory together.
MAX_CHUNK = 256


def snapshot(
    model: Any,
    inputs: Any = None,
    *,
    task: Any = None,
    method: Any = None,
    noise: int = DRAWS,
    noise_models: Sequence[Any] = (),
    batch_size: int | None = None,
    precision: str | None = None,
    **options: Any,
) -> Snapshot:
    """Explain the predictions of a model on texts or images, or on a task, and keep the shares of words or patches.

    `noise` is the number of copies of the model with as much noise in the weights as rounding to eight bits makes, to
    tell later changes from it; 0 measures none. `noise_models`, two or more, take the place of these
    copies: models that count as the same, such as those of other seeds. Further keyword arguments are the method's
    options.

    >>> clearhead.snapshot(clearhead.load(), task="dev.tsv")     # doctest: +SKIP
    """
    require_integer("noise", noise, 0, is_flag=True)
    _require_noise_models(noise_models)
    loaded = with_precision(as_model(model), precision)
    survey = Survey(choose_task(inputs, task), resolve_method(loaded, method, **options), batch_size)
    quiet = survey.take(loaded)
    if noise_models:
        copies = load_noise_models(noise_models, loaded.labels)
    elif noise:
        copies = iterate_copies(loaded, noise)
    else:
        return quiet
    return replace(quiet, noise=measure_noise(loaded, survey, quiet.examples, copies))


def _require_noise_models(noise_models: Sequence[Any]) -> None:
    if _is_single_model(noise_models):
        raise BadOption(
            f"noise_models needs at least {MIN_NOISE_MODELS} models, because the spread of one is not known: train the "
            "same recipe with further seeds."
        )


def _is_single_model(noise_models: Any) -> bool:
    return isinstance(noise_models, str | Model) or len(noise_models) == 1


def choose_task(inputs: Any, task: Any) -> Task:
    """Return the task, or a task of the inputs; raise BadInput unless one of them is given."""
    _require_one_source(inputs, task)
    if isinstance(inputs, Task):
        return inputs
    if inputs is None:
        return read_task(task)
    raw_inputs = as_input_list(inputs)
    return Task("inputs", list(map(Example, map(str, range(len(raw_inputs))), raw_inputs)))


def _require_one_source(inputs: Any, task: Any) -> None:
    if (inputs is None) == (task is None):
        raise BadInput("Give either inputs (texts or images) or a task (a Task, a file, a folder or 'hf:NAME').")


@dataclass(frozen=True)
class Survey:
    """The questions that models are asked: the examples of a task, by one method.

    `pattern` matches the words of a text.
    """

    task: Task
    spec: MethodSpec
    batch_size: int | None = None
    pattern: re.Pattern[str] = UNIT

    def take(self, model: Model) -> Snapshot:
        """Return the snapshot of a model, without noise."""
        return Snapshot(
            model=model.name,
            checksum=weights_checksum(model),
            labels=tuple(model.labels),
            task=self.task.name,
            task_digest=task_digest(self.task),
            method=self.spec.method.name,
            options=_plain_options(self.spec.all_options),
            examples=self.ask(model),
            versions=_list_versions(),
        )

    def ask(self, model: Model) -> tuple[Reasons, ...]:
        """Return the reasons of a model for its answer to each example."""
        with progress(len(self.task), "inputs") as advance:
            return tuple(chain.from_iterable(self._ask_chunks(model, advance)))

    def _ask_chunks(self, model: Model, advance: Callable[[int], None]) -> Iterator[list[Reasons]]:
        for start in range(0, len(self.task), MAX_CHUNK):
            chunk = self.task.examples[start : start + MAX_CHUNK]
            yield self._ask_chunk(model, chunk)
            advance(len(chunk))

    def _ask_chunk(self, model: Model, examples: Sequence[Example]) -> list[Reasons]:
        inputs = [example.raw for example in examples]
        answers = _list_answers(examples) if model.writes else None
        settings: dict[str, Any] = {"overflow": "truncate", "check": False, "answer": answers}
        explanations = explain(model, inputs, self.spec, batch_size=self.batch_size, **settings)
        return list(map(extract_reasons, explanations, examples, repeat(model.labels), repeat(self.pattern)))


def _list_versions() -> dict[str, str]:
    versions = {name: version(name) for name in LIBRARIES}
    return {"clearhead": __version__, **versions}


def _plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are read from a file: tuples become lists, objects their names."""
    return dict(json.loads(json.dumps(options, default=str)))


def _list_answers(examples: Sequence[Example]) -> list[str] | None:
    """Return the answers of a task of prompts; None if the models write their own."""
    answers = []
    for example in examples:
        if example.writing is None or example.writing.answer is None:
            return None
        answers.append(example.writing.answer)
    return answers
