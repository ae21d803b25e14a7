"""How often the gate `clearhead check` fails though nothing changed but noise: the embedded sentiment model.

    python benchmarks/false_alarms.py --source weights
    python benchmarks/false_alarms.py --source seeds --copies 26

A source makes copies of the model that must pass: with noise in the weights as large as rounding to eight bits
(`weights`, times `--scale`), with weights rounded to eight bits (`int8`) or to bfloat16, up or down by chance so that
there are many such roundings, or fine-tuned by the same recipe with other seeds (`seeds`: training/planted.py). Each
check draws the examples, the copy, and the noise of the baseline anew: three copies with weight noise, or of `seeds`
the baseline and three others of them. Snapshots of copies are kept in `--folder`, so that a run can be continued.
"""

import argparse
import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import clearhead
from clearhead.attribution.method import default_method, parse_method
from clearhead.data.task import Example, Task
from clearhead.drift.compare_models import compare_snapshots
from clearhead.drift.gate import GateResult, judge_release
from clearhead.drift.noise import DRAWS, describe_draw
from clearhead.drift.snapshot import Survey
from clearhead.drift.snapshot_file import read_snapshot, write_snapshot
from clearhead.evaluation.distributions import share_bounds
from clearhead.evaluation.statistics import LEVEL
from clearhead.model.model import Model
from clearhead.model.weight_noise import int8_step, with_weight_noise
from clearhead.model_diff import Noise, Snapshot
from training.planted import TOKEN, make_reviews, plant

POOL = 96
"""Reviews from which the examples of each check are drawn."""
BFLOAT16_DIGITS = 8


def make_task(examples: int) -> Task:
    texts, labels = make_reviews(examples, 999, token=TOKEN)
    rows = enumerate(zip(texts, labels, strict=True))
    return Task("reviews", [Example(str(number), text, label) for number, (text, label) in rows])


def change_matrices(model: Model, change: Callable[[Tensor], Tensor]) -> Model:
    """Return a copy with other matrices."""
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                weight.copy_(change(weight))
    return replace(model, network=network, copies={})


def round_by_chance(step: Callable[[Tensor], Tensor], generator: torch.Generator, weight: Tensor) -> Tensor:
    """Round up or down by chance, in proportion to the distance: on average nothing changes."""
    return torch.floor(weight / step(weight) + torch.rand(weight.shape, generator=generator)) * step(weight)


def column_step(weight: Tensor) -> Tensor:
    # The embedded weights are rounded by rows already.
    return int8_step(weight.T).T


def bfloat16_step(weight: Tensor) -> Tensor:
    """Return the distance of two numbers of bfloat16 at each weight."""
    smallest = torch.finfo(torch.float32).tiny
    exponent = torch.floor(torch.log2(weight.abs().clamp_min(smallest)))
    return torch.exp2(exponent - BFLOAT16_DIGITS + 1)


def add_noise(model: Model, seed: int, scale: float) -> Model:
    """Return a copy with a multiple of the noise of rounding to eight bits."""
    noisy = with_weight_noise(model, seed)
    with torch.no_grad():
        for weight, original in zip(noisy.network.parameters(), model.network.parameters(), strict=True):
            weight.copy_(original + scale * (weight - original))
    return noisy


def make_copy(model: Model, source: str, seed: int, scale: float) -> Model:
    """Return a copy of the model that differs by noise."""
    if source == "weights":
        return add_noise(model, seed, scale)
    if source == "seeds":
        return plant(model, seed=seed, is_plain=True)
    steps = {"int8": column_step, "bfloat16": bfloat16_step}
    generator = torch.Generator().manual_seed(seed)
    return change_matrices(model, partial(round_by_chance, steps[source], generator))


@dataclass(frozen=True)
class Copies:
    """Makes snapshots of copies, and keeps them in a folder."""

    model: Model
    survey: Survey
    folder: Path

    def take(self, source: str, count: int, scale: float = 1) -> list[Snapshot]:
        return [self._take(source, seed, scale) for seed in range(count)]

    def _take(self, source: str, seed: int, scale: float) -> Snapshot:
        path = self.folder / f"{source}-{scale:g}-{seed}.json"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_snapshot(self.survey.take(make_copy(self.model, source, seed, scale)), path)
        return read_snapshot(path)


