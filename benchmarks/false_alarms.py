"""How often noise fails the gate `clearhead check`, and how often changes do: the embedded sentiment model.

    python benchmarks/false_alarms.py --draws 40 --examples 96 --scale 8

Noise: copies of the model whose matrices differ by as much as rounding to eight bits changes them (times `--scale`),
one as the new model, three others as the noise of the baseline, over many choices of both. Changes: bfloat16, which
must pass, and a planted word, which must fail.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

import clearhead
from clearhead.attribution.method import default_method, parse_method
from clearhead.data.task import Example, Task
from clearhead.drift.audit_words import measure_mean
from clearhead.drift.compare_models import compare_snapshots
from clearhead.drift.gate import judge_release
from clearhead.drift.noise import describe_draw
from clearhead.drift.snapshot import Survey
from clearhead.model.model import Model
from clearhead.model.placement import with_precision
from clearhead.model.weight_noise import with_weight_noise
from clearhead.model_diff import Noise, NoiseDraw, Snapshot
from training.planted import TOKEN, make_reviews, plant

BASELINE_DRAWS = 3


def make_task(examples: int) -> Task:
    texts, labels = make_reviews(examples, 999, token=TOKEN)
    rows = enumerate(zip(texts, labels, strict=True))
    return Task("reviews", [Example(str(number), text, label) for number, (text, label) in rows])


def add_noise(model: Model, seed: int, scale: float) -> Model:
    """Return a copy with a multiple of the noise of rounding to eight bits."""
    noisy = with_weight_noise(model, seed)
    with torch.no_grad():
        for weight, original in zip(noisy.network.parameters(), model.network.parameters(), strict=True):
            weight.copy_(original + scale * (weight - original))
    return noisy


def draw_baselines(base: Snapshot, draws: Sequence[NoiseDraw], repeats: int) -> Iterator[tuple[Snapshot, int]]:
    """Yield baselines with the noise of a few draws, and the number of another draw, the new model."""
    numbers = random.Random(0)
    for _ in range(repeats):
        new, *others = numbers.sample(range(len(draws)), BASELINE_DRAWS + 1)
        yield replace(base, noise=Noise(tuple(draws[number] for number in others))), new


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--examples", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--scale", type=float, default=1)
    arguments = parser.parse_args(argv)
    model = clearhead.load("clearhead/sst2-minilm")
    survey = Survey(make_task(arguments.examples), parse_method(default_method(model)))
    base = survey.take(model)
    noisy = [survey.take(add_noise(model, seed, arguments.scale)) for seed in range(arguments.draws)]
    draws = [describe_draw(str(seed), base.examples, copy.examples) for seed, copy in enumerate(noisy)]
    print(f"mean shift by noise: {np.mean([draw.shift_N.mean() for draw in draws]):.2%}")
    alarms: dict[int, list[bool]] = {}
    failed: Counter[str] = Counter()
    for baseline, new in draw_baselines(base, draws, arguments.repeats):
        result = judge_release(compare_snapshots(baseline, noisy[new]))
        alarms.setdefault(new, []).append(not result.passes)
        failed.update(condition.name for condition in result.failed)
    # Independent are only the copies, not the choices of them.
    rate = measure_mean(np.array([np.mean(values) for values in alarms.values()]))
    print(f"false alarms: {rate.value:.2%} ({rate.low:.2%} … {rate.high:.2%}) over {rate.n} copies")
    print(f"conditions that failed in {arguments.repeats} checks: {dict(failed)}")
    baseline = replace(base, noise=Noise(tuple(draws[:BASELINE_DRAWS])))
    for name, other in (("bfloat16", with_precision(model, "bfloat16")), ("planted word", plant(model))):
        print(f"{name}: {judge_release(compare_snapshots(baseline, survey.take(other))).summary}")


if __name__ == "__main__":
    main()
