"""Options that commands share, and how they become arguments of the library."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.model.model import Model


def complete_methods(incomplete: str) -> list[str]:
    """Return method names for shell completion."""
    from clearhead.attribution.names import METHOD_NAMES

    return [name for name in METHOD_NAMES if name.startswith(incomplete)]


def complete_models(incomplete: str) -> list[str]:
    """Return names of embedded models for shell completion."""
    from clearhead.model import zoo

    return [name for name in zoo.names() if name.startswith(incomplete)]


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        show_default=False,
        help="A text, - for standard input, a .txt file, an image, or a .csv, .tsv, .jsonl or .parquet table.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="M",
        autocompletion=complete_models,
        help="Embedded model, folder or hub id; default: the embedded text model.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        metavar="NAME", autocompletion=complete_methods, help="Attribution method; see clearhead list methods."
    ),
]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="Option of the method; repeatable."),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--methods",
        metavar="A,B,C",
        help="Methods separated by commas; repeat the flag for methods with options, as name:key=value,key=value.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(metavar="LABEL", help="Class to explain, by label or index; default: the predicted class."),
]
Versus = Annotated[str | None, typer.Option(metavar="LABEL", help="Explain the target relative to this class.")]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Output file: .html, .jsonl, .parquet or .md; for one input also .png or .svg, for one explanation .json.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON per explanation (docs/json.md).")]
TextColumn = Annotated[
    str | None,
    typer.Option(
        metavar="C",
        help="Text column of the table, by name or, without a header, by number; two separated by a comma for pairs.",
    ),
]
Pair = Annotated[bool, typer.Option("--pair", help="Treat the two texts as one pair.")]
Curves = Annotated[
    bool,
    typer.Option("--curves", help="Add curves to the .html file: the strongest tokens hidden, and revealed, in turn."),
]
Gold = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MARK",
        help="Add human annotations to the .html file: a phrase of the text (repeatable), a mask image, or the table "
        "column that holds them, separated by |.",
    ),
]
Overflow = Annotated[
    str,
    typer.Option(
        metavar="error|truncate|windows",
        help="Texts with more tokens than the model accepts: raise an error, cut them, or explain overlapping windows.",
    ),
]
# The former name of --overflow, kept for existing scripts.
Long = Annotated[str | None, typer.Option("--long", hidden=True)]
Precision = Annotated[
    str | None, typer.Option(metavar="TYPE", help="Floating type to compute in, such as float64; default: the model's.")
]
BatchSize = Annotated[int | None, typer.Option(metavar="N", help="Inputs per forward pass.")]
Device = Annotated[str | None, typer.Option(metavar="D", help="Device, such as cpu, cuda or cuda:1.")]
LmHead = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Masked-LM model that decoded-gradcam decodes with.")
]


def load_model(model: str | None, device: str | None, lm_head: str | None) -> "Model":
    """Load the model without the progress bars and warnings of Transformers."""
    from transformers.utils import logging

    import clearhead

    # Standard error is for the command's own messages.
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return clearhead.load(model, device=device, lm_head=lm_head)


def parse_target(model: "Model", target: str | None, versus: str | None) -> Any:
    """Return a label or class index, or the contrast of two."""
    from clearhead.model.target import Target

    first = _parse_class(model, target)
    second = _parse_class(model, versus)
    if second is None:
        return first
    return Target(first, versus=second)


def _parse_class(model: "Model", text: str | None) -> str | int | None:
    # A label that looks like a number is a label.
    if text is None or text in model.labels:
        return text
    if text.lstrip("-").isdecimal():
        return int(text)
    return text


def parse_method_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse repeated -o key=value; dashes in a key are underscores."""
    from clearhead.spec import RawText

    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise BadOption(f"Invalid -o {pair}: write key=value, for example -o layer=4.")
        name = key.strip().replace("-", "_")
        if name in values:
            raise BadOption(f"-o {name} is given twice: write each option once.")
        # Parsed later, when the method's signature tells the type.
        values[name] = RawText(value.strip())
    return values


def split_names(flags: Sequence[str]) -> list[str]:
    """Split a,b,c into names; a flag with a colon is one name, since its commas separate options."""
    names: list[str] = []
    for flag in flags:
        names += [flag] if ":" in flag else flag.split(",")
    stripped = [name.strip() for name in names]
    return [name for name in stripped if name]


def choose_overflow(overflow: str, long: str | None) -> str:
    """Return the value of --overflow, or of its former name --long."""
    if long is None:
        return overflow
    return long
