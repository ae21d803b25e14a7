"""Localisation: does the relevance lie where the object, or the class, is?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.data.task import Example, Mask
from clearhead.errors import BadInput
from clearhead.evaluation.examples import explanation_for, real_relevance
from clearhead.evaluation.metric import ExplainedExample, Record, column, divide_or_nan, means, metric
from clearhead.explanation import Explanation
from clearhead.model.inputs import open_image
from clearhead.model.model import Model
from clearhead.perturbation.ranking import sort_descending
from clearhead.validation import require_integer

COUNTS = ("both_fg", "either_fg", "both_bg", "either_bg", "right", "labelled")
# Fewer texts than images: what exceeds the length of a model is truncated.
TEXTS_PER_MOSAIC = 2
IMAGES_PER_MOSAIC = 4


def _summarise_segmentation(records: Sequence[Record], weights_RN: Array) -> dict[str, Array]:
    """Return pixel accuracy and mIoU pooled over the data set, mAP averaged over images."""
    counts = _pool_counts(records, weights_RN)
    # Pooled counts may be 0 in a resample, where the value is NaN.
    accuracy = divide_or_nan(counts["right"], counts["labelled"])
    precision = means(records, weights_RN, ["ap"])["ap"]
    return {"pixel-accuracy": accuracy, "map": precision, "miou": _mean_iou(counts)}


def _mean_iou(counts: Mapping[str, Array]) -> Array:
    return (_iou(counts, "fg") + _iou(counts, "bg")) / 2


def _iou(counts: Mapping[str, Array], region: str) -> Array:
    """Return intersection over union of foreground or background."""
    return divide_or_nan(counts[f"both_{region}"], counts[f"either_{region}"])


def _pool_counts(records: Sequence[Record], weights_RN: Array) -> dict[str, Array]:
    """Return each count summed over the records (R), as often as each row of weights says."""
    return {name: weights_RN @ _count_or_zero(records, name) for name in COUNTS}


def _count_or_zero(records: Sequence[Record], name: str) -> Array:
    # A record without labelled pixels has no counts and adds nothing.
    return np.nan_to_num(column(records, name))


@metric(
    paper="TransAtt, Sec. 4",
    better="higher",
    values=("pixel-accuracy", "map", "miou"),
    summary=_summarise_segmentation,
)
def segmentation(model: Model, cases: list[ExplainedExample], *, target: str = "prediction") -> list[Record]:
    """Pixel accuracy, mean average precision and mean IoU of the map above its mean, against the object's mask.

    The map is scaled to 0–1 per image; pixels without a label are ignored.
    """
    return [_measure_segmentation(explanation_for(case, target), case.example) for case in cases]


def _measure_segmentation(explanation: Explanation, example: Example) -> Record:
    mask = _object_mask(example)
    heat = explanation.heatmap()
    _check_size(mask, heat, example.id)
    is_counted = _find_labelled(heat, mask)
    if not is_counted.any():
        return {}
    return _compare_with_mask(heat, mask, is_counted)


def _find_labelled(heat: Array, mask: Array) -> Array:
    # The map is NaN outside the model's crop, the mask negative where nobody labelled.
    return np.isfinite(heat) & (mask >= 0)


def _compare_with_mask(heat: Array, mask: Array, is_counted: Array) -> Record:
    # The whole map is segmented, also where nobody labelled: only then pixels are left out.
    scaled, is_foreground = _segment_map(heat)
    gold = mask[is_counted] == 1
    record = _count_pixels(is_foreground[is_counted], gold)
    record["ap"] = _two_sided_precision(scaled[is_counted], gold)
    return record


def _check_size(mask: Array, heat: Array, name: str) -> None:
    if mask.shape != heat.shape:
        raise _size_mismatch(mask, heat, name)


def _size_mismatch(mask: Array, heat: Array, name: str) -> BadInput:
    return BadInput(
        f"The mask of example '{name}' has {_format_size(mask)} pixels, its picture "
        f"{_format_size(heat)}: they must be of one size."
    )


def _format_size(pixels: Array) -> str:
    return f"{pixels.shape[1]}×{pixels.shape[0]}"


def _segment_map(heat: Array) -> tuple[Array, Array]:
    """Return the map scaled to 0–1, and where it lies above its mean."""
    is_seen = np.isfinite(heat)
    scaled = _scale_map(heat, heat[is_seen])
    return scaled, scaled > scaled[is_seen].mean()


def _scale_map(heat: Array, seen: Array) -> Array:
    # A constant map has no range; it stays constant instead of becoming NaN.
    spread = np.ptp(seen) or 1.0
    scaled: Array = (heat - seen.min()) / spread
    return scaled


def _object_mask(example: Example) -> Array:
    if not isinstance(example.gold, Mask):
        raise _missing_mask(example)
    return example.gold.array()


def _missing_mask(example: Example) -> BadInput:
    return BadInput(f"Example '{example.id}' has no mask of its object, which segmentation compares with.")


def _count_pixels(predicted: Array, gold: Array) -> Record:
    pixels = {
        "both_fg": predicted & gold,
        "either_fg": predicted | gold,
        "both_bg": ~predicted & ~gold,
        "either_bg": ~predicted | ~gold,
        "right": predicted == gold,
        "labelled": np.ones_like(gold),
    }
    # Python's floats: JSON does not know NumPy's numbers.
    return {name: float(is_counted.sum()) for name, is_counted in pixels.items()}


def _two_sided_precision(scaled: Array, gold: Array) -> float:
    """Return the average precision of [1 − map, map] against one-hot masks."""
    # The background is a class of its own: a map must also be low where the object is not.
    return average_precision(np.concatenate([1 - scaled, scaled]), np.concatenate([~gold, gold]))


def average_precision(score_N: Array, gold_N: Array) -> float:
    """Return Σ (recall − recall before) · precision over falling thresholds; equal scores enter together."""
    order = sort_descending(score_N)
    hits = np.cumsum(gold_N[order])
    last = _ends_of_runs(score_N[order])
    # Without any gold pixel there are no hits either, and the precision is 0.
    recall = hits[last] / max(1, hits[-1])
    precision = hits[last] / (last + 1)
    return float((np.diff(recall, prepend=0) * precision).sum())


def _ends_of_runs(sorted_N: Array) -> Array:
    """Return the index of the last of each run of equal values."""
    # A run ends before each change, and the last one at the end.
    return np.append(np.flatnonzero(np.diff(sorted_N)), len(sorted_N) - 1)


def _make_mosaics(examples: list[Example], *, seed: int = 0) -> list[Example]:
    """Put four images of different classes on one canvas, or join two texts of different classes.

    Each part of a mosaic gives an example: the mosaic, the part's class, and where the part lies.
    """
    require_integer("seed", seed, 0)
    # All examples of a task are of one kind, so the first one tells.
    source = examples[0].input
    _refuse_pairs(source)
    if isinstance(source, str):
        joined = map(_join_texts, _mix_classes(examples, TEXTS_PER_MOSAIC, seed))
    else:
        joined = map(_join_images, _mix_classes(examples, IMAGES_PER_MOSAIC, seed))
    return list(chain.from_iterable(joined))


def _refuse_pairs(source: Any) -> None:
    if isinstance(source, tuple):
        raise BadInput("Pairs of texts cannot be joined to mosaics: use single texts or pictures.")


def _mix_classes(examples: list[Example], size: int, seed: int) -> list[list[Example]]:
    """Group examples whose labels all differ; raise BadInput if there are too few labels for one group."""
    generator = np.random.default_rng(seed)
    by_label = _group_by_label(_shuffle_examples(examples, generator))
    _require_labels(examples, size, by_label)
    return _draw_groups(by_label, size, generator)


def _require_labels(examples: list[Example], size: int, by_label: Mapping[str, list[Example]]) -> None:
    if len(by_label) < size:
        raise BadInput(f"A mosaic needs {size} different labels, which these {len(examples)} examples do not have.")


def _shuffle_examples(examples: Sequence[Example], generator: np.random.Generator) -> list[Example]:
    return [examples[index] for index in generator.permutation(len(examples))]


def _group_by_label(examples: Sequence[Example]) -> dict[Any, list[Example]]:
    """Return the labelled examples by label."""
    by_label: dict[Any, list[Example]] = {}
    for example in examples:
        if example.label is not None:
            by_label.setdefault(example.label, []).append(example)
    return by_label


def _draw_groups(remaining: dict[Any, list[Example]], size: int, generator: Any) -> list[list[Example]]:
    """Draw groups of different labels, always from the labels with most examples left."""
    groups = []
    while len(remaining) >= size:
        labels = _shuffle_labels(_largest_labels(remaining, size), generator)
        groups.append([remaining[label].pop() for label in labels])
        remaining = _drop_empty(remaining)
    return groups


def _shuffle_labels(labels: Sequence[Any], generator: Any) -> Any:
    # As objects: NumPy would turn labels of mixed types into texts.
    return generator.permutation(np.array(labels, dtype=object))


def _drop_empty(remaining: Mapping[Any, list[Example]]) -> dict[Any, list[Example]]:
    return {label: left for label, left in remaining.items() if left}


def _largest_labels(remaining: Mapping[Any, Sequence[Example]], size: int) -> list[Any]:
    """Return the labels with most examples left, ties by name."""

    def rank(label: Any) -> tuple[int, str]:
        # As text: labels of mixed types cannot be compared.
        return -len(remaining[label]), str(label)

    return sorted(remaining, key=rank)[:size]


def _join_texts(group: list[Example]) -> list[Example]:
    text = " ".join(example.input for example in group)
    joined = []
    start = 0
    for index, example in enumerate(group):
        end = start + len(example.input)
        joined.append(_make_part(group, index, text, ((0, start, end),)))
        # One blank stands between two texts.
        start = end + 1
    return joined


def _make_part(group: list[Example], index: int, source: Any, gold: Any) -> Example:
    """Return a mosaic as an example of the class of one of its parts; `gold` is where the part lies."""
    return Example(f"{_join_names(group)}:{index}", source, group[index].label, gold)


def _join_names(group: Sequence[Example]) -> str:
    # A part is named by its group, which is resampled as a whole.
    return "+".join(example.id for example in group)


@dataclass(frozen=True)
class Canvas:
    """Four images on one, put together when it is needed."""

    quarters: tuple[Example, ...]

    def opened(self) -> Image.Image:
        images = [open_image(quarter.raw) for quarter in self.quarters]
        width, height = _largest_size(images)
        canvas = Image.new("RGB", (2 * width, 2 * height))
        for index, image in enumerate(images):
            canvas.paste(image.resize((width, height)), _corner(index, width, height))
        return canvas


def _corner(index: int, width: int, height: int) -> tuple[int, int]:
    """Return the upper left corner of a quarter of a canvas; quarters are counted row by row."""
    row, column_number = divmod(index, 2)
    return column_number * width, row * height


def _largest_size(images: Sequence[Image.Image]) -> tuple[int, int]:
    """Return the largest width and the largest height, to which all parts of a canvas are stretched."""
    # Stretched, not cropped: no part loses its object.
    widths, heights = zip(*[image.size for image in images], strict=True)
    return max(widths), max(heights)


def _join_images(group: list[Example]) -> list[Example]:
    # One canvas for all four: it is opened, not stored, by each of them.
    canvas = Canvas(tuple(group))
    return [_make_part(group, index, canvas, _quarter(index)) for index in range(len(group))]


def _quarter(index: int) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a quarter of a canvas, from 0 to 1."""
    column_number, row = _corner(index, 1, 1)
    return column_number / 2, row / 2, (column_number + 1) / 2, (row + 1) / 2


