"""Tables on the command line: explained as a stream, and where the inputs of other commands come from."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeVar

from clearhead.cli.outputs import announce_file, print_wrapped
from clearhead.errors import BadInput, BadOption, ClearheadError

if TYPE_CHECKING:
    from clearhead.attribution.method import MethodSpec
    from clearhead.cluster import Cluster
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model
    from clearhead.progress import ProgressBar
    from clearhead.tables.columns import ColumnChoice
    from clearhead.tables.explain_table import Runner
    from clearhead.tables.explainer import TableExplainer
    from clearhead.tables.records import Record
    from clearhead.tables.shards import Shard
    from clearhead.tables.source import TableRow

STREAMED_ENDINGS = (".parquet", ".jsonl", ".csv")
# Prompts per call of the library: few, because writing answers takes long and a bar should move.
MAX_CHUNK = 4
ANSWER_COLUMN = "answer"
T = TypeVar("T")


@dataclass(frozen=True)
class TableFlags:
    """Flags about the columns of tables, and about the table that is written."""

    text_column: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    columns: str | None = None
    flat: bool = False
    tokens: bool = False
    shard: int | None = None
    ray: str | None = None
    workers: int | None = None

    @property
    def cluster(self) -> "Cluster | None":
        """The Ray cluster that explains the rows, None for this process."""
        from clearhead.cluster import parse_cluster

        return parse_cluster(self.ray, self.workers)

    @property
    def passed(self) -> tuple[str, ...] | None:
        """The columns that are passed through, None for all."""
        if self.columns is None:
            return None
        return tuple(map(str.strip, self.columns.split(",")))

    @property
    def input_column(self) -> str | None:
        return self.image_column or self.text_column

    @property
    def input_flag(self) -> str:
        return "--image-column" if self.image_column else "--text-column"

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of `clearhead.explain_table`, except for where it computes."""
        settings = {**asdict(self), "columns": self.passed}
        del settings["ray"], settings["workers"]
        # The library has the default.
        if self.shard is None:
            del settings["shard"]
        return settings

    def choice(self) -> "ColumnChoice":
        """Return the columns as the library takes them."""
        from clearhead.tables.columns import ColumnChoice

        columns = (self.text_column, self.image_column, self.label_column, self.id_column)
        return ColumnChoice(*columns, self.passed)

    def refuse_stream_flags(self) -> None:
        """Raise BadOption for flags that only shape a table that is written."""
        flags: dict[str, Any] = {"--flat": self.flat, "--tokens": self.tokens, "--shard": self.shard}
        flags |= {"--ray": self.ray, "--workers": self.workers}
        for flag, value in flags.items():
            if value:
                raise BadOption(
                    f"{flag} is for tables: give tables as inputs, and --out with {', '.join(STREAMED_ENDINGS)}."
                )


def is_streamed(arguments: Sequence[str], out: Path | None) -> bool:
    """Return whether the inputs are tables and the output is one."""
    return out is not None and out.suffix.casefold() in STREAMED_ENDINGS and are_tables(arguments)


def are_tables(arguments: Sequence[str]) -> bool:
    """Return whether all inputs are tables that exist."""
    from clearhead.tables.source import is_table_path

    return all(map(is_table_path, arguments))


def explain_stream(
    model: "Model", arguments: Sequence[str], out: Path, spec: "MethodSpec", flags: TableFlags, settings: dict[str, Any]
) -> None:
    """Explain tables row by row into a table, and print what became of the rows to stderr."""
    from clearhead.tables.explain_table import explain_table

    paths = list(map(Path, arguments))
    if model.writes:
        announce_answers(arguments, settings.get("answer"))
    with _keep_when_interrupted(out):
        summary = explain_table(model, paths, out, spec, **flags.settings, **settings)
    print(summary, file=sys.stderr)
    announce_file(out)


def choose_device(flags: TableFlags, device: str | None) -> str | None:
    """Return the device of this process: with Ray, the workers have the one of --device, which it may lack."""
    if flags.cluster is not None:
        return None
    return device


def make_runner(flags: TableFlags, device: str | None) -> "Runner":
    """Return what explains shards: this process, or the Ray cluster of the flags."""
    return _FlagRunner(_choose_runner(flags.cluster, device))


