"""Fine-tune a pre-trained model of base size for the benchmarks: sentiment, news topics, breeds of pets.

    python -m training.base mlm    --start mpnet             --data ../shared/data --out runs/mpnet-mlm
    python -m training.base sst2   --start runs/mpnet-mlm/model --data ../shared/data --out runs/mpnet-sst2
    python -m training.base agnews --start runs/mpnet-mlm/model --data ../shared/data --out runs/mpnet-agnews
    python -m training.base pets   --start dinov2-small      --data ../shared/data --out runs/dinov2-pets

`--start` is a folder with a Hugging Face encoder: configuration, safetensors weights, tokenizer or image processor.
`mlm` trains a masked-LM head, which decoded-gradcam needs, over an encoder that has lost its own. The finished model is
an ordinary folder, --out/model, with recipe.json (hyperparameters and held-out score) beside it. The weights are not
shipped.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
)

from training import readers
from training.loop import Plan, count_steps, fit, half_precision, select_device, select_rows

TEST_BATCH = 128
MAX_TOKENS = 128
PIXELS = 224
# Long reviews are cut into passages of this many words, about as many tokens as a model reads here.
WORDS_PER_PASSAGE = 90


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of one fine-tuning."""

    epochs: float
    batch: int
    rate: float
    smoothing: float = 0.05
    weight_decay: float = 0.01


RECIPES = {
    "mlm": Recipe(epochs=2, batch=192, rate=2e-4, smoothing=0.0),
    "sst2": Recipe(epochs=2, batch=64, rate=3e-5),
    "agnews": Recipe(epochs=4, batch=32, rate=3e-5),
    "pets": Recipe(epochs=14, batch=64, rate=5e-5),
}


@dataclass(frozen=True)
class Rows:
    """Inputs of one split, and the label of each; texts for masked-LM training have no labels."""

    inputs: list[Any]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.inputs)

    def first(self, count: int | None) -> "Rows":
        return Rows(self.inputs[:count], self.labels[:count])


@dataclass(frozen=True)
class Data:
    """A task: class names, training rows, held-out rows."""

    labels: list[str]
    train: Rows
    held_out: Rows


def read_sst2(data: Path) -> Data:
    return Data(readers.SENTIMENTS, Rows(*readers.sst2(data, "train")), Rows(*readers.sst2(data, "dev")))


def read_ag_news(data: Path) -> Data:
    return Data(readers.TOPICS, Rows(*readers.ag_news(data, "train")), Rows(*readers.ag_news(data, "test")))


def read_pets(data: Path) -> Data:
    breeds, _ = readers.read_breeds(data)
    return Data(breeds, _read_photos(data, "trainval", breeds), _read_photos(data, "test", breeds))


def _read_photos(data: Path, split: str, breeds: list[str]) -> Rows:
    columns = readers.read_columns(data / "oxford_pets" / f"{split}.parquet", ["image", "breed"])
    photos = [Image.fromarray(readers.decode_image(content)) for content in columns["image"]]
    return Rows(photos, [breeds.index(breed) for breed in columns["breed"]])


def read_passages(data: Path) -> Data:
    """Return the texts of all text tasks for masked-LM training; every hundredth passage is held out."""
    texts = readers.imdb(data, "train") + readers.sst2(data, "train")[0] + readers.ag_news(data, "train")[0]
    passages: list[str] = []
    for text in texts:
        passages += _cut_passages(text)
    held_out = passages[::100]
    del passages[::100]
    return Data([], Rows(passages, []), Rows(held_out, []))


def _cut_passages(text: str) -> list[str]:
    words = text.split()
    starts = range(0, len(words), WORDS_PER_PASSAGE)
    return [" ".join(words[start : start + WORDS_PER_PASSAGE]) for start in starts]


READERS: dict[str, Callable[[Path], Data]] = {
    "mlm": read_passages,
    "sst2": read_sst2,
    "agnews": read_ag_news,
    "pets": read_pets,
}
MODELS: dict[str, Any] = {
    "mlm": AutoModelForMaskedLM,
    "sst2": AutoModelForSequenceClassification,
    "agnews": AutoModelForSequenceClassification,
    "pets": AutoModelForImageClassification,
}

Batch = dict[str, Tensor]
Encode = Callable[[list[Any]], Batch]


def make_encoder(task: str, start: Path) -> tuple[Any, Encode]:
    """Return the processor of a model, and a function from inputs to a batch of tensors."""
    return _make_image_encoder(start) if task == "pets" else _make_text_encoder(start)


def _make_text_encoder(start: Path) -> tuple[Any, Encode]:
    tokenizer = AutoTokenizer.from_pretrained(start, model_max_length=MAX_TOKENS)

    def encode(texts: list[str]) -> Batch:
        return dict(tokenizer(texts, padding=True, truncation=True, return_tensors="pt"))

    return tokenizer, encode


