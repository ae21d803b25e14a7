"""The embedded models: they load fast, answer as well as their cards say, and notice damaged files."""

import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.timing import quickest

from clearhead.errors import CorruptModel
from clearhead.model import zoo

TEXT = ("clearhead/sst2-minilm", "clearhead/agnews-minilm")
PETS = "clearhead/pets-vit"
DATA = Path(os.environ.get("CLEARHEAD_SHARED", Path(__file__).parents[3] / "shared")) / "data"


def _needs(file: str) -> Path:
    if not (DATA / file).exists():
        pytest.skip(f"{file} is not in the shared data folder; set CLEARHEAD_SHARED to the folder that holds data/")
    return DATA / file


@pytest.fixture(scope="module", params=TEXT)
def text_model(request: pytest.FixtureRequest) -> tuple[str, Any, Any, Any]:
    return (request.param, *zoo.open_model(request.param))


@pytest.fixture(scope="module")
def pets_model() -> tuple[Any, Any]:
    return zoo.open_model(PETS)[:2]


def _rows(file: str, *, header: bool, every: int) -> list[list[str]]:
    with open(_needs(file), encoding="utf-8", newline="") as opened:
        return list(csv.reader(opened, delimiter="\t", quoting=csv.QUOTE_NONE))[int(header) :: every]


def _share_right(model: Any, tokenizer: Any, pairs: list[tuple[str, str]]) -> float:
    import torch

    right = 0
    pairs = sorted(pairs, key=lambda pair: len(pair[0]))
    for start in range(0, len(pairs), 32):
        texts, labels = zip(*pairs[start : start + 32], strict=True)
        encoded = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            predicted = model(**encoded).logits.argmax(-1).tolist()
        right += sum(model.config.id2label[i] == label for i, label in zip(predicted, labels, strict=True))
    return right / len(pairs)


def _labelled(name: str) -> list[tuple[str, str]]:
    if name.endswith("sst2-minilm"):
        rows = _rows("sst2/dev.tsv", header=True, every=1)
        return [(row[1], ("negative", "positive")[int(row[0])]) for row in rows]
    return [(row[0], row[1]) for row in _rows("ag_news/test.tsv", header=False, every=24)]


def test_the_default_comes_first() -> None:
    assert zoo.names() == ["clearhead/sst2-minilm", "clearhead/agnews-minilm", "clearhead/pets-vit"]


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(KeyError, match="Did you mean"):
        zoo.describe("clearhead/nothing")


def test_text_models_answer_as_their_cards_say(text_model: tuple[str, Any, Any, Any]) -> None:
    name, model, tokenizer, _ = text_model
    assert _share_right(model, tokenizer, _labelled(name)) >= zoo.describe(name)["accuracy"] - 0.02


def test_text_models_answer_sentences_written_for_this_test(text_model: tuple[str, Any, Any, Any]) -> None:
    """Plain sentences that travel with the repository, so that every clone can see the models work."""
    name, model, tokenizer, _ = text_model
    sentences = json.loads((Path(__file__).parent / "labelled_sentences.json").read_text())[name]
    assert _share_right(model, tokenizer, sentences) >= 0.9


def test_the_image_model_answers_as_its_card_says(pets_model: tuple[Any, Any]) -> None:
    file = _needs("oxford_pets/test.parquet")
    parquet = pytest.importorskip("pyarrow.parquet", reason="the photos lie in a Parquet file")
    import torch
    from PIL import Image

    rows = parquet.read_table(file, columns=["image", "breed"]).to_pylist()[::16]
    model, processor = pets_model
    predicted: list[int] = []
    for start in range(0, len(rows), 16):
        photos = [Image.open(io.BytesIO(row["image"])).convert("RGB") for row in rows[start : start + 16]]
        with torch.inference_mode():
            predicted += model(**processor(photos, return_tensors="pt")).logits.argmax(-1).tolist()
    right = [model.config.id2label[i] == row["breed"] for i, row in zip(predicted, rows, strict=True)]
    assert sum(right) / len(right) >= zoo.describe(PETS)["accuracy"] - 0.02


def test_models_are_ordinary_ones(text_model: tuple[str, Any, Any, Any], pets_model: tuple[Any, Any]) -> None:
    import torch
    from transformers import BertForMaskedLM, BertForSequenceClassification, ViTForImageClassification

    name, model, tokenizer, language_model = text_model
    assert type(model) is BertForSequenceClassification and type(language_model) is BertForMaskedLM
    assert type(pets_model[0]) is ViTForImageClassification
    assert list(model.config.id2label.values()) == zoo.describe(name)["labels"]
    assert model.config.label2id == {label: i for i, label in model.config.id2label.items()}
    assert list(pets_model[0].config.id2label.values()) == zoo.describe(PETS)["labels"]
    for network in (model, language_model, pets_model[0]):
        assert not network.training
        assert all(p.dtype == torch.float32 and p.requires_grad and not p.is_meta for p in network.parameters())
    assert tokenizer.model_max_length == model.config.max_position_embeddings
    assert len(tokenizer) == model.config.vocab_size


