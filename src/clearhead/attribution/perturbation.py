"""Methods that hide parts of the input and watch the output: any model, no gradients."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.attribution.method import Attribution, method
from clearhead.attribution.seeding import make_generator
from clearhead.engine.trace import Trace
from clearhead.errors import BadOption
from clearhead.perturbation.features import SEGMENTS, Features, group_features
from clearhead.perturbation.replacement import resolve_replacement
from clearhead.perturbation.run import perturbed_scores
from clearhead.validation import require_integer

KERNEL_WIDTH = 0.25


@method(paper="Zeiler & Fergus 2014; decoded paper's Occlusion", signed=True, class_specific=True)
def occlusion(
    trace: Trace,
    *,
    window: int = 1,
    unit: str | None = None,
    absent: str | None = None,
    output: str = "probability",
    segments: int = SEGMENTS,
    batch: int | None = None,
) -> Attribution:
    """Drop of the target's probability when a window of units is hidden; the mean over windows where they overlap.

    `unit` is sub-word (default), word or sentence; for images patch (default), grid, slic or segment, where a window
    is a square. `absent` says what hidden means, `output="logit"` explains the logit instead.
    """
    require_integer("window", window)
    units = _units(trace, unit, segments)
    windows = [_windows(trace, one, window) for one in units]
    masks = [torch.cat([torch.ones(1, one.count, dtype=torch.bool), ~w]) for one, w in zip(units, windows, strict=True)]
    found = _scores(trace, masks, units, output, absent, batch)
    values = [_mean_drop(scores, hidden) for scores, hidden in zip(found, windows, strict=True)]
    return _spread(trace, units, values, _told(trace, units, absent, output))


def _windows(trace: Trace, units: Features, window: int) -> Tensor:
    """Every place of the window, as the units it hides (windows × units)."""
    if units.kind in ("patch", "grid"):
        rows, columns = trace.grid if units.kind == "patch" and trace.grid else (round(units.count**0.5),) * 2
        down, across = _runs(rows, window), _runs(columns, window)
        return (down[:, None, :, None] & across[None, :, None, :]).reshape(-1, units.count)
    if units.kind == "slic" and window > 1:
        raise BadOption(f"window={window} makes no sense for superpixels, which have no order: use window=1.")
    return _runs(units.count, window)


def _runs(count: int, window: int) -> Tensor:
    window = min(window, count)
    starts = torch.arange(count - window + 1)[:, None]
    places = torch.arange(count)[None, :]
    return (places >= starts) & (places < starts + window)


def _mean_drop(scores: Tensor, hidden_NU: Tensor) -> Tensor:
    drop_N = scores[0] - scores[1:]
    hides_NU = hidden_NU.to(drop_N)
    return drop_N @ hides_NU / hides_NU.sum(0)


@method(paper="Ribeiro et al. 2016; decoded paper's LIME", signed=True, class_specific=True)
def lime(
    trace: Trace,
    *,
    samples: int = 25,
    seed: int = 0,
    width: float = KERNEL_WIDTH,
    ridge: float = 0.01,
    unit: str | None = None,
    absent: str | None = None,
    output: str = "probability",
    segments: int = SEGMENTS,
    batch: int | None = None,
) -> Attribution:
    """Weights of a linear model fitted to the output on inputs where every unit is hidden by the toss of a coin.

    A sample weighs exp(−d² / 2·width²), d the cosine distance of its mask to the whole input; `ridge` is the penalty
    on the weights, which makes the fit unique when there are fewer samples than units.
    """
    require_integer("samples", samples)
    if not (width > 0 and 0 <= ridge < float("inf")):
        raise BadOption(
            f"width={width!r}, ridge={ridge!r}: the width must be above zero, the penalty finite and not below."
        )
    units = _units(trace, unit, segments)
    masks = [_coins(trace, place, one, samples, seed) for place, one in enumerate(units)]
    found = _scores(trace, masks, units, output, absent, batch)
    values = [local_weights(mask.double(), score.cpu(), width, ridge) for mask, score in zip(masks, found, strict=True)]
    return _spread(trace, units, values, _told(trace, units, absent, output, samples=samples, seed=seed))


def _coins(trace: Trace, place: int, units: Features, samples: int, seed: int) -> Tensor:
    return torch.rand(samples, units.count, dtype=torch.float32, generator=make_generator(trace, place, seed)) < 0.5


def local_weights(mask_NU: Tensor, score_N: Tensor, width: float, ridge: float) -> Tensor:
    """Ridge regression of scores on masks, weighted by closeness to the whole input; the intercept is free."""
    distance_N = 1 - mask_NU.mean(1).sqrt()
    weight_N = torch.exp(-distance_N.square() / (2 * width * width))
    if not weight_N.sum() > 0:
        raise BadOption(f"width={width!r} is so small that no sample weighs anything: use a larger one.")
    share_N = weight_N / weight_N.sum()
    centred_NU = mask_NU - share_N @ mask_NU
    centred_N = score_N - share_N @ score_N
    root_N = weight_N.sqrt()
    penalty_UU = ridge**0.5 * torch.eye(mask_NU.shape[1], dtype=mask_NU.dtype)
    design = torch.cat([centred_NU * root_N[:, None], penalty_UU])
    answer = torch.cat([centred_N * root_N, score_N.new_zeros(len(penalty_UU))])
    solution: Tensor = torch.linalg.lstsq(design, answer[:, None], driver="gelsd").solution
    return solution[:, 0]


@method(paper="Castro et al. 2009; decoded paper's Shapley value sampling", signed=True, class_specific=True)
def shapley_sampling(
    trace: Trace,
    *,
    samples: int = 25,
    seed: int = 0,
    unit: str | None = None,
    absent: str | None = None,
    output: str = "probability",
    segments: int = SEGMENTS,
    batch: int | None = None,
) -> Attribution:
    """Mean change of the output when a unit is added, over `samples` random orders of the units.

    The units' relevances sum to f(input) − f(everything hidden) for any number of samples; `effect` reports it.
    """
    require_integer("samples", samples)
    units = _units(trace, unit, segments)
    orders = [_orders(trace, place, one, samples, seed) for place, one in enumerate(units)]
    found = _scores(trace, [_growing(order_NU) for order_NU in orders], units, output, absent, batch)
    values = [mean_gains(score, order_NU) for score, order_NU in zip(found, orders, strict=True)]
    effects = [float(score[-1] - score[0]) for score in found]
    told = _told(trace, units, absent, output, samples=samples, seed=seed)
    diagnostics = [{**one, "effect": effect} for one, effect in zip(told, effects, strict=True)]
    return _spread(trace, units, values, diagnostics)


def _orders(trace: Trace, place: int, units: Features, samples: int, seed: int) -> Tensor:
    drawn = make_generator(trace, place, seed)
    return torch.stack([torch.randperm(units.count, generator=drawn) for _ in range(samples)])


def _growing(order_NU: Tensor) -> Tensor:
    """For each order the masks on the way from nothing to everything (orders · (units + 1), units)."""
    rank_NU = order_NU.argsort(1)
    return (rank_NU[:, None, :] < torch.arange(order_NU.shape[1] + 1)[None, :, None]).flatten(0, 1)


def mean_gains(score: Tensor, order_NU: Tensor) -> Tensor:
    """The gain at each unit's entry, averaged over the orders."""
    gain_NU = score.reshape(len(order_NU), -1).diff(dim=1)
    return gain_NU.gather(1, order_NU.argsort(1).to(gain_NU.device)).mean(0)


