"""Verdicts of the check over the embedded models: of random, reversed and real explanations.

    python benchmarks/check_calibration.py [--data ../shared/data] [--inputs 100] [--photos 20] [--random 5] \\
        [--device cpu]

For inputs spread evenly over the test sets: the share of random explanations that hold (5 % or less, with the exact
95 % interval of Clopper and Pearson), of the default method's reversed, and of real methods. Beside them the share on
which a method is better than 20 random orders are on average, by the area over the curve of the predicted class's
probability as the first 10, 20 … 50 % of the words are masked (patches made black).
"""

import argparse
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from precision import TEXTS, read_inputs
from scipy.stats import binomtest
from yardstick import command

import clearhead
from clearhead.explanation import Explanation
from clearhead.model.inputs import as_inputs
from clearhead.model.model import Model
from clearhead.perturbation.curves import random_orders, rank_order, score_orders
from clearhead.perturbation.features import group_features
from clearhead.perturbation.ranking import removal_counts
from clearhead.trust.removal_check import check_explanations

ROOT = Path(__file__).parents[1]
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
ORDERS = 20
HEAD = [
    "| model | explanations | checked | holds | 95 % interval | weak | fails | better than random by AOPC |",
    "|---|---|---|---|---|---|---|---|",
]


@dataclass
class Tally:
    """Verdicts on one kind of explanation, and on which inputs it is better than random orders."""

    verdicts: Counter[str] = field(default_factory=Counter)
    better: list[bool] = field(default_factory=list)

    def add(self, explanations: Sequence[Explanation]) -> None:
        self.verdicts.update(own.check.verdict for own in explanations if own.check is not None)

    def describe(self, name: str, title: str) -> str:
        count = self.verdicts.total()
        interval = binomtest(self.verdicts["holds"], count).proportion_ci()
        shares = [f"{self.verdicts[verdict] / count:.1%}" for verdict in ("holds", "weak", "fails")]
        better = f"{np.mean(self.better):.0%}" if self.better else ""
        row = f"| {name} | {title} | {count} | {shares[0]} | {interval.low:.1%}–{interval.high:.1%} | "
        row += f"{shares[1]} | {shares[2]} | {better} |"
        print(row, flush=True)
        return row


def compare_with_random(model: Model, source: Any, explanations: Sequence[Explanation]) -> list[bool]:
    """Whether each explanation's area over the curve is larger than the mean over random orders."""
    inputs = as_inputs(model, [source])
    (features,) = group_features(model, inputs, None if model.takes_images else "word")
    orders = [rank_order(explanation, features) for explanation in explanations]
    counts = removal_counts(SHARES, features.count)
    every_order = [*orders, *random_orders(features.count, ORDERS)]
    falls = -score_orders(model, inputs, explanations[0].target, every_order, counts, features=features).mean(1)
    return list(falls[: len(orders)] > falls[len(orders) :].mean())


def measure(model: Model, inputs: list[Any], methods: Sequence[str], draws: int) -> list[str]:
    """The rows of one model."""
    tallies = {title: Tally() for title in ("random", f"{methods[0]} reversed", *methods)}
    generator = np.random.default_rng(0)
    for source in inputs:
        explanations = list(clearhead.compare(model, source, methods, check=False).values())
        first = explanations[0]
        # Around zero: sums of positive noise would favour words of many tokens, which are rare and matter more.
        noise_NT = generator.standard_normal((draws, len(first.relevance)))
        others = [replace(first, relevance=noise_T) for noise_T in noise_NT]
        others.append(replace(first, relevance=-first.relevance))
        (checked,) = check_explanations(model, as_inputs(model, [source]), [[*others, *explanations]])
        tallies["random"].add(checked[:draws])
        for title, explanation in zip(list(tallies)[1:], checked[draws:], strict=True):
            tallies[title].add([explanation])
        for method, is_better in zip(methods, compare_with_random(model, source, explanations), strict=True):
            tallies[method].better.append(bool(is_better))
    return [tally.describe(model.name.removeprefix("clearhead/"), title) for title, tally in tallies.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--inputs", type=int, default=100)
    parser.add_argument("--photos", type=int, default=20)
    parser.add_argument("--random", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=[*TEXTS, "pets-vit"])
    parser.add_argument("--methods", nargs="+", default=["balanced-cat", "integrated-gradients", "trans-att"])
    name = f"{date.today()}-check-calibration.md"
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / name)
    options = parser.parse_args()
    rows = []
    for name in options.models:
        inputs = read_inputs(name, options.data, options.inputs if name in TEXTS else options.photos)
        model = clearhead.load(f"clearhead/{name}", device=options.device)
        rows += measure(model, inputs, options.methods, options.random)
    title = f"# Calibration of the check, {date.today()}\n\n`{command()}`, {platform.machine()}, {options.device}, "
    title += f"torch {torch.__version__}, transformers {transformers.__version__}. {options.random} random "
    title += "explanations per input; the check divides words or patches into five groups."
    options.out.write_text(title + "\n\n" + "\n".join([*HEAD, *rows]) + "\n")


if __name__ == "__main__":
    main()