def test_the_head_shares_the_classifiers_tensors(text_model: tuple[str, Any, Any, Any]) -> None:
    _, model, _, language_model = text_model
    words = model.bert.embeddings.word_embeddings.weight
    assert language_model.cls.predictions.decoder.weight is words
    assert language_model.get_output_embeddings().weight is language_model.get_input_embeddings().weight
    assert language_model.bert.encoder is model.bert.encoder


def test_the_head_reads(text_model: tuple[str, Any, Any, Any]) -> None:
    _, _, tokenizer, language_model = text_model
    encoded = tokenizer("the united [MASK] of america .", return_tensors="pt")
    position = encoded["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    best = language_model(**encoded).logits[0, position].argmax().item()
    assert tokenizer.convert_ids_to_tokens(best) == "states"


def test_the_tokenizer_has_its_special_tokens(text_model: tuple[str, Any, Any, Any]) -> None:
    tokenizer = text_model[2]
    pair = tokenizer("A joyless film — naïve!", "It cost £5.")
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"])[:5] == ["[CLS]", "a", "joy", "##less", "film"]
    assert tokenizer.unk_token_id not in pair["input_ids"]
    assert pair["token_type_ids"][0] == 0 and pair["token_type_ids"][-1] == 1
    assert tokenizer.pad_token_id == 0


def test_the_sentiment_model_minds_negation() -> None:
    model, tokenizer, _ = zoo.open_model(TEXT[0])
    encoded = tokenizer(["the story is good", "the story is not good"], padding=True, return_tensors="pt")
    assert model(**encoded).logits.argmax(-1).tolist() == [1, 0]


def test_photos_of_any_shape_become_128_pixels(pets_model: tuple[Any, Any]) -> None:
    from PIL import Image

    with Image.open(zoo.HERE / "examples" / "chelsea.jpg") as photo:
        pixels = pets_model[1](photo, return_tensors="pt")["pixel_values"]
    assert pixels.shape == (1, 3, 128, 128)
    assert -1 <= pixels.min() < pixels.max() <= 1


@pytest.mark.parametrize("name", zoo.names())
def test_loading_takes_at_most_three_seconds(name: str) -> None:
    import torch

    zoo.open_model(name)
    before = torch.random.get_rng_state()
    assert quickest(lambda: zoo.open_model(name), 3) <= 3
    assert torch.equal(before, torch.random.get_rng_state())


def test_importing_does_no_work() -> None:
    code = "import sys; from clearhead.model import zoo; zoo.names(); print('transformers' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder that may be damaged."""
    for file in ("models.json", "checksums.json"):
        shutil.copy(zoo.HERE / file, tmp_path)
    shutil.copytree(zoo.HERE / "pets-vit", tmp_path / "pets-vit")
    monkeypatch.setattr(zoo, "HERE", tmp_path)
    return tmp_path


def test_one_wrong_byte_is_noticed(copied: Path) -> None:
    file = copied / "pets-vit" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptModel, match=r"pets-vit/model\.safetensors is damaged.*Reinstall"):
        zoo.open_model(PETS)


def test_a_missing_file_is_noticed(copied: Path) -> None:
    (copied / "pets-vit" / "model.safetensors").unlink()
    with pytest.raises(CorruptModel, match=r"cannot be read.*Reinstall"):
        zoo.open_model(PETS)


def test_every_shipped_file_has_its_checksum() -> None:
    sums = json.loads((zoo.HERE / "checksums.json").read_text())
    shipped = [
        *zoo.HERE.glob("*/*.safetensors"),
        *(f for f in zoo.HERE.glob("*/*.json") if f.parent.name != "examples"),
    ]
    assert {f.relative_to(zoo.HERE).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in shipped} == sums


def test_everything_together_stays_small() -> None:
    assert sum(file.stat().st_size for file in zoo.HERE.rglob("*") if file.is_file()) <= 40e6


@pytest.mark.parametrize("name", zoo.names())
def test_every_model_has_a_card(name: str) -> None:
    card = (zoo.HERE / name.partition("/")[2] / "card.md").read_text(encoding="utf-8")
    for heading in ("## Data", "## Recipe", "## Accuracy", "## Known weaknesses", "## Licence"):
        assert heading in card
    assert f"{zoo.describe(name)['accuracy']:.3f}" in card


def test_examples_fit_the_models() -> None:
    sentences = json.loads((zoo.HERE / "examples" / "sentences.json").read_text(encoding="utf-8"))
    assert set(sentences) == set(TEXT)
    film = " ".join(sentences[TEXT[0]])
    assert "joyless" in film and " not " in film
