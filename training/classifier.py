"""Train the models that the benchmarks need beside the embedded ones: movie reviews with rationales, sentence pairs.

    python -m training.classifier movies --data ../shared/data --out runs/movies
    python -m training.classifier snli --data ../shared/data --out runs/snli

The finished model is an ordinary Hugging Face folder, --out/model, for `clearhead … --model`; beside it lie
recipe.json (hyperparameters and accuracy) and, where the recipe splits the data itself, the held-out rows. An
interrupted run resumes from its checkpoint; a finished one is only evaluated and written again.
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

from training import readers
from training.loop import Plan, count_steps, fit, half_precision, load_stage, save_stage, select_device, select_rows
from training.text import find_start_folder

Encoded = tuple[list[int], list[int]]
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "mask", "pad", "unk")}


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of one model; `start` is an embedded model's name, a folder, or None for the packaged MiniLM."""

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
LABELS = {"movies": readers.VERDICTS, "snli": readers.RELATIONS}


@dataclass(frozen=True)
class Split:
    """Training rows, and held-out rows by name."""

    train: readers.Rows
    held_out: dict[str, readers.Rows]


def read_split(task: str, data: Path, seed: int) -> Split:
    if task == "movies":
        return Split(readers.movies(data, "train"), {name: readers.movies(data, name) for name in ("val", "test")})
    own, test = readers.split_by_first_sentence(readers.pairs(data, "snli"), share=0.2, seed=seed)
    more = readers.pairs(data, "mnli_matched")
    return Split((own[0] + more[0], own[1] + more[1]), {"test": test})


def load_from_zoo(name: str) -> tuple[BertConfig, dict[str, Tensor], PreTrainedTokenizerFast]:
    from clearhead.model import zoo

    network, tokenizer, _ = zoo.open_model(name)
    return network.config, network.bert.state_dict(), tokenizer


def load_from_folder(folder: Path) -> tuple[BertConfig, dict[str, Tensor], PreTrainedTokenizerFast]:
    config = BertConfig.from_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    stored = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("bert."): value for name, value in stored.items()}
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=config.max_position_embeddings,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **SPECIAL,
    )
    return config, weights, wrapped


def build_classifier(
    start: str | None, labels: list[str]
) -> tuple[BertForSequenceClassification, PreTrainedTokenizerFast]:
    """Build a new head over the starting encoder; every weight is trained."""
    embedded = start is not None and start.startswith("clearhead/")
    if embedded:
        config, weights, tokenizer = load_from_zoo(start)
    else:
        config, weights, tokenizer = load_from_folder(Path(start or find_start_folder()))
    class_names = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    model = BertForSequenceClassification(BertConfig(**{**config.to_dict(), **class_names, "architectures": None}))
    encoder = {name: value.float() for name, value in weights.items() if "position_ids" not in name}
    missing, unexpected = model.bert.load_state_dict(encoder, strict=False)
    if unexpected or any(not name.startswith("pooler") for name in missing):
        raise SystemExit(f"'{start}' does not hold a BERT encoder: {(unexpected or missing)[:3]}.")
    return model.to(select_device()), tokenizer


