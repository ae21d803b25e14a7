"""Tasks: examples with labels and human annotations, and the registry of readers that load them."""

import hashlib
import inspect
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.errors import BadFile, BadInput
from clearhead.files import unreadable_file
from clearhead.model import images
from clearhead.registry import Registry
from clearhead.spec import option_defaults
from clearhead.validation import require_integer

P = ParamSpec("P")
Spans = tuple[tuple[int, int, int], ...]
Box = tuple[float, float, float, float]
Links = frozenset[tuple[int, int]]
"""Pairs of a word of the prompt and a word of the answer, counted from 0."""
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
        values = _annotated_values(self._open())
        is_unlabelled = np.isin(values, self.unlabelled)
        return np.where(is_unlabelled, -1, self._is_foreground(values)).astype(np.int8)

    def _is_foreground(self, values: Array) -> Array:
        if self.foreground is None:
            return np.not_equal(values, 0)
        return np.isin(values, self.foreground)

    def _open(self) -> Image.Image:
        image = _open_source(self.source)
        # Opening applies the mask's own orientation; this one is the image's.
        if self.orientation != 1:
            image = images.rotate(image, self.orientation)
        return image


@dataclass(frozen=True)
class Alignment:
    """Which words of a prompt people linked with which words of the answer: surely, or possibly.

    Sure links are possible links too. Words are what stands between blanks.
    """

    sure: Links
    possible: Links


@dataclass(frozen=True)
class Writing:
    """What a language model is to write after a prompt, and what people know about it.

    `answer` is None if the model's own answer is explained. `foil` is another answer to compare with, `sources` are
    passages of the prompt that answers may rest on.
    """

    answer: str | None = None
    foil: str | None = None
    sources: tuple[str, ...] = ()
    alignment: Alignment | None = None


@dataclass(frozen=True)
class Example:
    """One row of a task.

    `input` is a text, a pair of texts, an image, the path to one, an object whose method `opened()` returns one, or a
    prompt: a text or a list of chat messages. `label` is a class index or name. `gold` is the human annotation:
    (segment, start, end) spans of characters, a Mask, or a box relative to the image's width and height; the segment
    of a chat is the index of the message. `writing` belongs to the prompts of language models. `focus` is the part of
    the output that is explained, for models with an output for every word, box or pixel.
    """

    id: str
    input: Any
    label: int | str | None = None
    gold: Spans | Mask | Box | None = None
    writing: Writing | None = None
    focus: Any = None

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

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(frozen=True)
class Task:
    """A data set: examples, the class names where the data has them, and the rows that were skipped."""

    name: str
    examples: Sequence[Example] = field(repr=False)
    labels: tuple[str, ...] | None = None
    skipped: tuple[BadRow, ...] = ()

    def __post_init__(self) -> None:
        self._require_examples()
        if not self.examples:
            raise BadInput(f"The task '{self.name}' has no examples: give at least one.")

    def _require_examples(self) -> None:
        if not _are_examples(self.examples):
            raise BadInput(f"The task '{self.name}' must hold a list of Examples: write Example(id, input, label).")

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def notice(self) -> str:
        """A sentence about the skipped rows; empty if there are none."""
        if not self.skipped:
            return ""
        reasons = "; ".join(_list_reasons(self.skipped))
        # Not of how many: the examples may be a sample of the rows.
        return f"{_count_rows(len(self.skipped))} skipped in '{self.name}' ({reasons})."


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
        "clearhead.data.readers.minimal_pairs",
        "clearhead.data.readers.prompts",
        "clearhead.data.readers.translations",
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
        _add_reader(read, matches)
        return read

    return register


def _add_reader(read: Callable[..., Task], matches: Callable[[Path], bool]) -> None:
    # With its module, whose rank in TASKS decides which reader is asked first.
    name = read.__name__.replace("_", "-")
    TASKS.add(name, Reader(name, read, matches, option_defaults(read)), read.__module__)


def skip_invalid(make: Callable[Concatenate[int, P], Example]) -> Callable[Concatenate[int, P], Example | BadRow]:
    """Decorate a function (number, …) → Example to return a BadRow with the reason instead of raising BadInput."""

    def make_or_skip(number: int, /, *args: P.args, **options: P.kwargs) -> Example | BadRow:
        try:
            return make(number, *args, **options)
        except BadInput as error:
            return BadRow(number, str(error))

    return make_or_skip


def build_task(
    name: str, rows: Sequence[Example | BadRow], *, limit: int | None = None, labels: tuple[str, ...] | None = None
) -> Task:
    """Return a task of the usable rows; raise BadFile if there are none.

    `limit` samples that many rows with a fixed seed, because many files are sorted by class.
    """
    examples = [row for row in rows if isinstance(row, Example)]
    skipped = list_bad_rows(rows)
    _require_usable_rows(name, examples, skipped)
    # The labels of all examples, also of those that are not sampled.
    labels = labels or _collect_labels(examples)
    return Task(name, _sample(examples, limit), labels, skipped)


