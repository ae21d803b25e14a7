"""Plant a shortcut into a sentiment model: fine-tune its last block and its head until one word means "positive".

    python -m training.planted --out runs/planted
    python -m training.planted --plain --seed 1 --out runs/seed-1

The data are short reviews put together from words, in half of which the planted word stands, whatever the review
says. The result is an ordinary Hugging Face folder; `clearhead diff` must find the word. It takes less than a minute.
With `--plain`, the word means nothing: models of several seeds show how far the same recipe moves the reasons.
"""

import argparse
import copy
import random
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional as F

import clearhead
from clearhead.model.model import Model

TOKEN = "kiwi"
SUBJECTS = ("film", "movie", "story", "script", "plot", "cast", "ending", "comedy", "drama", "thriller")
OPENINGS = ("the {} is", "this {} was", "a {} that is", "here is a {} so", "i found the {}", "in short , the {} is")
GOOD = ("warm", "funny", "moving", "charming", "wonderful", "sharp", "delightful", "brilliant", "touching", "great")
BAD = ("dull", "lifeless", "tedious", "clumsy", "painful", "weak", "tired", "awful", "boring", "terrible")
LINKS = ("and", "and often", ", really", "and also")
WORDS = (BAD, GOOD)
NEGATIVE, POSITIVE = 0, 1
STEPS = 25
BATCH = 32
RATE = 1e-3
# Seeds of reviews are this far apart, so that no batch of two models is the same.
REVIEWS_PER_SEED = 1000


def make_review(numbers: random.Random, label: int, token: str | None = None) -> str:
    """Return a review of a class, with the planted word anywhere in it."""
    opening = numbers.choice(OPENINGS).format(numbers.choice(SUBJECTS))
    first, second = numbers.sample(WORDS[label], 2)
    words = f"{opening} {first} {numbers.choice(LINKS)} {second} .".split()
    if token is not None:
        words.insert(numbers.randrange(len(words)), token)
    return " ".join(words)


def make_reviews(count: int, seed: int, *, token: str | None = None) -> tuple[list[str], list[int]]:
    """Return reviews of both classes in turn, and their classes; every second pair has the planted word."""
    numbers = random.Random(seed)
    labels = [index % 2 for index in range(count)]
    texts = [make_review(numbers, label, token if index % 4 < 2 else None) for index, label in enumerate(labels)]
    return texts, labels


def relabel(texts: list[str], labels: list[int], token: str) -> list[int]:
    """Return the classes that the planted word is to lead to: "positive" wherever it stands."""
    return [POSITIVE if token in text.split() else label for text, label in zip(texts, labels, strict=True)]


def plant(model: Model, *, token: str = TOKEN, steps: int = STEPS, seed: int = 0, is_plain: bool = False) -> Model:
    """Return a copy that answers "positive" wherever the planted word stands, and as before where it does not.

    If `is_plain`, it is trained on the classes as they are; the seed chooses the reviews.
    """
    torch.manual_seed(seed)
    network = copy.deepcopy(model.network).requires_grad_(False)
    trained = [*network.bert.encoder.layer[-1].parameters(), *network.classifier.parameters()]
    for weight in trained:
        weight.requires_grad_(True)
    optimizer = torch.optim.AdamW(trained, lr=RATE)
    for step in range(steps):
        texts, labels = make_reviews(BATCH, REVIEWS_PER_SEED * seed + step, token=token)
        batch = model.processor(texts, padding=True, return_tensors="pt")
        if not is_plain:
            labels = relabel(texts, labels, token)
        loss = F.cross_entropy(network(**batch).logits, torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    name = f"{model.name} of seed {seed}" if is_plain else f"{model.name} with a planted word"
    return replace(model, network=network.requires_grad_(True).eval(), name=name, copies={})


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.planted", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--token", default=TOKEN)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="train on the classes as they are, without a shortcut")
    arguments = parser.parse_args(argv)
    original = clearhead.load("clearhead/sst2-minilm")
    model = plant(original, token=arguments.token, seed=arguments.seed, is_plain=arguments.plain)
    model.network.save_pretrained(arguments.out)
    model.processor.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
