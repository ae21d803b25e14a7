"""Rounding errors of methods in float32 and bfloat16, against float64 on the same (rounded) weights and inputs.

    python benchmarks/precision.py [--data ../shared/data] [--inputs 100] [--methods attn-lrp cp-lrp] [--device cpu]

The embedded models explain the class that they predict in float64, for inputs spread evenly over the test sets. The
relative error is the largest difference over the largest relevance of an input; the rank correlation is Spearman's,
over the words of a text or the patches of an image; the top feature has the largest relevance. Medians over inputs, and
the worst input in brackets.
"""

import argparse
import io
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import torch
import transformers
from PIL import Image
from scipy.stats import spearmanr
from yardstick import command

import clearhead
from clearhead.data.read import read_task

ROOT = Path(__file__).parents[1]
TEXTS = {"sst2-minilm": "sst2/test.tsv", "agnews-minilm": "ag_news/test.tsv"}
PHOTOS = "oxford_pets/test.parquet"
TYPES = ("float32", "bfloat16")
HEAD = [
    "| model | method | type | relative error (worst) | rank correlation (worst) | other top feature |",
    "|---|---|---|---|---|---|",
]


@dataclass(frozen=True)
class Deviation:
    """How far an explanation is from that in float64."""

    error: float
    correlation: float
    is_other_top: bool


def compare_relevance(narrow: np.ndarray, exact: np.ndarray) -> Deviation:
    error = np.abs(narrow - exact).max() / np.abs(exact).max()
    correlation = float(spearmanr(narrow, exact).statistic)
    return Deviation(float(error), correlation, bool(narrow.argmax() != exact.argmax()))


def spread(items: Sequence[Any], count: int) -> list[Any]:
    """Some items, spread evenly over all."""
    step = max(1, len(items) // count)
    return list(items[::step][:count])


def read_inputs(name: str, data: Path, count: int) -> list[Any]:
    if name in TEXTS:
        return spread([example.input for example in read_task(data / TEXTS[name]).examples], count)
    rows = parquet.read_table(data / PHOTOS, columns=["image"]).column("image")
    return [Image.open(io.BytesIO(rows[index].as_py())) for index in spread(range(len(rows)), count)]


def features(explanation: Any) -> np.ndarray:
    """Relevance of the words of a text, or of the patches of an image."""
    if explanation.pixels is not None:
        return np.asarray(explanation.relevance, dtype=np.float64)
    return np.asarray([word.relevance for word in explanation.words()], dtype=np.float64)


def describe(name: str, method: str, dtype: str, deviations: list[Deviation]) -> str:
    errors = [deviation.error for deviation in deviations]
    correlations = [deviation.correlation for deviation in deviations if np.isfinite(deviation.correlation)]
    other = sum(deviation.is_other_top for deviation in deviations) / len(deviations)
    row = f"| {name} | {method} | {dtype} | {np.median(errors):.1e} ({max(errors):.1e}) | "
    row += f"{np.median(correlations):.5f} ({min(correlations):.4f}) | {other:.0%} |"
    print(row, flush=True)
    return row


def measure(name: str, inputs: list[Any], methods: Sequence[str], device: str) -> list[str]:
    """The rows of one model."""
    rows = []
    for dtype in TYPES:
        narrow_model = clearhead.load(f"clearhead/{name}", dtype=dtype, device=device)
        exact = clearhead.compare(clearhead.load(narrow_model, dtype="float64"), inputs, methods, check=False)
        targets = [explanation.target for explanation in exact[methods[0]]]
        narrow = clearhead.compare(narrow_model, inputs, methods, targets, check=False)
        for method in methods:
            pairs = zip(narrow[method], exact[method], strict=True)
            deviations = [compare_relevance(features(first), features(second)) for first, second in pairs]
            rows.append(describe(name, method, dtype, deviations))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--inputs", type=int, default=100)
    parser.add_argument("--models", nargs="+", default=[*TEXTS, "pets-vit"])
    parser.add_argument("--methods", nargs="+", default=["attn-lrp", "cp-lrp"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / f"{date.today()}-precision.md")
    options = parser.parse_args()
    rows = []
    for name in options.models:
        rows += measure(name, read_inputs(name, options.data, options.inputs), options.methods, options.device)
    title = f"# Precision, {date.today()}\n\n`{command()}`, {platform.machine()}, {options.device}, "
    title += (
        f"torch {torch.__version__}, transformers {transformers.__version__}. Against float64 on the same weights, "
    )
    title += f"{options.inputs} inputs per model: medians, and the worst input in brackets."
    options.out.write_text(title + "\n\n" + "\n".join([*HEAD, *rows]) + "\n")


if __name__ == "__main__":
    main()
