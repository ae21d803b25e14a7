"""explain_table(): a table of any size in, a table of explanations out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from clearhead.api import explain
from clearhead.attribution.method import MethodSpec, default_method, parse_method
from clearhead.cluster import parse_cluster
from clearhead.data.columns import PREVIEW_ROWS, require_column
from clearhead.errors import Argument, BadFile, BadInput, BadOption
from clearhead.files import refuse_overwriting
from clearhead.model.loading import as_model
from clearhead.model.model import Model
from clearhead.model.placement import with_precision
from clearhead.progress import ProgressBar, progress
from clearhead.spec import option_defaults
from clearhead.tables.columns import ColumnChoice, TableColumns, choose_columns, compares_gold
from clearhead.tables.counts import Counts, TableSummary, sum_counts
from clearhead.tables.explainer import RowTargets, TableExplainer
from clearhead.tables.plan import make_manifest
from clearhead.tables.ray_runner import RayRunner
from clearhead.tables.records import Record
from clearhead.tables.run_folder import TableRun, open_run
from clearhead.tables.shards import ROWS_PER_SHARD, Shard, cut_shards
from clearhead.tables.source import Table, TableRow, open_table
from clearhead.tables.writers import TableFormat, find_format
from clearhead.validation import require_integer

Runner = Callable[[TableExplainer, Iterator[Shard], ProgressBar], Iterable[tuple[Shard, Sequence[Record]]]]
"""Explains shards and yields them with their records, in any order."""


def explain_table(  # noqa: PLR0913 - the signature shows users every option
    model: Any,
    table: Any,
    out: str | Path,
    method: Any = None,
    target: Any = None,
    *,
    versus: Any = None,
    answer: Any = None,
    text_column: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    columns: Sequence[str] | None = None,
    flat: bool = False,
    tokens: bool = False,
    shard: int = ROWS_PER_SHARD,
    ray: str | None = None,
    workers: int | None = None,
    runner: Runner | None = None,
    **options: Any,
) -> TableSummary:
    """Explain every row of a table of any size into a table: .parquet, .jsonl, .csv or .html.

    `table` is a file (.csv, .tsv, .jsonl, .parquet, .arrow), a list of files, a folder of them, or an object: a pandas
    or polars data frame, a pyarrow table, a Hugging Face data set, a list or generator of rows or texts. Text, label
    and id columns are found by their usual names unless they are named; `columns` lists those to pass through, by
    default all. `target`, `versus` and `answer` are as in `explain`, for all rows, or "column:NAME" for a column that
    holds them. `check=True` tests every explanation, which costs some passes more. `flat` leaves out words and tokens,
    `tokens` adds the tokens. Further arguments are options of `explain` and of the method.

    Rows are read, explained and written `shard` by shard, so that memory does not grow with the table. A run that was
    interrupted goes on with the same call; a row that cannot be explained has a message in the column `error`.

    `ray` names a Ray cluster on which shards are explained ("auto", "ray://host:10001"; "local" starts Ray on this
    machine), with `workers` that each hold the model; `runner` replaces what explains shards.

    >>> clearhead.explain_table(clearhead.load(), "reviews.csv", "explained.parquet")     # doctest: +SKIP
    """
    output = _open_output(Path(out), shard, _choose_runner(runner, ray, workers))
    model = as_model(model)
    settings, method_options = _split_options(options)
    # Converted once: `explain` would copy the weights for every chunk of rows.
    model = with_precision(model, settings.pop("precision", None))
    spec = parse_method(method or default_method(model), **method_options)
    choice = ColumnChoice(text_column, image_column, label_column, id_column, _as_names(columns))
    targets = RowTargets(target, versus, answer)
    opened = OpenedTable.open(model, table, choice, targets)
    refuse_overwriting(output.path, opened.source.files)
    is_flat = flat or output.table_format.always_flat
    explainer = TableExplainer(model, spec, opened.columns, targets, settings, is_flat, tokens)
    return _run(explainer, opened, output)


@dataclass(frozen=True)
class OpenedTable:
    """A table, its columns, and its rows, which can be read once."""

    source: Table
    columns: TableColumns
    rows: Iterator[TableRow]

    @classmethod
    def open(cls, model: Model, table: Any, choice: ColumnChoice, targets: RowTargets) -> "OpenedTable":
        """Open a table and find the columns that its first rows have."""
        _refuse_class(model, targets.target)
        _refuse_answer(model, targets.answer)
        source = open_table(table, choice.input)
        rows = source.rows()
        preview = list(islice(rows, PREVIEW_ROWS))
        names = _list_columns(source, preview)
        columns = choose_columns(source.name, names, choice, images=model.takes_images, class_names=source.class_names)
        for name in targets.columns():
            require_column(source.name, name, names)
        return cls(source, columns, chain(preview, rows))


def _refuse_class(model: Model, target: Any) -> None:
    """Raise BadOption for a target of a model that writes."""
    if model.writes and target is not None:
        message = f"{model.name} writes text and has no classes: leave out "
        raise BadOption(message, Argument("target"), ", and give ", Argument("answer"), ".")


def _refuse_answer(model: Model, answer: Any) -> None:
    """Raise BadOption for an answer of a model with classes."""
    if answer is not None and not model.writes:
        message = f"{model.name} is no language model, which alone gives answers: leave out "
        raise BadOption(message, Argument("answer"), ".")


def _list_columns(source: Table, preview: Sequence[TableRow]) -> list[str]:
    _require_rows(source, preview)
    names = _collect_names(preview)
    # Without columns no row could be read at all, and the first says why.
    if not names:
        raise BadInput(f"'{source.name}' cannot be read: {preview[0].error or 'its rows have no columns'}.")
    return names


def _require_rows(source: Table, preview: Sequence[TableRow]) -> None:
    if not preview:
        raise BadInput(f"'{source.name}' has no rows: there is nothing to explain.")


def _collect_names(rows: Sequence[TableRow]) -> list[str]:
    """Return the columns of all rows, in the order in which they come."""
    return list(dict.fromkeys(chain.from_iterable(row.values for row in rows)))


def make_explainer(
    model: Model,
    table: Any,
    spec: MethodSpec,
    choice: ColumnChoice,
    targets: RowTargets,
    settings: Mapping[str, Any],
) -> tuple[TableExplainer, list[TableRow]]:
    """Return what explains the rows of a small table, and these rows."""
    opened = OpenedTable.open(model, table, choice, targets)
    return TableExplainer(model, spec, opened.columns, targets, settings), list(opened.rows)


@dataclass(frozen=True)
class _Output:
    """Where records go, in shards of how many rows, and what explains them."""

    path: Path
    table_format: TableFormat
    shard: int
    runner: Runner


def _open_output(out: Path, shard: int, runner: Runner) -> _Output:
    require_integer("shard", shard, is_flag=True)
    # Before hours of work that could not be written.
    if out.is_dir():
        raise BadFile(f"'{out}' is a folder: name a file in it to write to.")
    return _Output(out, find_format(out), shard, runner)


def _choose_runner(runner: Runner | None, ray: str | None, workers: int | None) -> Runner:
    cluster = parse_cluster(ray, workers)
    if cluster is None:
        return runner or run_locally
    _refuse_second_runner(runner, ray)
    return RayRunner(cluster)


def _refuse_second_runner(runner: Runner | None, ray: str | None) -> None:
    if runner is not None:
        raise BadOption(Argument("ray", ray), " and a runner contradict each other: give one of them.")


def _as_names(columns: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    _refuse_single_name(columns)
    return tuple(columns)


def _refuse_single_name(columns: Sequence[str] | str | None) -> None:
    if isinstance(columns, str):
        raise BadOption(f"Invalid columns={columns!r}: give a list of names.")


def _split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of `explain`, and those of the method."""
    known = option_defaults(explain)
    settings: dict[str, Any] = {}
    method_options: dict[str, Any] = {}
    for name, value in options.items():
        if name in known:
            settings[name] = value
        else:
            method_options[name] = value
    # By default `explain` decides by the number of inputs of a call, which would depend on the size of shards.
    if settings.get("check") is None:
        settings["check"] = False
    return settings, method_options


