"""Read the training data from the folder given on the command line."""

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
    """Return sentences and labels of SST-2, split `train`, `dev` or `test`."""
    with open(data / "sst2" / f"{split}.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [row[1].strip() for row in rows], [int(row[0]) for row in rows]


def ag_news(data: Path, split: str) -> Rows:
    """Return texts and topics of AG News, split `train` or `test`."""
    name = {"train": "train_subset_10k.tsv", "test": "test.tsv"}[split]
    with open(data / "ag_news" / name, encoding="utf-8") as file:
        rows = [line.rstrip("\n").rsplit("\t", 1) for line in file if line.strip()]
    return [row[0] for row in rows], [TOPICS.index(row[1]) for row in rows]


def _read_compressed_lines(path: Path) -> Iterator[str]:
    for open_compressed, suffix in ((gzip.open, ".gz"), (lzma.open, ".xz")):
        compressed = path.with_name(path.name + suffix)
        if compressed.exists():
            with open_compressed(compressed, "rt", encoding="utf-8") as file:
                yield from file
            return
    raise FileNotFoundError(f"{path}.gz does not exist: --data must name the folder that holds '{path.parent.name}'")


def imdb(data: Path, split: str) -> list[str]:
    """Return reviews of IMDb without labels, split `train` (50,000) or `test` (1,000)."""
    name = {"train": "unsup.jsonl", "test": "test_1000.jsonl"}[split]
    return [json.loads(line)["text"].replace("<br />", " ") for line in _read_compressed_lines(data / "imdb" / name)]


def movies(data: Path, split: str) -> Rows:
    """Return movie reviews of ERASER and their verdicts, split `train`, `val` or `test`."""
    rows = [json.loads(line) for line in _read_compressed_lines(data / "eraser_movies" / f"docs_{split}.jsonl")]
    return [row["text"] for row in rows], [int(row["label"]) for row in rows]


def pairs(data: Path, name: str) -> Rows:
    """Return pairs of sentences and how the second follows from the first: `snli` or `mnli_matched`."""
    lines = (data / "pairs" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line.strip()]
    return [(row[1], row[2]) for row in rows], [RELATIONS.index(row[0]) for row in rows]


def split_by_first_sentence(rows: Rows, *, share: float, seed: int) -> tuple[Rows, Rows]:
    """Split the rows, about `share` of them into the second half; no first sentence is in both."""
    firsts = list(dict.fromkeys(pair[0] for pair in rows[0]))
    random.Random(seed).shuffle(firsts)
    held_out_firsts = set(firsts[: max(1, round(share * len(firsts)))])
    train: Rows = ([], [])
    held_out: Rows = ([], [])
    for pair, label in zip(*rows, strict=True):
        pairs, labels = held_out if pair[0] in held_out_firsts else train
        pairs.append(pair)
        labels.append(label)
    return train, held_out


def write_pairs(rows: Rows, path: Path) -> None:
    """Write pairs in the format that `pairs` reads."""
    lines = [f"{RELATIONS[label]}\t{first}\t{second}\n" for (first, second), label in zip(*rows, strict=True)]
    path.write_text("".join(lines), encoding="utf-8")


def decode_image(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def decode_images(contents: list[bytes]) -> Tensor:
    """Decode images of one size into a uint8 tensor (image, channel, row, column)."""
    with Pool() as pool:
        decoded = pool.map(decode_image, contents, chunksize=256)
    return torch.from_numpy(np.stack(decoded)).permute(0, 3, 1, 2).contiguous()


def read_columns(path: Path, columns: list[str]) -> dict[str, list]:
    import pyarrow.parquet as parquet

    return parquet.read_table(path, columns=columns).to_pydict()


def tiny_imagenet(data: Path, split: str) -> dict[str, Tensor]:
    """Return images and labels of Tiny-ImageNet, split `train` or `val`."""
    files = sorted((data / "tiny_imagenet").glob(f"{split}*.parquet"))
    contents: list[bytes] = []
    labels: list[int] = []
    for file in files:
        columns = read_columns(file, ["image", "label"])
        contents += columns["image"]
        labels += columns["label"]
    return {"pictures": decode_images(contents), "labels": torch.tensor(labels)}


def oxford_pets(data: Path, split: str) -> dict[str, Tensor]:
    """Return images and breed ids of Oxford-IIIT Pet, split `trainval` or `test`."""
    rows = read_columns(data / "oxford_pets" / f"{split}.parquet", ["image", "breed_id"])
    return {"pictures": decode_images(rows["image"]), "labels": torch.tensor(rows["breed_id"])}


def read_breeds(data: Path) -> tuple[list[str], list[str]]:
    """Return breed and species names in the order of the breed ids."""
    rows = read_columns(data / "oxford_pets" / "trainval.parquet", ["breed", "breed_id", "species"])
    distinct = sorted(set(zip(rows["breed_id"], rows["breed"], rows["species"], strict=True)))
    return [breed for _, breed, _ in distinct], [species for _, _, species in distinct]
