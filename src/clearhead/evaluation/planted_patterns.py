"""Evidence in images: a square of pixels that turns the prediction, of a model that is left as it is.

The pixels are trained as those of an adversarial patch (Brown et al. 2017), within the range of the images' own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from clearhead.arrays import Array
from clearhead.attribution.batch_sizes import select_rows
from clearhead.evaluation.planting import (
    TRAINING_INPUTS,
    Planting,
    Training,
    choose_targets,
    is_turned,
    list_rows,
    run_inputs,
    run_network,
)
from clearhead.model.inputs import Encoded, Inputs, collate
from clearhead.model.model import Model

# Side of the painted square as a share of the image: a few patches.
SIDE = 0.2
# Each takes as long to train as hundreds of passes.
PATTERNS = 2

Shares = tuple[float, float, float, float]
"""Left, top, right and bottom, as shares of the image."""


@dataclass(frozen=True)
class Square:
    """A square in an image, in pixels."""

    top: int
    left: int
    side: int

    @property
    def right(self) -> int:
        return self.left + self.side

    @property
    def bottom(self) -> int:
        return self.top + self.side

    def paint(self, pixels_CPQ: Tensor, pattern_CPQ: Tensor) -> None:
        """Paint a pattern over the square, in the tensor itself."""
        pixels_CPQ[:, self.top : self.bottom, self.left : self.right] = pattern_CPQ

    def as_shares(self, height: int, width: int) -> Shares:
        """Return its edges as shares of the image."""
        return self.left / width, self.top / height, self.right / width, self.bottom / height


def plant_patterns(model: Model, encoded: Sequence[Encoded], generator: np.random.Generator) -> Planting:
    """Paint a square of every image with pixels that turn the prediction."""
    inputs = collate(model, encoded)
    before_NC = run_inputs(model, inputs)
    targets = choose_targets(before_NC, PATTERNS)
    height, width = inputs.tensors["pixel_values"].shape[-2:]
    squares = [_draw_square(height, width, generator) for _ in encoded]
    painted = _paint_all(model, inputs, squares, targets)
    decides = is_turned(before_NC, run_inputs(model, painted), targets)
    locations = [square.as_shares(height, width) for square in squares]
    return Planting(model, painted, targets, locations, decides)


def _paint_all(model: Model, inputs: Inputs, squares: Sequence[Square], targets: Sequence[int]) -> Inputs:
    """Return the images, each with the pattern of its class in its square."""
    painted = inputs
    for target in sorted(set(targets)):
        rows = list_rows(targets, target)
        pattern_CPQ = _train_pattern(model, inputs, rows[:TRAINING_INPUTS], squares, target)
        painted = _paint_rows(painted, rows, squares, pattern_CPQ)
    return painted


def _draw_square(height: int, width: int, generator: np.random.Generator) -> Square:
    side = max(1, round(SIDE * min(height, width)))
    top = _draw_edge(height, side, generator)
    left = _draw_edge(width, side, generator)
    return Square(top, left, side)


def _draw_edge(length: int, side: int, generator: np.random.Generator) -> int:
    """Return where a square begins that lies within a length."""
    return int(generator.integers(length - side + 1))


def _paint_rows(inputs: Inputs, rows: Sequence[int], squares: Sequence[Square], pattern_CPQ: Tensor) -> Inputs:
    """Return the images with the pattern painted into some of them."""
    pixels_NCPQ = inputs.tensors["pixel_values"].clone()
    for row in rows:
        squares[row].paint(pixels_NCPQ[row], pattern_CPQ)
    return Inputs({**inputs.tensors, "pixel_values": pixels_NCPQ}, inputs.items)


def _train_pattern(model: Model, inputs: Inputs, rows: list[int], squares: Sequence[Square], target: int) -> Tensor:
    selected = select_rows(inputs, rows)
    pixels_NCPQ = selected.tensors["pixel_values"]
    own_squares = [squares[row] for row in rows]
    run = partial(_run_painted, model, selected, own_squares)
    # Pixels are normalised: their spread is about 1.
    training = Training(model, target, 1.0, run, _keep_range(pixels_NCPQ))
    return training.train(_make_grey(pixels_NCPQ, squares[0].side))


def _keep_range(pixels_NCPQ: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what limits numbers to the range of the pixels."""
    return partial(torch.clamp, min=pixels_NCPQ.min(), max=pixels_NCPQ.max())


def _make_grey(pixels_NCPQ: Tensor, side: int) -> Tensor:
    """Return a square in the middle of the range of the pixels."""
    return torch.full_like(pixels_NCPQ[0, :, :side, :side], _find_middle(pixels_NCPQ))


def _find_middle(pixels_NCPQ: Tensor) -> float:
    return float(pixels_NCPQ.min() + pixels_NCPQ.max()) / 2


def _run_painted(model: Model, inputs: Inputs, squares: Sequence[Square], pattern_CPQ: Tensor) -> Tensor:
    painted = _paint_rows(inputs, range(len(inputs)), squares, pattern_CPQ)
    return run_network(model, painted.tensors)


def mark_patches(location: Shares, grid: tuple[int, int]) -> Array:
    """Return True for each patch (rows × columns) whose middle lies in the square."""
    left, top, right, bottom = location
    rows, columns = grid
    is_row = _lie_between(rows, top, bottom)
    is_column = _lie_between(columns, left, right)
    return is_row[:, None] & is_column


def _lie_between(count: int, low: float, high: float) -> Array:
    middles = (np.arange(count) + 0.5) / count
    return (middles > low) & (middles < high)
