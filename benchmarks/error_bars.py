"""Do error bars cover? Rounding against float64, sampling against many more samples.

    python benchmarks/error_bars.py [--data ../shared/data] [--inputs 100] [--sampled 12] [--models sst2-minilm]
        [--dtype float16] [--device cpu] [--records FOLDER]

Rounding: the embedded models explain inputs spread evenly over the test sets, with error bars. `covered` is the share
of inputs whose largest difference from float64 is within `rounding_error`; `marked` counts those that are marked among
those that are off by more than 10 %. Methods that lose digits appear twice: as they are computed by default, and in
float32 with a second evaluation. Sampling: the difference from as many samples with another seed as make chance small,
beside twice the standard error.

A run that was stopped goes on from what is in the folder of `--records`. With `--dtype float16` (bfloat16) the weights
are rounded first, and the methods that do not lose digits are compared with float64 on the rounded weights. `--dtype
tf32` multiplies in tf32 (on a GPU), methods that lose digits included.
"""

import argparse
import json
import platform
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from precision import ROOT, TEXTS, read_inputs
from yardstick import command

import clearhead
from clearhead.attribution.batch import explain_batch
from clearhead.attribution.method import MethodSpec, parse_method
from clearhead.explanation import Explanation
from clearhead.model.inputs import as_inputs
from clearhead.model.placement import with_precision
from clearhead.trust.error_bars import explain_with_error_bars
from clearhead.trust.relevances import relative_difference
from clearhead.trust.rounding import LARGE_ERROR

STABLE = ["raw-attention", "rollout", "grads", "att-grads", "gae", "attention-gradcam", "cat", "att-cat"]
STABLE += ["layer-gradcam", "gradient", "gradient-x-input", "attn-lrp", "cp-lrp", "balanced-cat"]
LOSSY = ["lrp", "partial-lrp", "trans-att"]
SAMPLED = {
    "smooth-gradient": 200,
    "gradient-shap": 200,
    "deeplift-shap": 200,
    "shapley-sampling:unit=word": 300,
    "lime": 8000,
    "lime:samples=25": 8000,
}
BATCH = 8
ROUNDING_HEAD = [
    "| model | method | precision | error, median (worst) | bar, median | covered | off by > 10 %, marked |",
    "|---|---|---|---|---|---|---|",
]
SAMPLING_HEAD = [
    "| method | standard error, median | error, median | within twice the standard error |",
    "|---|---|---|---|",
]


def explain_with_bars(model: Any, inputs: Sequence[Any], methods: Sequence[str], precision: str | None) -> list[Any]:
    """Return for each input its explanations with error bars."""

    def explain(specs: Sequence[MethodSpec]) -> tuple[list[Any], None]:
        rows = []
        for start in range(0, len(inputs), BATCH):
            batch = as_inputs(model, list(inputs[start : start + BATCH]))
            rows += explain_batch(model, batch, [None] * len(batch), specs)
        return rows, None

    return explain_with_error_bars(model, list(map(parse_method, methods)), explain, precision=precision)[0]


@dataclass(frozen=True)
class Rounded:
    """One explanation: its distance from float64, its error bar, and whether it is marked."""

    method: str
    precision: str
    error: float
    bar: float
    is_marked: bool


def compare_with_float64(
    model: Any, inputs: Sequence[Any], methods: Sequence[str], precision: str | None
) -> Iterator[Rounded]:
    """Yield the distance from float64 on the same weights, for every input and method."""
    rows = explain_with_bars(model, inputs, methods, precision)
    targets = [explanations[0].target for explanations in rows]
    exact = clearhead.compare(with_precision(model, "float64"), inputs, methods, targets, check=False)
    for index, explanations in enumerate(rows):
        for method, explanation in zip(methods, explanations, strict=True):
            bars = explanation.diagnostics
            error = relative_difference(explanation, exact[method][index])
            yield Rounded(method, bars["precision"], error, bars["rounding_error"], "needs_float64" in bars)


def measure_inputs(model: Any, inputs: Sequence[Any], dtype: str) -> list[Rounded]:
    """Return the errors of all methods on some inputs; in float32 those that lose digits twice."""
    if dtype == "tf32":
        return list(compare_with_float64(model, inputs, [*STABLE, *LOSSY], "float32"))
    if dtype != "float32":
        return list(compare_with_float64(with_precision(model, dtype), inputs, STABLE, dtype))
    by_default = compare_with_float64(model, inputs, [*STABLE, *LOSSY], None)
    return [*by_default, *compare_with_float64(model, inputs, LOSSY, "float32")]


