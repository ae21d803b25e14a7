"""Tasks: examples with labels and human annotations, and the registry of readers that load them."""

import hashlib
import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.errors import BadFile, BadInput
from clearhead.model import images
from clearhead.registry import Registry
from clearhead.validation import require_integer

Spans = tuple[tuple[int, int, int], ...]
Box = tuple[float, float, float, float]
# Skipped rows that a notice lists one by one.
MAX_LISTED_ROWS = 3


@dataclass(frozen=True)
class Picture:
    """The content of an image file, decoded only when it is needed, so that a whole data set fits into memory."""

    content: bytes = field(repr=False)

    def opened(self) -> Image.Image:
        """Return the image, upright."""
        return images.open_image_file(io.BytesIO(self.content), "A stored image")


@dataclass(frozen=True)
class Mask:
    """The pixels that people marked: values in `foreground` count, those in `unlabelled` are ignored.

    `orientation` is the EXIF orientation of the annotated image if the mask was drawn on its stored pixels.
    """

    source: Path | Picture
    foreground: tuple[int, ...] | None = None
    unlabelled: tuple[int, ...] = ()
    orientation: int = 1

    def array(self) -> Array:
        """Return 1 foreground, 0 background, −1 unlabelled (rows × columns); by default all but 0 is foreground."""
        image = self._open()
        # Palette images keep their indices: those are the annotated values, not the colours.
        if image.mode not in ("L", "P", "I"):
            image = image.convert("L")
        values = np.asarray(image)
        is_foreground = values != 0
        if self.foreground is not None:
            is_foreground = np.isin(values, self.foreground)
        is_unlabelled = np.isin(values, self.unlabelled)
        return np.where(is_unlabelled, -1, is_foreground).astype(np.int8)

    def _open(self) -> Image.Image:
        image = self.source.opened() if isinstance(self.source, Picture) else _open_file(self.source)
        # `opened` applies the mask's own orientation; this one is the image's.
        if self.orientation != 1:
            image = images.rotate(image, self.orientation)
        return image


@dataclass(frozen=True)
class Example:
    """One row of a task.

    `input` is a text, a pair of texts, an image, the path to one, or an object whose method `opened()` returns one.
    `label` is a class index or name. `gold` is the human annotation: (segment, start, end) spans of characters, a
    Mask, or a box relative to the image's width and height.
    """

    id: str
    input: Any
    label: int | str | None = None
    gold: Spans | Mask | Box | None = None

    @property
    def raw(self) -> Any:
        """The input as `explain` takes it."""
        if hasattr(self.input, "opened"):
            return self.input.opened()
        return self.input


@dataclass(frozen=True)
class BadRow:
    """A row that could not be used: its line (from 1) and the reason."""

    line: int
    reason: str


@dataclass(frozen=True)
class Task:
    """A data set: examples, the class names where the data has them, and the rows that were skipped."""

    name: str
    examples: Sequence[Example] = field(repr=False)
    labels: tuple[str, ...] | None = None
    skipped: tuple[BadRow, ...] = ()

    def __post_init__(self) -> None:
        is_sequence = isinstance(self.examples, Sequence)
        if not is_sequence or not all(isinstance(example, Example) for example in self.examples):
            raise BadInput(f"The task '{self.name}' must hold a list of Examples: write Example(id, input, label).")
        if not self.examples:
            raise BadInput(f"The task '{self.name}' has no examples: give at least one.")

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def notice(self) -> str:
        """A sentence about the skipped rows; empty if there are none."""
        if not self.skipped:
            return ""
        count = len(self.skipped)
        rows = "1 row was" if count == 1 else f"{count} rows were"
        reasons = [f"line {row.line}: {row.reason}" for row in self.skipped[:MAX_LISTED_ROWS]]
        if count > MAX_LISTED_ROWS:
            reasons.append(f"and {count - MAX_LISTED_ROWS} more")
        return f"{rows} skipped of {count + len(self)} in '{self.name}' ({'; '.join(reasons)})."


@dataclass(frozen=True)
class Reader:
    """A registered reader; `matches` tells whether it reads a path without being named."""

    name: str
    read: Callable[..., Task]
    matches: Callable[[Path], bool]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.read) or "").split("\n\n")[0].replace("\n", " ")


