"""Readers of the training data; every folder comes from the command line and nothing is copied from it."""

import csv
import gzip
import io
import json
import lzma
import random
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

TOPICS = ["World", "Sports", "Business", "Sci/Tech"]
SENTIMENTS = ["negative", "positive"]
VERDICTS = ["NEG", "POS"]
RELATIONS = ["entailment", "neutral", "contradiction"]
Raw = str | tuple[str, str]
Rows = tuple[list[Any], list[int]]
"""Texts, or pairs of texts, and their labels."""


def sst2(data: Path, split: str) -> Rows:
    """Sentences and labels of SST-2, split `train`, `dev` or `test`."""
    with open(data / "sst2" / f"{split}.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [row[1].strip() for row in rows], [int(row[0]) for row in rows]


def ag_news(data: Path, split: str) -> Rows:
    """Texts and topics of AG News, split `train` or `test`."""
    name = {"train": "train_subset_10k.tsv", "test": "test.tsv"}[split]
    with open(data / "ag_news" / name, encoding="utf-8") as file:
        rows = [line.rstrip("\n").rsplit("\t", 1) for line in file if line.strip()]
    return [row[0] for row in rows], [TOPICS.index(row[1]) for row in rows]


def _lines(path: Path) -> Iterator[str]:
    for opened, suffix in ((gzip.open, ".gz"), (lzma.open, ".xz")):
        found = path.with_name(path.name + suffix)
        if found.exists():
            with opened(found, "rt", encoding="utf-8") as file:
                yield from file
            return
    raise FileNotFoundError(f"{path}.gz is not there; --data must name the folder that holds '{path.parent.name}'")


def imdb(data: Path, split: str) -> list[str]:
    """Reviews without labels, split `train` (50,000) or `test` (1,000)."""
    name = {"train": "unsup.jsonl", "test": "test_1000.jsonl"}[split]
    return [json.loads(line)["text"].replace("<br />", " ") for line in _lines(data / "imdb" / name)]


def movies(data: Path, split: str) -> Rows:
    """Movie reviews of ERASER and their verdicts, split `train`, `val` or `test`."""
    rows = [json.loads(line) for line in _lines(data / "eraser_movies" / f"docs_{split}.jsonl")]
    return [row["text"] for row in rows], [int(row["label"]) for row in rows]


def pairs(data: Path, name: str) -> Rows:
    """Pairs of sentences and how the second follows from the first: `snli` or `mnli_matched`."""
    lines = (data / "pairs" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line.strip()]
    return [(row[1], row[2]) for row in rows], [RELATIONS.index(row[0]) for row in rows]


def apart(rows: Rows, *, share: float, seed: int) -> tuple[Rows, Rows]:
    """Two parts, the second about `share` of the rows; no first sentence is in both."""
    firsts = list(dict.fromkeys(pair[0] for pair in rows[0]))
    random.Random(seed).shuffle(firsts)
    kept = set(firsts[: max(1, round(share * len(firsts)))])

    def part(wanted: bool) -> Rows:
        found = [(pair, label) for pair, label in zip(*rows, strict=True) if (pair[0] in kept) == wanted]
        return [pair for pair, _ in found], [label for _, label in found]

    return part(False), part(True)


def write_pairs(rows: Rows, path: Path) -> None:
    """As `pairs` reads them."""
    lines = [f"{RELATIONS[label]}\t{first}\t{second}\n" for (first, second), label in zip(*rows, strict=True)]
    path.write_text("".join(lines), encoding="utf-8")


def decode(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def pictures(contents: list[bytes]) -> Tensor:
    """Encoded pictures of one size → uint8 tensor (picture, channel, row, column)."""
    with Pool() as pool:
        decoded = pool.map(decode, contents, chunksize=256)
    return torch.from_numpy(np.stack(decoded)).permute(0, 3, 1, 2).contiguous()


def table(path: Path, columns: list[str]) -> dict[str, list]:
    import pyarrow.parquet as parquet

    return parquet.read_table(path, columns=columns).to_pydict()


def tiny_imagenet(data: Path, split: str) -> dict[str, Tensor]:
    """Pictures and labels of Tiny-ImageNet, split `train` or `val`."""
    files = sorted((data / "tiny_imagenet").glob(f"{split}*.parquet"))
    tables = [table(file, ["image", "label"]) for file in files]
    return {
        "pictures": pictures([content for part in tables for content in part["image"]]),
        "labels": torch.tensor([label for part in tables for label in part["label"]]),
    }


def oxford_pets(data: Path, split: str) -> dict[str, Tensor]:
    """Pictures and breed numbers of Oxford-IIIT Pet, split `trainval` or `test`."""
    rows = table(data / "oxford_pets" / f"{split}.parquet", ["image", "breed_id"])
    return {"pictures": pictures(rows["image"]), "labels": torch.tensor(rows["breed_id"])}


def breeds(data: Path) -> tuple[list[str], list[str]]:
    """Breed and species names in the order of the breed numbers."""
    rows = table(data / "oxford_pets" / "trainval.parquet", ["breed", "breed_id", "species"])
    named = sorted(set(zip(rows["breed_id"], rows["breed"], rows["species"], strict=True)))
    return [row[1] for row in named], [row[2] for row in named]
