"""clearhead explain."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.cli import inputs as source
from clearhead.cli import options as option
from clearhead.cli import outputs as sink
from clearhead.cli.cards import class_words_cards, removal_card
from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model


def explain(
    inputs: option.INPUTS,
    model: option.MODEL = None,
    method: option.METHOD = "trans-att",
    target: option.TARGET = None,
    versus: option.VERSUS = None,
    out: option.OUT = None,
    json: option.JSON = False,
    options: option.OPTIONS = None,
    text_column: option.COLUMN = None,
    pair: option.PAIR = False,
    curves: option.CURVES = False,
    gold: option.GOLD = None,
    long: option.LONG = "error",
    precision: option.PRECISION = None,
    batch_size: option.BATCH_SIZE = None,
    device: option.DEVICE = None,
    lm_head: option.LM_HEAD = None,
) -> None:
    """Explain texts or images: which words or patches made the model decide."""
    sink.check(out, parts={"--curves": curves, "--gold": bool(gold)})
    source.check_column(inputs, text_column)
    from clearhead.attribution.method import parse_method

    spelling = parse_method(method, **option.pairs(options or []))
    opened = option.load_model(model, device, lm_head)
    reading: dict[str, Any] = {"text_column": text_column, "pair": pair, "pictures": opened.takes_images}
    read = source.read_inputs(inputs, marks=gold or (), **reading)
    marks = _marks(read, source.read_marks(inputs, gold, **reading)) if gold else []
    sink.check_count(out, len(read))
    settings = {"precision": precision, "batch_size": batch_size, "long": long}
    results = list(explained(opened, read, spelling, option.parse_target(opened, target, versus), settings))
    found = [(spelling.text, one) for one in results]
    if out is not None and out.suffix.casefold() == ".html":
        sink.write_page(out, _bodies(opened, read, spelling, results, settings, curves, marks), results)
    elif out is not None:
        sink.write(out, found)
    if json:
        sink.print_lines(found)
    else:
        sink.show([{name: one} for name, one in found], compared=False, all_rows=out is None)


def _bodies(
    model: "Model",
    inputs: list[Any],
    spelling: Any,
    found: list["Explanation"],
    settings: dict[str, Any],
    curves: bool,
    marks: list[Any],
) -> list[str]:
    """The page's parts; a few inputs also get a row of rollout, two classes side by side, curves, and gold marks."""
    from clearhead.views import html

    if len(inputs) > html.MANY and not curves and not marks:
        return [*class_words_cards(found), *html.cards(found)]
    rollouts = _rollouts(model, inputs, found, settings)
    bodies = []
    for place, (one, source_, rollout) in enumerate(zip(found, inputs, rollouts, strict=True)):
        bodies.append(html.card(one, rollout=rollout))
        classes = [one]
        if one.target.versus is not None:
            pair = [one.target.index, one.target.versus]
            classes = list(explained(model, [source_] * 2, spelling, pair, settings))
            bodies.append(html.classes(classes))
        if marks and marks[place] is not None:
            bodies.append(_gold(classes, marks[place]))
        if curves:
            bodies.append(removal_card(model, source_, {spelling.text: one}))
    return bodies


def _marks(inputs: list[Any], marks: list[list[Any]]) -> list[Any]:
    """Per input the spans or the mask that people marked; None where they marked nothing."""
    return [None if not own else _marked(one, own) for one, own in zip(inputs, marks, strict=True)]


def _marked(one: Any, marks: list[Any]) -> Any:
    from clearhead.views import annotations as gold

    if not isinstance(marks[0], str) and len(marks) > 1:
        raise BadOption(f"--gold names one mask of a picture, but was given {len(marks)} times.")
    return gold.spans_of(one, marks) if isinstance(marks[0], str) else gold.mask_of(marks[0], Path(one))


def _gold(classes: list["Explanation"], marked: Any) -> str:
    """What people marked, beside the explanation of one class or two."""
    from clearhead.views import annotations as gold

    return (gold.text_with_rationale if classes[0].grid is None else gold.image_with_mask)(classes, marked)


def _rollouts(
    model: "Model", inputs: list[Any], found: list["Explanation"], settings: dict[str, Any]
) -> list["Explanation | None"]:
    """For methods with scores per block, what rollout says of the same inputs."""
    if any(one.layers is None or one.grid is not None for one in found):
        return [None] * len(inputs)
    return list(explained(model, inputs, "rollout", [one.target for one in found], settings))


def explained(
    model: "Model", inputs: list[Any], spelling: Any, target: Any, settings: dict[str, Any]
) -> Iterator["Explanation"]:
    from clearhead.api import explain
    from clearhead.progress import progress

    with progress(len(inputs), "inputs") as advance:
        for start in range(0, len(inputs), option.CHUNK):
            part = inputs[start : start + option.CHUNK]
            own = target[start : start + option.CHUNK] if isinstance(target, list) else target
            yield from explain(model, part, spelling, own, **settings)
            advance(len(part))
