"""clearhead compare."""

from typing import Annotated

import typer

from clearhead.cli import curve, option, sink, source
from clearhead.errors import BadInput

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
    """Compare methods on one input, all computed from the same pass through the model."""
    sink.check(out, curves=curves)
    from clearhead import pipeline
    from clearhead.method import spelled

    names = named(methods or [pipeline.DEFAULT_METHOD])
    spellings = [spelled(name) for name in names]
    opened = option.opened(model, device, lm_head)
    found_inputs = source.read_inputs(inputs, text_column=text_column, pair=pair, pictures=opened.takes_images)
    if len(found_inputs) != 1:
        raise BadInput(f"compare takes one input, but {len(found_inputs)} were given: use clearhead explain for many.")
    sink.check_count(out, len(spellings), compared=True)
    wanted = option.target_of(opened, target, versus)
    results = pipeline.compare(opened, found_inputs[0], spellings, wanted, precision=precision, long=long)
    found = list(results.items())
    if json:
        sink.print_lines(found)
    else:
        sink.show(found, compared=True, all_rows=True)
    if out is not None and out.suffix.casefold() == ".html":
        from clearhead.views import html

        more = [curve.card(opened, found_inputs[0], results)] if curves else []
        sink.write_page(out, [html.methods(results), *more], list(results.values()))
    elif out is not None:
        sink.write(out, found)


def named(flags: list[str]) -> list[str]:
    """a,b,c are three methods; after a colon commas separate options, so such a flag is one method."""
    return [name.strip() for flag in flags for name in ([flag] if ":" in flag else flag.split(",")) if name.strip()]
