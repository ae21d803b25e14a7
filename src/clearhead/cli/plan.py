"""clearhead plan."""

import json as text
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clearhead.cli import option, source
from clearhead.cli.compare import METHODS, named

if TYPE_CHECKING:
    from clearhead.inputs import Encoded
    from clearhead.method import Spelling
    from clearhead.model import Model


def plan(
    inputs: option.INPUTS,
    methods: METHODS = None,
    model: option.MODEL = None,
    json: option.JSON = False,
    text_column: option.COLUMN = None,
    pair: option.PAIR = False,
    long: option.LONG = "error",
    batch_size: option.BATCH_SIZE = None,
    device: option.DEVICE = None,
    lm_head: option.LM_HEAD = None,
) -> None:
    """Tell how much memory and time explaining these inputs will take, before it is done."""
    from clearhead import pipeline
    from clearhead.inputs import encode
    from clearhead.method import spelled

    spellings = [spelled(name) for name in named(methods or [pipeline.DEFAULT_METHOD])]
    pipeline.check(spellings, batch_size)
    opened = option.opened(model, device, lm_head)
    read = source.read_inputs(inputs, text_column=text_column, pair=pair, pictures=opened.takes_images)
    kept = "truncate" if long == "windows" else long
    encoded = sorted((encode(opened, one, long=kept) for one in read), key=lambda one: one.length)
    size = (batch_size or pipeline.BATCH) if opened.can_pad else 1
    found = facts(opened, [encoded[start : start + size] for start in range(0, len(encoded), size)], spellings)
    print(text.dumps(found) if json else "\n".join(lines(found)))


def facts(model: "Model", batches: Sequence[Sequence["Encoded"]], spellings: Sequence["Spelling"]) -> dict[str, Any]:
    """What is known beforehand: sizes, memory of the largest batch, and time from three batches that are tried."""
    from clearhead import planning
    from clearhead.inputs import collate
    from clearhead.pipeline import explain_batch, works_blockwise

    def work(place: int) -> None:
        part = collate(model, list(batches[place]))
        explain_batch(model, part, [None] * len(part), spellings)

    memory = planning.memory(model, collate(model, list(batches[-1])))
    lengths = [one.length for batch in batches for one in batch]
    blockwise = not memory.fits and all(map(works_blockwise, spellings))
    return {
        "model": model.name,
        "device": str(model.device),
        "methods": [spelling.text for spelling in spellings],
        "inputs": len(lengths),
        "pictures": model.takes_images,
        "longest": lengths[-1],
        "median": lengths[len(lengths) // 2],
        "batch": len(batches[0]),
        "memory_whole": memory.whole,
        "memory_blockwise": memory.blockwise,
        "memory_free": None if memory.free == planning.UNKNOWN else memory.free,
        "way": "whole" if memory.fits else "block by block" if blockwise else "in smaller batches",
        "seconds": planning.seconds(work, [batch[-1].length for batch in batches]),
    }


def lines(found: dict[str, Any]) -> list[str]:
    """The same in words."""
    count = found["inputs"]
    size = f"{found['median']} tokens in the middle, {found['longest']} at most"
    few, many = ("picture", "pictures") if found["pictures"] else ("input", "inputs")
    free = "" if found["memory_free"] is None else f", {_bytes(found['memory_free'])} free"
    return [
        f"{count} {few if count == 1 else many}" + ("" if found["pictures"] else f", {size}"),
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
