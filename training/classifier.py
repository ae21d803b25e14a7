"""Makes a model for the benchmarks that no embedded one serves: movie reviews with rationales, or pairs of sentences.

    python -m training.classifier movies --data ../shared/data --out runs/movies
    python -m training.classifier snli --data ../shared/data --out runs/snli

The finished model is an ordinary Hugging Face folder, --out/model, for `clearhead … --model`; beside it lie
recipe.json (the numbers, and the accuracy reached) and, where the recipe splits the data itself, the rows it never
saw. An interrupted run goes on from its checkpoint; a finished one is only measured and written again.
"""

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from training import data as reader
from training.loop import Plan, device, fit, half_precision, keep, recall, rows_of_step, steps_for
from training.text import start_folder

Encoded = tuple[list[int], list[int]]
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "mask", "pad", "unk")}


@dataclass(frozen=True)
class Recipe:
    """The numbers of one model; an encoder is an embedded model's name, a folder, or None for the packaged MiniLM."""

    start: str | None
    length: int
    epochs: float
    batch: int
    rate: float
    smoothing: float = 0.05
    weight_decay: float = 0.05
    average: float = 0.98


RECIPES = {
    "movies": Recipe(start="clearhead/sst2-minilm", length=512, epochs=12, batch=16, rate=5e-5),
    "snli": Recipe(start=None, length=128, epochs=10, batch=32, rate=5e-5),
}
LABELS = {"movies": reader.VERDICTS, "snli": reader.RELATIONS}


@dataclass(frozen=True)
class Split:
    """Rows to learn from, and by name those to measure on."""

    train: reader.Rows
    held_out: dict[str, reader.Rows]


def rows_of(task: str, data: Path, seed: int) -> Split:
    if task == "movies":
        return Split(reader.movies(data, "train"), {name: reader.movies(data, name) for name in ("val", "test")})
    own, test = reader.apart(reader.pairs(data, "snli"), share=0.2, seed=seed)
    more = reader.pairs(data, "mnli_matched")
    return Split((own[0] + more[0], own[1] + more[1]), {"test": test})


# --- the encoder and its tokenizer ------------------------------------------------------------------------------


def from_zoo(name: str) -> tuple[BertConfig, dict[str, Tensor], PreTrainedTokenizerFast]:
    from clearhead.model import zoo

    network, tokenizer, _ = zoo.open_model(name)
    return network.config, network.bert.state_dict(), tokenizer


def from_folder(folder: Path) -> tuple[BertConfig, dict[str, Tensor], PreTrainedTokenizerFast]:
    config = BertConfig.from_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    weights = {name.removeprefix("bert."): value for name, value in load_file(folder / "model.safetensors").items()}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return (
        config,
        weights,
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            model_max_length=config.max_position_embeddings,
            model_input_names=names,
            **SPECIAL,
        ),
    )


def classifier_of(
    start: str | None, labels: list[str]
) -> tuple[BertForSequenceClassification, PreTrainedTokenizerFast]:
    """A new head over the starting encoder; every weight is trained."""
    embedded = start is not None and start.startswith("clearhead/")
    config, weights, tokenizer = from_zoo(start) if embedded else from_folder(Path(start or start_folder()))
    named = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    model = BertForSequenceClassification(BertConfig(**{**config.to_dict(), **named, "architectures": None}))
    encoder = {name: value.float() for name, value in weights.items() if "position_ids" not in name}
    missing, unexpected = model.bert.load_state_dict(encoder, strict=False)
    if unexpected or any(not name.startswith("pooler") for name in missing):
        raise SystemExit(f"'{start}' does not hold a BERT encoder: {(unexpected or missing)[:3]}.")
    return model.to(device()), tokenizer


# --- training ---------------------------------------------------------------------------------------------------


def encode(inputs: list[reader.Raw], tokenizer: PreTrainedTokenizerFast) -> list[Encoded]:
    """Token ids and segments of texts or pairs, whole."""
    fast = tokenizer.backend_tokenizer
    fast.no_truncation()
    return [(found.ids, found.type_ids) for found in fast.encode_batch(inputs)]


def stretch(row: Encoded, length: int, share: float) -> Encoded:
    """A row cut to the model's length between its first and last token; `share` (0 … 1) says where the cut lies."""
    ids, segments = row
    if len(ids) <= length:
        return row
    offset = 1 + round(share * (len(ids) - length))
    place = slice(offset, offset + length - 2)
    return [ids[0], *ids[place], ids[-1]], [segments[0], *segments[place], segments[-1]]