def _run(explainer: TableExplainer, table: OpenedTable, output: _Output) -> TableSummary:
    """Explain the shards that are missing and join all of them."""
    manifest = make_manifest(explainer, table.source, output.path, output.shard)
    shards = cut_shards(table.rows, output.shard)
    with open_run(output.path, manifest, output.table_format) as run:
        with progress(table.source.count(), "rows", at_once=True) as bar:
            counts = _complete(run, explainer, shards, output.runner, bar)
        run.join(len(counts), output.path)
    is_compared = compares_gold(explainer.model, explainer.settings.get("focus"))
    return TableSummary(output.path, _sum_in_order(counts), explainer.columns.label, is_compared)


def _sum_in_order(counts: Mapping[int, Counts]) -> Counts:
    # Runners may complete shards in any order, and the first error is that of the first row.
    return sum_counts(counts[number] for number in sorted(counts))


def _complete(
    run: TableRun, explainer: TableExplainer, shards: Iterator[Shard], runner: Runner, bar: ProgressBar
) -> dict[int, Counts]:
    """Explain and write what is missing; return the counts of all shards by their number."""
    counts: dict[int, Counts] = {}
    missing = _skip_complete(run, shards, bar, counts)
    for shard, records in runner(explainer, missing, bar):
        _require_explained(shard, records)
        # At once, so that a run that is killed loses only the shard under way.
        counts[shard.number] = run.write_shard(shard, records)
    return counts


def _skip_complete(
    run: TableRun, shards: Iterator[Shard], bar: ProgressBar, counts: dict[int, Counts]
) -> Iterator[Shard]:
    """Yield the shards that are missing, and count the rows of the others."""
    for shard in shards:
        if run.has_shard(shard):
            counts[shard.number] = run.read_counts(shard)
            bar.skip(len(shard.rows))
        else:
            yield shard


def run_locally(
    explainer: TableExplainer, shards: Iterator[Shard], bar: ProgressBar
) -> Iterator[tuple[Shard, list[Record]]]:
    """Explain shards one after the other in this process."""
    for shard in shards:
        yield shard, explainer.explain_rows(shard.rows, bar)


def _require_explained(shard: Shard, records: Sequence[Record]) -> None:
    """Raise the error of the first row if no row of the first shard could be explained."""
    # A wrong column or model fails for every row: better now than a million errors later.
    if shard.number == 0 and all(map(_has_error, records)):
        raise BadInput(f"No row can be explained. Row {records[0]['row']}: {records[0]['error']}")


def _has_error(record: Record) -> bool:
    return record["error"] is not None
