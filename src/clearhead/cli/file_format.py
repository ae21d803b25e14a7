"""Flags about text files that all commands take: what separates columns, and the encoding."""

import codecs
import os
import sys

from clearhead.environment import DELIMITER_VARIABLE, ENCODING_VARIABLE
from clearhead.errors import BadOption

FLAGS = ("--delimiter", "--encoding")
ASSIGNED_FLAGS = tuple(f"{flag}=" for flag in FLAGS)
MODEL_FLAGS = ("-m", "--model")
# Commands that take several models.
MODEL_COMMANDS = frozenset(("compare", "serve"))
DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "semicolon": ";", "comma": ","}


def move_global_flags(arguments: list[str] | None) -> list[str]:
    """Return the arguments with the flags that belong before the command's name in that place."""
    # People write flags after the command.
    moved: list[str] = []
    others: list[str] = []
    remaining = list(sys.argv[1:] if arguments is None else arguments)
    # What follows two dashes is no flag.
    while remaining and remaining[0] != "--":
        argument = remaining.pop(0)
        if argument in FLAGS and remaining:
            moved += [argument, remaining.pop(0)]
        else:
            _choose_list(argument, moved, others).append(argument)
    return [*moved, *others, *remaining]


def _choose_list(argument: str, moved: list[str], others: list[str]) -> list[str]:
    """Return the list that an argument belongs to, by whether it is a flag with its value."""
    return moved if argument.startswith(ASSIGNED_FLAGS) else others


def refuse_second_model(arguments: list[str]) -> None:
    """Raise BadOption if a command that takes one model is given two: all but the last would be ignored."""
    count = sum(map(_is_model_flag, arguments))
    if count > 1 and MODEL_COMMANDS.isdisjoint(arguments):
        raise BadOption(
            f"--model is given {count} times, but one model is explained at a time. To compare two models use "
            "clearhead compare INPUT -m A -m B, clearhead diff A B --task DATA, or clearhead serve -m A -m B."
        )


def _is_model_flag(argument: str) -> bool:
    return argument in MODEL_FLAGS or argument.startswith("--model=")


def choose_file_format(delimiter: str | None, encoding: str | None) -> None:
    """Set what this process, and those it starts, take for the delimiter of .csv files and the encoding of texts."""
    if delimiter is not None:
        os.environ[DELIMITER_VARIABLE] = _parse_delimiter(delimiter)
    if encoding is not None:
        os.environ[ENCODING_VARIABLE] = _parse_encoding(encoding)


def _parse_delimiter(text: str) -> str:
    delimiter = DELIMITER_NAMES.get(text, text)
    if not _can_delimit(delimiter):
        raise BadOption(f"Invalid --delimiter '{text}': give one character, such as ';', or tab.")
    return delimiter


def _can_delimit(delimiter: str) -> bool:
    # Quotes and line breaks have a meaning of their own in a table.
    return len(delimiter) == 1 and delimiter not in '"\r\n'


def _parse_encoding(name: str) -> str:
    try:
        # Codecs that are no encodings of text, such as base64, cannot be used to open a file.
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise BadOption(f"Unknown --encoding '{name}': use utf-8, latin-1, cp1252, utf-16 …") from error
