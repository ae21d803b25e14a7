"""The embedded models' full figures on the held-out data: prints one table and writes a dated file.

    python benchmarks/zoo_accuracy.py [--data ../shared/data] [--models sst2-minilm agnews-minilm pets-vit]

Intervals are 95 % percentile bootstrap intervals over examples (2,000 resamples, seed 0). A masked-LM line
gives, for every layer's hidden state from the embeddings up, how often the head's first guess at a hidden
token is that token (15 % of the tokens replaced by [MASK], seed 0; texts cut at 128 tokens).
"""

import argparse
import csv
import datetime
import gzip
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from clearhead.model import zoo

ROOT = Path(__file__).parents[1]
Row = tuple[str, str, str]


def tsv(path: Path, *, header: bool) -> list[list[str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[int(header) :]


def sst2(data: Path, split: str) -> tuple[list[str], list[str]]:
    rows = tsv(data / "sst2" / f"{split}.tsv", header=True)
    return [row[1] for row in rows], [("negative", "positive")[int(row[0])] for row in rows]


def ag_news(data: Path) -> tuple[list[str], list[str]]:
    rows = tsv(data / "ag_news" / "test.tsv", header=False)
    return [row[0] for row in rows], [row[1] for row in rows]


def reviews(data: Path) -> list[str]:
    with gzip.open(data / "imdb" / "test_1000.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["text"].replace("<br />", " ") for line in file]


def pets(data: Path, *, every: int = 1) -> dict[str, list[Any]]:
    import pyarrow.parquet as parquet

    columns = ["image", "breed", "species"]
    rows = parquet.read_table(data / "oxford_pets" / "test.parquet", columns=columns).to_pydict()
    return {name: values[::every] for name, values in rows.items()}


def batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@torch.inference_mode()
def text_answers(model: Any, tokenizer: Any, texts: list[str], *, longest: int = 512) -> list[str]:
    """The label found for every text; texts of like length share a batch."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    answers = [""] * len(texts)
    for chosen in batches(order, 32):
        batch = [texts[i] for i in chosen]
        encoded = tokenizer(batch, padding=True, truncation=True, max_length=longest, return_tensors="pt")
        for i, answer in zip(chosen, model(**encoded).logits.argmax(-1).tolist(), strict=True):
            answers[i] = model.config.id2label[answer]
    return answers


@torch.inference_mode()
def image_probabilities(model: Any, processor: Any, contents: list[bytes]) -> torch.Tensor:
    from PIL import Image

    probabilities = []
    for batch in batches(contents, 32):
        pictures = [Image.open(io.BytesIO(content)).convert("RGB") for content in batch]
        probabilities.append(model(**processor(pictures, return_tensors="pt")).logits.softmax(-1))
    return torch.cat(probabilities)


@torch.inference_mode()
def reading_accuracy(model: Any, tokenizer: Any, head: Any, texts: list[str]) -> list[float]:
    """Top-1 accuracy of the masked-LM head on hidden tokens, one figure per hidden state."""
    generator = torch.Generator().manual_seed(0)
    right, count = torch.zeros(model.config.num_hidden_layers + 1), 0
    for batch in batches(sorted(texts, key=len), 32):
        encoded = tokenizer(batch, padding=True, truncation=True, max_length=128, return_tensors="pt")
        ids = encoded["input_ids"]
        hidden = (torch.rand(ids.shape, generator=generator) < 0.15) & (ids > tokenizer.mask_token_id)
        encoded["input_ids"] = ids.masked_fill(hidden, tokenizer.mask_token_id)
        states = model.bert(**encoded, output_hidden_states=True).hidden_states
        right += torch.tensor([(head.cls(s[hidden]).argmax(-1) == ids[hidden]).sum() for s in states])
        count += int(hidden.sum())
    return (right / max(1, count)).tolist()


def interval(right: list[bool]) -> tuple[float, float, float]:
    """The share that is right and its 95 % bootstrap interval."""
    values = np.asarray(right, dtype=float)
    draws = np.random.default_rng(0).integers(0, len(values), (2000, len(values)))
    low, high = np.quantile(values[draws].mean(1), [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def line(name: str, measured: str, right: list[bool]) -> Row:
    value, low, high = interval(right)
    return name, f"{measured} (n = {len(right):,})", f"{value:.4f} [{low:.4f}, {high:.4f}]"


def text_lines(name: str, opened: Any, data: Path) -> Iterator[Row]:
    model, tokenizer, head = opened
    if name == "sst2-minilm":
        sets = {f"SST-2 {split}": sst2(data, split) for split in ("dev", "test")}
        reading = {"SST-2 test": sets["SST-2 test"][0], "IMDB test": reviews(data)[:400]}
    else:
        sets = {"AG News test": ag_news(data)}
        reading = {"AG News test": sets["AG News test"][0][::8]}
    for measured, (texts, labels) in sets.items():
        answers = text_answers(model, tokenizer, texts)
        yield line(name, f"{measured}, accuracy", [a == b for a, b in zip(answers, labels, strict=True)])
    for measured, texts in reading.items():
        figures = " ".join(f"{value:.3f}" for value in reading_accuracy(model, tokenizer, head, texts))
        yield name, f"{measured}, masked-LM top-1 at layers 0 … {model.config.num_hidden_layers}", figures


def image_lines(name: str, opened: Any, data: Path) -> Iterator[Row]:
    model, processor, _ = opened
    rows = pets(data)
    species = dict(zip(rows["breed"], rows["species"], strict=True))
    probabilities = image_probabilities(model, processor, rows["image"])
    labels = [model.config.id2label[i] for i in range(model.config.num_labels)]
    best = [labels[i] for i in probabilities.argmax(-1).tolist()]
    yield line(name, "Oxford-IIIT Pet test, breed", [a == b for a, b in zip(best, rows["breed"], strict=True)])
    five = [[labels[i] for i in row] for row in probabilities.topk(5).indices.tolist()]
    yield line(name, "the same, among the first five", [b in row for b, row in zip(rows["breed"], five, strict=True)])
    cats = probabilities[:, [species[label] == "cat" for label in labels]].sum(1) > 0.5
    right = [bool(cat) == (species == "cat") for cat, species in zip(cats, rows["species"], strict=True)]
    yield line(name, "the same, cat or dog (breeds' probabilities added up)", right)


def lines(models: list[str], data: Path) -> Iterator[Row]:
    for name in models:
        zoo.open_model(f"clearhead/{name}")
        started = time.perf_counter()
        opened = zoo.open_model(f"clearhead/{name}")
        yield name, "load after imports, seconds", f"{time.perf_counter() - started:.2f}"
        yield from image_lines(name, opened, data) if name == "pets-vit" else text_lines(name, opened, data)
    size = sum(file.stat().st_size for file in zoo.HERE.rglob("*") if file.is_file())
    yield "all", "size of the folder, MB", f"{size / 1e6:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--models", nargs="+", default=[name.partition("/")[2] for name in zoo.names()])
    arguments = parser.parse_args()
    today = datetime.date.today().isoformat()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, "
    versions += f"CPU, {torch.get_num_threads()} thread(s), float32"
    table = [f"# Embedded models, {today}", "", versions, "", "| model | measured | value |", "|---|---|---|"]
    print("\n".join(table), flush=True)
    for row in lines(arguments.models, arguments.data):
        table.append(f"| {' | '.join(row)} |")
        print(table[-1], flush=True)
    results = ROOT / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    (results / f"{today}-zoo.md").write_text("\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
