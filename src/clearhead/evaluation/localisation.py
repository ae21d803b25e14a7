"""Localisation: does the relevance lie where the object, or the class, is?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.data.task import Example, Mask
from clearhead.errors import BadInput
from clearhead.evaluation.metric import ExplainedExample, Record, column, explanation_for, means, metric
from clearhead.explanation import Explanation
from clearhead.model.inputs import open_image
from clearhead.model.model import Model
from clearhead.validation import require_integer

COUNTS = ("both_fg", "either_fg", "both_bg", "either_bg", "right", "labelled")


def _segmented(records: Sequence[Record], weights_RN: Array) -> dict[str, Array]:
    """Pixel accuracy and mIoU pooled over the data set, mAP averaged over images."""
    total = {name: weights_RN @ np.nan_to_num(column(records, name)) for name in COUNTS}
    with np.errstate(invalid="ignore", divide="ignore"):
        miou = (total["both_fg"] / total["either_fg"] + total["both_bg"] / total["either_bg"]) / 2
        accuracy = total["right"] / total["labelled"]
    return {"pixel-accuracy": accuracy, "map": means(records, weights_RN, ["ap"])["ap"], "miou": miou}


@metric(
    paper="TransAtt, Sec. 4",
    better="higher",
    values=("pixel-accuracy", "map", "miou"),
    summary=_segmented,
)
def segmentation(model: Model, cases: list[ExplainedExample], *, target: str = "prediction") -> list[Record]:
    """Pixel accuracy, mean average precision and mean IoU of the map above its mean, against the object's mask.

    The map is scaled to 0–1 per image; pixels without a label take no part.
    """
    return [_segmentation(explanation_for(case, target), case.example) for case in cases]


def _segmentation(explanation: Explanation, example: Example) -> Record:
    if not isinstance(example.gold, Mask):
        raise BadInput(f"Example '{example.id}' has no mask of its object, which segmentation compares with.")
    mask, heat = example.gold.array(), explanation.heatmap()
    if mask.shape != heat.shape:
        raise BadInput(
            f"The mask of example '{example.id}' has {mask.shape[1]}×{mask.shape[0]} pixels, its picture "
            f"{heat.shape[1]}×{heat.shape[0]}: they must be of one size."
        )
    seen = np.isfinite(heat)
    lowest, spread = heat[seen].min(), np.ptp(heat[seen])
    scaled = (heat - lowest) / (spread or 1.0)
    fore, keep = scaled > scaled[seen].mean(), seen & (mask >= 0)
    if not keep.any():
        return {}
    return {**_agreement(fore[keep], mask[keep] == 1), "ap": _both_sides(scaled[keep], mask[keep] == 1)}


def _agreement(found: Array, gold: Array) -> Record:
    counts = ((found & gold), (found | gold), (~found & ~gold), (~found | ~gold), found == gold, np.ones_like(gold))
    return {name: float(count.sum()) for name, count in zip(COUNTS, counts, strict=True)}


def _both_sides(scaled: Array, gold: Array) -> float:
    """Average precision of [1 − map, map] against one-hot masks."""
    return average_precision(np.concatenate([1 - scaled, scaled]), np.concatenate([~gold, gold]))


def average_precision(score_N: Array, gold_N: Array) -> float:
    """Σ (recall − recall before) · precision over falling thresholds; equal scores enter together."""
    order = np.argsort(-score_N, kind="stable")
    score_N, hits = score_N[order], np.cumsum(gold_N[order])
    last = np.append(np.flatnonzero(np.diff(score_N)), len(score_N) - 1)
    recall, precision = hits[last] / max(1, hits[-1]), hits[last] / (last + 1)
    return float((np.diff(recall, prepend=0) * precision).sum())


# --- mosaics ------------------------------------------------------------------------------------------------------


def _mosaics(examples: list[Example], *, seed: int = 0) -> list[Example]:
    """Four pictures of different classes on one canvas, or two texts of different classes joined.

    Each part gives an example of its own: the mosaic, the part's class, and where it lies.
    """
    require_integer("seed", seed, 0)
    generator = np.random.default_rng(seed)
    if isinstance(examples[0].input, tuple):
        raise BadInput("Pairs of texts cannot be joined to mosaics: use single texts or pictures.")
    text = isinstance(examples[0].input, str)
    size = 2 if text else 4
    made = []
    for parts in _mixed(examples, size, generator):
        made += _joined(parts) if text else _canvas(parts)
    if not made:
        raise BadInput(f"A mosaic needs {size} different labels, which these {len(examples)} examples do not have.")
    return made


def _mixed(examples: list[Example], size: int, generator: Any) -> list[list[Example]]:
    """Groups of examples whose labels all differ, always from the classes with most examples left."""
    left: dict[Any, list[Example]] = {}
    for place in generator.permutation(len(examples)):
        if examples[place].label is not None:
            left.setdefault(examples[place].label, []).append(examples[place])
    groups = []
    while len(left) >= size:
        largest = sorted(left, key=lambda label: (-len(left[label]), str(label)))[:size]
        groups.append([left[label].pop() for label in generator.permutation(np.array(largest, dtype=object))])
        left = {label: rest for label, rest in left.items() if rest}
    return groups


def _joined(parts: list[Example]) -> list[Example]:
    text = " ".join(part.input for part in parts)
    starts = np.cumsum([0, *(len(part.input) + 1 for part in parts[:-1])])
    name = "+".join(part.id for part in parts)
    return [
        Example(f"{name}:{place}", text, part.label, ((0, int(start), int(start) + len(part.input)),))
        for place, (part, start) in enumerate(zip(parts, starts, strict=True))
    ]


@dataclass(frozen=True)
class Canvas:
    """Four pictures on one, put together when it is needed."""

    parts: tuple[Example, ...]

    def opened(self) -> Image.Image:
        pictures = [open_image(part.raw) for part in self.parts]
        width, height = max(one.width for one in pictures), max(one.height for one in pictures)
        canvas = Image.new("RGB", (2 * width, 2 * height))
        for place, picture in enumerate(pictures):
            canvas.paste(picture.resize((width, height)), (place % 2 * width, place // 2 * height))
        return canvas


def _canvas(parts: list[Example]) -> list[Example]:
    canvas, name = Canvas(tuple(parts)), "+".join(part.id for part in parts)
    boxes = [(place % 2 / 2, place // 2 / 2, place % 2 / 2 + 0.5, place // 2 / 2 + 0.5) for place in range(4)]
    return [Example(f"{name}:{place}", canvas, parts[place].label, box) for place, box in enumerate(boxes)]


@metric(paper="class mosaics (Arias-Duart et al. 2022)", better="higher", targets=("label",), prepare=_mosaics)
def mosaic(model: Model, cases: list[ExplainedExample], *, seed: int = 0) -> list[Record]:
    """Share of the positive relevance that lies in the explained class's part of a mosaic of classes.

    Pictures are joined four by four, texts two by two. A map without positive relevance scores 0; chance is about a
    quarter for pictures and a half for texts. A part that the model did not get to see takes no part.
    """
    return [
        {"mosaic": _share(explanation_for(case, "label"), case.example), "group": case.example.id.rpartition(":")[0]}
        for case in cases
    ]


def _share(explanation: Explanation, example: Example) -> float | None:
    gold: Any = example.gold
    if explanation.grid is None:
        (_, start, end), offsets = gold[0], explanation.offsets or ()
        inside = np.array([start <= offset[0] < end for offset in offsets])[~explanation.special]
        positive = np.maximum(explanation.relevance[~explanation.special], 0)
        if not inside.any():
            return None
    else:
        heat = np.nan_to_num(explanation.heatmap())
        rows, columns = ((np.arange(size) + 0.5) / size for size in heat.shape)
        left, top, right, bottom = gold
        inside = ((rows >= top) & (rows < bottom))[:, None] & ((columns >= left) & (columns < right))[None, :]
        positive = np.maximum(heat, 0)
    return float(positive[inside].sum() / positive.sum()) if positive.sum() > 0 else 0.0