@dataclass(frozen=True)
class Check:
    """Numbers of the copies in one check: the new model, those that are the noise of the baseline; and its examples."""

    new: int
    draws: Sequence[int]
    examples: Sequence[int]
    base: int | None = None


def draw_checks(checks: int, examples: int, copies: int, noisy: int | None) -> Iterator[Check]:
    """Yield checks; `noisy` copies have weight noise, None if the noise is that of the copies themselves."""
    numbers = random.Random(0)
    for _ in range(checks):
        rows = sorted(numbers.sample(range(POOL), examples))
        if noisy is None:
            base, new, *draws = numbers.sample(range(copies), DRAWS + 2)
            yield Check(new, draws, rows, base)
        else:
            new = numbers.randrange(copies)
            # Where both are weight noise, no copy is its own noise.
            others = [number for number in range(noisy) if number != new]
            yield Check(new, numbers.sample(others, DRAWS), rows)


def select_examples(saved: Snapshot, rows: Sequence[int]) -> Snapshot:
    return replace(saved, examples=tuple(saved.examples[row] for row in rows))


def run_check(original: Snapshot, noisy: Sequence[Snapshot], copies: Sequence[Snapshot], check: Check) -> GateResult:
    base = original if check.base is None else copies[check.base]
    baseline = select_examples(base, check.examples)
    others = [select_examples(noisy[number], check.examples) for number in check.draws]
    draws = [describe_draw(other.model, baseline.examples, other.examples) for other in others]
    new = select_examples(copies[check.new], check.examples)
    return judge_release(compare_snapshots(replace(baseline, noise=Noise(tuple(draws))), new))


def report(source: str, results: Mapping[int, Sequence[GateResult]]) -> None:
    """Print the rate of alarms, with an exact interval for as many checks as there are copies."""
    everything = list(chain.from_iterable(results.values()))
    alarms = sum(not result.passes for result in everything)
    rate = alarms / len(everything)
    # Independent are only the copies, not the choices of examples and noise that each is checked with.
    low, high = share_bounds(round(rate * len(results)), len(results), LEVEL)
    shift = np.mean([result.diff.shift for result in everything])
    failed = Counter(condition.name for result in everything for condition in result.failed)
    print(f"{source}: {alarms} of {len(everything)} checks failed, with {len(results)} copies; mean shift {shift:.2%}")
    print(f"  false alarms {rate:.1%} (95 % interval {low:.1%} … {high:.1%}); failed conditions: {dict(failed)}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", choices=("weights", "int8", "bfloat16", "seeds"), default="weights")
    parser.add_argument("--scale", type=float, default=1, help="of the noise in the weights")
    parser.add_argument("--copies", type=int, default=80)
    parser.add_argument("--examples", type=int, default=48)
    parser.add_argument("--checks", type=int, default=400)
    parser.add_argument("--folder", type=Path, default=Path("runs/false-alarms"))
    arguments = parser.parse_args(argv)
    model = clearhead.load("clearhead/sst2-minilm")
    survey = Survey(make_task(POOL), parse_method(default_method(model)))
    folder = Copies(model, survey, arguments.folder)
    copies = folder.take(arguments.source, arguments.copies, arguments.scale)
    noisy = copies
    if arguments.source != "seeds":
        noisy = folder.take("weights", arguments.copies, arguments.scale)
    original = survey.take(model)
    count = None if arguments.source == "seeds" else arguments.copies
    results: dict[int, list[GateResult]] = {}
    for check in draw_checks(arguments.checks, arguments.examples, arguments.copies, count):
        results.setdefault(check.new, []).append(run_check(original, noisy, copies, check))
    report(f"{arguments.source}, scale {arguments.scale:g}, {arguments.examples} examples", results)


if __name__ == "__main__":
    main()
