"""clearhead explain."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import curve, option, sink, source

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
    curves: option.CURVES = False,
    long: option.LONG = "error",
    precision: option.PRECISION = None,
    batch_size: option.BATCH_SIZE = None,
    device: option.DEVICE = None,
    lm_head: option.LM_HEAD = None,
) -> None:
    """Explain texts or images: which words or patches made the model decide."""
    sink.check(out, curves=curves)
    from clearhead import methods  # noqa: F401  registers them
    from clearhead.method import spelled

    spelling = spelled(method, **option.pairs(options or []))
    opened = option.opened(model, device, lm_head)
    read = source.read_inputs(inputs, text_column=text_column, pair=pair, pictures=opened.takes_images)
    sink.check_count(out, len(read), compared=False)
    settings = {"precision": precision, "batch_size": batch_size, "long": long}
    explained = list(_explained(opened, read, spelling, option.target_of(opened, target, versus), settings))
    found = [(spelling.text, one) for one in explained]
    if json:
        sink.print_lines(found)
    else:
        sink.show(found, compared=False, all_rows=out is None)
    if out is not None and out.suffix.casefold() == ".html":
        sink.write_page(out, _bodies(opened, read, spelling, explained, settings, curves), explained)
    elif out is not None:
        sink.write(out, found)


def _bodies(
    model: "Model",
    inputs: list[Any],
    spelling: Any,
    explained: list["Explanation"],
    settings: dict[str, Any],
    curves: bool,
) -> list[str]:
    """The page's parts; a few inputs also get a row of rollout, their two classes side by side, and curves."""
    from clearhead.views import html

    if len(inputs) > html.MANY and not curves:
        return html.cards(explained)
    rollouts = _rollouts(model, inputs, explained, settings)
    bodies = []
    for one, source_, rollout in zip(explained, inputs, rollouts, strict=True):
        bodies.append(html.card(one, rollout=rollout))
        if one.target.versus is not None:
            pair = _explained(model, [source_] * 2, spelling, [one.target.index, one.target.versus], settings)
            bodies.append(html.classes(list(pair)))
        if curves:
            bodies.append(curve.card(model, source_, {spelling.text: one}))
    return bodies


def _rollouts(
    model: "Model", inputs: list[Any], explained: list["Explanation"], settings: dict[str, Any]
) -> list["Explanation | None"]:
    """For methods with scores per block, what rollout says of the same inputs."""
    if any(one.layers is None or one.grid is not None for one in explained):
        return [None] * len(inputs)
    return list(_explained(model, inputs, "rollout", [one.target for one in explained], settings))


def _explained(
    model: "Model", inputs: list[Any], spelling: Any, target: Any, settings: dict[str, Any]
) -> Iterator["Explanation"]:
    from clearhead.pipeline import explain

    with option.progress(len(inputs), len(inputs) > CHUNK) as advance:
        for start in range(0, len(inputs), CHUNK):
            part = inputs[start : start + CHUNK]
            own = target[start : start + CHUNK] if isinstance(target, list) else target
            yield from explain(model, part, spelling, own, **settings)
            advance(len(part))
