"""snapshot(): the reasons of one model on all examples of a task."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from clearhead.api import explain
from clearhead.attribution.method import MethodSpec, default_method, parse_method
from clearhead.data.read import read_task
from clearhead.data.task import Example, Task, task_digest
from clearhead.drift.noise import DRAWS, measure_noise
from clearhead.drift.reasons import extract_reasons
from clearhead.errors import BadInput
from clearhead.model.inputs import as_input_list
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.placement import with_precision
from clearhead.model.weights import checksum_weights
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
    batch_size: int | None = None,
    precision: str | None = None,
    **options: Any,
) -> Snapshot:
    """Explain the predictions of a model on texts or images, or on a task, and keep the shares of words or patches.

    `noise` is the number of copies of the model with as much noise in the weights as rounding to eight bits makes, by
    which later changes are told from noise; 0 measures none. Further keyword arguments are the method's options.

    >>> clearhead.snapshot(clearhead.load(), task="dev.tsv")     # doctest: +SKIP
    """
    require_integer("noise", noise, 0, is_flag=True)
    loaded = with_precision(as_model(model), precision)
    survey = Survey(choose_task(inputs, task), _parse_method(loaded, method, options), batch_size)
    taken = survey.take(loaded)
    if not noise:
        return taken
    return replace(taken, noise=measure_noise(loaded, survey, taken.examples, noise))


def _parse_method(model: Model, method: Any, options: dict[str, Any]) -> MethodSpec:
    return parse_method(default_method(model) if method is None else method, **options)


def choose_task(inputs: Any, task: Any) -> Task:
    """Return the task, or a task of the inputs; raise BadInput unless one of them is given."""
    if (inputs is None) == (task is None):
        raise BadInput("Give either inputs (texts or images) or a task (a Task, a file, a folder or 'hf:NAME').")
    if isinstance(inputs, Task):
        return inputs
    if inputs is None:
        return read_task(task)
    examples = [Example(str(number), raw) for number, raw in enumerate(as_input_list(inputs))]
    return Task("inputs", examples)


@dataclass(frozen=True)
class Survey:
    """The questions that models are asked: the examples of a task, by one method."""

    task: Task
    spec: MethodSpec
    batch_size: int | None = None

    def take(self, model: Model) -> Snapshot:
        """Return the snapshot of a model, without noise."""
        return Snapshot(
            model=model.name,
            checksum=checksum_weights(model),
            labels=tuple(model.labels),
            task=self.task.name,
            task_digest=task_digest(self.task),
            method=self.spec.text,
            options=_plain_options(self.spec.all_options),
            examples=self.ask(model),
            versions={"clearhead": __version__, **{name: version(name) for name in LIBRARIES}},
        )

    def ask(self, model: Model) -> tuple[Reasons, ...]:
        """Return the reasons of a model for its answer to each example."""
        reasons: list[Reasons] = []
        count = len(self.task)
        with progress(count, "inputs") as advance:
            for start in range(0, count, MAX_CHUNK):
                chunk = self.task.examples[start : start + MAX_CHUNK]
                reasons += self._ask_chunk(model, chunk)
                advance(len(chunk))
        return tuple(reasons)

    def _ask_chunk(self, model: Model, examples: Sequence[Example]) -> list[Reasons]:
        inputs = [example.raw for example in examples]
        settings: dict[str, Any] = {"batch_size": self.batch_size, "overflow": "truncate", "check": False}
        if model.writes:
            settings["answer"] = _list_answers(examples)
        explanations = explain(model, inputs, self.spec, **settings)
        labels = model.labels
        return [extract_reasons(*pair, labels) for pair in zip(explanations, examples, strict=True)]


def _plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are read from a file: tuples become lists, objects their names."""
    plain: dict[str, Any] = json.loads(json.dumps(options, default=str))
    return plain


def _list_answers(examples: Sequence[Example]) -> list[str] | None:
    """Return the answers of a task of prompts; None if the models write their own."""
    answers = [example.writing.answer for example in examples if example.writing is not None]
    if len(answers) < len(examples) or None in answers:
        return None
    return [answer for answer in answers if answer is not None]
