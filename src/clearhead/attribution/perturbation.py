"""Methods that remove parts of the input and observe the output: any model, no gradients."""

import torch
from torch import Tensor

from clearhead.attribution.method import Attribution, method
from clearhead.attribution.perturbed_features import PerturbationOptions, draw_masks, prepare
from clearhead.attribution.sampling_error import relative_error, ridge_error
from clearhead.attribution.shapley import ORDER_TOLERANCE, sample_orders
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.perturbation.features import SEGMENTS, Features
from clearhead.validation import require_integer, require_number

KERNEL_WIDTH = 0.25
TEXT_SAMPLES = 500
SLOW_SAMPLES = 200
ALIASES = {"absent": "replacement"}
GRID_UNITS = ("patch", "grid")
"""Units that lie on a grid, so that a window of them is a square."""


@method(
    paper="Zeiler & Fergus 2014; decoded paper's Occlusion",
    signed=True,
    class_specific=True,
    needs=(),
    shares_passes=True,
    aliases=ALIASES,
)
def occlusion(
    trace: Trace,
    *,
    window: int = 1,
    unit: str | None = None,
    replacement: str | None = None,
    output: str | None = None,
    prefix: bool = True,
    segments: int = SEGMENTS,
    batch: int | None = None,
) -> Attribution:
    """Drop of the target's probability when a window of units is hidden; the mean over windows where they overlap.

    `unit` is sub-word (default), word, sentence or, in a prompt, source; for images patch (default up to 64 patches),
    grid (default above), slic or segment, where a window is a square. `replacement` says what hidden means,
    `output="logit"` explains the logit instead; of an answer the log-probability is. `prefix=False` hides units of the
    prompt only.
    """
    require_integer("window", window)
    options = PerturbationOptions(unit, replacement, output, prefix, segments, batch)
    perturbation = prepare(trace, options)
    removals = [_make_windows(trace, features, window) for features in perturbation.groups]
    masks = list(map(_keep_others, removals))
    rows = perturbation.score_rows(masks)
    values = []
    for row in rows:
        values.append(_mean_drop(row.score_N, removals[row.index]))
    # Without one sub-word of a word the others still speak: their drops do not add up to that of the word.
    return perturbation.attribute(values, perturbation.describe(rows, adds_up=False))


def _make_windows(trace: Trace, features: Features, window: int) -> Tensor:
    """Return every position of the window, as the features it removes (windows × features)."""
    if features.kind in GRID_UNITS:
        return _make_squares(*_grid_shape(trace, features), window)
    _check_order(features, window)
    return _make_runs(features.count, window)


def _check_order(features: Features, window: int) -> None:
    if features.kind == "slic" and window > 1:
        raise BadOption(f"Invalid window={window} for superpixels, which have no order: use window=1.")


def _grid_shape(trace: Trace, features: Features) -> tuple[int, int]:
    """Return the rows and columns in which the features lie."""
    if features.kind == "patch" and trace.grid:
        return trace.grid
    # The unit "grid" cuts an image into as many rows as columns.
    side = round(features.count**0.5)
    return side, side


def _make_squares(rows: int, columns: int, window: int) -> Tensor:
    """Return every square of `window` × `window` cells of a grid (squares × cells)."""
    # A square is a run of rows times a run of columns.
    return torch.kron(_make_runs(rows, window), _make_runs(columns, window))


def _make_runs(count: int, window: int) -> Tensor:
    """Return every run of `window` neighbours among `count` (runs × count)."""
    # A window that is larger than the input hides all of it.
    window = min(window, count)
    # The rows of the identity, each with its neighbours to the right.
    runs = torch.ones(count, count, dtype=torch.bool).triu().tril(window - 1)
    return runs[: count - window + 1]


def _keep_others(removed_NU: Tensor) -> Tensor:
    """Return masks that keep what is not removed, after the mask of the unchanged input."""
    return torch.cat([torch.ones_like(removed_NU[:1]), ~removed_NU])


def _mean_drop(score_N: Tensor, removed_NU: Tensor) -> Tensor:
    """Return for each feature the mean drop over the masks that remove it; the first score is the unchanged input's."""
    # Positive where the score falls without the feature.
    drop_N = score_N[0] - score_N[1:]
    weight_NU = removed_NU.to(drop_N)
    return drop_N @ weight_NU / weight_NU.sum(0)