@metric(
    paper="class mosaics (Arias-Duart et al. 2022)",
    better="higher",
    targets=("label",),
    prepare=_make_mosaics,
    is_share=True,
)
def mosaic(model: Model, cases: list[ExplainedExample], *, seed: int = 0) -> list[Record]:
    """Share of the positive relevance that lies in the explained class's part of a mosaic of classes.

    Pictures are joined four by four, texts two by two. A map without positive relevance scores 0; chance is about a
    quarter for pictures and a half for texts. A part that was truncated is ignored.
    """
    return list(map(_measure_mosaic, cases))


def _measure_mosaic(case: ExplainedExample) -> Record:
    explanation = explanation_for(case, "label")
    return _mosaic_record(case.example, _class_share(explanation, case.example.gold))


def _mosaic_record(example: Example, share: float | None) -> Record:
    # Parts of one mosaic are not independent: they are resampled as a group.
    return {"mosaic": share, "group": example.id.rpartition(":")[0]}


def _class_share(explanation: Explanation, gold: Any) -> float | None:
    if explanation.grid is None:
        return _text_share(explanation, gold)
    return _image_share(explanation, gold)


def _text_share(explanation: Explanation, gold: Any) -> float | None:
    is_inside = _starts_inside(explanation, gold[0])[~explanation.special]
    # A part that was truncated has no tokens.
    if not is_inside.any():
        return None
    return _positive_share(real_relevance(explanation), is_inside)


