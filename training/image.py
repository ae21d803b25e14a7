"""Train the image model: a ViT distilled from a convolutional network, on Tiny-ImageNet, then on Oxford-IIIT Pet.

    python -m training.image --data ../shared/data --out runs/image

Four stages: the teacher learns Tiny-ImageNet, then the breeds; the ViT learns each from the labels and from
the teacher's output for the same augmented image. Only the ViT is kept. Each stage writes its
result to --out and is skipped if the result exists; an interrupted stage resumes from its checkpoint. The finished
model is written to --zoo (by default the folder `zoo` in --out).
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

from training import readers
from training.loop import Plan, count_steps, fit, half_precision, load_stage, save_stage, select_device, select_rows
from training.pack import write_checksums, write_weights

GRID = 16
Pictures = dict[str, Tensor]
Sets = Callable[[str], Pictures]


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters; `--smoke` replaces them by those of a run of a few seconds."""

    small_pixels: int = 64
    pixels: int = 128
    width: int = 256
    heads: int = 4
    blocks: int = 8
    teacher_width: int = 96
    teacher_epochs: float = 22
    teacher_pets_epochs: float = 35
    epochs: float = 75
    pets_epochs: float = 300
    seen: float = 0.5
    batch: int = 512
    pets_batch: int = 256
    rate: float = 8e-4
    pets_rate: float = 3e-4


SMOKE = Recipe(
    width=32,
    heads=2,
    blocks=2,
    teacher_width=8,
    teacher_epochs=1,
    teacher_pets_epochs=1,
    epochs=1,
    pets_epochs=1,
    batch=4,
    pets_batch=4,
)


