"""clearhead snapshot."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.attribution.names import DEFAULT
from clearhead.cli import options, outputs
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.attribution.method import MethodSpec
    from clearhead.data.task import Task

TASK_HELP = "Data set: a table, a folder, or hf:NAME for one of Hugging Face."
TaskName = Annotated[str | None, typer.Option("--task", metavar="TASK", help=TASK_HELP)]
RequiredTask = Annotated[str, typer.Option("--task", metavar="TASK", help=TASK_HELP)]
SnapshotFile = Annotated[Path, typer.Option(metavar="FILE", help="Output file, .json.")]
Limit = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Examples to draw from the task, with a fixed seed.")
]
LabelColumn = Annotated[str | None, typer.Option(metavar="C", help="Label column of the table, by name or number.")]
NoiseDraws = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Copies of the model with noise in the weights, to tell changes from noise; 0 for none.",
    ),
]
NoiseModels = Annotated[
    list[str] | None,
    typer.Option(
        "--noise-model",
        metavar="M",
        help="Model that counts as the same, such as one of another seed; takes the place of noise; twice or more.",
    ),
]
NoTexts = Annotated[bool, typer.Option("--no-texts", help="Leave out the texts: only places and shares of words.")]


def snapshot(
    task: RequiredTask,
    out: SnapshotFile,
    model: options.ModelName = None,
    method: options.Method = None,
    method_options: options.MethodOptions = None,
    noise: NoiseDraws = 3,
    noise_models: NoiseModels = None,
    no_texts: NoTexts = False,
    text_column: options.TextColumn = None,
    label_column: LabelColumn = None,
    limit: Limit = None,
    batch_size: options.BatchSize = None,
    precision: options.Precision = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Save a model's answers on a task and the reasons for them, to compare another model with later."""
    outputs.check_path(out, endings=(".json",), inputs=[task])
    spec = choose_method(method, method_options)
    # Imported here because they import torch, without which mistakes in flags answer at once.
    from clearhead.drift.snapshot import snapshot as take_snapshot
    from clearhead.drift.snapshot_file import write_snapshot

    examples = read_examples(task, text_column=text_column, label_column=label_column, limit=limit)
    loaded = options.load_model(model, device, None, allow_pickle=allow_pickle)
    result = take_snapshot(
        loaded,
        examples,
        method=spec,
        noise=noise,
        noise_models=noise_models or (),
        batch_size=batch_size,
        precision=precision,
    )
    write_snapshot(result, out, texts=not no_texts)
    outputs.announce_file(out)


def read_examples(task: str, **columns: Any) -> "Task":
    """Read a data set, and say on stderr which of its rows cannot be used."""
    from clearhead.data.read import read_task

    examples = read_task(task, **columns)
    _announce(examples.notice)
    return examples


def _announce(notice: str) -> None:
    if notice:
        outputs.print_wrapped(notice, stream=sys.stderr)


def choose_method(method: str | None, pairs: list[str] | None) -> "MethodSpec | None":
    """Return the method of the flags; None for the default, which depends on the model."""
    if method not in (None, DEFAULT):
        return options.parse_method(method, pairs)
    if pairs:
        raise BadOption("-o sets an option of a method: name it with --method.")
    return None