def _make_image_encoder(start: Path) -> tuple[Any, Encode]:
    size = {"height": PIXELS, "width": PIXELS}
    # The whole photo: a crop would hide a part of what the masks of the segmentation metrics show.
    processor = AutoImageProcessor.from_pretrained(start, size=size, do_center_crop=False)

    # Every epoch reads all photos, and to scale them takes longer than a step of training.
    encoded: dict[int, Tensor] = {}

    def encode_once(photo: Image.Image) -> Tensor:
        if id(photo) not in encoded:
            pixels: Tensor = processor(photo, return_tensors="pt")["pixel_values"][0]
            encoded[id(photo)] = pixels.half()
        return encoded[id(photo)].float()

    def encode(photos: list[Image.Image]) -> Batch:
        return {"pixel_values": torch.stack([encode_once(photo) for photo in photos])}

    return processor, encode


def build_model(task: str, start: Path, labels: list[str]) -> nn.Module:
    settings: dict[str, Any] = {}
    if labels:
        settings["id2label"] = dict(enumerate(labels))
        settings["label2id"] = {label: index for index, label in enumerate(labels)}
    model: nn.Module = MODELS[task].from_pretrained(start, **settings)
    return model.to(select_device())


Loss = Callable[[list[int]], Tensor]
"""Returns the loss of some rows of the training split."""


def make_loss(task: str, model: nn.Module, processor: Any, encode: Encode, rows: Rows, recipe: Recipe) -> Loss:
    if task == "mlm":
        return _make_masked_loss(model, processor, encode, rows)
    labels = torch.tensor(rows.labels)

    def classification_loss(chosen: list[int]) -> Tensor:
        batch = encode([rows.inputs[index] for index in chosen])
        # Photos are mirrored at random; texts have no pixels.
        if "pixel_values" in batch and torch.rand(()) < 0.5:
            batch["pixel_values"] = batch["pixel_values"].flip(-1)
        logits = _run(model, batch)
        return F.cross_entropy(logits, labels[chosen].to(logits.device), label_smoothing=recipe.smoothing)

    return classification_loss


def _make_masked_loss(model: nn.Module, tokenizer: Any, encode: Encode, rows: Rows) -> Loss:
    mask = DataCollatorForLanguageModeling(tokenizer)

    def masked_loss(chosen: list[int]) -> Tensor:
        batch = encode([rows.inputs[index] for index in chosen])
        special = _special_tokens(tokenizer, batch["input_ids"])
        batch["input_ids"], answers = mask.torch_mask_tokens(batch["input_ids"], special)
        logits = _run(model, batch)
        return F.cross_entropy(logits.flatten(0, 1), answers.flatten().to(logits.device))

    return masked_loss


def _special_tokens(tokenizer: Any, ids_BT: Tensor) -> Tensor:
    return torch.isin(ids_BT, torch.tensor(tokenizer.all_special_ids))


def _run(model: nn.Module, batch: Batch) -> Tensor:
    on_device = {name: tensor.to(select_device(), non_blocking=True) for name, tensor in batch.items()}
    with half_precision():
        logits: Tensor = model(**on_device).logits
    return logits.float()


def train(model: nn.Module, loss: Loss, count: int, recipe: Recipe, out: Path, *, seed: int) -> None:
    """Train every weight."""
    plan = Plan(count_steps(recipe.epochs, size=recipe.batch, count=count), recipe.rate, recipe.weight_decay)

    def loss_at(step: int) -> Tensor:
        return loss(select_rows(step, size=recipe.batch, count=count, seed=seed).tolist())

    fit("base", model, loss_at, plan, out, seed=seed)


@torch.inference_mode()
def measure(task: str, model: nn.Module, processor: Any, encode: Encode, rows: Rows) -> dict[str, float]:
    """Return the held-out accuracy, or the loss of masked words."""
    model.eval()
    if task == "mlm":
        chosen = list(range(min(len(rows), 4 * TEST_BATCH)))
        torch.manual_seed(0)
        return {"held_out_loss": float(_make_masked_loss(model, processor, encode, rows)(chosen))}
    correct = 0
    for start in range(0, len(rows), TEST_BATCH):
        predicted = _run(model, encode(rows.inputs[start : start + TEST_BATCH])).argmax(-1)
        correct += int((predicted.cpu() == torch.tensor(rows.labels[start : start + TEST_BATCH])).sum())
    return {"held_out_accuracy": correct / len(rows)}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=sorted(RECIPES))
    parser.add_argument("--start", type=Path, required=True, help="folder of the pre-trained encoder")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets; only read")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model and its recipe")
    parser.add_argument("--epochs", type=float, help="instead of the recipe's")
    parser.add_argument("--rows", type=int, help="train and measure on the first rows only, for a quick try")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    recipe = RECIPES[arguments.task]
    if arguments.epochs is not None:
        recipe = replace(recipe, epochs=arguments.epochs)
    data = READERS[arguments.task](arguments.data)
    training = data.train.first(arguments.rows)
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    processor, encode = make_encoder(arguments.task, arguments.start)
    model = build_model(arguments.task, arguments.start, data.labels)
    loss = make_loss(arguments.task, model, processor, encode, training, recipe)
    train(model, loss, len(training), recipe, arguments.out, seed=arguments.seed)
    score = measure(arguments.task, model, processor, encode, data.held_out.first(arguments.rows))
    write_model(model, processor, arguments.out, {**asdict(recipe), "train": len(training), **score})


def write_model(model: Any, processor: Any, out: Path, summary: dict[str, float]) -> None:
    model.save_pretrained(out / "model")
    processor.save_pretrained(out / "model")
    (out / "recipe.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    main()
