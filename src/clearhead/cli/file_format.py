"""Flags about text files that all commands take: what separates columns, and the encoding."""

import codecs
import os
import sys

from clearhead.environment import DELIMITER_VARIABLE, ENCODING_VARIABLE
from clearhead.errors import BadOption

FLAGS = ("--delimiter", "--encoding")
MODEL_FLAGS = ("-m", "--model")
DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "semicolon": ";", "comma": ","}


def move_global_flags(arguments: list[str] | None) -> list[str]:
    """Return the arguments with the flags that belong before the command's name in that place."""
    # People write flags after the command.
    moved: list[str] = []
    others: list[str] = []
    remaining = list(sys.argv[1:] if arguments is None else arguments)
    while remaining:
        argument = remaining.pop(0)
        if argument == "--":
            return [*moved, *others, argument, *remaining]
        if argument.startswith(tuple(f"{flag}=" for flag in FLAGS)):
            moved.append(argument)
        elif argument in FLAGS and remaining:
            moved += [argument, remaining.pop(0)]
        else:
            others.append(argument)
    return moved + others


def refuse_second_model(arguments: list[str]) -> None:
    """Raise BadOption if a command that takes one model is given two: all but the last would be ignored."""
    flags = [argument for argument in arguments if argument in MODEL_FLAGS or argument.startswith("--model=")]
    if len(flags) > 1 and "serve" not in arguments:
        raise BadOption(
            f"--model is given {len(flags)} times, but one model is explained at a time. To compare two models use "
            "clearhead diff A B --task DATA, or clearhead serve -m A -m B."
        )


def choose_file_format(delimiter: str | None, encoding: str | None) -> None:
    """Set what this process, and those it starts, take for the delimiter of .csv files and the encoding of texts."""
    if delimiter is not None:
        os.environ[DELIMITER_VARIABLE] = _parse_delimiter(delimiter)
    if encoding is not None:
        os.environ[ENCODING_VARIABLE] = _parse_encoding(encoding)


def _parse_delimiter(text: str) -> str:
    delimiter = DELIMITER_NAMES.get(text, text)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise BadOption(f"Invalid --delimiter '{text}': give one character, such as ';', or tab.")
    return delimiter


def _parse_encoding(name: str) -> str:
    try:
        # Codecs that are no encodings of text, such as base64, cannot be used to open a file.
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise BadOption(f"Unknown --encoding '{name}': use utf-8, latin-1, cp1252, utf-16 …") from error
