"""clearhead check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import options, outputs
from clearhead.cli.diff import open_model
from clearhead.cli.snapshot import TASK_HELP, LabelColumn, Limit, read_examples

if TYPE_CHECKING:
    from clearhead.drift.gate import GateResult

EXIT_MOVED = 1

Baseline = Annotated[
    Path, typer.Argument(metavar="BASELINE", show_default=False, help="Snapshot to compare with: clearhead snapshot.")
]
CheckedModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="M",
        autocompletion=options.complete_models,
        help="Model, or a snapshot of it (.json); default: the one that the baseline names, as it is now.",
    ),
]
TaskName = Annotated[
    str | None, typer.Option("--task", metavar="TASK", help=f"{TASK_HELP} Default: the texts in the baseline.")
]
MinAgreement = Annotated[
    float | None,
    typer.Option(metavar="R", help="Lowest mean rank correlation of reasons, up to 1; takes the place of noise."),
]
MaxShift = Annotated[
    float | None,
    typer.Option(metavar="S", help="Largest mean part of the reasons that may move, 0 to 1; takes the place of noise."),
]
Junit = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the conditions as JUnit XML (.xml).")]
Markdown = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a comment for a change (.md).")]


def check(
    baseline: Baseline,
    model: CheckedModel = None,
    task: TaskName = None,
    min_agreement: MinAgreement = None,
    max_shift: MaxShift = None,
    junit: Junit = None,
    markdown: Markdown = None,
    text_column: options.TextColumn = None,
    label_column: LabelColumn = None,
    limit: Limit = None,
    batch_size: options.BatchSize = None,
    precision: options.Precision = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Fail if a model no longer decides for the reasons of a baseline: a gate for releases.

    Prints one line. Exit codes: 0, the reasons are the same or moved within noise; 1, they moved; 2, bad input.

    Example: clearhead check baseline.json --model my-model --task dev.tsv --junit reasons.xml
    """
    outputs.check_path(junit, endings=(".xml",), flag="--junit")
    outputs.check_path(markdown, endings=(".md",), flag="--markdown")
    # Imported here because they import torch, without which mistakes in flags answer at once.
    from clearhead.drift.check_reasons import check_reasons
    from clearhead.drift.gate import Thresholds
    from clearhead.drift.snapshot_file import read_snapshot

    # Before the model is loaded, which may take long.
    Thresholds(min_agreement, max_shift)
    saved = read_snapshot(baseline)
    examples = None
    if task is not None:
        examples = read_examples(task, text_column=text_column, label_column=label_column, limit=limit)
    result = check_reasons(
        saved,
        open_model(model or saved.model, device, allow_pickle),
        examples,
        min_agreement=min_agreement,
        max_shift=max_shift,
        batch_size=batch_size,
        precision=precision,
    )
    _write(result, junit, markdown)
    # Labels and words may hold line breaks.
    outputs.print_wrapped(" ".join(result.summary.split()))
    if not result.passes:
        raise typer.Exit(EXIT_MOVED)


def _write(result: "GateResult", junit: Path | None, markdown: Path | None) -> None:
    from clearhead.files import write_atomically
    from clearhead.views import gate_junit, gate_markdown

    if junit is not None:
        write_atomically(junit, gate_junit.document(result))
        outputs.announce_file(junit)
    if markdown is not None:
        write_atomically(markdown, gate_markdown.document(result).encode())
        outputs.announce_file(markdown)
