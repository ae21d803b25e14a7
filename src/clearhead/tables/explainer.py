"""Explains rows of a table: from cells to records, with the rows that cannot be explained kept as errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from clearhead.api import explain
from clearhead.attribution.method import MethodSpec
from clearhead.data.columns import join_cells
from clearhead.data.text_files import is_text, require_text
from clearhead.engine.context import gc_paused
from clearhead.errors import BadFile, BadInput, ClearheadError, NotFinite, UnknownName
from clearhead.explanation import Explanation
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.tables.columns import ClassReader, TableColumns, make_class_reader, parse_column_name
from clearhead.tables.identity import describe_source
from clearhead.tables.records import Record, flatten_record, make_error_record, make_record
from clearhead.tables.source import TableRow

# Rows per call of the library: several batches, so that inputs of similar length can share one; a GPU takes more.
ROWS_PER_CALL = {"cpu": 256, "cuda": 4096}
PROMPTS_PER_CALL = 16
# Errors of a single row; any other one concerns all rows.
ROW_ERRORS = (BadInput, BadFile, NotFinite, UnknownName)


def _ignore(count: int) -> None:
    """Show no progress."""


def _keep(text: Any) -> Any:
    """Return the input of a row as it is."""
    return text


@dataclass(frozen=True)
class RowTargets:
    """What is explained of each row: a class, a contrast or an answer, for all rows or from a column of the table."""

    target: Any = None
    versus: Any = None
    answer: Any = None

    def columns(self) -> list[str]:
        """Return the columns that are named."""
        names = map(parse_column_name, (self.target, self.versus, self.answer))
        return [name for name in names if name is not None]


@dataclass(frozen=True)
class _Input:
    """A row that can be explained: its raw input, where it comes from, and what is explained."""

    raw: Any
    source: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableExplainer:
    """Explains rows by one method; `settings` are those of `clearhead.explain`.

    `make_prompt` makes of the input of a row what the model is given, such as a chat. `describe_error` says why a row
    could not be explained: on the command line, with flags.
    """

    model: Model
    spec: MethodSpec
    columns: TableColumns
    targets: RowTargets = field(default_factory=RowTargets)
    settings: Mapping[str, Any] = field(default_factory=dict)
    flat: bool = False
    tokens: bool = False
    make_prompt: Callable[[Any], Any] = _keep
    describe_error: Callable[[ClearheadError], str] = str

    @property
    def rows_per_call(self) -> int:
        """Rows per call of the library; few if answers are written, which takes long."""
        if self.model.writes:
            return PROMPTS_PER_CALL
        return ROWS_PER_CALL.get(self.model.device.type, ROWS_PER_CALL["cpu"])

    def explain_rows(self, rows: Sequence[TableRow], advance: Callable[[int], None] = _ignore) -> list[Record]:
        """Return one record per row, in order."""
        # Thousands of explanations and records would start full collections again and again, a third of the time.
        with gc_paused():
            return list(map(self._make_record, rows, self.iterate_results(rows, advance)))

    def iterate_results(
        self, rows: Sequence[TableRow], advance: Callable[[int], None] = _ignore
    ) -> "Iterator[Explanation | ClearheadError]":
        """Yield the results of `explain_each`, computed a few rows at a time."""
        for start in range(0, len(rows), self.rows_per_call):
            chunk = rows[start : start + self.rows_per_call]
            yield from self.explain_each(chunk)
            advance(len(chunk))

    def explain_each(self, rows: Sequence[TableRow]) -> "list[Explanation | ClearheadError]":
        """Return for each row its explanation, or the error why it has none."""
        prepared = list(map(self._prepare, rows))
        inputs = [entry for entry in prepared if isinstance(entry, _Input)]
        explained = iter(self._explain_inputs(inputs))
        results: list[Explanation | ClearheadError] = []
        for entry in prepared:
            if isinstance(entry, _Input):
                results.append(next(explained))
            else:
                results.append(entry)
        return results

    def _make_record(self, row: TableRow, result: "Explanation | ClearheadError") -> Record:
        record = self._make_nested_record(row, result)
        if self.flat:
            return flatten_record(record)
        return record

    def _make_nested_record(self, row: TableRow, result: "Explanation | ClearheadError") -> Record:
        if isinstance(result, Explanation):
            return make_record(result, tokens=self.tokens)
        return make_error_record(self._describe_source(row), self._raw_text(row), self.describe_error(result))

    def _prepare(self, row: TableRow) -> "_Input | ClearheadError":
        try:
            raw = self.make_prompt(self.columns.parse_input(row))
            return _Input(raw, self._describe_source(row), self._row_settings(row))
        except ROW_ERRORS as error:
            return error

    def _raw_text(self, row: TableRow) -> Any:
        texts = [row.values.get(name) for name in self.columns.inputs]
        # What is no text is named by its passed columns.
        if self.columns.images or not all(map(is_text, texts)):
            return None
        return join_cells(texts)

    def _describe_source(self, row: TableRow) -> dict[str, Any]:
        return describe_source(row, self.columns, self._classes)

    @cached_property
    def _classes(self) -> ClassReader:
        # Made once: a model's labels may be the words of a vocabulary.
        return make_class_reader(self.model, self.columns.class_names, self.settings.get("focus"))

    def _row_settings(self, row: TableRow) -> dict[str, Any]:
        """Return what is explained of a row."""
        if self.model.writes:
            return self._read_answers(row)
        return self._read_classes(row)

    def _read_answers(self, row: TableRow) -> dict[str, Any]:
        return {
            "answer": self._read_text(row, self.targets.answer),
            "versus": self._read_text(row, self.targets.versus),
        }

    def _read_classes(self, row: TableRow) -> dict[str, Any]:
        return {
            "target": self._read_class(row, self.targets.target),
            "versus": self._read_class(row, self.targets.versus),
        }

    def _read_class(self, row: TableRow, value: Any) -> Any:
        column = parse_column_name(value)
        if column is None:
            return value
        return self._classes.read(row, column)

    def _read_text(self, row: TableRow, value: Any) -> Any:
        column = parse_column_name(value)
        if column is None:
            return value
        return require_text(dict(row.values), column)

    def _explain_inputs(self, inputs: Sequence[_Input]) -> "list[Explanation | ClearheadError]":
        """Explain inputs together, or in halves until those that cannot be explained are alone."""
        if not inputs:
            return []
        try:
            return list(self._explain_together(inputs))
        except ROW_ERRORS as error:
            if len(inputs) == 1:
                return [error]
        half = len(inputs) // 2
        return self._explain_inputs(inputs[:half]) + self._explain_inputs(inputs[half:])

    def _explain_together(self, inputs: Sequence[_Input]) -> list[Explanation]:
        if self.model.writes:
            return self._explain_answers(inputs)
        if self.targets.versus is None or self.targets.target is not None:
            return self._explain_targets(inputs, list(map(_choose_target, inputs)))
        return self._contrast_predictions(inputs)

    def _explain_answers(self, inputs: Sequence[_Input]) -> list[Explanation]:
        settings = {name: _collect(inputs, name) for name in ("answer", "versus")}
        explanations = explain(self.model, _raw_inputs(inputs), self.spec, **settings, **self.settings)
        return _identify(inputs, explanations)

    def _explain_targets(self, inputs: Sequence[_Input], targets: list[Any]) -> list[Explanation]:
        explanations = explain(self.model, _raw_inputs(inputs), self.spec, targets, **self.settings)
        return _identify(inputs, explanations)

    def _contrast_predictions(self, inputs: Sequence[_Input]) -> list[Explanation]:
        """Explain predictions against another class; those that are this class by themselves, without a contrast."""
        explanations = self._explain_targets(inputs, [None] * len(inputs))
        contrasts = {}
        for index, (entry, explanation) in enumerate(zip(inputs, explanations, strict=True)):
            if not predicts(explanation, entry.settings["versus"]):
                contrasts[index] = Target(explanation.target.index, versus=entry.settings["versus"])
        for index, explanation in self._explain_some(inputs, contrasts).items():
            explanations[index] = explanation
        return explanations

    def _explain_some(self, inputs: Sequence[_Input], targets: Mapping[int, Target]) -> dict[int, Explanation]:
        if not targets:
            return {}
        chosen = [inputs[index] for index in targets]
        return dict(zip(targets, self._explain_targets(chosen, list(targets.values())), strict=True))


def predicts(explanation: Explanation, name: int | str) -> bool:
    """Return whether a class, given by index or label, is the predicted one."""
    return name in (explanation.target.index, explanation.diagnostics.get("predicted"))


def _raw_inputs(inputs: Sequence[_Input]) -> list[Any]:
    return [entry.raw for entry in inputs]


def _collect(inputs: Sequence[_Input], name: str) -> Any:
    """Return the values of a setting, None if no input has one."""
    values = [entry.settings[name] for entry in inputs]
    # A setting is given for all inputs or for none.
    if None in values:
        return None
    return values


def _choose_target(entry: _Input) -> Any:
    if entry.settings["versus"] is None:
        return entry.settings["target"]
    return Target(entry.settings["target"], versus=entry.settings["versus"])


def _identify(inputs: Sequence[_Input], explanations: Sequence[Explanation]) -> list[Explanation]:
    """Tell each explanation where its input comes from."""
    return list(map(_add_source, inputs, explanations))


def _add_source(entry: _Input, explanation: Explanation) -> Explanation:
    return replace(explanation, source=entry.source)
