"""Tables in memory as inputs of `explain` and `compare`: rows keep their ids, gold labels and other columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clearhead.data.objects import require_inputs
from clearhead.data.text_files import require_text
from clearhead.errors import BadInput
from clearhead.explanation import Explanation, Explanations
from clearhead.lazy import Selection
from clearhead.model.model import Model
from clearhead.model.target import Target
from clearhead.tables.columns import ClassReader, ColumnChoice, TableColumns, make_class_reader, parse_column_name
from clearhead.tables.explain_table import OpenedTable
from clearhead.tables.explainer import ROW_ERRORS, RowTargets, predicts
from clearhead.tables.identity import describe_source
from clearhead.tables.source import TableRow
from clearhead.trust.removal_check import count_groups

CompareInputs = Callable[..., dict[str, Any]]
"""Explains a list of inputs for `target`, `versus` and `answer`, with the settings of `compare`."""


def compare_frame(
    model: Model, frame: Any, target: Any, settings: Mapping[str, Any], compare_inputs: CompareInputs
) -> dict[str, Any]:
    """Explain every row of a data frame, an Arrow table or a data set; `column:NAME` names a column of targets."""
    targets = RowTargets(target, settings["versus"], settings["answer"])
    rows = _read_frame(model, frame, targets, settings["focus"])
    chosen = {**settings, "target": rows.read_classes(target), "answer": rows.read_texts(targets.answer)}
    if model.writes:
        comparison = compare_inputs(rows.inputs, **{**chosen, "versus": rows.read_texts(targets.versus)})
    elif target is None and parse_column_name(targets.versus) is not None:
        chosen["check"] = count_groups(settings["check"], model, len(rows.inputs)) or False
        comparison = _contrast_predictions(rows, chosen, compare_inputs)
    else:
        comparison = compare_inputs(rows.inputs, **{**chosen, "versus": rows.read_classes(targets.versus)})
    return _add_sources(comparison, rows.sources)


@dataclass(frozen=True)
class _FrameRows:
    """The rows of a frame, their inputs, and where each comes from."""

    name: str
    rows: Sequence[TableRow]
    columns: TableColumns
    classes: ClassReader

    @property
    def inputs(self) -> list[Any]:
        return self._read(self.columns.parse_input)

    @property
    def sources(self) -> list[dict[str, Any]]:
        return [describe_source(row, self.columns, self.classes) for row in self.rows]

    def read_classes(self, value: Any) -> Any:
        """Return the classes in the column that a value names; any other value as it is."""
        column = parse_column_name(value)
        if column is None:
            return value
        return self._read(lambda row: self.classes.read(row, column))

    def read_texts(self, value: Any) -> Any:
        """Return the texts in the column that a value names; any other value as it is."""
        column = parse_column_name(value)
        if column is None:
            return value
        return self._read(lambda row: require_text(dict(row.values), column))

    def _read(self, read: Callable[[TableRow], Any]) -> list[Any]:
        """Read something of each row; raise BadInput with the number of the row that lacks it."""
        values = []
        for row in self.rows:
            try:
                values.append(read(row))
            except ROW_ERRORS as error:
                raise BadInput(f"Row {row.number} of the {self.name}: {error}") from error
        return values


def _read_frame(model: Model, frame: Any, targets: RowTargets, focus: Any) -> _FrameRows:
    require_inputs(frame)
    opened = OpenedTable.open(model, frame, ColumnChoice(), targets)
    classes = make_class_reader(model, opened.columns.class_names, focus)
    return _FrameRows(opened.source.name, list(opened.rows), opened.columns, classes)


def _contrast_predictions(
    rows: _FrameRows, settings: Mapping[str, Any], compare_inputs: CompareInputs
) -> dict[str, Any]:
    """Explain predictions against the class of each row; those that are this class, without a contrast."""
    inputs = rows.inputs
    versus = rows.read_classes(settings["versus"])
    settings = {**settings, "versus": None}
    comparison = compare_inputs(inputs, **settings)
    contrasts = _find_contrasts(next(iter(comparison.values())), versus)
    if contrasts:
        settings["target"] = list(contrasts.values())
        contrasted = compare_inputs([inputs[number] for number in contrasts], **settings)
        for name, explanations in contrasted.items():
            comparison[name] = _replace_some(comparison[name], dict(zip(contrasts, explanations, strict=True)))
    return comparison


def _find_contrasts(explanations: Sequence[Explanation], versus: Sequence[int]) -> dict[int, Target]:
    """Return by number of the row the contrast of its prediction with another class."""
    contrasts = {}
    for number, (explanation, other) in enumerate(zip(explanations, versus, strict=True)):
        if not predicts(explanation, other):
            contrasts[number] = Target(explanation.target.index, versus=other)
    return contrasts


def _replace_some(explanations: Sequence[Explanation], others: Mapping[int, Explanation]) -> Explanations:
    return Explanations(others.get(number, explanation) for number, explanation in enumerate(explanations))


@dataclass(frozen=True, eq=False)
class _SourcedExplanations(Sequence[Explanation]):
    """Explanations that are told where their inputs come from when they are read."""

    explanations: Sequence[Explanation]
    sources: Sequence[Mapping[str, Any]]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Selection(self, range(len(self))[index])
        return replace(self.explanations[index], source=self.sources[index])


def _add_sources(comparison: dict[str, Any], sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    for name, explanations in comparison.items():
        comparison[name] = Explanations.read_from(_SourcedExplanations(explanations, sources))
    return comparison