TASKS: Registry[Reader] = Registry(
    "task reader",
    modules=(
        "clearhead.data.readers.eraser",
        "clearhead.data.readers.hugging_face",
        "clearhead.data.readers.image_folders",
        "clearhead.data.readers.squad",
        "clearhead.data.readers.tables",
    ),
)


def tasks() -> Registry[Reader]:
    """Return every reader of tasks by name."""
    return TASKS


def reader(matches: Callable[[Path], bool]) -> Callable[[Callable[..., Task]], Callable[..., Task]]:
    """Register a function (path, *, options) → Task under its name in kebab-case; the first that matches reads."""

    def register(read: Callable[..., Task]) -> Callable[..., Task]:
        name = read.__name__.replace("_", "-")
        TASKS.add(name, Reader(name, read, matches, _find_options(read)), read.__module__)
        return read

    return register


def build_task(
    name: str, rows: Sequence[Example | BadRow], *, limit: int | None = None, labels: tuple[str, ...] | None = None
) -> Task:
    """Return a task of the usable rows; raise BadFile if there are none.

    `limit` samples that many rows with a fixed seed, because many files are sorted by class.
    """
    examples = [row for row in rows if isinstance(row, Example)]
    skipped = tuple(row for row in rows if isinstance(row, BadRow))
    if not examples:
        raise _no_usable_rows(name, skipped)
    # The labels of all examples, also of those that are not sampled.
    labels = labels or _collect_labels(examples)
    return Task(name, _sample(examples, limit), labels, skipped)


def task_digest(task: Task) -> str:
    """Return a hash of the examples that changes with any input, label or annotation."""
    digest = hashlib.sha256()
    for example in task.examples:
        digest.update(repr((example.id, example.label)).encode())
        # Separated, so that the end of one value cannot be mistaken for the start of the next.
        digest.update(_serialise(example.input) + b"\0" + _serialise(example.gold) + b"\0")
    return digest.hexdigest()


def _open_file(path: Path) -> Image.Image:
    try:
        return Picture(path.read_bytes()).opened()
    except OSError as error:
        raise BadInput(f"'{path}' cannot be read: {error.strerror or error}") from error
    except BadInput as error:
        raise BadInput(f"'{path}' cannot be read as an image.") from error


def _find_options(read: Callable[..., Task]) -> dict[str, Any]:
    """Return the keyword-only parameters of a reader with their defaults."""
    options = {}
    for name, parameter in inspect.signature(read).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            options[name] = parameter.default
    return options


def _no_usable_rows(name: str, skipped: Sequence[BadRow]) -> BadFile:
    reason = ""
    if skipped:
        reason = f" Line {skipped[0].line}: {skipped[0].reason}."
    return BadFile(f"'{name}' has no usable rows.{reason} Check its content, and for a table the names of its columns.")


def _collect_labels(examples: Sequence[Example]) -> tuple[str, ...] | None:
    """Return the sorted label names; None if the labels are indices."""
    names = {example.label for example in examples if isinstance(example.label, str)}
    return tuple(sorted(names)) or None


def _sample(examples: list[Example], limit: int | None) -> list[Example]:
    if limit is not None:
        require_integer("limit", limit, is_flag=True)
    if limit is None or limit >= len(examples):
        return examples
    # A fixed seed draws the same examples every time; sorted keeps the order of the file.
    generator = np.random.default_rng(0)
    indices = sorted(generator.choice(len(examples), limit, replace=False))
    return [examples[index] for index in indices]


def _serialise(value: Any) -> bytes:
    """Return bytes that identify an input or annotation by content, not by path."""
    if isinstance(value, Mask):
        return _serialise(value.source) + repr((value.foreground, value.unlabelled)).encode()
    if isinstance(value, Picture):
        return hashlib.sha256(value.content).digest()
    if isinstance(value, Path):
        return hashlib.sha256(value.read_bytes()).digest()
    # Images in memory have no file: their decoded pixels identify them.
    if isinstance(value, Image.Image):
        return hashlib.sha256(repr(value.size).encode() + value.tobytes()).digest()
    return repr(value).encode()