def padded(rows: list[Encoded], pad: int) -> dict[str, Tensor]:
    """The tensors of a batch."""
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([one + [pad] * (width - len(one)) for one, _ in rows])
    segments = torch.tensor([one + [0] * (width - len(one)) for _, one in rows])
    found = {"input_ids": ids, "token_type_ids": segments, "attention_mask": (ids != pad).long()}
    return {name: value.to(device()) for name, value in found.items()}


def train(
    model: BertForSequenceClassification,
    rows: list[Encoded],
    labels: list[int],
    recipe: Recipe,
    out: Path,
    seed: int,
) -> None:
    """Cross-entropy; of a text longer than the model reads, every second time another part than its beginning."""
    count, pad = len(rows), model.config.pad_token_id
    steps = steps_for(recipe.epochs, size=recipe.batch, count=count)
    plan = Plan(steps, recipe.rate, weight_decay=recipe.weight_decay, average=recipe.average)
    targets = torch.tensor(labels, device=device())

    def loss_at(step: int) -> Tensor:
        chosen = rows_of_step(step, size=recipe.batch, count=count, seed=seed)
        where = (torch.rand(len(chosen)) * 2 - 1).clamp_min(0).tolist()
        batch = [stretch(rows[i], recipe.length, share) for i, share in zip(chosen.tolist(), where, strict=True)]
        with half_precision():
            logits = model(**padded(batch, pad)).logits
        return F.cross_entropy(logits.float(), targets[chosen.to(device())], label_smoothing=recipe.smoothing)

    fit("classifier", model, loss_at, plan, out, seed=seed)


@torch.inference_mode()
def accuracy(model: BertForSequenceClassification, rows: list[Encoded], labels: list[int], length: int) -> float:
    """On the beginnings of texts, which is what the model reads when it is explained."""
    model.eval()
    right = 0
    for start in range(0, len(rows), 64):
        batch = [stretch(row, length, 0.0) for row in rows[start : start + 64]]
        found = model(**padded(batch, model.config.pad_token_id)).logits.argmax(-1).tolist()
        right += sum(a == b for a, b in zip(found, labels[start : start + 64], strict=True))
    return right / len(rows)


# --- the command ------------------------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.classifier", description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=sorted(RECIPES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", help="an embedded model or a BERT folder to start from, instead of the recipe's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--smoke", action="store_true", help="a run of seconds, to see that it runs")
    return parser.parse_args(argv)


def chosen_recipe(arguments: argparse.Namespace) -> Recipe:
    given = {name: getattr(arguments, name) for name in ("start", "rate", "epochs", "batch")}
    recipe = replace(RECIPES[arguments.task], **{name: value for name, value in given.items() if value is not None})
    return replace(recipe, length=24, epochs=1, batch=4) if arguments.smoke else recipe


def few(rows: reader.Rows) -> reader.Rows:
    return rows[0][:16], rows[1][:16]


def write(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    figures: dict[str, float | int],
    out: Path,
) -> None:
    folder = out / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (out / "recipe.json").write_text(json.dumps({**asdict(recipe), **figures}, indent=1) + "\n")


def main(argv: list[str] | None = None) -> None:
    arguments = parse(argv)
    recipe, out, task = chosen_recipe(arguments), arguments.out, arguments.task
    split = rows_of(task, arguments.data, arguments.seed)
    if arguments.smoke:
        split = Split(few(split.train), {name: few(rows) for name, rows in split.held_out.items()})
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    model, tokenizer = classifier_of(recipe.start, LABELS[task])
    finished = out / "classifier.safetensors"
    if finished.exists():
        recall(model, finished)
    else:
        train(model, encode(split.train[0], tokenizer), split.train[1], recipe, out, arguments.seed)
        keep(model, finished)
    figures: dict[str, float | int] = {"seed": arguments.seed, "train": len(split.train[0])}
    for name, (inputs, labels) in split.held_out.items():
        found = accuracy(model, encode(inputs, tokenizer), labels, recipe.length)
        print(f"{task}: accuracy {found:.4f} on the {len(labels)} rows of {name}", flush=True)
        figures |= {name: len(labels), f"{name} accuracy": found}
    if task == "snli":
        reader.write_pairs(split.held_out["test"], out / "held-out.txt")
    write(model.cpu(), tokenizer, recipe, figures, out)


if __name__ == "__main__":
    main()
