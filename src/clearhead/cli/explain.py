"""clearhead explain."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import option, sink, source

if TYPE_CHECKING:
    from clearhead.explanation import Explanation
    from clearhead.model import Model

CHUNK = 64
OPTIONS = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of the method, repeated.")
]
METHOD = Annotated[
    str,
    typer.Option(metavar="NAME", autocompletion=option.method_names, help="See clearhead list methods."),
]


def explain(
    inputs: option.INPUTS,
    model: option.MODEL = None,
    method: METHOD = "trans-att",
    target: option.TARGET = None,
    versus: option.VERSUS = None,
    out: option.OUT = None,
    json: option.JSON = False,
    options: OPTIONS = None,
    text_column: option.COLUMN = None,
    pair: option.PAIR = False,
    long: option.LONG = "error",
    precision: option.PRECISION = None,
    batch_size: option.BATCH_SIZE = None,
    device: option.DEVICE = None,
    lm_head: option.LM_HEAD = None,
) -> None:
    """Explain texts or images: which words or patches made the model decide."""
    sink.check(out)
    from clearhead import methods  # noqa: F401  registers them
    from clearhead.method import spelled

    spelling = spelled(method, **option.pairs(options or []))
    opened = option.opened(model, device, lm_head)
    found_inputs = source.read_inputs(inputs, text_column=text_column, pair=pair, pictures=opened.takes_images)
    settings = {"precision": precision, "batch_size": batch_size, "long": long}
    wanted = option.target_of(opened, target, versus)
    found = [(spelling.text, one) for one in _explained(opened, found_inputs, spelling, wanted, settings)]
    if json:
        sink.print_lines(found)
    else:
        sink.show(found, compared=False, all_rows=out is None)
    if out is not None:
        sink.write(out, found, compared=False)


def _explained(
    model: "Model", inputs: list[Any], spelling: Any, target: Any, settings: dict[str, Any]
) -> Iterator["Explanation"]:
    from clearhead.pipeline import explain

    with option.progress(len(inputs), len(inputs) > CHUNK) as advance:
        for start in range(0, len(inputs), CHUNK):
            part = inputs[start : start + CHUNK]
            yield from explain(model, part, spelling, target, **settings)
            advance(len(part))
