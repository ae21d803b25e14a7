"""Which columns of a table hold the inputs, labels and names of its rows, and what a row says."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

from clearhead.data.columns import (
    ID_COLUMNS,
    choose_input_columns,
    find_column,
    find_label_column,
    join_cells,
    open_picture_cell,
    parse_label,
    require_column,
)
from clearhead.data.text_files import NOT_UTF_8, damaged_file, require_text
from clearhead.errors import BadInput, BadOption, UnknownName
from clearhead.model.model import Model
from clearhead.model.target import class_index
from clearhead.tables.source import TableRow

# A target with this prefix names the column that holds the target of each row.
COLUMN_PREFIX = "column:"
# What they call labels are the name of a number, and the ends of a span.
WITHOUT_CLASSES = ("regression", "span")
# Paths, the bytes of files, and dicts of both; anything else is a picture that was opened already.
STORED_PICTURES = (str, bytes, dict, PathLike)


@dataclass(frozen=True)
class ColumnChoice:
    """The columns as a user names them; None finds them by their usual names, and passes all columns through."""

    text: str | None = None
    image: str | None = None
    label: str | None = None
    id: str | None = None
    passed: tuple[str, ...] | None = None

    @property
    def input(self) -> str | None:
        """The column of texts or images."""
        return self.image or self.text


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table: its inputs (one, or two for pairs), labels, names, and those that are passed through."""

    inputs: tuple[str, ...]
    label: str | None = None
    id: str | None = None
    passed: tuple[str, ...] | None = None
    images: bool = False
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def select_passed(self, row: TableRow) -> dict[str, Any]:
        """Return the values of a row that are passed through, without those that have columns of their own."""
        own = self._own_columns
        return {name: self._read_passed(row, name) for name in self._passed(row) if name not in own}

    def _read_passed(self, row: TableRow, name: str) -> Any:
        value = row.values.get(name)
        # Of a picture in memory a file could keep nothing but its address.
        if self._is_image(name) and not isinstance(value, STORED_PICTURES):
            return None
        return value

    def _is_image(self, name: str) -> bool:
        return self.images and name in self.inputs

    def _passed(self, row: TableRow) -> Iterable[str]:
        if self.passed is None:
            return row.values
        return self.passed

    @cached_property
    def _own_columns(self) -> set[str]:
        """The columns of the table that the output has anyway."""
        own = self._find_same_names()
        # Paths of images are passed, since nothing else names them.
        if not self.images:
            own.update(self.inputs)
        return own

    def _find_same_names(self) -> set[str]:
        """Return the columns that the output calls as the table does."""
        return {column for column, name in ((self.id, "id"), (self.label, "gold")) if column == name}

    def parse_input(self, row: TableRow) -> Any:
        """Return the text, the pair of texts or the image of a row; raise BadInput if there is none."""
        if row.error is not None:
            raise BadInput(row.error)
        return join_cells([self._parse_cell(row, column) for column in self.inputs])

    def _parse_cell(self, row: TableRow, column: str) -> Any:
        value = row.values.get(column)
        if self.images:
            return _open_image(value, row, column)
        # A chat of a language model is a list of messages, a pair of texts in a list without columns a tuple.
        if isinstance(value, list | tuple):
            return value
        return _read_text(row, column)

    def find_id(self, row: TableRow) -> str | None:
        """Return the id of a row, None if it has none."""
        value = row.values.get(self.id or "")
        if is_empty(value):
            return None
        return _format_id(value)


def _format_id(value: Any) -> str:
    # pandas stores the integers of a column with gaps as floats.
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _read_text(row: TableRow, column: str) -> str:
    text = require_text(dict(row.values), column)
    if damaged_file(text):
        raise BadInput(NOT_UTF_8)
    return text


