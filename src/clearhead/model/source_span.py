"""Sources of a prompt as plain data, for explanations that are read without torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceSpan:
    """A source of a prompt, a part that is explained as a whole, by its name and its characters."""

    name: str
    start: int
    end: int
