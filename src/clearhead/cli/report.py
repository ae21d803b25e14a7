"""clearhead report."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli import outputs

REPORT_ENDINGS = (".html", ".md")

Run = Annotated[Path, typer.Argument(metavar="RUN", show_default=False, help="Run folder written by clearhead bench.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Output file, .html or .md; default: RUN/report.html.")]


def report(run: Run, out: Out = None) -> None:
    """Report a benchmark run: verdict, tables with intervals, curves and cost, in one file."""
    path = _choose_path(run, out)
    from clearhead.bench import report
    from clearhead.bench.run_folder import RunFolder
    from clearhead.bench.summary import summarise_run
    from clearhead.bench.verdict import verdict
    from clearhead.files import write_atomically

    run_folder = RunFolder(run)
    summary = summarise_run(run_folder)
    render = report.page if outputs.is_page(path) else report.document
    # A path in the manifest may hold bytes that are not UTF-8: a report with ? in a name is better than none.
    write_atomically(path, render(run_folder, summary).encode("utf-8", "replace"))
    outputs.print_wrapped(next(verdict(summary)))
    outputs.announce_file(path)


def _choose_path(run: Path, out: Path | None) -> Path:
    if out is None:
        # Not checked: a missing run folder is a mistake about RUN, not about --out.
        return run / "report.html"
    outputs.check_path(out, endings=REPORT_ENDINGS)
    return out