def _choose_runner(cluster: "Cluster | None", device: str | None) -> "Runner":
    from clearhead.tables.explain_table import run_locally
    from clearhead.tables.ray_runner import RayRunner

    if cluster is None:
        return run_locally
    return RayRunner(cluster, device)


@dataclass(frozen=True)
class _FlagRunner:
    """Explains shards by another runner; errors of rows name flags, as other messages of the command line do."""

    runner: "Runner"

    def __call__(
        self, explainer: "TableExplainer", shards: "Iterator[Shard]", bar: "ProgressBar"
    ) -> "Iterable[tuple[Shard, Sequence[Record]]]":
        return self.runner(replace(explainer, describe_error=attrgetter("with_flags")), shards, bar)


@contextmanager
def _keep_when_interrupted(out: Path) -> Iterator[None]:
    """Say on Ctrl-C what is kept."""
    from clearhead.tables.run_folder import count_kept

    try:
        yield
    except KeyboardInterrupt:
        kept = count_kept(out)
        if kept is not None:
            print(f"Interrupted: {kept:,} rows are kept; the same command goes on from there.", file=sys.stderr)
        raise


def names_column(value: str | None) -> bool:
    """Return whether the value of a flag names a column."""
    return value is not None and value.startswith("column:")


def require_tables(arguments: Sequence[str]) -> None:
    """Raise BadOption unless all inputs are tables."""
    from clearhead.tables.source import is_table_path

    for argument in arguments:
        if not is_table_path(argument):
            raise BadOption(f"column:NAME is for tables, but '{shorten(argument, 40)}' is none.")


def read_sources(
    model: "Model", arguments: Sequence[str], flags: TableFlags, focus: Any, *, pair: bool = False
) -> list[dict[str, Any]]:
    """Return where each input comes from: a row of a table, a file, or nowhere."""
    # The two texts of a pair are one input.
    if pair:
        return [{}]
    described = [_describe_argument(model, *named, flags, focus) for named in _name_arguments(arguments)]
    return list(chain.from_iterable(described))


