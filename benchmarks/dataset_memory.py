"""Peak memory of explaining a table of a million rows.

    python benchmarks/dataset_memory.py [--rows 1000000] [--method raw-attention] [--out FILE]

A table of texts of 20 words is written as JSON lines and explained into Parquet by `explain_table`, with a small
network of random weights, in one process for a tenth of the rows and another for all of them. Memory is the peak of the
process above that of the loaded model. `--stub` replaces the network by fixed relevances: what remains is reading,
records and writing, whose memory could grow with the table.
"""

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import transformers

import clearhead
from clearhead.explanation import Explanation
from clearhead.model.target import Target
from clearhead.tables import explainer

WORDS = (
    "film",
    "plot",
    "heart",
    "mess",
    "warm",
    "dull",
    "clever",
    "never",
    "good",
    "bad",
    "the",
    "a",
    "and",
    "of",
    "is",
)
WORDS_PER_TEXT = 20


def write_table(path: Path, rows: int) -> None:
    """Write texts of 20 words, each with an id and a label."""
    generator = random.Random(0)
    with open(path, "w") as file:
        for number in range(rows):
            text = " ".join(generator.choices(WORDS, k=WORDS_PER_TEXT))
            file.write(json.dumps({"id": number, "text": text, "label": number % 2}) + "\n")


def make_model() -> Any:
    """Return a BERT of one block and random weights, with the tokenizer of the embedded model."""
    tokenizer = clearhead.load().processor
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(tokenizer), **sizes)
    return clearhead.load(transformers.BertForSequenceClassification(config), tokenizer)


def explain_nothing(model: Any, inputs: Any, spec: Any, targets: Any, **settings: Any) -> list[Explanation]:
    """Stand for a network: relevance 1 for the first word of every text."""
    explanations = []
    for text in inputs:
        offsets = []
        position = 0
        for word in text.split():
            offsets.append((position, position + len(word)))
            position += len(word) + 1
        count = len(offsets)
        plain = {"target": Target(0), "label": "x", "method": spec.text, "text": text}
        arrays = {"relevance": np.eye(1, count)[0], "special": np.zeros(count, dtype=bool)}
        explanations.append(Explanation(tuple(text.split()), **arrays, **plain, offsets=tuple(offsets)))
    return explanations


def run(table: Path, out: Path, method: str, *, stub: bool) -> None:
    """Explain a table and print the peak before and after in bytes, and the seconds."""
    model = make_model()
    if stub:
        explainer.explain = explain_nothing
    before = peak()
    begun = time.perf_counter()
    clearhead.explain_table(model, table, out, method)
    print(json.dumps([before, peak(), time.perf_counter() - begun, out.stat().st_size]))


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(rows: int, method: str, *, stub: bool) -> str:
    """Explain a table of so many rows in a process of its own, and return a row of the result."""
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder, "rows.jsonl"), Path(folder, "out.parquet")
        write_table(table, rows)
        flags = ["--child", str(table), str(out), "--method", method, *(["--stub"] if stub else [])]
        source = str(Path(clearhead.__file__).parents[1])
        process = subprocess.run(
            [sys.executable, __file__, *flags],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": source},
        )
    before, after, seconds, size = json.loads(process.stdout)
    over = (after - before) / 2**20
    return f"| {rows:,} | {over:,.0f} MiB | {before / 2**20:,.0f} MiB | {seconds:,.0f} s | {size / 2**20:,.0f} MiB |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--method", default="raw-attention")
    parser.add_argument("--stub", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs=2, metavar=("TABLE", "OUT"), help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child:
        run(Path(flags.child[0]), Path(flags.child[1]), flags.method, stub=flags.stub)
        return
    network = "fixed relevances instead of a network" if flags.stub else f"a BERT of one block, {flags.method}"
    lines = [
        f"# Memory of explaining a table, {date.today()}",
        "",
        f"`python benchmarks/dataset_memory.py{' --stub' if flags.stub else ''} --rows {flags.rows}`: {network}; "
        f"{platform.machine()}, Python {platform.python_version()}. Texts of {WORDS_PER_TEXT} words, JSON lines to "
        "Parquet.",
        "",
        "| rows | peak over the loaded model | loaded model | time | output |",
        "|--:|--:|--:|--:|--:|",
    ]
    lines += [measure(rows, flags.method, stub=flags.stub) for rows in (flags.rows // 10, flags.rows)]
    text = "\n".join(lines) + "\n"
    print(text)
    if flags.out:
        flags.out.write_text(text)


if __name__ == "__main__":
    main()