@method(
    paper="Ribeiro et al. 2016; decoded paper's LIME",
    signed=True,
    class_specific=True,
    needs=(),
    shares_passes=True,
    aliases=ALIASES,
)
def lime(
    trace: Trace,
    *,
    samples: int | None = None,
    seed: int = 0,
    width: float = KERNEL_WIDTH,
    ridge: float = 0.01,
    unit: str | None = None,
    replacement: str | None = None,
    output: str | None = None,
    prefix: bool = True,
    segments: int = SEGMENTS,
    batch: int | None = None,
) -> Attribution:
    """Weights of a linear model fitted to the output on inputs where every unit is hidden by the toss of a coin.

    A sample weighs exp(−d² / 2·width²), d the cosine distance of its mask to the whole input; `ridge` is the penalty
    on the weights, which makes the fit unique when there are fewer samples than units. `samples` are 500 by default,
    200 for images and answers, whose passes take longer.
    """
    samples = _choose_samples(trace, samples)
    _check_fit(width, ridge)
    options = PerturbationOptions(unit, replacement, output, prefix, segments, batch)
    perturbation = prepare(trace, options)
    masks = perturbation.draw(draw_masks, samples, seed)
    rows = perturbation.score_rows(masks)
    diagnostics = perturbation.describe(rows, samples=samples, seed=seed)
    values = []
    for entry, row in zip(diagnostics, rows, strict=True):
        # Only of what the target can depend on: the fit would give chance weights to later tokens of an answer.
        mask_NK = masks[row.index][:, row.visible_U].double()
        # On the CPU: these systems are small, and CUDA has no gelsd.
        score_N = row.score_N.cpu()
        value_K = local_weights(mask_NK, score_N, width, ridge)
        entry["sampling_error"] = relative_error(_local_error(mask_NK, score_N, width, ridge), value_K)
        values.append(row.widen(value_K))
    return perturbation.attribute(values, diagnostics)


def _choose_samples(trace: Trace, samples: int | None) -> int:
    if samples is None:
        return SLOW_SAMPLES if trace.is_image or trace.model.writes else TEXT_SAMPLES
    require_integer("samples", samples)
    return samples


def _check_fit(width: float, ridge: float) -> None:
    # Comparisons that NaN fails.
    if not (width > 0 and 0 <= ridge < float("inf")):
        raise BadOption(
            f"Invalid width={width!r}, ridge={ridge!r}: the width must be above zero, the penalty finite and not below."
        )


def local_weights(mask_NU: Tensor, score_N: Tensor, width: float, ridge: float) -> Tensor:
    """Return ridge-regression weights of scores on masks, weighted by closeness to the whole input."""
    weight_N = _kernel_weights(mask_NU, width)
    share_N = weight_N / weight_N.sum()
    root_N = weight_N.sqrt()
    # Centred, so that the intercept is free of the penalty.
    centred_NU = mask_NU - share_N @ mask_NU
    centred_N = score_N - share_N @ score_N
    return _solve_ridge(centred_NU * root_N[:, None], centred_N * root_N, ridge)


def _local_error(mask_NU: Tensor, score_N: Tensor, width: float, ridge: float) -> Tensor | None:
    """Return the standard errors of `local_weights`."""
    root_N = _kernel_weights(mask_NU, width).sqrt()
    # The intercept as a last unit, which is always there and has no penalty.
    design_NV = torch.cat([mask_NU, torch.ones_like(mask_NU[:, :1])], 1)
    penalty_V = torch.full((design_NV.shape[1],), ridge, dtype=design_NV.dtype)
    penalty_V[-1] = 0
    error_V = ridge_error(design_NV * root_N[:, None], score_N * root_N, penalty_V)
    return None if error_V is None else error_V[:-1]


def _solve_ridge(design_NU: Tensor, answer_N: Tensor, ridge: float) -> Tensor:
    """Return the weights with the least squared error plus `ridge` × their squared norm."""
    # The penalty as further rows of the design: better conditioned than the normal equations.
    penalty_UU = ridge**0.5 * torch.eye(design_NU.shape[1], dtype=design_NU.dtype)
    design = torch.cat([design_NU, penalty_UU])
    return _least_squares(design, torch.cat([answer_N, answer_N.new_zeros(len(penalty_UU))]))


def _least_squares(design: Tensor, answer: Tensor) -> Tensor:
    # gelsd, because without a penalty the design may lack full rank.
    solution: Tensor = torch.linalg.lstsq(design, answer[:, None], driver="gelsd").solution
    return solution[:, 0]


def _kernel_weights(mask_NU: Tensor, width: float) -> Tensor:
    """Return exp(−d² / 2·width²), where d is the cosine distance of each mask to the whole input."""
    distance_N = 1 - mask_NU.mean(1).sqrt()
    weight_N = torch.exp(-distance_N.square() / (2 * width * width))
    _check_weights(weight_N, width)
    return weight_N


def _check_weights(weight_N: Tensor, width: float) -> None:
    # Written this way round to catch NaN too.
    if not weight_N.sum() > 0:
        raise BadOption(f"Invalid width={width!r}: it is so small that no sample weighs anything; use a larger one.")


@method(
    paper="Castro et al. 2009; decoded paper's Shapley value sampling",
    signed=True,
    class_specific=True,
    needs=(),
    shares_passes=True,
    aliases=ALIASES,
)
def shapley_sampling(
    trace: Trace,
    *,
    samples: int | None = None,
    tolerance: float = ORDER_TOLERANCE,
    seed: int = 0,
    unit: str | None = None,
    replacement: str | None = None,
    output: str | None = None,
    prefix: bool = True,
    segments: int = SEGMENTS,
    batch: int | None = None,
) -> Attribution:
    """Mean change of the output when a unit is added, over `samples` random orders of the units.

    By default orders are drawn five at a time, until the standard error is at most `tolerance` of the largest
    relevance, 25 at most, or 10 for images. The units' relevances sum to f(input) − f(everything hidden) for any number
    of samples; `effect` reports both.
    """
    require_number("tolerance", tolerance, 0)
    options = PerturbationOptions(unit, replacement, output, prefix, segments, batch)
    return sample_orders(prepare(trace, options), samples, tolerance, seed)
