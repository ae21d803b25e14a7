"""clearhead choose."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import options, outputs
from clearhead.cli.bench import LabelColumn, Reader, TaskName
from clearhead.cli.bench_table import print_table
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.bench.choose import MethodChoice

Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Number of inputs; default: 100 texts, 50 images or prompts."),
]
Forget = Annotated[
    str | None,
    typer.Option("--forget", metavar="M", help="Forget the choice for a model, by its name or checksum, and exit."),
]
Keep = Annotated[bool, typer.Option("--keep/--no-keep", help="Make the choice the default method of this model.")]
Json = Annotated[bool, typer.Option("--json", help="Print the choice as one line of JSON.")]


def choose(
    task: TaskName = None,
    model: options.ModelName = None,
    methods: options.Methods = None,
    limit: Limit = None,
    forget: Forget = None,
    keep: Keep = True,
    json: Json = False,
    text_column: options.TextColumn = None,
    label_column: LabelColumn = None,
    reader: Reader = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
    lm_head: options.LmHead = None,
) -> None:
    """Find the method that explains your model best, and make it the model's default.

    Examples:

    clearhead choose --model my-bert --task reviews.txt

    clearhead list choices

    clearhead choose --forget my-bert
    """
    if forget is not None:
        _forget(forget)
        return
    if task is None:
        raise BadOption("No data given: name a table, or a .txt file with a text per line, with --task.")
    from clearhead.bench.choose import choose

    names = options.split_names(methods) if methods else None
    loaded = options.load_model(model, device, lm_head, allow_pickle=allow_pickle)
    columns: dict[str, Any] = {"text_column": text_column, "label_column": label_column, "reader": reader}
    result = choose(loaded, task, names, limit=limit, save=keep, announce=_announce, **columns)
    if json:
        _print_record(result)
    else:
        _print_result(result)


def _forget(name: str) -> None:
    from clearhead.attribution.choices import forget_choice

    for choice in forget_choice(name):
        outputs.print_wrapped(f"Forgotten: {choice.method} for {choice.model}, chosen on {choice.date}.")


def _announce(sentence: str) -> None:
    outputs.print_wrapped(sentence, stream=sys.stderr)


def _announce_skipped(skipped: Sequence[str]) -> None:
    for line in skipped:
        _announce(line)


def _print_record(result: "MethodChoice") -> None:
    outputs.print_json(
        {
            "method": result.method,
            "verdict": list(result.sentences),
            "rows": result.table.rows,
            "costs": result.summary["costs"],
            "refused": result.table.refused,
            "file": str(result.path) if result.path else None,
        }
    )


def _print_result(result: "MethodChoice") -> None:
    print_table(result.summary)
    outputs.print_wrapped(*result.sentences)
    outputs.print_refused(result.table.refused)
    _announce_skipped(result.table.skipped)
    if result.path is not None:
        outputs.print_wrapped(
            f"From now on {result.method} explains this model unless --method names another ({result.path})."
        )
    elif result.method is None:
        outputs.print_wrapped("Nothing is changed: no method is shown to be better than chance on this model.")
