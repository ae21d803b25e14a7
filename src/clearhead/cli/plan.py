"""clearhead plan."""

import json as text
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import inputs as source
from clearhead.cli import options as option
from clearhead.cli.compare import METHODS, named

if TYPE_CHECKING:
    from clearhead.attribution.method import MethodSpec
    from clearhead.model.inputs import Encoded
    from clearhead.model.model import Model

Batch = Sequence["Encoded"]
JSON = Annotated[bool, typer.Option("--json", help="Print the plan as one line of JSON (docs/json.md).")]


def plan(
    inputs: option.INPUTS,
    methods: METHODS = None,
    model: option.MODEL = None,
    json: JSON = False,
    text_column: option.COLUMN = None,
    pair: option.PAIR = False,
    long: option.LONG = "error",
    batch_size: option.BATCH_SIZE = None,
    device: option.DEVICE = None,
    lm_head: option.LM_HEAD = None,
) -> None:
    """Tell how much memory and time explaining these inputs will take, before it is done."""
    source.check_column(inputs, text_column)
    from clearhead.attribution.batch import BATCH, validate_request
    from clearhead.attribution.method import parse_method
    from clearhead.attribution.names import DEFAULT_METHOD

    spellings = [parse_method(name) for name in named(methods or [DEFAULT_METHOD])]
    validate_request(spellings, batch_size)
    opened = option.load_model(model, device, lm_head)
    read = source.read_inputs(inputs, text_column=text_column, pair=pair, pictures=opened.takes_images)
    size = (batch_size or BATCH) if opened.can_pad else 1
    found = facts(opened, *batched(opened, read, long, size), spellings)
    print(text.dumps(found) if json else "\n".join(lines(found)))


def batched(model: "Model", read: Sequence[Any], long: str, size: int) -> tuple[list[int], list[Batch], list[Batch]]:
    """How many tokens each input has, the batches of those that fit, and the batches of the others' windows."""
    from clearhead.attribution.windows import is_too_long, windows_of
    from clearhead.model.inputs import encode

    encoded = sorted((encode(model, one, long=long) for one in read), key=lambda one: one.length)
    whole = [one for one in encoded if not is_too_long(model, one)]
    windows = [part for one in encoded[len(whole) :] for part in _parts(windows_of(model, one), size)]
    return [one.length for one in encoded], _parts(whole, size), windows


def _parts(several: Batch, size: int) -> list[Batch]:
    return [several[start : start + size] for start in range(0, len(several), size)]


def facts(
    model: "Model",
    lengths: Sequence[int],
    whole: Sequence[Batch],
    windows: Sequence[Batch],
    spellings: Sequence["MethodSpec"],
) -> dict[str, Any]:
    """What is known beforehand: sizes, memory of the largest batch, and time from three batches that are tried."""
    from clearhead.attribution.batch import works_blockwise
    from clearhead.engine import memory as planning
    from clearhead.model.inputs import collate

    batches = [*whole, *windows]
    memory = planning.estimate_memory(model, collate(model, max(batches, key=_size)))
    blockwise = not memory.fits and all(map(works_blockwise, spellings))
    return {
        "model": model.name,
        "device": str(model.device),
        "methods": [spelling.text for spelling in spellings],
        "inputs": len(lengths),
        "windows": sum(map(len, windows)),
        "pictures": model.takes_images,
        "longest": lengths[-1],
        "median": lengths[len(lengths) // 2],
        "batch": max(map(len, batches)),
        "memory_whole": memory.whole,
        "memory_blockwise": memory.blockwise,
        "memory_free": None if memory.free == planning.UNKNOWN else memory.free,
        "way": "whole" if memory.fits else "block by block" if blockwise else "in smaller batches",
        "seconds": _seconds(model, batches, windows, spellings),
    }


def _seconds(
    model: "Model", batches: Sequence[Batch], windows: Sequence[Batch], spellings: Sequence["MethodSpec"]
) -> float:
    """Time to explain all batches; the class of a text in windows is predicted in a pass of its own."""
    from clearhead.attribution.batch import explain_batch
    from clearhead.attribution.windows import window_logits
    from clearhead.engine import memory as planning
    from clearhead.model.inputs import collate

    def work(place: int) -> None:
        explain_batch(model, collate(model, batches[place]), [None] * len(batches[place]), spellings)

    def predict(place: int) -> None:
        window_logits(model, windows[place])

    taken = planning.estimate_seconds(work, [_size(batch) for batch in batches])
    return taken + (planning.estimate_seconds(predict, [_size(batch) for batch in windows]) if windows else 0.0)


def _size(batch: Batch) -> int:
    """Tokens of a batch with its padding; pictures are all alike."""
    return len(batch) * max(1, *(one.length for one in batch))


def lines(found: dict[str, Any]) -> list[str]:
    """The same in words."""
    count = found["inputs"]
    size = f"{found['median']} tokens in the middle, {found['longest']} at most"
    cut = f", {found['windows']} windows" if found["windows"] else ""
    few, many = ("picture", "pictures") if found["pictures"] else ("input", "inputs")
    free = "" if found["memory_free"] is None else f", {_bytes(found['memory_free'])} free"
    return [
        f"{count} {few if count == 1 else many}" + ("" if found["pictures"] else f", {size}{cut}"),
        f"{found['model']} on {found['device']}, {', '.join(found['methods'])}, {found['batch']} at a time",
        f"memory  about {_bytes(found['memory_whole'])} for the largest batch{free}; "
        f"block by block {_bytes(found['memory_blockwise'])}",
        f"way     {found['way']}",
        f"time    about {_duration(found['seconds'])}",
    ]


def _bytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
