"""Every exception of Clearhead.

ClearheadError
├── UnsupportedModel (TypeError)            this model, or this method on this model, cannot be explained
├── UnsupportedOperation (TypeError)        relevance met an operation that has no rule
├── UnknownName (KeyError)                  no method, model, label … of that name
├── BadInput (ValueError)                   the text, image, tensors or target are invalid
│   └── TooLong (ValueError)                more tokens than the model takes
├── BadOption (ValueError)                  a method does not take this option or value
├── NotFinite (ArithmeticError)             the model itself returned NaN or infinity
└── BadFile (ValueError)                    a file is missing, damaged, or of another version
    └── CorruptModel                        an embedded model is not the one that was shipped
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Argument:
    """An argument named in an error message, printed as in Python or as a flag of the command line."""

    name: str
    value: Any = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        return f"{self.name}={self.value!r}"

    @property
    def flag(self) -> str:
        # A switch has no value on the command line.
        if self.value is None or self.value is True:
            return self._flag_name
        return f"{self._flag_name} {self.value}"

    @property
    def _flag_name(self) -> str:
        return f"--{self.name.replace('_', '-')}"


class ClearheadError(Exception):
    """Root of the tree: `except ClearheadError` catches everything Clearhead raises on purpose.

    The message may be split into several arguments, so the command line can print each `Argument` as a flag.
    """

    def __str__(self) -> str:
        # Written out for UnknownName, too: KeyError would print the repr of its message.
        return "".join(map(str, self.args))

    @property
    def with_flags(self) -> str:
        """The message with its arguments printed as flags."""
        return "".join(map(_with_flag, self.args))


def _with_flag(piece: object) -> str:
    if isinstance(piece, Argument):
        return piece.flag
    return str(piece)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's message, or the name of the error if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class UnsupportedModel(ClearheadError, TypeError):
    """The model, or this method on it, cannot be explained exactly."""


class UnsupportedOperation(ClearheadError, TypeError):
    """Relevance reached an operation that has no rule."""


class UnknownName(ClearheadError, KeyError):
    """A name is not in a registry."""


class BadInput(ClearheadError, ValueError):
    """An input or target is invalid."""


class TooLong(BadInput):
    """The input has more tokens than the model takes; `fact` is the message without the advice that follows."""

    @property
    def fact(self) -> str:
        return str(self.args[0])


class BadOption(ClearheadError, ValueError):
    """An option, or its value, is invalid."""


class NotFinite(ClearheadError, ArithmeticError):
    """The model returned NaN or infinity."""


class BadFile(ClearheadError, ValueError):
    """A file cannot be read as the format it claims to have."""


class CorruptModel(BadFile):
    """A file of an embedded model is missing or is not the one that was shipped."""