def _starts_inside(explanation: Explanation, span: tuple[int, int, int]) -> Array:
    """Return which tokens start within a part of the text."""
    _, start, end = span
    offsets = explanation.offsets or ()
    return np.array([start <= offset[0] < end for offset in offsets])


def _image_share(explanation: Explanation, gold: Any) -> float:
    # Outside the model's crop the map is NaN: no relevance there.
    heat = np.nan_to_num(explanation.heatmap())
    return _positive_share(heat, _inside_box(heat.shape, gold))


def _inside_box(shape: tuple[int, ...], box: tuple[float, float, float, float]) -> Array:
    """Return which pixels lie in a box of relative left, top, right and bottom."""
    left, top, right, bottom = box
    in_rows = _between(shape[0], top, bottom)
    in_columns = _between(shape[1], left, right)
    return in_rows[:, None] & in_columns


def _between(size: int, low: float, high: float) -> Array:
    """Return which pixels along a side, from 0 to 1, have their centre between two positions."""
    centres = _pixel_centres(size)
    return (centres >= low) & (centres < high)


def _pixel_centres(size: int) -> Array:
    centres: Array = (np.arange(size) + 0.5) / size
    return centres


def _positive_share(relevance: Array, is_inside: Array) -> float:
    positive = np.maximum(relevance, 0)
    total = positive.sum()
    if total <= 0:
        return 0.0
    return float(positive[is_inside].sum() / total)