def measure_rounding(name: str, inputs: list[Any], options: argparse.Namespace) -> list[Rounded]:
    """Return the errors on all inputs of a model; those that a file already has are not measured again."""
    dtype = options.dtype
    if dtype == "tf32":
        torch.set_float32_matmul_precision("high")
    model = clearhead.load(f"clearhead/{name}", device=options.device)
    file = options.records / f"{name}-{dtype}-{options.device}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    for start in range(BATCH * len(lines), len(inputs), BATCH):
        rounded = measure_inputs(model, inputs[start : start + BATCH], dtype)
        lines.append(json.dumps(list(map(asdict, rounded))))
        # After every batch: a long run may be stopped, and goes on from here.
        file.write_text("\n".join(lines) + "\n")
    return [Rounded(**record) for line in lines for record in json.loads(line)]


def describe_rounding(name: str, rounded: Sequence[Rounded]) -> list[str]:
    """Return a row for each method and precision."""
    rows = []
    for method, precision in dict.fromkeys((own.method, own.precision) for own in rounded):
        chosen = [own for own in rounded if (own.method, own.precision) == (method, precision)]
        errors = np.array([own.error for own in chosen])
        bars = np.array([own.bar for own in chosen])
        large = [own for own in chosen if own.error > LARGE_ERROR]
        row = f"| {name} | {method} | {precision} | {np.median(errors):.0e} ({errors.max():.0e}) | "
        row += f"{np.median(bars):.0e} | {(errors <= bars).mean():.0%} of {len(chosen)} | "
        rows.append(row + f"{sum(own.is_marked for own in large)} of {len(large)} |")
    print("\n".join(rows), flush=True)
    return rows


def measure_sampling(inputs: list[Any]) -> list[str]:
    """Return the rows of methods that draw samples."""
    model = clearhead.load("clearhead/sst2-minilm")
    rows = []
    for method, many in SAMPLED.items():
        explained = clearhead.explain(model, inputs, method, check=False)
        reference = clearhead.explain(model, inputs, method.partition(":")[0], samples=many, seed=1, check=False)
        errors = np.array([_token_difference(*pair) for pair in zip(explained, reference, strict=True)])
        deviations = np.array([explanation.diagnostics["sampling_error"] for explanation in explained])
        row = f"| {method} ({explained[0].diagnostics['samples']}) | {np.median(deviations):.3f} | "
        row += f"{np.median(errors):.3f} | {(errors <= 2 * deviations).mean():.0%} |"
        print(row, flush=True)
        rows.append(row)
    return rows


def _token_difference(first: Explanation, second: Explanation) -> float:
    """Return the largest difference of a token that is not special, relative to the largest relevance."""
    shown = ~first.special
    difference = np.abs(first.relevance - second.relevance)[shown].max()
    return float(difference / np.abs(first.relevance[shown]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--inputs", type=int, default=100)
    parser.add_argument("--sampled", type=int, default=12)
    parser.add_argument("--models", nargs="+", default=[*TEXTS, "pets-vit"])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--records", type=Path, default=Path(tempfile.gettempdir()) / "error-bars")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / f"{date.today()}-error-bars.md")
    options = parser.parse_args()
    rows = []
    rounded: list[Rounded] = []
    options.records.mkdir(parents=True, exist_ok=True)
    for name in options.models:
        inputs = read_inputs(name, options.data, options.inputs)
        own = measure_rounding(name, inputs, options)
        rows += describe_rounding(name, own)
        rounded += own
    covered = [own.error <= own.bar for own in rounded]
    lines = [
        f"# Error bars, {date.today()}",
        f"`{command()}`, {platform.machine()}, {options.device}, torch {torch.__version__}.",
        f"## Rounding\n\nAgainst float64, {options.inputs} inputs per model: {np.mean(covered):.1%} of "
        f"{len(covered)} explanations lie within their bars.",
        "\n".join([*ROUNDING_HEAD, *rows]),
    ]
    if options.sampled:
        sampling = measure_sampling(read_inputs("sst2-minilm", options.data, options.sampled))
        lines += [
            f"## Sampling\n\nAgainst many more samples, {options.sampled} sentences of SST-2; samples in brackets.",
            "\n".join([*SAMPLING_HEAD, *sampling]),
        ]
    options.out.write_text("\n\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
