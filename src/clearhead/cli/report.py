"""clearhead report."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli import outputs

REPORT_ENDINGS = (".html", ".md")

Run = Annotated[Path, typer.Argument(metavar="RUN", show_default=False, help="Run folder written by clearhead bench.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Output file, .html or .md; default: RUN/report.html.")]


def report(run: Run, out: Out = None) -> None:
    """Report a benchmark run: verdict, tables with intervals, curves and cost, in one file."""
    if out is None:
        # Not checked: a missing run folder is a mistake about RUN, not about --out.
        out = run / "report.html"
    else:
        outputs.check_path(out, endings=REPORT_ENDINGS)
    from clearhead.bench import report
    from clearhead.bench.run_folder import RunFolder
    from clearhead.bench.summary import summarise_run
    from clearhead.bench.verdict import verdict
    from clearhead.files import write_atomically

    run_folder = RunFolder(run)
    summary = summarise_run(run_folder)
    render = report.page if outputs.is_page(out) else report.document
    write_atomically(out, render(run_folder, summary).encode("utf-8", "replace"))
    print(next(verdict(summary)))
    print(f"Wrote {out}", file=sys.stderr)
