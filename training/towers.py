"""Train a small two-tower model: pictures of pets and texts about them.

    python -m training.towers --data ../shared/data --out runs/towers

The picture tower is the embedded pets ViT, the text tower the embedded SST-2 MiniLM. Both stay as they are: what they
say of the training pictures and of the texts is computed once, and two projections and the temperature are trained on
it to tell the right text from the others, in minutes on a CPU. The result is a stock VisionTextDualEncoderModel in
--out/model, not shipped; --out/recipe.json holds the hyperparameters and the accuracy on held-out pictures.
"""

import argparse
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import VisionTextDualEncoderModel, ViTModel

import clearhead
from training import readers

BREED_TEXTS = ("a photo of a {}", "a picture of a {}", "a {}", "this is a {}")
SPECIES_TEXTS = ("a photo of a {}", "a picture of a {}", "a {}", "a {} on grass", "a small {}")
SPECIES = ("cat", "dog")
BATCH = 64


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters; `--smoke` replaces them by those of a run of a few seconds."""

    pictures: int = 3680
    held_out: int = 600
    width: int = 128
    steps: int = 1500
    batch: int = 256
    rate: float = 2e-3
    decay: float = 0.05
    seed: int = 0


SMOKE = Recipe(pictures=12, held_out=6, steps=4, batch=4)


def name_breed(breed: str) -> str:
    """Return the name of a breed as words."""
    return breed.replace("_", " ")


def join_towers(width: int) -> tuple[Any, Any, Any]:
    """Return the embedded encoders as one two-tower network, its tokenizer and its image processor."""
    pets, words = clearhead.load("clearhead/pets-vit"), clearhead.load("clearhead/sst2-minilm")
    vision = ViTModel(pets.network.config)
    vision.load_state_dict(pets.network.vit.state_dict(), strict=False)
    # The classifier reads the class token itself: the pooler that ViTModel adds hands it on, but for its tanh.
    nn.init.eye_(vision.pooler.dense.weight)
    nn.init.zeros_(vision.pooler.dense.bias)
    network = VisionTextDualEncoderModel(vision_model=vision, text_model=words.network.bert)
    sizes = (vision.config.hidden_size, words.network.config.hidden_size)
    network.visual_projection, network.text_projection = (nn.Linear(size, width, bias=False) for size in sizes)
    network.config.projection_dim = width
    return network.eval(), words.processor, pets.processor


@torch.no_grad()
def embed_pictures(network: Any, processor: Any, contents: list[bytes]) -> Tensor:
    """Return what the picture tower says, before the projection (N,D)."""
    rows = []
    for start in range(0, len(contents), BATCH):
        pictures = [Image.open(io.BytesIO(content)).convert("RGB") for content in contents[start : start + BATCH]]
        pixels = processor(images=pictures, return_tensors="pt")["pixel_values"]
        rows.append(network.vision_model(pixel_values=pixels).pooler_output)
    return torch.cat(rows)


@torch.no_grad()
def embed_texts(network: Any, tokenizer: Any, templates: tuple[str, ...], names: list[str]) -> Tensor:
    """Return what the text tower says, before the projection (templates × names × D)."""
    rows = []
    for template in templates:
        tokens = tokenizer([template.format(name) for name in names], padding=True, return_tensors="pt")
        rows.append(network.text_model(**tokens).pooler_output)
    return torch.stack(rows)


def train(network: Any, recipe: Recipe, pictures: Tensor, breeds: tuple[Tensor, Tensor], species: Any) -> None:
    """Train the projections to tell the right text from the others, with a template drawn for each step."""
    (breed_texts, breed_labels), (species_texts, species_labels) = breeds, species
    generator = torch.Generator().manual_seed(recipe.seed)
    layers = [network.visual_projection, network.text_projection]
    weights = [layer.weight for layer in layers] + [network.logit_scale]
    optimizer = torch.optim.AdamW(weights, lr=recipe.rate, weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, total_steps=recipe.steps)
    for _ in range(recipe.steps):
        rows = torch.randint(len(pictures), (recipe.batch,), generator=generator)
        loss = torch.zeros(())
        for texts, labels in ((breed_texts, breed_labels), (species_texts, species_labels)):
            template = int(torch.randint(len(texts), (), generator=generator))
            loss = loss + F.cross_entropy(score(network, pictures[rows], texts[template]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def score(network: Any, pictures: Tensor, texts: Tensor) -> Tensor:
    """Return the logits of pictures and texts from what the towers say of them."""
    first = F.normalize(network.visual_projection(pictures), dim=-1)
    second = F.normalize(network.text_projection(texts), dim=-1)
    return network.logit_scale.exp() * first @ second.mT


def read_split(data: Path, split: str, limit: int) -> tuple[list[bytes], Tensor]:
    """Return encoded pictures and breed ids, spread over the file, which is in the order of breeds."""
    rows = readers.read_columns(data / "oxford_pets" / f"{split}.parquet", ["image", "breed_id"])
    order = torch.randperm(len(rows["image"]), generator=torch.Generator().manual_seed(0))[:limit].tolist()
    return [rows["image"][index] for index in order], torch.tensor([rows["breed_id"][index] for index in order])


def run(data: Path, out: Path, recipe: Recipe) -> dict[str, float]:
    """Train, save, and return the accuracy on held-out pictures."""
    torch.manual_seed(recipe.seed)
    network, tokenizer, processor = join_towers(recipe.width)
    names, kinds = readers.read_breeds(data)
    of_breed = torch.tensor([SPECIES.index(name.casefold()) for name in kinds])
    breed_texts = embed_texts(network, tokenizer, BREED_TEXTS, list(map(name_breed, names)))
    species_texts = embed_texts(network, tokenizer, SPECIES_TEXTS, list(SPECIES))
    contents, labels = read_split(data, "trainval", recipe.pictures)
    pictures = embed_pictures(network, processor, contents)
    train(network, recipe, pictures, (breed_texts, labels), (species_texts, of_breed[labels]))
    contents, labels = read_split(data, "test", recipe.held_out)
    pictures = embed_pictures(network, processor, contents)
    with torch.no_grad():
        breeds = score(network, pictures, breed_texts[0]).argmax(1) == labels
        species = score(network, pictures, species_texts[0]).argmax(1) == of_breed[labels]
    accuracy = {"breeds": breeds.double().mean().item(), "species": species.double().mean().item()}
    for saved in (network, tokenizer, processor):
        saved.save_pretrained(out / "model")
    (out / "recipe.json").write_text(json.dumps({"recipe": asdict(recipe), "accuracy": accuracy}, indent=1))
    return accuracy


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with oxford_pets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--smoke", action="store_true", help="a run of seconds")
    arguments = parser.parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(run(arguments.data, arguments.out, SMOKE if arguments.smoke else Recipe()))


if __name__ == "__main__":
    main()
