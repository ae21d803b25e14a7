"""Data named at the start of the server: a table of its examples, whose predictions are computed as they are needed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clearhead.attribution.input_context import WITHOUT_CLASSES, describe_predictions
from clearhead.data.task import Example, Task
from clearhead.errors import BadInput, BadOption
from clearhead.evaluation.examples import describe_gold
from clearhead.evaluation.planting import run_encoded
from clearhead.model.inputs import Encoded, encode
from clearhead.model.model import Model
from clearhead.registry import unknown_name
from clearhead.views.text_spans import escape_hidden
from clearhead.web.limits import Limits
from clearhead.web.pictures import is_image, render_image
from clearhead.web.run_examples import ExampleFilter, RunExample, count_slices
from clearhead.web.schemas import ListedExample, PredictionProgress, TaskExamples, TaskInfo, TaskOrder

# Few enough that a question which comes meanwhile waits for a moment only.
ROWS_AT_ONCE = 16
UNREADABLE: dict[str, Any] = {}

Prediction = Mapping[str, Any]
"""The predicted label and its probability; nothing for what the model cannot read."""


class PredictedTask:
    """The examples of a task as one model labels them, as far as that is computed."""

    def __init__(self, model: Model, examples: Sequence[Example]) -> None:
        self.model = model
        self.examples = examples
        self.gold = [describe_gold(model, example) for example in examples]
        # Written by the worker's thread and read by others: entries are only ever added.
        self._predictions: dict[int, Prediction] = {}

    @property
    def progress(self) -> PredictionProgress:
        """How many examples have been predicted."""
        return PredictionProgress(done=len(self._predictions), total=len(self.examples))

    def predict_next(self) -> None:
        """Predict some of the examples that have not been, in their order."""
        indices = self._list_missing()[:ROWS_AT_ONCE]
        encoded = self._encode(indices)
        for index in indices:
            # What cannot be read is not tried again.
            if index not in encoded:
                self._predictions[index] = UNREADABLE
        if encoded:
            logits = run_encoded(self.model, list(encoded.values()))
            self._predictions.update(zip(encoded, describe_predictions(self.model, logits), strict=True))

    def _list_missing(self) -> list[int]:
        return [index for index in range(len(self.examples)) if index not in self._predictions]

    def _encode(self, indices: Sequence[int]) -> dict[int, Encoded]:
        """Encode the examples that the model can read, by index."""
        encoded = {}
        for index in indices:
            try:
                encoded[index] = encode(self.model, self.examples[index].raw, overflow="truncate")
            except BadInput:
                continue
        return encoded

    def list_rows(self) -> list[RunExample]:
        """Return all examples, in the order of the data."""
        return [self._make_row(index) for index in range(len(self.examples))]

    def _make_row(self, index: int) -> RunExample:
        example = self.examples[index]
        gold = self.gold[index]
        prediction = self._predictions.get(index, UNREADABLE)
        predicted = _spell_label(prediction.get("predicted"))
        return RunExample(
            id=example.id,
            texts=_list_texts(example),
            label=predicted or "",
            probability=prediction.get("predicted_probability"),
            model=self.model.name,
            gold=_spell_label(gold.get("gold")),
            predicted=predicted,
            is_wrong=_is_wrong(gold, prediction),
        )


def _is_wrong(gold: Mapping[str, Any], prediction: Prediction) -> bool | None:
    # A label that the model does not have cannot be compared with its prediction.
    if not gold or not prediction or gold.get("gold_is_class") is False:
        return None
    return bool(gold["gold"] != prediction["predicted"])


def _spell_label(label: str | None) -> str | None:
    # Characters that reorder others could make a label read as another.
    return None if label is None else escape_hidden(label)


def _list_texts(example: Example) -> tuple[str, ...]:
    """Return the text of an example, both of a pair, or none of an image."""
    if isinstance(example.input, str):
        return (example.input,)
    return () if is_image(example.input) else tuple(example.input)


class TaskTable:
    """One task, and its predictions by the models of the server that read such data."""

    def __init__(self, task: Task, models: Mapping[str, Model]) -> None:
        self.task = task
        self.has_images = is_image(task.examples[0].input)
        # Prompts as lists of messages, which language models read.
        self.has_chats = isinstance(task.examples[0].input, list)
        self.models = {name: model for name, model in models.items() if self._suits(model)}
        self._predicted: dict[str, PredictedTask] = {}

    def _suits(self, model: Model) -> bool:
        """Return whether a model sorts such inputs into classes."""
        if model.writes or model.problem in WITHOUT_CLASSES or self.has_chats:
            return False
        # They read two inputs, or label words, masks, boxes or pixels instead of the input.
        if model.reads_pairs or model.reads_jointly or model.has_focus:
            return False
        return model.takes_images == self.has_images

    def describe(self, name: str) -> TaskInfo:
        """Return the size of the task and the models that read it."""
        return TaskInfo(name=name, examples=len(self.task), models=list(self.models))

    def by_model(self, name: str) -> PredictedTask:
        """Return the examples as this model labels them."""
        if name not in self.models:
            raise unknown_name("model of this data", name, list(self.models))
        if name not in self._predicted:
            self._predicted[name] = PredictedTask(self.models[name], self.task.examples)
        return self._predicted[name]

    def list_examples(
        self, model: str, *, order: TaskOrder, start: int, count: int, chosen: ExampleFilter
    ) -> TaskExamples:
        """Return some of the examples that a filter accepts, and how many of all have been predicted."""
        predicted = self.by_model(model)
        # Before the rows: an example that is predicted meanwhile is not counted, and the page asks again.
        progress = predicted.progress
        accepted = _order_rows(list(filter(chosen.accepts, predicted.list_rows())), order)
        shown = accepted[start : start + count]
        return TaskExamples(
            total=len(accepted),
            **count_slices(accepted),
            predicted=progress,
            examples=[self._describe_row(row) for row in shown],
        )

    def _describe_row(self, row: RunExample) -> ListedExample:
        return ListedExample(
            example=row.id,
            text=list(row.texts),
            label=row.label,
            probability=row.probability,
            gold=row.gold,
            predicted=row.predicted,
            wrong=row.is_wrong,
            model=row.model,
            picture=self.has_images,
        )

    def render_image(self, example_id: str, limits: Limits) -> bytes:
        """Return an image of the task as a PNG."""
        for example in self.task.examples:
            # Ids are looked up in the data, never used as paths.
            if self.has_images and example.id == example_id:
                return render_image(example, limits)
        raise BadInput("This data has no such image.")


def _order_rows(rows: list[RunExample], order: TaskOrder) -> list[RunExample]:
    """Return the rows as they come, or by the probability of their prediction; those without one last."""
    if order == "data":
        return rows
    sign = 1 if order == "uncertain" else -1
    return sorted(rows, key=lambda row: (row.probability is None, sign * (row.probability or 0.0)))


class Tasks(Mapping[str, TaskTable]):
    """Tasks by their names."""

    def __init__(self, tasks: Sequence[Task] = (), models: Mapping[str, Model] | None = None) -> None:
        self._tables: dict[str, TaskTable] = {}
        for task in tasks:
            self._add(task, models or {})

    def _add(self, task: Task, models: Mapping[str, Model]) -> None:
        if task.name in self._tables:
            raise BadOption(f"Two tasks would be called '{task.name}' on the page: rename one of the files.")
        table = TaskTable(task, models)
        if not table.models:
            raise BadOption(f"No model of this server sorts the inputs of '{task.name}' into classes: check --model.")
        self._tables[task.name] = table

    def __getitem__(self, name: str) -> TaskTable:
        if name not in self._tables:
            raise unknown_name("data of this server", name, list(self._tables) or ["none: start with --task"])
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)