class Residual(nn.Module):
    """Two 3×3 convolutions around a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        same = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if same else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inner)) + self.shortcut(x))


class Teacher(nn.Module):
    """A residual network of 18 layers for small pictures."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks: list[nn.Module] = []
        for stage in range(4):
            blocks.append(Residual(widths[stage], widths[stage + 1], 1 if stage == 0 else 2))
            blocks.append(Residual(widths[stage + 1], widths[stage + 1], 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def build_vit(recipe: Recipe, *, pixels: int, labels: list[str]) -> ViTForImageClassification:
    """Build a ViT that splits images of any size into 16×16 patches."""
    config = ViTConfig(
        hidden_size=recipe.width,
        num_hidden_layers=recipe.blocks,
        num_attention_heads=recipe.heads,
        intermediate_size=4 * recipe.width,
        image_size=pixels,
        patch_size=pixels // GRID,
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )
    model = ViTForImageClassification(config)
    model.vit.embeddings.position_embeddings.data[:, 1:] += 0.1 * sinusoidal_positions(recipe.width)
    return model


def sinusoidal_positions(width: int) -> Tensor:
    """Return sines and cosines of row and column at several frequencies, from which learned positions start."""
    quarter = width // 4
    frequency = 1.0 / 100 ** (torch.arange(quarter) / quarter)
    angle = torch.arange(GRID)[:, None] * frequency
    line = torch.cat([angle.sin(), angle.cos()], dim=1)
    row = line[:, None].expand(GRID, GRID, 2 * quarter)
    both = torch.cat([row, row.transpose(0, 1)], dim=2).reshape(GRID * GRID, -1)
    return F.pad(both, (0, width - both.shape[1]))


def enlarge_patches(state: dict[str, Tensor], factor: int) -> dict[str, Tensor]:
    """Adapt the weights of a ViT to images `factor` times as large: the patch kernel grows, the grid stays."""
    key = "vit.embeddings.patch_embeddings.projection.weight"
    stretched = F.interpolate(state[key], scale_factor=factor, mode="bilinear") / factor**2
    kept = {name: value for name, value in state.items() if not name.startswith("classifier.")}
    return {**kept, key: stretched}


def normalise(pictures: Tensor) -> Tensor:
    return pictures.float().div(127.5).sub(1)


def draw_uniform(low: float, high: float, count: int) -> Tensor:
    return torch.empty(count, device=select_device()).uniform_(low, high)


def crop(pictures: Tensor, pixels: int, smallest: float) -> Tensor:
    """Crop at least `smallest` of the area at random, stretch a little, mirror half of the images."""
    count = len(pictures)
    side = draw_uniform(smallest, 1, count).sqrt()
    stretch = draw_uniform(-0.28, 0.28, count).exp().sqrt()
    wide, high = (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)
    mirror = torch.where(draw_uniform(0, 1, count) < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(wide)
    across = torch.stack([wide * mirror, zero, draw_uniform(-1, 1, count) * (1 - wide)], dim=1)
    down = torch.stack([zero, high, draw_uniform(-1, 1, count) * (1 - high)], dim=1)
    grid = F.affine_grid(torch.stack([across, down], dim=1), [count, 3, pixels, pixels], align_corners=False)
    return F.grid_sample(pictures, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def recolour(pictures: Tensor, strength: float) -> Tensor:
    """Change saturation, contrast and brightness at random."""
    low, high = 1 - strength, 1 + strength
    saturation, contrast, brightness = draw_uniform(low, high, 3 * len(pictures)).view(3, -1, 1, 1, 1)
    grey = pictures.mean(1, keepdim=True)
    pictures = grey + (pictures - grey) * saturation
    middle = pictures.mean((1, 2, 3), keepdim=True)
    return middle + (pictures - middle) * contrast + (brightness - 1)


def blend(pictures: Tensor, answers: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Mix each image with another one (mixup or cutmix) in a share of the batches."""
    draw, choice, weight = torch.rand(3).tolist()
    if draw > share:
        return pictures, answers
    partner = torch.randperm(len(pictures), device=pictures.device)
    if choice < 0.5:
        weight = 1 - 0.5 * weight
        return torch.lerp(pictures[partner], pictures, weight), torch.lerp(answers[partner], answers, weight)
    size = pictures.shape[-1]
    side = int(size * (1 - weight) ** 0.5)
    top, left = (int(torch.randint(0, size - side + 1, ())) for _ in range(2))
    pictures = pictures.clone()
    area = (..., slice(top, top + side), slice(left, left + side))
    pictures[area] = pictures[partner][area]
    return pictures, torch.lerp(answers, answers[partner], (side / size) ** 2)


def augment(
    source: Pictures, rows: Tensor, classes: int, *, pixels: int, smallest: float, share: float
) -> tuple[Tensor, Tensor]:
    """Return a batch of augmented images and the class distributions that fit them."""
    pictures = recolour(crop(normalise(source["pictures"][rows]), pixels, smallest), 0.3)
    return blend(pictures, F.one_hot(source["labels"][rows], classes).float(), share)


def compute_logits(model: Callable[..., Tensor], pictures: Tensor) -> Tensor:
    with half_precision():
        output = model(pictures)
    return getattr(output, "logits", output).float()


def to_channels_last(value: Any) -> Any:
    """Convert to channels last, which convolutions on a GPU prefer; unchanged on a CPU."""
    if torch.cuda.is_available():
        return value.to(memory_format=torch.channels_last)
    return value


def train_teacher(
    name: str,
    model: Teacher,
    source: Pictures,
    *,
    plan: Plan,
    batch: int,
    pixels: int,
    share: float,
    out: Path,
    seed: int,
) -> None:
    classes, count = model.head.out_features, len(source["labels"])

    def loss_at(step: int) -> Tensor:
        rows = select_rows(step, size=batch, count=count, seed=seed).to(select_device(), non_blocking=True)
        pictures, answers = augment(source, rows, classes, pixels=pixels, smallest=0.3, share=share)
        return F.cross_entropy(compute_logits(model, to_channels_last(pictures)), answers, label_smoothing=0.05)

    fit(name, model, loss_at, plan, out, seed=seed)


@contextmanager
def drop_patches(model: ViTForImageClassification, seen: float) -> Iterator[None]:
    """Drop random patches while the ViT trains: cheaper steps, and a regulariser."""

    def drop(module: nn.Module, args: Any, tokens_BSD: Tensor) -> Tensor:
        if not module.training or seen >= 1:
            return tokens_BSD
        count, patches = len(tokens_BSD), tokens_BSD.shape[1] - 1
        noise = torch.rand(count, patches, device=tokens_BSD.device)
        kept = noise.topk(int(seen * patches)).indices[..., None].expand(-1, -1, tokens_BSD.shape[2])
        return torch.cat([tokens_BSD[:, :1], tokens_BSD[:, 1:].gather(1, kept)], dim=1)

    handle = model.vit.embeddings.register_forward_hook(drop)
    try:
        yield
    finally:
        handle.remove()


def train_student(
    name: str,
    model: ViTForImageClassification,
    teacher: Teacher,
    source: Pictures,
    *,
    plan: Plan,
    batch: int,
    pixels: int,
    seen: float,
    out: Path,
    seed: int,
) -> None:
    """Train on the teacher's distribution (weight 0.7) and the labels (0.3) of the same augmented images."""
    classes, count = teacher.head.out_features, len(source["labels"])

    def loss_at(step: int) -> Tensor:
        rows = select_rows(step, size=batch, count=count, seed=seed).to(select_device(), non_blocking=True)
        pictures, answers = augment(source, rows, classes, pixels=pixels, smallest=0.3, share=0.6)
        with torch.no_grad():
            teacher_output = compute_logits(teacher, to_channels_last(pictures)).softmax(-1)
        return F.cross_entropy(compute_logits(model, pictures), torch.lerp(answers, teacher_output, 0.7))

    with drop_patches(model, seen):
        fit(name, model, loss_at, plan, out, seed=seed)


def predict(model: nn.Module, source: Pictures, pixels: int) -> Tensor:
    """Return the predicted class of every image, without crops."""
    predicted = []
    with torch.inference_mode():
        for pictures in source["pictures"].split(256):
            seen = F.interpolate(pictures.float(), (pixels, pixels), mode="bilinear", antialias=True)
            predicted.append(compute_logits(model, normalise(seen)).argmax(-1))
    return torch.cat(predicted)


def accuracy(model: nn.Module, source: Pictures, pixels: int) -> float:
    return float((predict(model.eval(), source, pixels) == source["labels"]).float().mean())


def load_decoded(out: Path, name: str, read: Callable[[], Pictures]) -> Pictures:
    """Return a data set on the device; it is decoded once and cached in --out."""
    kept = out / f"{name}.pt"
    if not kept.exists():
        torch.save(read(), kept)
    return {key: value.to(select_device()) for key, value in torch.load(kept, weights_only=True).items()}


def load_or_train(model: nn.Module, path: Path, train: Callable[[], None], check: Callable[[], float]) -> nn.Module:
    """Load the stage's model if it is finished, else train, evaluate and save it."""
    if path.exists():
        return load_stage(model, path)
    train()
    print(f"{path.stem}: held-out accuracy {check():.4f}", flush=True)
    save_stage(model, path)
    return model


def make_tiny_teacher(recipe: Recipe, out: Path, sets: Sets, seed: int) -> Teacher:
    train, held_out = sets("tiny-train"), partial(sets, "tiny-val")
    model = to_channels_last(Teacher(recipe.teacher_width, int(train["labels"].max()) + 1).to(select_device()))
    steps = count_steps(recipe.teacher_epochs, size=recipe.batch, count=len(train["labels"]))
    plan = Plan(steps, 0.2, weight_decay=5e-4, momentum=True)
    return load_or_train(
        model,
        out / "teacher-tiny.safetensors",
        lambda: train_teacher(
            "teacher-tiny",
            model,
            train,
            plan=plan,
            batch=recipe.batch,
            pixels=recipe.small_pixels,
            share=0.3,
            out=out,
            seed=seed,
        ),
        lambda: accuracy(model, held_out(), recipe.small_pixels),
    )


def make_pets_teacher(recipe: Recipe, out: Path, sets: Sets, seed: int, breeds: int) -> Teacher:
    train, held_out = sets("pets-trainval"), partial(sets, "pets-test")
    model = make_tiny_teacher(recipe, out, sets, seed)
    model.head = nn.Linear(model.head.in_features, breeds).to(select_device())
    batch = recipe.pets_batch // 2
    steps = count_steps(recipe.teacher_pets_epochs, size=batch, count=len(train["labels"]))
    plan = Plan(steps, 0.03, weight_decay=5e-4, momentum=True)
    return load_or_train(
        model,
        out / "teacher-pets.safetensors",
        lambda: train_teacher(
            "teacher-pets",
            model,
            train,
            plan=plan,
            batch=batch,
            pixels=recipe.pixels,
            share=0.5,
            out=out,
            seed=seed,
        ),
        lambda: accuracy(model, held_out(), recipe.pixels),
    )


def make_tiny_student(recipe: Recipe, out: Path, sets: Sets, seed: int) -> nn.Module:
    train, held_out = sets("tiny-train"), partial(sets, "tiny-val")
    teacher = make_tiny_teacher(recipe, out, sets, seed).eval()
    labels = [str(i) for i in range(teacher.head.out_features)]
    model = build_vit(recipe, pixels=recipe.small_pixels, labels=labels).to(select_device())
    steps = count_steps(recipe.epochs, size=recipe.batch, count=len(train["labels"]))
    plan = Plan(steps, recipe.rate, average=0.998)
    return load_or_train(
        model,
        out / "vit-tiny.safetensors",
        lambda: train_student(
            "vit-tiny",
            model,
            teacher,
            train,
            plan=plan,
            batch=recipe.batch,
            pixels=recipe.small_pixels,
            seen=recipe.seen,
            out=out,
            seed=seed,
        ),
        lambda: accuracy(model, held_out(), recipe.small_pixels),
    )


def make_pets_student(recipe: Recipe, out: Path, sets: Sets, seed: int, breeds: list[str]) -> nn.Module:
    train, held_out = sets("pets-trainval"), partial(sets, "pets-test")
    teacher = make_pets_teacher(recipe, out, sets, seed, len(breeds)).eval()
    general = make_tiny_student(recipe, out, sets, seed).state_dict()
    model = build_vit(recipe, pixels=recipe.pixels, labels=breeds).to(select_device())
    model.load_state_dict(enlarge_patches(general, recipe.pixels // recipe.small_pixels), strict=False)
    steps = count_steps(recipe.pets_epochs, size=recipe.pets_batch, count=len(train["labels"]))
    plan = Plan(steps, recipe.pets_rate, average=0.996)
    return load_or_train(
        model,
        out / "vit-pets.safetensors",
        lambda: train_student(
            "vit-pets",
            model,
            teacher,
            train,
            plan=plan,
            batch=recipe.pets_batch,
            pixels=recipe.pixels,
            seen=1,
            out=out,
            seed=seed,
        ),
        lambda: accuracy(model, held_out(), recipe.pixels),
    )


def export(model: nn.Module, recipe: Recipe, zoo: Path) -> None:
    folder = zoo / "pets-vit"
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(model.state_dict(), folder / "model.safetensors")
    model.config.save_pretrained(folder)
    size = {"height": recipe.pixels, "width": recipe.pixels}
    ViTImageProcessor(size=size, image_mean=[0.5] * 3, image_std=[0.5] * 3).save_pretrained(folder)
    write_checksums(zoo)


def read_images(data: Path, out: Path, name: str) -> Pictures:
    """Read a data set by name: `tiny-train`, `tiny-val`, `pets-trainval` or `pets-test`."""
    family, split = name.split("-")
    read = {"tiny": readers.tiny_imagenet, "pets": readers.oxford_pets}[family]
    return load_decoded(out, name, lambda: read(data, split))


def read_breed_names(data: Path, out: Path) -> list[str]:
    kept = out / "breeds.json"
    if not kept.exists():
        kept.write_text(json.dumps(readers.read_breeds(data)[0]))
    return list(json.loads(kept.read_text()))


STAGES = ("teacher-tiny", "teacher-pets", "vit-tiny", "vit-pets")


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.image", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--zoo", type=Path, help="where the finished model goes (default: OUT/zoo)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stage", choices=STAGES, default=STAGES[-1], help="the last stage to run")
    parser.add_argument("--teacher-epochs", type=float)
    parser.add_argument("--teacher-pets-epochs", type=float)
    parser.add_argument("--epochs", type=float, help="epochs of the ViT on Tiny-ImageNet")
    parser.add_argument("--pets-epochs", type=float, help="epochs of the ViT on the breeds")
    parser.add_argument("--smoke", action="store_true", help="train for seconds, as a test")
    return parser.parse_args(argv)


def choose_recipe(arguments: argparse.Namespace) -> Recipe:
    names = ("teacher_epochs", "teacher_pets_epochs", "epochs", "pets_epochs")
    changes = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return replace(SMOKE if arguments.smoke else Recipe(), **changes)


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    recipe, out, seed = choose_recipe(arguments), arguments.out, arguments.seed
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    sets = lru_cache(partial(read_images, arguments.data, out))
    breeds = read_breed_names(arguments.data, out)
    if arguments.stage == "teacher-tiny":
        make_tiny_teacher(recipe, out, sets, seed)
    elif arguments.stage == "teacher-pets":
        make_pets_teacher(recipe, out, sets, seed, len(breeds))
    elif arguments.stage == "vit-tiny":
        make_tiny_student(recipe, out, sets, seed)
    else:
        export(make_pets_student(recipe, out, sets, seed, breeds), recipe, arguments.zoo or out / "zoo")


if __name__ == "__main__":
    main()
