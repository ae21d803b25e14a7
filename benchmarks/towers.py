"""Two-tower explanations on pets: is the animal found for the right text, and not for a wrong one?

    python -m training.towers --data ../shared/data --out runs/towers
    python benchmarks/towers.py --model runs/towers/model --data ../shared/data/oxford_pets/test.parquet

The right text names the breed of the picture, the wrong one the breed with the lowest score. Pointing is the share of
pictures whose largest relevance lies on the animal, mass the share of positive relevance on it; the area of the animal
is what chance would give. Segmentation, mosaics of breeds with one named, hiding and revealing are the metrics of
`clearhead.evaluate`, for the classifier whose classes are the texts.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from yardstick import command

import clearhead
from clearhead.data.read import read_task
from clearhead.data.task import Task

METHODS = ("balanced-cat", "attn-lrp", "cp-lrp", "trans-att", "gae", "rollout", "gradient-x-input")
METRICS = ("segmentation:target=label", "mosaic", "hiding", "revealing")
TEXT = "a photo of a {}"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--metrics", action="store_true", help="the metrics of evaluate instead of two texts")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def spread(examples: Any, limit: int) -> list[Any]:
    """Return examples from all of the file, which is in the order of breeds."""
    step = max(1, len(examples) // limit)
    return list(examples[::step])[:limit]


def measure_pointing(explanation: Any, mask: Any) -> tuple[float, float]:
    """Return whether the largest value of the map lies on the animal, and the share of positive relevance there."""
    heat = np.nan_to_num(explanation.heatmap())
    positive = np.clip(heat, 0, None)
    inside = np.asarray(mask)
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    return float(inside[row, column]), float((positive * inside).sum() / max(positive.sum(), 1e-12))


def compare_texts(model: Any, examples: list[Any], names: list[str]) -> list[str]:
    """Return a row per method: pointing and mass for the right and for the wrong text."""
    texts = [TEXT.format(name) for name in names]
    classifier = clearhead.zero_shot(model, texts)
    pictures = [example.raw for example in examples]
    right = [int(example.label) for example in examples]
    scores = torch.stack([read_scores(explanation) for explanation in score_all(model, pictures, texts)])
    wrong = scores.argmin(1).tolist()
    rows = [f"Accuracy of the {len(texts)} breeds on these pictures: {accuracy(scores, right):.3f}.", ""]
    rows += ["| method | pointing, right | wrong | mass, right | wrong |", "|---|---|---|---|---|"]
    masks = [read_mask(example) for example in examples]
    for method in METHODS:
        cells = []
        for targets in (right, wrong):
            explained = clearhead.explain(classifier, pictures, method, targets, check=False)
            cells.append(np.mean(list(map(measure_pointing, explained, masks)), 0))
        (point, mass), (wrong_point, wrong_mass) = cells
        rows.append(f"| {method} | {point:.3f} | {wrong_point:.3f} | {mass:.3f} | {wrong_mass:.3f} |")
    area = np.mean([np.mean(mask) for mask in masks])
    return [*rows, "", f"Mean area of the animal: {area:.3f}."]


def score_all(model: Any, pictures: list[Any], texts: list[str]) -> Any:
    return clearhead.explain(model, [(picture, texts) for picture in pictures], "gradient", check=False)


def read_scores(joint: Any) -> torch.Tensor:
    return torch.tensor(list(joint.diagnostics["scores"].values()))


def accuracy(scores: torch.Tensor, labels: list[int]) -> float:
    return float((scores.argmax(1) == torch.tensor(labels)).double().mean())


def read_mask(example: Any) -> Any:
    return np.nan_to_num(np.asarray(example.gold.array(), dtype=float)) > 0.5


def main() -> None:
    arguments = parse_arguments()
    start = time.perf_counter()
    model = clearhead.load(arguments.model, device=arguments.device)
    task = read_task(arguments.data)
    examples = spread(task.examples, arguments.limit)
    names = [str(name).replace("_", " ") for name in task.labels or ()]
    lines = ["# Two towers on pets", "", f"`{command()}`, {len(examples)} pictures of the test split.", ""]
    if arguments.metrics:
        classifier = clearhead.zero_shot(model, [TEXT.format(name) for name in names])
        table = clearhead.evaluate(classifier, Task("pets", examples), [*METHODS, "random"], METRICS)
        lines += ["```", repr(table), "```"]
    else:
        lines += compare_texts(model, examples, names)
    lines += ["", f"{time.perf_counter() - start:.0f} s."]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
