"""How often noise fails the gate `clearhead check`, and how often changes do: the embedded sentiment model.

    python benchmarks/false_alarms.py --draws 40 --examples 96

Noise: copies of the model whose matrices differ by as much as rounding to eight bits changes them, one as the new
model, three others as the noise of the baseline, over many choices of both. Changes: weights rounded to eight bits and
bfloat16, which must pass; a planted word and half of the heads pruned, which must fail.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

import clearhead
from clearhead.attribution.method import default_method, parse_method
from clearhead.data.task import Example, Task
from clearhead.drift.compare_models import compare_snapshots
from clearhead.drift.gate import judge_release
from clearhead.drift.noise import describe_draw
from clearhead.drift.snapshot import Survey
from clearhead.evaluation.distributions import share_bounds
from clearhead.model.placement import with_precision
from clearhead.model.weight_noise import with_weight_noise
from clearhead.model_diff import Noise, NoiseDraw, Snapshot
from training.planted import TOKEN, make_reviews, plant

BASELINE_DRAWS = 3


def make_task(examples: int) -> Task:
    texts, labels = make_reviews(examples, 999, token=TOKEN)
    rows = enumerate(zip(texts, labels, strict=True))
    return Task("reviews", [Example(str(number), text, label) for number, (text, label) in rows])


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
    parser.add_argument("--model", default="clearhead/sst2-minilm")
    arguments = parser.parse_args(argv)
    model = clearhead.load(arguments.model)
    survey = Survey(make_task(arguments.examples), parse_method(default_method(model)))
    base = survey.take(model)
    noisy = [survey.take(with_weight_noise(model, seed)) for seed in range(arguments.draws)]
    draws = [describe_draw(str(seed), base.examples, copy.examples) for seed, copy in enumerate(noisy)]
    failed: dict[str, int] = {}
    for baseline, new in draw_baselines(base, draws, arguments.repeats):
        result = judge_release(compare_snapshots(baseline, noisy[new]))
        for name in ["any", *[condition.name for condition in result.failed]]:
            failed[name] = failed.get(name, 0) + (not result.passes)
    for name, count in failed.items():
        print(f"false alarms, {name}: {count / arguments.repeats:.2%}")
    # Of independent copies there are only as many as draws.
    print("interval by independent copies:", np.round(share_bounds(0, arguments.draws, 0.95), 3))
    baseline = replace(base, noise=Noise(tuple(draws[:BASELINE_DRAWS])))
    planted = plant(model) if arguments.model.endswith("sst2-minilm") else None
    for name, other in (("bfloat16", with_precision(model, "bfloat16")), ("planted word", planted)):
        if other is not None:
            print(f"{name}: {judge_release(compare_snapshots(baseline, survey.take(other))).summary}")


if __name__ == "__main__":
    main()
