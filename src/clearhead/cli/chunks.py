"""Inputs explained in chunks, with a progress bar on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.attribution.method import MethodSpec
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model

# Inputs per call of the library: several batches, so that those of similar length can share one.
MAX_CHUNK = {"cpu": 64, "cuda": 8192}


def resolve_check(check: bool | int | None, model: "Model", inputs: int) -> bool | int:
    """Return the number of groups of a check, or False: the limit of the default counts all inputs, not a chunk's."""
    from clearhead.trust.removal_check import count_groups

    return count_groups(check, model, inputs) or False


def explain_in_chunks(
    model: "Model", inputs: Sequence[Any], method: "MethodSpec | str", target: Any, settings: Mapping[str, Any]
) -> "Iterator[Explanation]":
    """Yield one explanation per input; `target` is common to all, or a list with one per input."""
    from clearhead.api import explain

    for chunk in _iterate_chunks(model, len(inputs)):
        targets = _select_targets(target, chunk)
        yield from explain(model, inputs[chunk], method, targets, **settings)


def _select_targets(target: Any, chunk: slice) -> Any:
    if isinstance(target, list):
        return target[chunk]
    return target


def compare_in_chunks(
    model: "Model", inputs: Sequence[Any], methods: "Sequence[MethodSpec]", target: Any, settings: Mapping[str, Any]
) -> "Iterator[dict[str, Explanation]]":
    """Yield per input its explanations by method."""
    from clearhead.api import compare

    for chunk in _iterate_chunks(model, len(inputs)):
        yield from _iterate_rows(compare(model, inputs[chunk], methods, target, **settings))


def _iterate_rows(by_method: "Mapping[str, list[Explanation]]") -> "Iterator[dict[str, Explanation]]":
    """Turn a list per method into a mapping per input."""
    for row in zip(*by_method.values(), strict=True):
        yield dict(zip(by_method, row, strict=True))


def _iterate_chunks(model: "Model", count: int) -> Iterator[slice]:
    from clearhead.progress import progress

    size = MAX_CHUNK.get(model.device.type, MAX_CHUNK["cpu"])
    with progress(count, "inputs") as advance:
        for start in range(0, count, size):
            stop = min(start + size, count)
            yield slice(start, stop)
            advance(stop - start)
