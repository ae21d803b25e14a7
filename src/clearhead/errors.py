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


class ClearheadError(Exception):
    """The root: `except ClearheadError` catches everything Clearhead raises on purpose."""


class UnsupportedModel(ClearheadError, TypeError):
    """The model, or this method on it, is outside what can be explained exactly."""


class UnsupportedOperation(ClearheadError, TypeError):
    """Relevance reached an operation for which no rule is known."""


class UnknownName(ClearheadError, KeyError):
    """A name that is not in a registry."""

    def __str__(self) -> str:
        return str(self.args[0])


class BadInput(ClearheadError, ValueError):
    """Something handed in cannot be explained as it is."""


class TooLong(BadInput):
    """The input has more tokens than the model takes; `fact` says so without the advice for Python."""

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(f"{fact} {advice}".strip())
        self.fact = fact


class BadOption(ClearheadError, ValueError):
    """An option, or its value, is not one the method knows."""


class NotFinite(ClearheadError, ArithmeticError):
    """The model returned NaN or infinity."""


class BadFile(ClearheadError, ValueError):
    """A file cannot be read as what it claims to be."""


class CorruptModel(BadFile):
    """A file of an embedded model is missing or is not the one that was shipped."""
