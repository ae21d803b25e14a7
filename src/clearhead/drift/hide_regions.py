"""Hide regions of pictures over a data set, and as many other patches beside them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.arrays import Array
from clearhead.data.task import Example, Mask, Task
from clearhead.drift.hidden_units import HiddenInput, HiddenUnit, collect_hidden
from clearhead.drift.picture_regions import Grid, find_background, list_region_names, mark_regions
from clearhead.model.inputs import Inputs, Item, collate, encode_all
from clearhead.model.model import Model
from clearhead.model.outputs import class_probabilities
from clearhead.model_diff import Reasons
from clearhead.perturbation.features import group_features
from clearhead.perturbation.run import perturbed_logits
from clearhead.progress import progress

# Pictures whose perturbed copies are made together.
MAX_CHUNK = 16


@dataclass(frozen=True, eq=False)
class HiddenPicture(HiddenInput):
    """A picture, and by the number of each region the patches that belong to it (U)."""

    regions: Mapping[int, Array]

    @property
    def kept(self) -> dict[int, Array]:
        return {number: ~region_U for number, region_U in self.regions.items()}


@dataclass(frozen=True, eq=False)
class HiddenRegion:
    """A region in the pictures that have patches of it (E), what hiding it does, its share in relevance and in area."""

    name: str
    outcome: HiddenUnit
    example_E: Array
    share_E: Array
    area_E: Array

    def select(self, is_chosen_E: Array) -> "HiddenRegion":
        """Return the region in some of its pictures."""
        columns = (self.example_E, self.share_E, self.area_E)
        return HiddenRegion(self.name, self.outcome.select(is_chosen_E), *(value_E[is_chosen_E] for value_E in columns))


@dataclass(frozen=True, eq=False)
class RegionHider:
    """A model, the pictures of a task, and the model's reasons for its answers to them."""

    model: Model
    task: Task
    reasons: Sequence[Reasons]
    batch_size: int | None = None

    def hide(self) -> list[HiddenRegion]:
        """Return what hiding each region in every picture does, without regions that no picture has."""
        outputs = list(self._run_chunks())
        pictures = [picture for picture, _ in outputs]
        names = list_region_names()
        regions = collect_hidden(outputs).items()
        return [self._describe(names[number], number, pictures, outcome) for number, outcome in regions]

    def _describe(self, name: str, number: int, pictures: Sequence[HiddenPicture], outcome: HiddenUnit) -> HiddenRegion:
        shown = [picture for picture in pictures if number in picture.regions]
        columns = zip(*[self._measure(picture, number) for picture in shown], strict=True)
        return HiddenRegion(name, outcome, *map(np.array, columns))

    def _measure(self, picture: HiddenPicture, region: int) -> tuple[int, float, float]:
        """Return the number of a picture, and a region's share in its relevance and in its area."""
        region_U = picture.regions[region]
        return picture.number, float(self.reasons[picture.number].shares[region_U].sum()), float(region_U.mean())

    def _run_chunks(self) -> Iterator[tuple[HiddenPicture, Array]]:
        with progress(len(self.task), "images") as advance:
            for start in range(0, len(self.task), MAX_CHUNK):
                numbers = range(start, min(start + MAX_CHUNK, len(self.task)))
                yield from self._run_pictures(numbers)
                advance(len(numbers))

    def _run_pictures(self, numbers: Sequence[int]) -> Iterator[tuple[HiddenPicture, Array]]:
        """Yield some pictures with the probabilities of all classes for each row of their masks."""
        sources = [self.task.examples[number].raw for number in numbers]
        inputs = collate(self.model, list(encode_all(self.model, sources)))
        pictures = list(map(self._mark_picture, numbers, inputs.items))
        yield from zip(pictures, self._run_masks(inputs, pictures), strict=True)

    def _run_masks(self, inputs: Inputs, pictures: Sequence[HiddenPicture]) -> Iterator[Array]:
        masks = [picture.mask() for picture in pictures]
        # The images of a batch are of one size, so all have the grid of the first.
        grid = self.reasons[pictures[0].number].grid
        features = group_features(self.model, inputs, "patch", grid=grid)
        for logits_RC in perturbed_logits(self.model, inputs, masks, features, batch_size=self.batch_size):
            yield class_probabilities(logits_RC, self.model.problem).cpu().numpy()

    def _mark_picture(self, number: int, item: Item) -> HiddenPicture:
        grid = self.reasons[number].grid
        # Pictures are explained patch by patch, which audit() has made sure of.
        assert grid is not None
        marked = mark_regions(grid, _find_background(self.task.examples[number], item, grid))
        return HiddenPicture(number, math.prod(grid), _number_regions(marked))


def _number_regions(marked: Mapping[str, Array]) -> dict[int, Array]:
    """Return the regions that have patches, by their number among all regions."""
    numbers = {name: number for number, name in enumerate(list_region_names())}
    # A subject may fill a corner, and of it nothing is left to hide.
    return {numbers[name]: region_U for name, region_U in marked.items() if region_U.any()}


def _find_background(example: Example, item: Item, grid: Grid) -> Array | None:
    """Return the patches outside the subject; None if nobody marked it."""
    if not isinstance(example.gold, Mask) or item.image is None or item.box is None:
        return None
    return find_background(example.gold, item.image.size, item.box, grid)
