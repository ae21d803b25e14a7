"""clearhead words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import inputs as source
from clearhead.cli import options as option
from clearhead.cli import outputs as sink
from clearhead.cli.explain import explained
from clearhead.errors import BadInput

if TYPE_CHECKING:
    from PIL import Image

    from clearhead.evaluation.top_words import Overlap, Weight

OUT = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, .html, with an overlap table.")]
JSON = Annotated[bool, typer.Option("--json", help="Print one line of JSON per class.")]
COUNT = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many words of each class.")]
CLOUDS = Annotated[bool, typer.Option("--clouds", help="Add a word cloud per class to the page.")]
REFERENCE = Annotated[
    str | None,
    typer.Option(metavar="TABLE", help="Texts whose rare words count more: weights are times ln((1 + N) / (1 + n))."),
]


def words(
    inputs: option.INPUTS,
    model: option.MODEL = None,
    method: option.METHOD = "trans-att",
    target: option.TARGET = None,
    out: OUT = None,
    json: JSON = False,
    options: option.OPTIONS = None,
    text_column: option.COLUMN = None,
    reference: REFERENCE = None,
    count: COUNT = 15,
    clouds: CLOUDS = False,
    long: option.LONG = "truncate",
    batch_size: option.BATCH_SIZE = None,
    device: option.DEVICE = None,
    lm_head: option.LM_HEAD = None,
) -> None:
    """Find the words that speak for each class over many texts."""
    sink.check(out, parts={"--clouds": clouds}, endings=(".html",))
    _check_clouds(clouds)
    source.check_column([*inputs, *([reference] if reference else [])], text_column)
    from clearhead.attribution.method import parse_method
    from clearhead.evaluation.top_words import overlap_rows, top_words, word_records
    from clearhead.views import class_words

    spelling = parse_method(method, **option.pairs(options or []))
    opened = option.load_model(model, device, lm_head)
    if opened.takes_images:
        raise BadInput(f"'{opened.name}' reads pictures, which have no words. Choose a text model with --model.")
    read = source.read_inputs(inputs, text_column=text_column, pair=False, pictures=False)
    weight = _reference_weight(reference, text_column)
    settings = {"batch_size": batch_size, "long": long}
    found = list(explained(opened, read, spelling, option.parse_target(opened, target, None), settings))
    records = word_records(found, weight=weight)
    tops = top_words(records, count=max(count, 50))
    overlaps = overlap_rows(records)
    if out is not None:
        drawn = _clouds(tops) if clouds else None
        sink.write_page(out, [class_words.summary(tops, overlaps, count=count, clouds=drawn)], found)
    _tell(tops, overlaps, count, json=json)


def _reference_weight(reference: str | None, text_column: str | None) -> "Weight | None":
    from clearhead.evaluation.top_words import word_frequencies

    if reference is None:
        return None
    texts = source.read_inputs([reference], text_column=text_column, pair=False, pictures=False)
    return word_frequencies(" ".join([text] if isinstance(text, str) else text) for text in texts)


def _tell(
    tops: Mapping[str, Sequence[tuple[str, float]]], overlaps: "Sequence[Overlap]", count: int, *, json: bool
) -> None:
    from clearhead.views import class_words
    from clearhead.views.text_spans import visible

    for label, found in tops.items():
        if json:
            listed = [{"word": word, "weight": weight} for word, weight in found[:count]]
            sink.print_json({"label": label, "words": listed})
        else:
            print(visible(f"{label}: " + ", ".join(f"{word} {weight:.3g}" for word, weight in found[:count])))
    if overlaps and not json:
        print(class_words.overlap_line(overlaps))


def _check_clouds(wanted: bool) -> None:
    """Refuses clouds that cannot be drawn, before any work is done."""
    if wanted:
        from clearhead.views.wordcloud import library

        library()


def _clouds(tops: Mapping[str, Sequence[tuple[str, float]]]) -> "dict[str, Image.Image]":
    from clearhead.views import wordcloud

    return {label: wordcloud.cloud(found) for label, found in tops.items() if found}
