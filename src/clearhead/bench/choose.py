"""choose(): a short bench over quick methods, whose answer becomes the default method of the model."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from clearhead.attribution.choices import Choice, save_choice
from clearhead.attribution.method import parse_method
from clearhead.attribution.names import ONE_TRACE_METHODS
from clearhead.bench.evidence import Evidence
from clearhead.bench.tables import summarise_values
from clearhead.bench.verdict import choose_method, verdict
from clearhead.bench.worker import time_alone
from clearhead.data.read import read_task
from clearhead.data.task import Example, Task
from clearhead.errors import BadOption
from clearhead.evaluation.corrected_t import fewest_groups
from clearhead.evaluation.evaluate import Table, evaluate
from clearhead.model.checksum import count_weights, weights_checksum
from clearhead.model.inputs import as_input_list
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.validation import require_integer

# A single seed: twenty, as in other tables, would cost more than all methods together.
CONTROL = "random:seed=0"
CHANCE = ("random", CONTROL)
# The last two take more passes, but are often the best.
CANDIDATES = (*ONE_TRACE_METHODS, "integrated-gradients", "occlusion")
# Of both, top shares that differ for short texts too: at 1 % and 5 % a sentence loses the same single word.
CLASS_METRICS = ("comprehensiveness:bins=5/10/20/50", "sufficiency:bins=5/10/20/50")
ANSWER_METRICS = ("log-prob-drop", "log-prob-revealing:steps=5")
TEXTS = 100
IMAGES = 50
PROMPTS = 50
# Inputs of a first, small measurement that tells what the whole will cost.
PILOT_INPUTS = 2
TIMED_INPUTS = 4

Announce = Callable[[str], None]


@dataclass(frozen=True)
class MethodChoice:
    """The result of `choose`: the method, None if none is shown to beat chance, and what it rests on.

    `table` has every value with its interval, `sentences` the verdict, the advice first, and `path` the file that keeps
    the choice; it is None if nothing was chosen or kept.
    """

    method: str | None
    sentences: tuple[str, ...]
    summary: Mapping[str, Any]
    table: Table
    path: Path | None = None

    def __repr__(self) -> str:
        return "\n".join(self.sentences)


def choose(
    model: Any,
    inputs: Any,
    methods: Sequence[Any] | None = None,
    *,
    limit: int | None = None,
    save: bool = True,
    seed: int = 0,
    announce: Announce | None = None,
    **reading: Any,
) -> MethodChoice:
    """Find the method that explains this model best, and make it the model's default method.

    `inputs` are texts, images or prompts, a Task, or a file, read with the options in `reading`; labels are not used.
    Methods are compared by deletion and insertion on `limit` of them (100 texts, 50 images or prompts), with paired
    tests. The choice is kept by the checksum of the weights unless `save` is False. `announce` is called with a
    sentence about the cost before the work begins.

    >>> clearhead.choose(model, texts).method     # doctest: +SKIP
    """
    model = as_model(model)
    require_integer("seed", seed, 0, is_flag=True)
    task = sample_task(inputs, limit or _default_limit(model), reading)
    run = _Run(model, task, (*_leave_out_chance(methods or CANDIDATES), CONTROL), seed)
    _require_inputs(len(task), len(run.methods))
    if announce is not None:
        announce(run.describe_cost())
    result = run.choose()
    if result.method is None or not save:
        return result
    return replace(result, path=save_choice(_make_choice(model, task, result)))


def _leave_out_chance(methods: Sequence[Any]) -> list[Any]:
    """Return the methods but for chance, which is measured in any case."""
    others = [method for method in methods if method not in CHANCE]
    if not others:
        raise BadOption("Chance is measured in any case, and cannot be chosen: name another method.")
    return others


def _require_inputs(count: int, methods: int) -> None:
    """Raise BadOption if no difference could be shown, before anything is measured."""
    fewest = fewest_groups(math.comb(methods, 2))
    if count < fewest:
        raise BadOption(
            f"{count} inputs cannot show that one of {methods - 1} methods is better than chance: give at least "
            f"{fewest}, or name fewer methods."
        )


def _default_limit(model: Model) -> int:
    if model.writes:
        return PROMPTS
    return IMAGES if model.takes_images else TEXTS


def sample_task(inputs: Any, limit: int, reading: Mapping[str, Any]) -> Task:
    """Return at most `limit` examples of a task, a file, or a list of raw inputs."""
    if isinstance(inputs, Task):
        return Task(inputs.name, list(inputs.examples)[:limit], inputs.labels)
    if isinstance(inputs, str | Path):
        return read_task(inputs, limit=limit, **reading)
    return Task("inputs", list(_as_examples(as_input_list(inputs)[:limit])))


def _as_examples(inputs: Sequence[Any]) -> Iterable[Example]:
    for number, raw in enumerate(inputs):
        yield Example(str(number), raw)


@dataclass(frozen=True)
class _Run:
    """The measurements: which methods, on which model and data."""

    model: Model
    task: Task
    methods: Sequence[Any]
    seed: int

    @property
    def metrics(self) -> Sequence[str]:
        return ANSWER_METRICS if self.model.writes else CLASS_METRICS

    def describe_cost(self) -> str:
        """Measure a few inputs, and say what all of them will cost."""
        count = len(self.task)
        pilot = Task(self.task.name, list(self.task.examples)[:PILOT_INPUTS])
        seconds = self._time(pilot) / len(pilot) * count
        metrics = " and ".join(self.metrics)
        others = len(self.methods) - 1
        methods = "1 method" if others == 1 else f"{others} methods"
        return f"Measuring {methods} and chance on {count} inputs by {metrics}: about {seconds:.0f} s."

    def _time(self, task: Task) -> float:
        # Once without a clock: the first pass pays for libraries that are loaded then.
        self.measure(task)
        start = time.perf_counter()
        self.measure(task)
        return time.perf_counter() - start

    def choose(self) -> MethodChoice:
        """Measure all inputs, and choose by the verdict."""
        table = self.measure(self.task)
        summary = self._summarise(table)
        return MethodChoice(choose_method(Evidence(summary)), tuple(verdict(summary)), summary, table)

    def measure(self, task: Task) -> Table:
        return evaluate(self.model, task, self.methods, self.metrics, seed=self.seed)

    def _summarise(self, table: Table) -> dict[str, Any]:
        """Return what the verdict reads, as of a finished bench."""
        summary = summarise_values(table, self.seed)
        return {
            **summary,
            "costs": self._measure_costs(summary["methods"]),
            "examples": len(self.task),
            "measured": len(self.task) - len(table.skipped),
            "done": 1,
            "shards": 1,
        }

    def _measure_costs(self, methods: Sequence[str]) -> dict[str, float]:
        examples = list(self.task.examples)[:TIMED_INPUTS]
        return {method: time_alone(self.model, parse_method(method), examples) for method in methods}


def _make_choice(model: Model, task: Task, result: MethodChoice) -> Choice:
    return Choice(
        method=str(result.method),
        model=model.name,
        checksum=weights_checksum(model),
        weights=count_weights(model),
        date=date.today().isoformat(),
        examples=len(task),
        metrics=tuple(result.table.metrics),
        data=task.name,
        summary=result.sentences[0],
    )
