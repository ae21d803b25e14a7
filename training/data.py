"""Readers of the training data; every folder comes from the command line and nothing is copied from it."""

import csv
import gzip
import io
import json
import lzma
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

TOPICS = ["World", "Sports", "Business", "Sci/Tech"]
SENTIMENTS = ["negative", "positive"]
Rows = tuple[list[str], list[int]]


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