def encode(inputs: list[readers.Raw], tokenizer: PreTrainedTokenizerFast) -> list[Encoded]:
    """Return token ids and segments of texts or pairs, not truncated."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    return [(encoding.ids, encoding.type_ids) for encoding in backend.encode_batch(inputs)]


def crop_row(row: Encoded, length: int, share: float) -> Encoded:
    """Crop a row to the model's length, keeping its first and last token; `share` (0 … 1) is the crop's position."""
    ids, segments = row
    if len(ids) <= length:
        return row
    offset = 1 + round(share * (len(ids) - length))
    window = slice(offset, offset + length - 2)
    return [ids[0], *ids[window], ids[-1]], [segments[0], *segments[window], segments[-1]]


def pad_batch(rows: list[Encoded], pad: int) -> dict[str, Tensor]:
    """Return the tensors of a batch, padded on the right."""
    width = max(len(ids) for ids, _ in rows)
    ids_BS = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows])
    segments_BS = torch.tensor([segments + [0] * (width - len(segments)) for _, segments in rows])
    tensors = {"input_ids": ids_BS, "token_type_ids": segments_BS, "attention_mask": (ids_BS != pad).long()}
    return {name: tensor.to(select_device()) for name, tensor in tensors.items()}


def train(
    model: BertForSequenceClassification,
    rows: list[Encoded],
    labels: list[int],
    recipe: Recipe,
    out: Path,
    seed: int,
) -> None:
    """Train with cross-entropy; half of the crops of a long text start at its beginning, the others anywhere."""
    count = len(rows)
    steps = count_steps(recipe.epochs, size=recipe.batch, count=count)
    plan = Plan(steps, recipe.rate, weight_decay=recipe.weight_decay, average=recipe.average)
    targets = torch.tensor(labels, device=select_device())

    def loss_at(step: int) -> Tensor:
        chosen = select_rows(step, size=recipe.batch, count=count, seed=seed)
        # Half of the draws are negative and become 0, the beginning, which the model reads when it is explained.
        shares = (torch.rand(len(chosen)) * 2 - 1).clamp_min(0).tolist()
        crops = zip(chosen.tolist(), shares, strict=True)
        batch = [crop_row(rows[index], recipe.length, share) for index, share in crops]
        with half_precision():
            logits = model(**pad_batch(batch, model.config.pad_token_id)).logits
        return F.cross_entropy(logits.float(), targets[chosen.to(select_device())], label_smoothing=recipe.smoothing)

    fit("classifier", model, loss_at, plan, out, seed=seed)


@torch.inference_mode()
def accuracy(model: BertForSequenceClassification, rows: list[Encoded], labels: list[int], length: int) -> float:
    """Return the accuracy on the beginnings of texts, which the model reads when it is explained."""
    model.eval()
    correct = 0
    for start in range(0, len(rows), 64):
        batch = [crop_row(row, length, 0.0) for row in rows[start : start + 64]]
        predicted = model(**pad_batch(batch, model.config.pad_token_id)).logits.argmax(-1).tolist()
        correct += sum(a == b for a, b in zip(predicted, labels[start : start + 64], strict=True))
    return correct / len(rows)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.classifier", description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=sorted(RECIPES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", help="an embedded model or a BERT folder to start from, instead of the recipe's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--smoke", action="store_true", help="train for seconds on a few rows, as a test")
    return parser.parse_args(argv)


def choose_recipe(arguments: argparse.Namespace) -> Recipe:
    options = {name: getattr(arguments, name) for name in ("start", "rate", "epochs", "batch")}
    changes = {name: value for name, value in options.items() if value is not None}
    recipe = replace(RECIPES[arguments.task], **changes)
    if arguments.smoke:
        return replace(recipe, length=24, epochs=1, batch=4)
    return recipe


def take_few(rows: readers.Rows) -> readers.Rows:
    return rows[0][:16], rows[1][:16]


def write_model(
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
    arguments = parse_arguments(argv)
    recipe, out, task = choose_recipe(arguments), arguments.out, arguments.task
    split = read_split(task, arguments.data, arguments.seed)
    if arguments.smoke:
        split = Split(take_few(split.train), {name: take_few(rows) for name, rows in split.held_out.items()})
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    model, tokenizer = build_classifier(recipe.start, LABELS[task])
    finished = out / "classifier.safetensors"
    if finished.exists():
        load_stage(model, finished)
    else:
        train(model, encode(split.train[0], tokenizer), split.train[1], recipe, out, arguments.seed)
        save_stage(model, finished)
    figures: dict[str, float | int] = {"seed": arguments.seed, "train": len(split.train[0])}
    for name, (inputs, labels) in split.held_out.items():
        share = accuracy(model, encode(inputs, tokenizer), labels, recipe.length)
        print(f"{task}: accuracy {share:.4f} on the {len(labels)} rows of {name}", flush=True)
        figures |= {name: len(labels), f"{name} accuracy": share}
    if task == "snli":
        readers.write_pairs(split.held_out["test"], out / "held-out.txt")
    write_model(model.cpu(), tokenizer, recipe, figures, out)


if __name__ == "__main__":
    main()