def is_empty(value: Any) -> bool:
    """Return whether a cell holds nothing."""
    # NaN, which pandas has in empty cells, is the one number that differs from itself.
    return value is None or (isinstance(value, str) and not value.strip()) or _is_nan(value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _open_image(value: Any, row: TableRow, column: str) -> Any:
    if is_empty(value):
        raise BadInput(f"no picture in column '{column}'")
    if not isinstance(value, str | bytes | dict):
        return value
    return open_picture_cell(value, row.folder / "table")


def choose_columns(
    table: str, columns: list[str], choice: ColumnChoice, *, images: bool, class_names: Mapping[str, Sequence[str]]
) -> TableColumns:
    """Return the columns of a table; raise an error that names the columns there are if one is missing."""
    _require_columns(table, columns)
    inputs = _choose_inputs(table, columns, choice, images=images)
    label = find_label_column(table, columns, choice.label)
    row_id = _choose_id(table, columns, choice.id, label)
    for name in choice.passed or ():
        require_column(table, name, columns)
    return TableColumns(tuple(inputs), label, row_id, choice.passed, images, class_names)


def _require_columns(table: str, columns: list[str]) -> None:
    if not columns:
        raise BadInput(f"'{table}' has no columns: there is nothing to explain.")


def _choose_inputs(table: str, columns: list[str], choice: ColumnChoice, *, images: bool) -> list[str]:
    if choice.image is not None:
        _require_images(choice.image, images=images)
    return choose_input_columns(table, columns, choice.input, images=images)


def _require_images(column: str, *, images: bool) -> None:
    if not images:
        raise BadOption(f"The column '{column}' holds images, but the model reads text: choose an image model.")


def _choose_id(table: str, columns: list[str], name: str | None, label: str | None) -> str | None:
    if name is not None:
        require_column(table, name, columns)
        return name
    usual = find_column(columns, ID_COLUMNS)
    # In some tables a column called "name" or "index" holds the label.
    if usual == label:
        return None
    return usual


@dataclass(frozen=True)
class ClassReader:
    """Reads classes from cells: labels, indices, or numbers that stand for names.

    `compares_gold` is False where the label of a row cannot be that of what is explained, `has_gold` where no class
    can be right.
    """

    labels: Sequence[str]
    class_names: Mapping[str, Sequence[str]]
    compares_gold: bool = True
    has_gold: bool = True

    def read(self, row: TableRow, column: str) -> int:
        """Return the index of the class that a cell names; raise BadInput or UnknownName if it names none."""
        cell = row.values.get(column)
        # A class may be called 1.0.
        if isinstance(cell, str) and cell in self.labels:
            return self.labels.index(cell)
        value = parse_label(cell, column)
        names = self.class_names.get(column, ())
        if isinstance(value, int) and value < len(names):
            return self._find_named(value, names[value])
        return self._find(value)

    def _find(self, value: int | str) -> int:
        # A label may look like a number.
        if str(value) in self.labels:
            value = str(value)
        return class_index(value, self.labels)

    def _find_named(self, number: int, name: str) -> int:
        try:
            return class_index(name, self.labels)
        except UnknownName:
            # The model calls its classes otherwise: then the numbers have to agree.
            return class_index(number, self.labels)

    def read_gold(self, row: TableRow, column: str) -> tuple[str | None, bool]:
        """Return the gold label, and whether the model has such a class; None for an empty cell."""
        value = row.values.get(column)
        if is_empty(value) or self._is_written_nan(value):
            return None, False
        if not self.compares_gold:
            return str(value), False
        try:
            return self.labels[self.read(row, column)], True
        except (BadInput, UnknownName):
            return str(value), False

    def _is_written_nan(self, value: Any) -> bool:
        return str(value).casefold() == "nan" and value not in self.labels


def make_class_reader(model: Model, class_names: Mapping[str, Sequence[str]], focus: Any = None) -> ClassReader:
    """Return what reads the classes of a model; language models have none."""
    # What a language model calls labels are tokens.
    if model.writes:
        return ClassReader((), {}, has_gold=False)
    has_gold = model.problem not in WITHOUT_CLASSES
    return ClassReader(model.labels, class_names, compares_gold(model, focus), has_gold)


def compares_gold(model: Model, focus: Any) -> bool:
    """Return whether the label of a row is that of what is explained.

    Of a model that labels words, boxes or pixels only `focus` says which of them the label of a row is about; a masked
    word has one right word.
    """
    return focus is not None or not model.has_focus or model.names_words


def parse_column_name(value: Any) -> str | None:
    """Return the column that `column:NAME` names, None for anything else."""
    if isinstance(value, str) and value.startswith(COLUMN_PREFIX):
        return value.removeprefix(COLUMN_PREFIX)
    return None
