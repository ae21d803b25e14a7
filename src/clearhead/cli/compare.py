"""clearhead compare."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import inputs as source
from clearhead.cli import options as option
from clearhead.cli import outputs as sink
from clearhead.cli.cards import removal_card

if TYPE_CHECKING:
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model

METHODS = Annotated[
    list[str] | None,
    typer.Option(
        "--methods",
        metavar="A,B,C",
        help="Names with commas between; repeat the flag for spellings with options, as name:key=value,key=value.",
    ),
]


def compare(
    inputs: option.INPUTS,
    methods: METHODS = None,
    model: option.MODEL = None,
    target: option.TARGET = None,
    versus: option.VERSUS = None,
    out: option.OUT = None,
    json: option.JSON = False,
    text_column: option.COLUMN = None,
    pair: option.PAIR = False,
    curves: option.CURVES = False,
    long: option.LONG = "error",
    precision: option.PRECISION = None,
    device: option.DEVICE = None,
    lm_head: option.LM_HEAD = None,
) -> None:
    """Compare methods on texts or images, all computed from the same pass through the model."""
    sink.check(out, parts={"--curves": curves})
    source.check_column(inputs, text_column)
    from clearhead.attribution.method import parse_method
    from clearhead.attribution.names import DEFAULT_METHOD

    spellings = [parse_method(name) for name in named(methods or [DEFAULT_METHOD])]
    opened = option.load_model(model, device, lm_head)
    read = source.read_inputs(inputs, text_column=text_column, pair=pair, pictures=opened.takes_images)
    sink.check_count(out, len(read), len(spellings))
    wanted = option.parse_target(opened, target, versus)
    rows = list(_compared(opened, read, spellings, wanted, {"precision": precision, "long": long}))
    found = [entry for row in rows for entry in row.items()]
    if out is not None and out.suffix.casefold() == ".html":
        sink.write_page(out, _bodies(opened, read, rows, curves), [one for _, one in found])
    elif out is not None:
        sink.write(out, found)
    if json:
        sink.print_lines(found)
    else:
        sink.show(rows, compared=True, all_rows=out is None)


def _compared(
    model: "Model", inputs: list[Any], spellings: list[Any], target: Any, settings: dict[str, Any]
) -> "Iterator[dict[str, Explanation]]":
    """Per input its explanations by method."""
    from clearhead import api as pipeline
    from clearhead.progress import progress

    with progress(len(inputs), "inputs") as advance:
        for start in range(0, len(inputs), option.CHUNK):
            part = inputs[start : start + option.CHUNK]
            found = pipeline.compare(model, part, spellings, target, **settings)
            yield from (dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True))
            advance(len(part))


def _bodies(model: "Model", inputs: list[Any], rows: "list[dict[str, Explanation]]", curves: bool) -> list[str]:
    from clearhead.views import html

    bodies = []
    for source_, row in zip(inputs, rows, strict=True):
        bodies += [html.methods(row), *([removal_card(model, source_, row)] if curves else [])]
    return bodies


def named(flags: list[str]) -> list[str]:
    """a,b,c are three methods; after a colon commas separate options, so such a flag is one method."""
    return [name.strip() for flag in flags for name in ([flag] if ":" in flag else flag.split(",")) if name.strip()]
