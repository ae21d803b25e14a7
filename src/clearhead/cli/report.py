"""clearhead report."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from clearhead.errors import BadOption

ENDINGS = (".html", ".md")
RUN = Annotated[Path, typer.Argument(metavar="RUN", show_default=False, help="A run folder that clearhead bench made.")]
OUT = Annotated[Path | None, typer.Option(metavar="FILE", help="Write .html or .md; without it RUN/report.html.")]


def report(run: RUN, out: OUT = None) -> None:
    """Tell what a benchmark found: a verdict, tables with intervals, curves, cost, in one file."""
    target = out or run / "report.html"
    if target.suffix.casefold() not in ENDINGS:
        raise BadOption(f"'{target.name}' has no ending that says what to write. Use one of {', '.join(ENDINGS)}.")
    if out is not None and not target.parent.is_dir():
        raise BadOption(f"There is no folder '{target.parent}' to write '{target.name}' into. Make it first.")
    from clearhead.bench import report
    from clearhead.bench.run_folder import RunFolder
    from clearhead.bench.summary import summarise_run
    from clearhead.bench.verdict import verdict
    from clearhead.files import write_atomically

    results = RunFolder(run)
    summary = summarise_run(results)
    text = (report.page if target.suffix.casefold() == ".html" else report.document)(results, summary)
    write_atomically(target, text.encode("utf-8", "replace"))
    for line in list(verdict(summary))[:1]:
        print(line)
    print(f"Wrote {target}", file=sys.stderr)
