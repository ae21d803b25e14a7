"""Options that commands share, and how they become arguments of the library."""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.attribution.names import DEFAULT, DEFAULT_ANSWER_METHOD, DEFAULT_METHOD
from clearhead.check import MIN_GROUPS
from clearhead.data.table_endings import TABLE_ENDINGS
from clearhead.errors import BadOption
from clearhead.validation import require_integer

if TYPE_CHECKING:
    from clearhead.attribution.method import MethodSpec
    from clearhead.model.model import Model
    from clearhead.spec import RawText


def match_prefix(names: Iterable[str], prefix: str) -> list[str]:
    """Return the names that begin with what has been typed."""
    return [name for name in names if name.startswith(prefix)]


def complete_methods(incomplete: str) -> list[str]:
    """Return method names for shell completion."""
    # Not the registry of methods: it imports torch, and a shell waits for the answer after every tab.
    from clearhead.attribution.names import METHOD_NAMES

    return match_prefix(METHOD_NAMES, incomplete)


def complete_models(incomplete: str) -> list[str]:
    """Return names of embedded models for shell completion."""
    from clearhead.model import zoo
    from clearhead.model.zoo import language_model

    return match_prefix([*zoo.names(), language_model.NAME], incomplete)


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        show_default=False,
        help=f"A text, - for standard input, a .txt file, an image, or a table: {', '.join(TABLE_ENDINGS)}.",
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
ModelNames = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="M",
        autocompletion=complete_models,
        help="Embedded model, folder or hub id; default: the embedded text model. Repeat it to compare models on the "
        "same inputs; clearhead diff compares two on a data set.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="NAME",
        autocompletion=complete_methods,
        help=f"Attribution method; see clearhead list methods. Default: the one that clearhead choose has chosen for "
        f"the model, else (and with 'default') {DEFAULT_METHOD}, for the answers of language models "
        f"{DEFAULT_ANSWER_METHOD}.",
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
    typer.Option(
        metavar="LABEL",
        help="Class to explain, by label or index, or column:NAME for a column of the table; default: the predicted "
        "class.",
    ),
]
Versus = Annotated[
    str | None,
    typer.Option(
        metavar="LABEL",
        help="Explain the target relative to this class, or to this answer; column:NAME for a column of the table.",
    ),
]
OUT_HELP = (
    "Output file: .html, .pdf, .jsonl, .parquet or .md; for one input also .png or .svg, for one explanation .json."
)
Out = Annotated[Path | None, typer.Option(metavar="FILE", help=OUT_HELP)]
TableOut = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"{OUT_HELP} Tables of any size are explained as a stream into .parquet, .jsonl or .csv (docs/tables.md).",
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
ImageColumn = Annotated[
    str | None, typer.Option(metavar="C", help="Column of the table that holds paths of images, relative to it.")
]
LabelColumn = Annotated[
    str | None,
    typer.Option(metavar="C", help="Column of the right labels, to mark wrong predictions; default: by its name."),
]
IdColumn = Annotated[
    str | None, typer.Option(metavar="C", help="Column that names the rows; default: one called id, name, …")
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Columns of the table to pass through to the output; default: all."),
]
Flat = Annotated[bool, typer.Option("--flat", help="Write the table without words and diagnostics, as .csv always is.")]
Tokens = Annotated[bool, typer.Option("--tokens", help="Write the tokens into the table, too, not only words.")]
ShardRows = Annotated[
    int | None,
    typer.Option("--shard", metavar="N", min=1, help="Rows that a killed run does again at most; default: 2048."),
]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS|local", help="Run on a Ray cluster: its address, or local.")]
Workers = Annotated[int | None, typer.Option(metavar="N", min=1, help="Number of Ray workers; each holds a model.")]
Pair = Annotated[bool, typer.Option("--pair", help="Treat the two texts as one pair.")]
AsText = Annotated[bool, typer.Option("--as-text", help="Read every INPUT as a text, also if it looks like a file.")]
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
    str | None,
    typer.Option(metavar="TYPE", help="Floating-point type to compute in, such as float64; default: the model's."),
]
Check = Annotated[
    int | None,
    typer.Option(
        "--check",
        metavar="N",
        help="Check every explanation by hiding and showing N groups of words or patches, 5 or more; default: 5 for up "
        "to 64 texts or 4 images.",
    ),
]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Leave out the check, which takes some passes more.")]
BatchSize = Annotated[int | None, typer.Option(metavar="N", help="Inputs per forward pass.")]
Device = Annotated[str | None, typer.Option(metavar="D", help="Device, such as cpu, cuda or cuda:1.")]
Answer = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Answer to explain, or column:NAME for those in a table; default: what the language model writes.",
    ),
]
Foil = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Explain the answer relative to this one, or to column:NAME of a table."),
]
Focus = Annotated[
    str | None,
    typer.Option(
        metavar="WORDS",
        help="Part of the output to explain: words of the answer or, for models that label words, of the text; #N for "
        "a token, mask or box; START:END for characters; LEFT,TOP,RIGHT,BOTTOM for pixels; or the label of a box.",
    ),
]
Matrix = Annotated[
    bool, typer.Option("--matrix", help="Explain every token of the answer too: choose words on the page, see a grid.")
]
Pictures = Annotated[
    list[Path] | None,
    typer.Option(
        "--image", metavar="FILE", help="Picture that the prompt is about, for models that read pictures (repeatable)."
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--sources",
        metavar="FILES",
        help="Documents that a language model answers from: a file, a folder or a quoted pattern such as 'docs/*.txt' "
        "(repeatable); or sentences, or turns, of the prompt.",
    ),
]
Scale = Annotated[
    str | None, typer.Option(metavar="log-prob|logit", help="What of an answer is explained; default: log-prob.")
]
MaxNewTokens = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Tokens that the language model may write; default: 64.")
]
LmHead = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Masked-LM model that decoded-gradcam decodes with.")
]

AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Also load pickled weights (.bin); what is not a tensor is refused.")
]


def load_model(model: str | None, device: str | None, lm_head: str | None, *, allow_pickle: bool = False) -> "Model":
    """Load the model without the progress bars and warnings of Transformers."""
    from transformers.utils import logging

    import clearhead

    # Standard error is for the command's own messages.
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return clearhead.load(model, device=device, lm_head=lm_head, allow_pickle=allow_pickle)


def parse_target(model: "Model", target: str | None, versus: str | None) -> Any:
    """Return a label or class index, or the contrast of two."""
    from clearhead.model.target import Target

    first = parse_class(model, target)
    second = parse_class(model, versus)
    if second is None:
        return first
    return Target(first, versus=second)


def parse_class(model: "Model", text: str | None) -> str | int | None:
    """Return a label as it is, and a number as the index of a class."""
    # First, because a label that looks like a number is a label.
    if text is None or text in model.labels:
        return text
    return _parse_index(text)


def _parse_index(text: str) -> str | int:
    if text.lstrip("-").isdecimal():
        return int(text)
    # A text that is neither a label nor a number is refused with the labels of the model.
    return text


def check_method(name: str | None, pairs: Sequence[str] | None) -> None:
    """Raise an error for a mistake in --method and -o that shows without the model."""
    # Options of a default method are checked once the model is known, which decides what it is.
    if name not in (None, DEFAULT):
        parse_method(name, pairs)


def parse_method(name: str, pairs: Sequence[str] | None) -> "MethodSpec":
    """Parse a method with the options of -o."""
    # Imported here because it imports torch, without which --help and mistakes in other flags answer at once.
    from clearhead.attribution.method import parse_method

    return parse_method(name, **parse_method_options(pairs or []))


def resolve_method(model: "Model", name: str | None, pairs: Sequence[str] | None) -> "MethodSpec":
    """Parse the method of --method with the options of -o; without one, the method of this model."""
    from clearhead.attribution.method import resolve_method

    return resolve_method(model, name, **parse_method_options(pairs or []))


def check_methods(flags: Sequence[str] | None) -> "list[MethodSpec]":
    """Parse the methods of --methods as far as they do not depend on the model."""
    from clearhead.attribution.method import parse_method

    return [parse_method(_fill_default(name)) for name in _split_methods(flags)]


def resolve_methods(model: "Model", flags: Sequence[str] | None) -> "list[MethodSpec]":
    """Parse the methods of --methods; without any, the method of this model."""
    from clearhead.attribution.method import resolve_method

    return [resolve_method(model, name) for name in _split_methods(flags)]


def _split_methods(flags: Sequence[str] | None) -> Sequence[str | None]:
    if not flags:
        return [None]
    return split_names(flags)


def _fill_default(name: str | None) -> str:
    if name is None or name == DEFAULT:
        return DEFAULT_METHOD
    return name


def parse_method_options(pairs: Sequence[str]) -> "dict[str, RawText]":
    """Parse repeated -o key=value; dashes in a key are underscores."""
    values: dict[str, RawText] = {}
    for name, value in map(_parse_pair, pairs):
        if name in values:
            raise BadOption(f"-o {name} is given twice: write each option once.")
        values[name] = value
    return values


def _parse_pair(pair: str) -> "tuple[str, RawText]":
    from clearhead.spec import RawText

    key, equals, value = pair.partition("=")
    _require_key(pair, equals, key)
    # Parsed later, when the method's signature tells the type.
    return key.strip().replace("-", "_"), RawText(value.strip())


def _require_key(pair: str, equals: str, key: str) -> None:
    if not equals or not key.strip():
        raise BadOption(f"Invalid -o {pair}: write key=value, for example -o layer=4.")


def split_names(flags: Sequence[str]) -> list[str]:
    """Split a,b,c into names."""
    names = chain.from_iterable(map(_split_flag, flags))
    # A trailing comma, as left by editing a command, is no mistake.
    return list(filter(None, map(str.strip, names)))


def _split_flag(flag: str) -> list[str]:
    # After a colon, commas separate the options of one name.
    if ":" in flag:
        return [flag]
    return flag.split(",")


def choose_check(check: int | None, no_check: bool) -> int | bool | None:
    """Return the library's option `check` from the two flags."""
    if not no_check:
        if check is not None:
            require_integer("check", check, MIN_GROUPS, is_flag=True)
        return check
    if check is not None:
        raise BadOption("--check and --no-check contradict each other: give one of them.")
    return False


def choose_overflow(overflow: str, long: str | None) -> str:
    """Return the value of --overflow, or of its former name --long."""
    if long is None:
        return overflow
    return long
