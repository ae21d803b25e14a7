"""The public names of Clearhead with their arguments, as text: `python tests/helpers/public_api.py` records it.

Types are left out: they are checked by mypy, and Python's versions write them differently.
"""

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import clearhead
from clearhead import errors, testing

RECORD = Path(__file__).parents[1] / "docs" / "public_api.txt"


def describe_api() -> str:
    """Return one line per public name, argument list and public attribute."""
    lines = []
    for name in clearhead.__all__:
        if name != "__version__":
            lines += describe(f"clearhead.{name}", getattr(clearhead, name))
    for name in testing.__all__:
        lines += describe(f"clearhead.testing.{name}", getattr(testing, name))
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, Exception):
            bases = ", ".join(base.__name__ for base in value.__bases__)
            lines.append(f"clearhead.errors.{name}({bases})")
    return "\n".join(lines) + "\n"


def describe(path: str, value: Any) -> Iterator[str]:
    """Yield the lines of a function, or of a class with its attributes; exceptions are listed in their own module."""
    if inspect.isclass(value) and issubclass(value, Exception):
        yield path
    elif inspect.isclass(value):
        yield path + format_arguments(value)
        yield from describe_attributes(path, value)
    else:
        yield path + format_arguments(value)


def describe_attributes(path: str, owner: type) -> Iterator[str]:
    """Yield the public attributes of a class in alphabetical order, those of its bases included."""
    names = {name for name in dir(owner) if not name.startswith("_")}
    if is_dataclass(owner):
        names |= {field.name for field in fields(owner) if not field.name.startswith("_")}
    for name in sorted(names):
        value = inspect.getattr_static(owner, name, None)
        is_method = inspect.isfunction(value) or isinstance(value, staticmethod | classmethod)
        arguments = format_arguments(getattr(owner, name)) if is_method else ""
        yield f"{path}.{name}{arguments}"


def format_arguments(function: Any) -> str:
    """Return the arguments with their defaults, without types."""
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        parameters.append(parameter.replace(annotation=inspect.Parameter.empty, default=plain_default(parameter)))
    return str(inspect.Signature(parameters))


class ObjectDefault:
    """Stands for a default whose representation may differ from run to run, such as a function."""

    def __repr__(self) -> str:
        return "…"


def plain_default(parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter if it is a plain value or none, else a placeholder."""
    value = parameter.default
    if value is inspect.Parameter.empty or isinstance(value, str | int | float | tuple | None):
        return value
    return ObjectDefault()


if __name__ == "__main__":
    RECORD.write_text(describe_api(), "utf-8")
