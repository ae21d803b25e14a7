"""clearhead diff."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import options, outputs
from clearhead.cli.snapshot import LabelColumn, Limit, NoiseDraws, NoiseModels, TaskName, choose_method, read_examples
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.model_diff import ModelDiff

FirstModel = Annotated[str, typer.Argument(metavar="A", show_default=False, help="Model, or a saved snapshot (.json).")]
SecondModel = Annotated[str, typer.Argument(metavar="B", show_default=False, help="Model, or a saved snapshot.")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Output file: .html, .md or .json; .png, .svg or .pdf of the example that moved most."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def diff(
    model_a: FirstModel,
    model_b: SecondModel,
    task: TaskName = None,
    out: Out = None,
    json: Json = False,
    method: options.Method = None,
    method_options: options.MethodOptions = None,
    noise: NoiseDraws = 3,
    noise_models: NoiseModels = None,
    text_column: options.TextColumn = None,
    label_column: LabelColumn = None,
    limit: Limit = None,
    batch_size: options.BatchSize = None,
    precision: options.Precision = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Compare two models: do they still decide for the same reasons?

    The exit code is 0 whatever moved; to let a release fail, use clearhead check.

    Example: clearhead diff old/ new/ --task dev.tsv --out diff.html
    """
    outputs.check_path(out, endings=tuple(WRITERS), inputs=[model_a, model_b, task or ""])
    spec = choose_method(method, method_options)
    # Imported here because they import torch, without which mistakes in flags answer at once.
    from clearhead.drift.compare_models import diff as compare
    from clearhead.files import write_atomically

    examples = None
    if task is not None:
        examples = read_examples(task, text_column=text_column, label_column=label_column, limit=limit)
    else:
        _require_snapshots(model_a, model_b)
    first, second = open_model(model_a, device, allow_pickle), open_model(model_b, device, allow_pickle)
    settings: dict[str, Any] = {"batch_size": batch_size, "precision": precision}
    result = compare(first, second, examples, method=spec, noise=noise, noise_models=noise_models or (), **settings)
    if out is not None:
        write_atomically(out, WRITERS[out.suffix.casefold()](result))
        outputs.announce_file(out)
    _print_result(result, json=json)


def _require_snapshots(*names: str) -> None:
    """Raise BadOption if there is a model, which has to be asked about data."""
    # By the names alone: a missing file is reported as missing.
    if not all(name.endswith(".json") for name in names):
        raise BadOption("No data given: name it with --task. Only two snapshots are compared without data.")


def open_model(name: str, device: str | None, allow_pickle: bool) -> Any:
    """Return a model, or the name of a snapshot's file."""
    from clearhead.drift.snapshot_file import is_snapshot_file

    if is_snapshot_file(name):
        return name
    return options.load_model(name, device, None, allow_pickle=allow_pickle)


def _print_result(result: "ModelDiff", *, json: bool) -> None:
    from clearhead.views import diff_record, diff_terminal, terminal

    if json:
        outputs.print_json(diff_record.record(result))
    else:
        terminal.console(plain=outputs.is_plain()).print(diff_terminal.view(result))


def _to_html(result: "ModelDiff") -> bytes:
    from clearhead.views import diff_html

    return diff_html.page(result).encode()


def _to_markdown(result: "ModelDiff") -> bytes:
    from clearhead.views import diff_markdown

    return diff_markdown.document(result).encode()


def _to_json(result: "ModelDiff") -> bytes:
    from clearhead.views import diff_record

    return outputs.encode_json(diff_record.record(result))


def _to_png(result: "ModelDiff") -> bytes:
    from clearhead.views import static_image
    from clearhead.views.diff_explanations import show_first

    return static_image.png(static_image.draw(show_first(result)))


def _to_svg(result: "ModelDiff") -> bytes:
    from clearhead.views import static_image
    from clearhead.views.diff_explanations import show_first

    return static_image.svg(show_first(result)).encode()


def _to_pdf(result: "ModelDiff") -> bytes:
    from clearhead.views import figure
    from clearhead.views.diff_explanations import show_first

    return figure.encode_pdf(figure.make_figure(show_first(result)))


WRITERS: "Mapping[str, Callable[[ModelDiff], bytes]]" = {
    ".html": _to_html,
    ".md": _to_markdown,
    ".json": _to_json,
    ".png": _to_png,
    ".svg": _to_svg,
    ".pdf": _to_pdf,
}
