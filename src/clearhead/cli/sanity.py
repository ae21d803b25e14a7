"""clearhead sanity."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import options, outputs
from clearhead.cli.bench import LabelColumn, Reader, TaskName
from clearhead.cli.report import REPORT_ENDINGS
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.bench.sanity import SanityReport

Limit = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Number of inputs; default: 40 texts or 16 images.")
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the random weights and of the planting.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Output file, .html or .md.")]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON per method.")]


def sanity(
    task: TaskName = None,
    model: options.ModelName = None,
    methods: options.Methods = None,
    limit: Limit = None,
    seed: Seed = 0,
    out: Out = None,
    json: Json = False,
    text_column: options.TextColumn = None,
    label_column: LabelColumn = None,
    reader: Reader = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
    lm_head: options.LmHead = None,
) -> None:
    """Test explanations on your model: by random weights, and by planted evidence that decides.

    Example: clearhead sanity --model my-bert --task reviews.txt --out sanity.html
    """
    outputs.check_path(out, endings=REPORT_ENDINGS)
    if task is None:
        raise BadOption("No data given: name a table, or a .txt file with a text per line, with --task.")
    from clearhead.bench.sanity import check_sanity

    names = options.split_names(methods) if methods else None
    loaded = options.load_model(model, device, lm_head, allow_pickle=allow_pickle)
    columns: dict[str, Any] = {"text_column": text_column, "label_column": label_column, "reader": reader}
    report = check_sanity(loaded, task, names, limit=limit, seed=seed, **columns)
    if out is not None:
        _write(report, out)
    if json:
        for row in report.rows:
            outputs.print_json(row.as_record())
    else:
        _print_report(report)


def _write(report: "SanityReport", out: Path) -> None:
    from clearhead.files import write_atomically

    content = report.to_html() if outputs.is_page(out) else report.to_markdown()
    write_atomically(out, content.encode("utf-8", "replace"))
    outputs.announce_file(out)


def _print_report(report: "SanityReport") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in report.grid.columns:
        table.add_column(column)
    for row in report.grid.rows:
        table.add_row(*[cell.text for cell in row])
    Console(highlight=False, markup=False, no_color=outputs.is_plain()).print(table)
    outputs.print_wrapped(*report.sentences)
    outputs.print_refused(report.table.refused)
