"""clearhead plan."""

from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import options, outputs
from clearhead.cli.inputs import InputReader, check_text_column
from clearhead.cli.tables import select_inputs
from clearhead.errors import UnsupportedModel

if TYPE_CHECKING:
    from clearhead.model.model import Model

# Beyond these, a duration is easier to read in the next larger unit.
MAX_SECONDS_SHOWN = 90
MAX_MINUTES_SHOWN = 90

Json = Annotated[bool, typer.Option("--json", help="Print the plan as one line of JSON (docs/json.md).")]

Answer = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="The answer to explain (language models); default: one as long as the model may write."
    ),
]


def plan(
    inputs: options.Inputs,
    methods: options.Methods = None,
    model: options.ModelName = None,
    json: Json = False,
    text_column: options.TextColumn = None,
    pair: options.Pair = False,
    as_text: options.AsText = False,
    overflow: options.Overflow = "error",
    long: options.Long = None,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
    lm_head: options.LmHead = None,
    answer: Answer = None,
    matrix: options.Matrix = False,
) -> None:
    """Estimate the memory and time of explaining these inputs, without explaining them all."""
    check_text_column(inputs, text_column)
    # Imported here because they import torch, without which --help and the check above answer at once.
    from clearhead.attribution.batch import validate_request
    from clearhead.attribution.plan import estimate_request

    # Before the model is loaded, which may take long.
    validate_request(options.check_methods(methods), batch_size)
    loaded = options.load_model(model, device, lm_head, allow_pickle=allow_pickle)
    _require_single_inputs(loaded)
    specs = options.resolve_methods(loaded, methods)
    raw_inputs = select_inputs(InputReader(loaded.takes_images, text_column, pair, as_text=as_text).read(inputs))
    chosen = options.choose_overflow(overflow, long)
    estimate = estimate_request(
        loaded, raw_inputs, specs, batch_size=batch_size, overflow=chosen, answer=answer, matrix=matrix
    )
    if json:
        print(dumps(estimate))
    else:
        outputs.print_wrapped(*format_estimate(estimate))


def _require_single_inputs(model: "Model") -> None:
    if model.reads_pairs or model.chooses:
        raise UnsupportedModel(
            f"{model.name} reads several inputs together, which plan does not estimate: use clearhead explain."
        )


def format_estimate(estimate: dict[str, Any]) -> list[str]:
    """Return the estimate as lines of text."""
    return [
        _format_inputs(estimate),
        f"{estimate['model']} on {estimate['device']}, {', '.join(estimate['methods'])}, {estimate['batch']} at a time",
        f"memory  {_format_memory(estimate)}",
        f"way     {estimate['way']}",
        f"time    about {_format_duration(estimate['seconds'])}",
    ]


def _format_memory(estimate: dict[str, Any]) -> str:
    whole = _format_bytes(estimate["memory_whole"])
    blockwise = _format_bytes(estimate["memory_blockwise"])
    free = _format_free(estimate["memory_free"])
    return f"about {whole} for the largest batch{free}; block by block {blockwise}"


def _format_free(count: int | None) -> str:
    # Not every system tells how much memory is free.
    if count is None:
        return ""
    return f", {_format_bytes(count)} free"


def _format_inputs(estimate: dict[str, Any]) -> str:
    # All images of a model have the same number of tokens.
    if estimate["pictures"]:
        return _format_count(estimate["inputs"], "picture")
    count = _format_count(estimate["inputs"], "input")
    windows = _format_windows(estimate["windows"])
    return f"{count}, median {estimate['median']} tokens, {estimate['longest']} at most{windows}"


def _format_windows(count: int) -> str:
    # 0 unless a text is longer than the model accepts.
    if not count:
        return ""
    return f", {count} windows"


def _format_count(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"


def _format_bytes(count: int) -> str:
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB"


def _format_duration(seconds: float) -> str:
    if seconds < MAX_SECONDS_SHOWN:
        return f"{seconds:.1f} s"
    if seconds < 60 * MAX_MINUTES_SHOWN:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