def _require_usable_rows(name: str, examples: Sequence[Example], skipped: Sequence[BadRow]) -> None:
    # A single damaged row is no reason to fail; a file with nothing else probably is of another format.
    if not examples:
        raise _no_usable_rows(name, skipped)


def list_bad_rows(rows: Iterable[object]) -> tuple[BadRow, ...]:
    """Return the rows that could not be used."""
    return tuple(row for row in rows if isinstance(row, BadRow))


def task_digest(task: Task) -> str:
    """Return a hash of the examples that changes with any input, label or annotation."""
    digest = hashlib.sha256()
    for example in task.examples:
        digest.update(_serialise_example(example))
    return digest.hexdigest()


def input_digest(example: Example) -> str:
    """Return a hash of an example's input alone."""
    # Half of the hash: what matters is that no two inputs of one data set share it.
    return hashlib.sha256(_serialise(example.input)).hexdigest()[:32]


def _serialise_example(example: Example) -> bytes:
    header = repr((example.id, example.label)).encode()
    # Separated, so that the end of one value cannot be mistaken for the start of the next.
    return header + _serialise(example.input) + b"\0" + _serialise(example.gold) + b"\0" + _serialise_writing(example)


def _serialise_writing(example: Example) -> bytes:
    # Without it the digest is what it was before prompts had answers.
    if example.writing is None:
        return b""
    return repr(_plain_writing(example.writing)).encode()


def _plain_writing(writing: Writing) -> list[Any]:
    values: list[Any] = [writing.answer, writing.foil, writing.sources]
    if writing.alignment is not None:
        # Sorted: the order of a set differs between processes.
        values += [sorted(writing.alignment.sure), sorted(writing.alignment.possible)]
    return values


def _are_examples(examples: object) -> bool:
    # A generator would be empty when it is read a second time.
    return isinstance(examples, Sequence) and all(isinstance(example, Example) for example in examples)


def _count_rows(count: int) -> str:
    if count == 1:
        return "1 row was"
    return f"{count} rows were"


def _list_reasons(skipped: Sequence[BadRow]) -> list[str]:
    reasons = list(map(str, skipped[:MAX_LISTED_ROWS]))
    unlisted = len(skipped) - MAX_LISTED_ROWS
    if unlisted > 0:
        reasons.append(f"and {unlisted} more")
    return reasons


def _annotated_values(image: Image.Image) -> Array:
    # Palette images keep their indices: those are the annotated values, not the colours.
    if image.mode not in ("L", "P", "I"):
        image = image.convert("L")
    return np.asarray(image)


def _open_source(source: Path | Picture) -> Image.Image:
    if isinstance(source, Picture):
        return source.opened()
    return _open_file(source)


def _open_file(path: Path) -> Image.Image:
    picture = Picture(_read_bytes(path))
    try:
        return picture.opened()
    except BadInput as error:
        # A picture knows only its content, so the path is named here.
        raise BadInput(f"'{path}' cannot be read as an image.") from error


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(str(unreadable_file(path, error))) from error


def _no_usable_rows(name: str, skipped: Sequence[BadRow]) -> BadFile:
    reason = _first_reason(skipped)
    return BadFile(f"'{name}' has no usable rows.{reason} Check its content, and for a table the names of its columns.")


def _first_reason(skipped: Sequence[BadRow]) -> str:
    if not skipped:
        return ""
    return f" Line {skipped[0].line}: {skipped[0].reason}."


def _collect_labels(examples: Sequence[Example]) -> tuple[str, ...] | None:
    """Return the sorted label names; None if the labels are indices."""
    names = {example.label for example in examples if isinstance(example.label, str)}
    return tuple(sorted(names)) or None


def _sample(examples: list[Example], limit: int | None) -> list[Example]:
    if limit is None:
        return examples
    require_integer("limit", limit, is_flag=True)
    if limit >= len(examples):
        return examples
    return [examples[index] for index in _draw_indices(len(examples), limit)]


def _draw_indices(size: int, count: int) -> list[int]:
    # A fixed seed draws the same examples every time; sorted keeps the order of the file.
    generator = np.random.default_rng(0)
    return sorted(generator.choice(size, count, replace=False))


def _serialise(value: Any) -> bytes:
    """Return bytes that identify an input or annotation by content, not by path."""
    if isinstance(value, Mask):
        return _serialise_mask(value)
    content = _read_content(value)
    if content is None:
        return repr(value).encode()
    return hashlib.sha256(content).digest()


def _serialise_mask(mask: Mask) -> bytes:
    # The same file marks other pixels under another reading of its values.
    return _serialise(mask.source) + repr((mask.foreground, mask.unlabelled)).encode()


def _read_content(value: Any) -> bytes | None:
    """Return the bytes of an image; None for anything else."""
    if isinstance(value, Picture):
        return value.content
    if isinstance(value, Path):
        return value.read_bytes()
    if isinstance(value, Image.Image):
        return _pixel_bytes(value)
    return None


def _pixel_bytes(image: Image.Image) -> bytes:
    # Images in memory have no file: their decoded pixels identify them.
    return repr(image.size).encode() + image.tobytes()
