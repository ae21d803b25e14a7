"""The training loop of every stage: seeded by step, resumable, with a progress line."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


@dataclass(frozen=True)
class Plan:
    """How one stage is optimised: AdamW (or SGD with momentum), linear warm-up, cosine decay."""

    steps: int
    rate: float
    weight_decay: float = 0.05
    warmup: float = 0.06
    average: float = 0.0
    momentum: bool = False
    checkpoint_seconds: float = 60.0


def select_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def half_precision() -> Iterator[None]:
    """Compute in bfloat16 on a GPU, in float32 on a CPU."""
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
        yield


def learning_rate(step: int, plan: Plan) -> float:
    warm = max(1, int(plan.warmup * plan.steps))
    if step < warm:
        return plan.rate * (step + 1) / warm
    return plan.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, plan.steps - warm)))


@lru_cache(maxsize=4)
def _shuffle_rows(count: int, epoch: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1000 + epoch))


def select_rows(step: int, *, size: int, count: int, seed: int) -> Tensor:
    """Return the rows of a step; every epoch is one permutation, so a resumed run sees the same rows."""
    size = min(size, count)
    steps_per_epoch = count // size
    epoch, position = divmod(step, steps_per_epoch)
    return _shuffle_rows(count, epoch, seed)[position * size : (position + 1) * size]


def count_steps(epochs: float, *, size: int, count: int) -> int:
    return max(1, int(epochs * (count // min(size, count))))


def fit(
    name: str, model: nn.Module, loss_at: Callable[[int], Tensor], plan: Plan, folder: Path, *, seed: int
) -> nn.Module:
    """Train the parameters that require gradients; return the model, averaged if the plan says so.

    `loss_at(step)` draws its own rows. An interrupted stage resumes from its last checkpoint.
    """
    optimizer = _make_optimizer(model, plan)
    averaged = _make_average(model, plan)
    checkpoint = folder / f"{name}.checkpoint.pt"
    first = _resume(checkpoint, model, averaged, optimizer)
    started = saved = time.monotonic()
    for step in range(first, plan.steps):
        # Seeded per step, so that a resumed run draws the same random numbers.
        torch.manual_seed(seed * 1_000_003 + step)
        loss = _advance(model, loss_at, optimizer, step, plan)
        if averaged is not None:
            averaged.update_parameters(model)
        if step % max(1, plan.steps // 40) == 0 or step + 1 == plan.steps:
            _print_progress(name, step, first, plan, float(loss), started)
        if time.monotonic() - saved > plan.checkpoint_seconds:
            _save(checkpoint, step + 1, model, averaged, optimizer)
            saved = time.monotonic()
    checkpoint.unlink(missing_ok=True)
    if averaged is not None:
        model.load_state_dict(averaged.module.state_dict())
    return model.eval()


def _advance(
    model: nn.Module,
    loss_at: Callable[[int], Tensor],
    optimizer: torch.optim.Optimizer,
    step: int,
    plan: Plan,
) -> Tensor:
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, plan)
    loss = loss_at(step)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0 if not plan.momentum else 5.0)
    optimizer.step()
    return loss.detach()


def _make_optimizer(model: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    trained = [p for p in model.parameters() if p.requires_grad]
    # Biases and norms (one axis) are not decayed.
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": plan.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if plan.momentum:
        return torch.optim.SGD(groups, lr=plan.rate, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.98), fused=torch.cuda.is_available())


def _make_average(model: nn.Module, plan: Plan) -> AveragedModel | None:
    if not plan.average:
        return None
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(plan.average))


def _resume(
    checkpoint: Path, model: nn.Module, averaged: AveragedModel | None, optimizer: torch.optim.Optimizer
) -> int:
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, map_location=select_device(), weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if averaged is not None:
        averaged.load_state_dict(state["averaged"])
    return int(state["step"])


def _save(
    checkpoint: Path,
    step: int,
    model: nn.Module,
    averaged: AveragedModel | None,
    optimizer: torch.optim.Optimizer,
) -> None:
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if averaged is not None:
        state["averaged"] = averaged.state_dict()
    # Written beside and renamed: a run killed while it writes keeps the last checkpoint.
    unfinished = checkpoint.with_suffix(".part")
    torch.save(state, unfinished)
    unfinished.replace(checkpoint)


def _print_progress(name: str, step: int, first: int, plan: Plan, loss: float, started: float) -> None:
    spent = time.monotonic() - started
    left = spent / (step + 1 - first) * (plan.steps - step - 1)
    print(
        f"{name:<18} step {step + 1:>6}/{plan.steps}  loss {loss:7.4f}  rate {learning_rate(step, plan):.2e}"
        f"  {spent:6.0f} s  {left:5.0f} s left",
        flush=True,
    )


def save_stage(model: nn.Module, path: Path) -> None:
    """Write the weights of a finished stage; tied tensors, which safetensors refuses, are written once."""
    state: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, value in model.state_dict().items():
        if value.data_ptr() in seen and value.numel():
            continue
        seen.add(value.data_ptr())
        state[key] = value.detach().cpu().contiguous()
    save_file(state, path)


def load_stage(model: nn.Module, path: Path) -> nn.Module:
    """Load what `save_stage` wrote."""
    missing, unexpected = model.load_state_dict(load_file(path), strict=False)
    tied = {key for key in missing if "decoder" in key or "position_ids" in key}
    if unexpected or set(missing) - tied:
        raise ValueError(f"{path.name} does not fit the model: {sorted(set(missing) - tied) or unexpected}")
    return model.eval()
