"""TODO."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from clearhead.attribution.assemble import start_explanations
from clearhead.attribution.method import METHODS, MethodSpec
from clearhead.attribution.windows import explain_windows, is_too_long
from clearhead.engine.blockwise import capture_blockwise
from clearhead.engine.context import gc_paused
from clearhead.engine.memory import fits_in_memory
from clearhead.engine.streams import prefetch
from clearhead.engine.trace import Trace, capture
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.explanation import Explanation
from clearhead.model.inputs import Inputs, as_input_list, collate, encode, encode_all, from_tensors
from clearhead.model.model import Model
from clearhead.model.target import TargetLike
from clearhead.validation import require_integer

BATCH = 16


def validate_request(spellings: list[MethodSpec], batch_size: int | None) -> None:
    """Refuses a request that names no method, or a batch that is none."""
    if not spellings:
        raise BadOption(f"No method was named. There is: {', '.join(METHODS)}.")
    if batch_size is not None:
        require_integer("batch_size", batch_size, is_flag=True)


def explain_inputs(
    model: Model,
    inputs: Any,
    spellings: list[MethodSpec],
    target: Any,
    batch_size: int | None,
    long: str,
) -> Iterator[list[Explanation]]:
    """For each input in order, its explanations by each method."""
    size = batch_size or BATCH
    if isinstance(inputs, Mapping | Inputs):
        batch = from_tensors(model, inputs) if isinstance(inputs, Mapping) else inputs
        targets = _targets_per_input(target, len(batch))
        for places in _chunks(list(range(len(batch))), size if model.can_pad else 1):
            part = select_rows(batch, places)
            yield from explain_batch(model, part, [targets[place] for place in places], spellings)
        return
    encoded = encode_all(model, partial(encode, model, long=long), as_input_list(inputs))
    targets = _targets_per_input(target, len(encoded))
    found: dict[int, list[Explanation]] = {}
    for place, one in enumerate(encoded):
        if is_too_long(model, one):
            found[place] = explain_windows(model, one, targets[place], spellings, size, explain_batch)
    plain = sorted((place for place in range(len(encoded)) if place not in found), key=lambda p: encoded[p].length)
    chunks = _chunks(plain, size if model.can_pad else 1)
    batches = ((places, collate(model, [encoded[place] for place in places])) for places in chunks)
    for places, part in prefetch(batches, model.device, "inputs"):
        rows = explain_batch(model, part, [targets[place] for place in places], spellings)
        found.update(zip(places, rows, strict=True))
    yield from (found[place] for place in range(len(encoded)))


def _targets_per_input(target: Any, count: int) -> list[TargetLike]:
    several = list(target) if isinstance(target, list | tuple) else [target] * count
    if len(several) != count:
        raise BadInput(f"{len(several)} targets were given for {count} inputs: give one for all, or one for each.")
    return several


def _chunks(places: list[int], size: int) -> Iterator[list[int]]:
    return (places[start : start + size] for start in range(0, len(places), size))


def select_rows(batch: Inputs, rows: list[int]) -> Inputs:
    if rows == list(range(len(batch))):
        return batch
    return Inputs({name: value[rows] for name, value in batch.tensors.items()}, tuple(batch.items[row] for row in rows))


def explain_batch(
    model: Model,
    inputs: Inputs,
    targets: Sequence[TargetLike],
    spellings: Sequence[MethodSpec],
) -> list[list[Explanation]]:
    """One trace, every method: per input the explanations in the order of the methods.

    What does not fit into memory is halved, and a single long input goes block by block where its methods can.
    """
    whole = fits_in_memory(model, inputs)
    if not whole and len(inputs) > 1:
        half = len(inputs) // 2
        parts = (list(range(half)), list(range(half, len(inputs))))
        return [
            row
            for places in parts
            for row in explain_batch(
                model, select_rows(inputs, places), [targets[place] for place in places], spellings
            )
        ]
    with gc_paused():
        blockwise = not whole and all(map(works_blockwise, spellings))
        return _explained_batch(model, inputs, targets, spellings, blockwise)


def _explained_batch(
    model: Model, inputs: Inputs, targets: Sequence[TargetLike], spellings: Sequence[MethodSpec], blockwise: bool
) -> list[list[Explanation]]:
    trace = _try_blockwise(model, inputs, targets) if blockwise else None
    trace = trace or capture(model, inputs, list(targets))
    if share_gradients(spellings):
        trace.keep_gradients()
    order = sorted(range(len(spellings)), key=lambda place: _schedule_key(spellings[place]))
    finish = start_explanations(trace, [spellings[place] for place in order])
    del trace  # takes its time, which a GPU that is still at work does not notice
    columns = dict(zip(order, finish(), strict=True))
    return [list(row) for row in zip(*(columns[place] for place in range(len(spellings))), strict=True)]


def _schedule_key(spelling: MethodSpec) -> tuple[bool, bool, bool]:
    """First trans-att, which takes gradients and relevance side by side, then what asks for those gradients.

    So a GPU has enough to do while Python goes on with the other methods. A trans-att that needs all maps of relevance
    comes before those that let them go.
    """
    return spelling.method.name != "trans-att", works_blockwise(spelling), not spelling.method.class_specific


def _try_blockwise(model: Model, inputs: Inputs, targets: Sequence[TargetLike]) -> Trace | None:
    """Where the network's blocks do not stand in a row, None: then the whole is tried, though it may not fit."""
    try:
        return capture_blockwise(model, inputs, list(targets))
    except UnsupportedModel:
        return None


def share_gradients(spellings: Iterable[MethodSpec]) -> bool:
    """Whether a method besides trans-att may want the gradients that this takes."""
    return any(one.method.class_specific and not works_blockwise(one) for one in spellings)


def works_blockwise(spelling: MethodSpec) -> bool:
    """Whether a method asks of a trace only what can be had block by block."""
    return spelling.method.name == "trans-att" and spelling.options.get("weight", "gradient") == "gradient"
