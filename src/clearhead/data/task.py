"""What a task is: examples with labels and, where people marked them, gold answers; and the readers that make one."""

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
from clearhead.model import images as photo
from clearhead.registry import Registry
from clearhead.validation import require_integer

Spans = tuple[tuple[int, int, int], ...]
Box = tuple[float, float, float, float]
SHOWN = 3


@dataclass(frozen=True)
class Picture:
    """The content of an image file, opened only when it is needed, so that a whole data set fits into memory."""

    content: bytes = field(repr=False)

    def opened(self) -> Image.Image:
        """The picture upright, as people see it."""
        return photo.open_image_file(io.BytesIO(self.content), "A stored picture")


@dataclass(frozen=True)
class Mask:
    """Which pixels people marked: values in `foreground` count, those in `unlabelled` take no part.

    `note` is the EXIF note of the marked picture where the mask lies on its pixels as they are stored.
    """

    source: Path | Picture
    foreground: tuple[int, ...] | None = None
    unlabelled: tuple[int, ...] = ()
    note: int = 1

    def array(self) -> Array:
        """1 foreground, 0 background, −1 without a label (rows × columns); by default all but 0 is foreground."""
        picture = self.source.opened() if isinstance(self.source, Picture) else _opened(self.source)
        picture = picture if self.note == 1 else photo.rotate(picture, self.note)
        values = np.asarray(picture if picture.mode in ("L", "P", "I") else picture.convert("L"))
        chosen = values != 0 if self.foreground is None else np.isin(values, self.foreground)
        return np.where(np.isin(values, self.unlabelled), -1, chosen).astype(np.int8)


def _opened(path: Path) -> Image.Image:
    try:
        return Picture(path.read_bytes()).opened()
    except OSError as error:
        raise BadInput(f"'{path}' cannot be read: {error.strerror or error}") from error
    except BadInput as error:
        raise BadInput(f"'{path}' cannot be read as an image.") from error


@dataclass(frozen=True)
class Example:
    """One row of a task.

    `input` is a text, a pair of texts, a picture, the path to one, or something that is `opened()` to one. `label` is
    a class index or name. `gold` is what people marked: (segment, start, end) spans of characters, a Mask, or a box as
    shares of the picture's sides.
    """

    id: str
    input: Any
    label: int | str | None = None
    gold: Spans | Mask | Box | None = None

    @property
    def raw(self) -> Any:
        """The input as `explain` takes it."""
        return self.input.opened() if hasattr(self.input, "opened") else self.input


@dataclass(frozen=True)
class BadRow:
    """A row that could not be used: its line (from 1) and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class Task:
    """Examples by name; `labels` are the names of classes where the data has them, `skipped` the rows left out."""

    name: str
    examples: Sequence[Example] = field(repr=False)
    labels: tuple[str, ...] | None = None
    skipped: tuple[BadRow, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.examples, Sequence) or not all(isinstance(one, Example) for one in self.examples):
            raise BadInput(f"The task '{self.name}' must hold a list of Examples: write Example(id, input, label).")
        if not self.examples:
            raise BadInput(f"The task '{self.name}' has no examples: give at least one.")

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def notice(self) -> str:
        """What was skipped, in a sentence; empty when nothing was."""
        if not self.skipped:
            return ""
        shown = "; ".join(f"line {row.line}: {row.reason}" for row in self.skipped[:SHOWN])
        more = f"; and {len(self.skipped) - SHOWN} more" if len(self.skipped) > SHOWN else ""
        rows = "1 row was" if len(self.skipped) == 1 else f"{len(self.skipped)} rows were"
        return f"{rows} skipped of {len(self.skipped) + len(self.examples)} in '{self.name}' ({shown}{more})."


def task_digest(task: Task) -> str:
    """A fingerprint of the examples: changes when any input, label or gold answer does."""
    found = hashlib.sha256()
    for example in task.examples:
        found.update(repr((example.id, example.label)).encode())
        found.update(_content(example.input) + b"\0" + _content(example.gold) + b"\0")
    return found.hexdigest()


def _content(value: Any) -> bytes:
    if isinstance(value, Mask):
        return _content(value.source) + repr((value.foreground, value.unlabelled)).encode()
    if isinstance(value, Picture):
        return hashlib.sha256(value.content).digest()
    if isinstance(value, Path):
        return hashlib.sha256(value.read_bytes()).digest()
    if isinstance(value, Image.Image):
        return hashlib.sha256(repr(value.size).encode() + value.tobytes()).digest()
    return repr(value).encode()


@dataclass(frozen=True)
class Reader:
    """A registered reader; `matches` says whether a path looks like its kind."""

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
    """Every reader of tasks by name."""
    return TASKS


def reader(matches: Callable[[Path], bool]) -> Callable[[Callable[..., Task]], Callable[..., Task]]:
    """Registers a function (path, *, options) → Task under the kebab-case of its name; the first that matches reads."""

    def register(read: Callable[..., Task]) -> Callable[..., Task]:
        name = read.__name__.replace("_", "-")
        options = {
            key: parameter.default
            for key, parameter in inspect.signature(read).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        TASKS.add(name, Reader(name, read, matches, options))
        return read

    return register


def build_task(
    name: str, rows: Sequence[Example | BadRow], *, limit: int | None = None, labels: tuple[str, ...] | None = None
) -> Task:
    """A task of the good rows, or an error when there are none.

    `limit` draws that many at random, always the same, because many files are sorted by class.
    """
    good = [row for row in rows if isinstance(row, Example)]
    skipped = tuple(row for row in rows if isinstance(row, BadRow))
    if not good:
        why = f" Line {skipped[0].line}: {skipped[0].reason}." if skipped else ""
        raise BadFile(f"'{name}' has no usable rows.{why} Check its content, and for a table the names of its columns.")
    names = {row.label for row in good if isinstance(row.label, str)}
    return Task(name, _drawn(good, limit), labels or (tuple(sorted(names)) or None), skipped)


def _drawn(good: list[Example], limit: int | None) -> list[Example]:
    if limit is not None:
        require_integer("limit", limit, is_flag=True)
    if limit is None or limit >= len(good):
        return good
    generator = np.random.default_rng(0)
    return [good[place] for place in sorted(generator.choice(len(good), limit, replace=False))]
