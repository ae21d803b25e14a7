"""Every exception of Clearhead.

ClearheadError
├── UnsupportedModel (TypeError)            this model, or this method on this model, cannot be explained
├── UnsupportedOperation (TypeError)        relevance met an operation that has no rule
├── UnknownName (KeyError)                  no method, model, label … of that name
├── BadInput (ValueError)                   the text, image, tensors or target make no sense here
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
    """An argument that a message speaks of: written as in Python, or as a flag of the command line."""

    name: str
    value: Any = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"

    @property
    def flag(self) -> str:
        name = f"--{self.name.replace('_', '-')}"
        return name if self.value is None else f"{name} {self.value}"


class ClearheadError(Exception):
    """The root: `except ClearheadError` catches everything Clearhead raises on purpose.

    Its message may come in parts, so that the arguments in it can be told as flags.
    """

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    @property
    def with_flags(self) -> str:
        return "".join(part.flag if isinstance(part, Argument) else str(part) for part in self.args)


class UnsupportedModel(ClearheadError, TypeError):
    """The model, or this method on it, is outside what can be explained exactly."""


class UnsupportedOperation(ClearheadError, TypeError):
    """Relevance reached an operation for which no rule is known."""


class UnknownName(ClearheadError, KeyError):
    """A name that is not in a registry."""


class BadInput(ClearheadError, ValueError):
    """Something handed in cannot be explained as it is."""


class TooLong(BadInput):
    """The input has more tokens than the model takes; `fact` says so without the advice that follows."""

    @property
    def fact(self) -> str:
        return str(self.args[0])


class BadOption(ClearheadError, ValueError):
    """An option, or its value, is not one the method knows."""


class NotFinite(ClearheadError, ArithmeticError):
    """The model returned NaN or infinity."""


class BadFile(ClearheadError, ValueError):
    """A file cannot be read as what it claims to be."""


class CorruptModel(BadFile):
    """A file of an embedded model is missing or is not the one that was shipped."""