# --- between units and tokens -----------------------------------------------------------------------------------


def _units(trace: Trace, unit: str | None, segments: int) -> list[Features]:
    require_integer("segments", segments)
    return group_features(trace.model, trace.inputs, unit, grid=trace.grid, segments=segments)


def _scores(
    trace: Trace, masks: list[Tensor], units: list[Features], output: str, absent: str | None, batch: int | None
) -> list[Tensor]:
    return perturbed_scores(
        trace.model, trace.inputs, masks, trace.targets, units, output=output, replacement=absent, batch_size=batch
    )


def _told(
    trace: Trace, units: Sequence[Features], absent: str | None, output: str, **more: Any
) -> list[dict[str, Any]]:
    meant = resolve_replacement(trace.model, trace.inputs, absent)
    shown = "score" if trace.model.problem == "regression" else output
    return [{"absent": meant, "unit": one.kind, "units": one.count, "output": shown, **more} for one in units]


def _spread(
    trace: Trace, units: Sequence[Features], values: Sequence[Tensor], diagnostics: Sequence[Any]
) -> Attribution:
    """A unit's relevance shared equally among its tokens or pixels, so that sums stay; special tokens get none."""
    shared = torch.stack([_shared(one, value) for one, value in zip(units, values, strict=True)])
    if not trace.is_image:
        return Attribution(shared, diagnostics=diagnostics)
    pixels_BPQ = shared.reshape(len(units), *trace.leaf.shape[-2:])
    shown = None if units[0].kind == "patch" else pixels_BPQ
    return Attribution(trace.patches(pixels_BPQ), pixels_BPQ=shown, diagnostics=diagnostics)


def _shared(units: Features, value_U: Tensor) -> Tensor:
    sizes_U = torch.bincount(units.labels.flatten(), minlength=units.count + 1)[1:]
    each = torch.cat([value_U.new_zeros(1), value_U / sizes_U.to(value_U)])
    return each[units.labels.flatten().to(each.device)]