def _name_arguments(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each argument with what its file is called, if it names one."""
    from clearhead.tables.source import name_files

    return zip(arguments, name_files(list(map(Path, arguments))), strict=True)


def _describe_argument(model: "Model", argument: str, name: str, flags: TableFlags, focus: Any) -> list[dict[str, Any]]:
    from clearhead.tables.source import is_table_path

    if is_table_path(argument):
        return [{**source, "file": name} for source in _describe_table(model, Path(argument), flags, focus)]
    if argument != "-" and _is_file(argument):
        return [{"file": name}]
    return [{}]


def _is_file(argument: str) -> bool:
    try:
        return Path(argument).is_file()
    except (OSError, ValueError):
        # A text can be too long for a path, or hold characters that no path may have.
        return False


def _describe_table(model: "Model", path: Path, flags: TableFlags, focus: Any) -> list[dict[str, Any]]:
    from clearhead.tables.columns import make_class_reader
    from clearhead.tables.explain_table import OpenedTable
    from clearhead.tables.explainer import RowTargets
    from clearhead.tables.identity import describe_source

    table = OpenedTable.open(model, path, flags.choice(), RowTargets())
    classes = make_class_reader(model, table.columns.class_names, focus)
    return [describe_source(row, table.columns, classes) for row in table.rows]


def explain_rows(
    model: "Model", arguments: Sequence[str], spec: "MethodSpec", flags: TableFlags, settings: dict[str, Any]
) -> "list[Explanation | BadInput]":
    """Explain the rows of tables; those that cannot be explained have the error, with the number of the row."""
    from clearhead.progress import progress

    explained = []
    for path, explainer, rows in _open_tables(model, arguments, spec, flags, settings):
        with progress(len(rows), "rows") as advance:
            results = list(explainer.iterate_results(rows, advance))
        explained += _name_rows(path, rows, results)
    return explained


def choose_errors(
    raw_inputs: Sequence[Any], results: "Sequence[Explanation | BadInput]"
) -> "list[Explanation | BadInput]":
    """Return results with the errors of inputs that could not be read, which say more about their cells."""
    chosen = []
    for raw, result in zip(raw_inputs, results, strict=True):
        chosen.append(raw if isinstance(raw, BadInput) else result)
    return chosen


def explain_prompts(
    model: "Model",
    arguments: Sequence[str],
    spec: "MethodSpec",
    flags: TableFlags,
    settings: dict[str, Any],
    make_prompt: Callable[[Any], Any],
) -> "list[Explanation | BadInput]":
    """Explain the answers to the rows of tables, a few at a time with a bar; those that have none have the error."""
    explained = []
    for path, explainer, rows in _open_tables(model, arguments, spec, flags, settings):
        prompts = replace(explainer, make_prompt=make_prompt)
        for chunk in count_chunks(rows):
            explained += _name_rows(path, chunk, prompts.explain_each(chunk))
    return explained


def count_chunks(prompts: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield a few prompts at a time; on a terminal a bar counts those that were explained."""
    from clearhead.progress import progress

    with progress(len(prompts), "answers") as advance:
        for start in range(0, len(prompts), MAX_CHUNK):
            chunk = prompts[start : start + MAX_CHUNK]
            yield chunk
            advance(len(chunk))


def _open_tables(
    model: "Model", arguments: Sequence[str], spec: "MethodSpec", flags: TableFlags, settings: dict[str, Any]
) -> "Iterator[tuple[str, TableExplainer, list[TableRow]]]":
    """Yield each table with what explains its rows, and these rows."""
    from clearhead.tables.explain_table import make_explainer
    from clearhead.tables.explainer import RowTargets

    common = dict(settings)
    targets = RowTargets(*(common.pop(name, None) for name in ("target", "versus", "answer")))
    for path, name in _name_arguments(arguments):
        explainer, rows = make_explainer(model, path, spec, flags.choice(), targets, common)
        yield path, explainer, [replace(row, file_name=name) for row in rows]


def _name_rows(
    path: str, rows: "Sequence[TableRow]", results: "Sequence[Explanation | ClearheadError]"
) -> "list[Explanation | BadInput]":
    """Return the results of rows; errors say which row they are about."""
    return [_name_row(path, row, result) for row, result in zip(rows, results, strict=True)]


def _name_row(path: str, row: "TableRow", result: "Explanation | ClearheadError") -> "Explanation | BadInput":
    if isinstance(result, ClearheadError):
        return BadInput(f"Row {row.number} of '{path}': ", *result.args)
    return result


def announce_answers(arguments: Sequence[str], answer: str | None) -> None:
    """Print to stderr which tables have answers that are not explained, because --answer does not name them."""
    if answer is not None:
        return
    for path in arguments:
        if _has_answers(path):
            print_wrapped(
                f"The column {ANSWER_COLUMN!r} of '{path}' is not read, the model writes its own answers: "
                f"--answer column:{ANSWER_COLUMN} explains those of the table.",
                stream=sys.stderr,
            )


def _has_answers(path: str) -> bool:
    from clearhead.tables.source import FileTable, is_table_path

    if not is_table_path(path):
        return False
    first = next(iter(FileTable(Path(path)).rows()), None)
    return first is not None and ANSWER_COLUMN in first.values


def select_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs without the errors of rows that have none, and print to stderr how many these are."""
    numbers = select_explained(inputs)
    announce_errors([entry for entry in inputs if isinstance(entry, BadInput)])
    return [inputs[number] for number in numbers]


def select_explained(results: Sequence[Any]) -> list[int]:
    """Return the numbers of the inputs or results that are no errors; raise BadInput if there are none."""
    explained = []
    for number, result in enumerate(results):
        if not isinstance(result, BadInput):
            explained.append(number)
    if not explained:
        raise BadInput("No row can be explained. ", *results[0].args)
    return explained


def divide_results(results: "Sequence[Explanation | BadInput]") -> "tuple[list[Explanation], list[BadInput]]":
    """Return the explanations and the errors of inputs that have none, which are counted on stderr."""
    explanations, errors = [], []
    for result in results:
        if isinstance(result, BadInput):
            errors.append(result)
        else:
            explanations.append(result)
    if not explanations:
        raise BadInput("No row can be explained. ", *errors[0].args)
    announce_errors(errors)
    return explanations, errors


def announce_errors(errors: Sequence[BadInput]) -> None:
    """Print to stderr how many rows could not be explained, as for tables that are explained as a stream."""
    if errors:
        first = errors[0].with_flags
        print_wrapped(f"Rows that could not be explained: {len(errors):,}; the first: {first}", stream=sys.stderr)
