"""Numbers, durations and lists of names as tables and sentences show them."""

from collections.abc import Sequence

ARROWS = {"higher": "↑", "lower": "↓"}


def format_number(value: float) -> str:
    """Return a value with three decimals, two from 10 on (percentages), or one significant digit below 0.0005."""
    if value == 0:
        return "0"
    if abs(value) < 0.0005:
        return f"{value:.1g}"
    if abs(value) >= 10:
        return f"{value:.2f}"
    return f"{value:.3f}"


def format_column(name: str, better: str) -> str:
    """Return a column heading with an arrow towards the better values."""
    return f"{name} {ARROWS.get(better, '')}"


def format_seconds(seconds: float) -> str:
    """Return a duration in seconds, or in milliseconds below one second."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.1f} ms"


def join_names(names: Sequence[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
