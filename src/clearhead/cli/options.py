"""The options that commands share, and how they become arguments of the engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.model.model import Model

CHUNK = 64


def method_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from clearhead.attribution.names import METHOD_NAMES

    return [name for name in METHOD_NAMES if name.startswith(incomplete)]


def model_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from clearhead.model import zoo

    return [name for name in zoo.names() if name.startswith(incomplete)]


INPUTS = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        show_default=False,
        help="A text, - for standard input, a .txt file, an image, or a .csv, .tsv, .jsonl or .parquet table.",
    ),
]
MODEL = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="M",
        autocompletion=model_names,
        help="An embedded model by name, a folder, or a hub id; without it the embedded text model.",
    ),
]
TARGET = Annotated[
    str | None, typer.Option(metavar="LABEL", help="The class to explain, by label or number; else the prediction.")
]
VERSUS = Annotated[str | None, typer.Option(metavar="LABEL", help="Explain the class rather than this one.")]
OUT = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write .html, .jsonl, .parquet or .md; of one input also .png or .svg, of one explanation .json.",
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print one line of JSON per explanation (docs/json.md).")]
COLUMN = Annotated[
    str | None,
    typer.Option(
        metavar="C",
        help="The table's column with the texts, by name or, without a header, by number; two with a comma for pairs.",
    ),
]
CURVES = Annotated[
    bool, typer.Option("--curves", help="Add to an .html file what hiding and revealing the strongest tokens does.")
]
GOLD = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MARK",
        help="Add to an .html file what people marked: a phrase of the text (repeat), a mask picture, or of a table "
        "the column that holds them, with | between.",
    ),
]
METHOD = Annotated[str, typer.Option(metavar="NAME", autocompletion=method_names, help="See clearhead list methods.")]
OPTIONS = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of the method, repeated.")
]
PAIR = Annotated[bool, typer.Option("--pair", help="Take the two texts as one pair.")]
LONG = Annotated[str, typer.Option(metavar="error|truncate|windows", help="What to do with texts that are too long.")]
PRECISION = Annotated[str | None, typer.Option(metavar="TYPE", help="Compute in float64 or another floating type.")]
BATCH_SIZE = Annotated[int | None, typer.Option(metavar="N", help="How many inputs share a pass.")]
DEVICE = Annotated[str | None, typer.Option(metavar="D", help="cpu, cuda, cuda:1 …")]
LM_HEAD = Annotated[str | None, typer.Option(metavar="FOLDER", help="The masked-LM model that decoded-gradcam needs.")]


def load_model(model: str | None, device: str | None, lm_head: str | None) -> "Model":
    """The model, loaded without the chatter of the libraries below."""
    from transformers.utils import logging

    import clearhead

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return clearhead.load(model, device=device, lm_head=lm_head)


def parse_target(model: "Model", target: str | None, versus: str | None) -> Any:
    """A label or a class number, alone or against another."""
    from clearhead.model.target import Target

    first, second = _class(model, target), _class(model, versus)
    return first if second is None else Target(first, versus=second)


def _class(model: "Model", text: str | None) -> str | int | None:
    if text is None or text in model.labels:
        return text
    return int(text) if text.lstrip("-").isdecimal() else text


def pairs(options: Sequence[str]) -> dict[str, Any]:
    """-o key=value, repeated."""
    from clearhead.spec import RawText

    found = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key.strip():
            raise BadOption(f"-o {option} is not written key=value, for example -o layer=4.")
        name = key.strip().replace("-", "_")
        if name in found:
            raise BadOption(f"-o {name} is given twice: write each option once.")
        found[name] = RawText(value.strip())
    return found
