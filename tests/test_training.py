"""A smoke run of every recipe, on data made up here."""

import gzip
import io
import json
import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

WORDS = ["a", "the", "film", "news", "story", "is", "not", "good", "bad", "dull", "team", "market", "city"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "a", "##s", "##less", *WORDS[1:]]


def _sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(4, 12))) + " ."


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text data in the folder layout the recipes read."""
    data, draw = tmp_path_factory.mktemp("texts"), random.Random(0)
    for name in ("sst2", "ag_news", "imdb", "eraser_movies", "pairs"):
        (data / name).mkdir()
    for split in ("train", "dev", "test"):
        rows = "".join(f"{i % 2}\t{_sentence(draw)}\n" for i in range(24))
        (data / "sst2" / f"{split}.tsv").write_text("label\tsentence\n" + rows)
    topics = ("World", "Sports", "Business", "Sci/Tech")
    for name in ("train_subset_10k", "test"):
        rows = "".join(f"{_sentence(draw)}\t{topics[i % 4]}\n" for i in range(24))
        (data / "ag_news" / f"{name}.tsv").write_text(rows)
    with gzip.open(data / "imdb" / "unsup.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": _sentence(draw)}) + "\n" for _ in range(40))
    for split in ("train", "val", "test"):
        documents = [{"text": " ".join(_sentence(draw) for _ in range(5)), "label": i % 2} for i in range(8)]
        with gzip.open(data / "eraser_movies" / f"docs_{split}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(document) + "\n" for document in documents)
    relations = ("entailment", "neutral", "contradiction")
    for name in ("snli", "mnli_matched"):
        rows = "".join(f"{relations[i % 3]}\tno {i // 2} {_sentence(draw)}\t{_sentence(draw)}\n" for i in range(24))
        (data / "pairs" / f"{name}.txt").write_text(rows)
    return data


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT encoder of three tiny blocks with a tokenizer."""
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("start")
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(PIECES[:5])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
    )
    config.save_pretrained(folder)
    save_file({k: v.contiguous() for k, v in BertModel(config).state_dict().items()}, folder / "model.safetensors")
    return folder


def test_text_recipe_runs_and_resumes(texts: Path, start: Path, tmp_path: Path) -> None:
    from training import text

    shared = ["--data", str(texts), "--out", str(tmp_path), "--start", str(start), "--smoke"]
    text.main(["sst2", *shared])
    pretrained = (tmp_path / "masked-lm.safetensors").read_bytes()
    text.main(["agnews", *shared])
    assert (tmp_path / "masked-lm.safetensors").read_bytes() == pretrained
    written = {file.relative_to(tmp_path / "zoo").as_posix() for file in (tmp_path / "zoo").rglob("*.*")}
    assert {"minilm/shared.safetensors", "minilm/tokenizer.json", "checksums.json"} < written
    assert {"sst2-minilm/model.safetensors", "agnews-minilm/model.safetensors"} < written


def _explained(folder: Path, raw: str | tuple[str, str]) -> str:
    import clearhead

    explanation = clearhead.explain(clearhead.load(folder), raw, "att-cat")
    assert explanation.relevance.any()
    return explanation.label


def test_movie_recipe_makes_a_model_to_explain(texts: Path, start: Path, tmp_path: Path) -> None:
    from training import classifier

    command = ["movies", "--data", str(texts), "--out", str(tmp_path), "--start", str(start), "--smoke"]
    classifier.main(command)
    written = {file: (tmp_path / "model" / file).read_bytes() for file in ("config.json", "model.safetensors")}
    classifier.main(command)
    assert all((tmp_path / "model" / file).read_bytes() == content for file, content in written.items())
    assert json.loads((tmp_path / "recipe.json").read_text())["test"] == 8
    assert _explained(tmp_path / "model", "the film is not good .") in ("NEG", "POS")


def test_pair_recipe_measures_on_rows_it_never_saw(texts: Path, start: Path, tmp_path: Path) -> None:
    from training import classifier, readers

    classifier.main(["snli", "--data", str(texts), "--out", str(tmp_path), "--start", str(start), "--smoke"])
    split = classifier.read_split("snli", texts, seed=1)
    held_out = (tmp_path / "held-out.txt").read_text().splitlines()
    seen, unseen = ({pair[0] for pair in rows[0]} for rows in (split.train, split.held_out["test"]))
    assert not seen & unseen
    assert {line.split("\t")[1] for line in held_out} <= unseen
    assert _explained(tmp_path / "model", ("a good film .", "a bad film .")) in readers.RELATIONS


def test_a_recipe_starts_from_an_embedded_model() -> None:
    from training import classifier

    model, tokenizer = classifier.build_classifier("clearhead/sst2-minilm", ["NEG", "POS"])
    (row,) = classifier.encode(["good " * 600], tokenizer)
    ids, segments = classifier.crop_row(row, 512, 0.5)
    assert (len(ids), len(segments), ids[0], ids[-1]) == (512, 512, tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert model.config.id2label == {0: "NEG", 1: "POS"}


def _picture(draw: random.Random, size: int, image_format: str) -> bytes:
    from PIL import Image

    noise = Image.frombytes("RGB", (8, 8), draw.randbytes(192)).resize((size, size))
    file = io.BytesIO()
    noise.save(file, image_format)
    return file.getvalue()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Picture data in the folder layout the recipe reads."""
    arrow = pytest.importorskip("pyarrow", reason="the image recipe reads Parquet files")
    import pyarrow.parquet as parquet

    data, draw = tmp_path_factory.mktemp("photos"), random.Random(0)
    (data / "tiny_imagenet").mkdir()
    (data / "oxford_pets").mkdir()
    for name in ("train-0", "train-1", "val"):
        rows = {"label": [i % 3 for i in range(6)], "image": [_picture(draw, 64, "WEBP") for _ in range(6)]}
        parquet.write_table(arrow.table(rows), data / "tiny_imagenet" / f"{name}.parquet")
    for name in ("trainval", "test"):
        rows = {
            "breed": ["Abyssinian", "Beagle"] * 4,
            "breed_id": [0, 1] * 4,
            "species": ["cat", "dog"] * 4,
            "image": [_picture(draw, 144, "JPEG") for _ in range(8)],
        }
        parquet.write_table(arrow.table(rows), data / "oxford_pets" / f"{name}.parquet")
    return data


def test_image_recipe_runs(photos: Path, tmp_path: Path) -> None:
    from training import image

    image.main(["--data", str(photos), "--out", str(tmp_path), "--smoke"])
    from transformers import ViTConfig

    config = ViTConfig.from_pretrained(tmp_path / "zoo" / "pets-vit")
    assert config.id2label == {0: "Abyssinian", 1: "Beagle"}
    assert (config.image_size, config.patch_size) == (128, 8)


def test_tower_recipe_runs(photos: Path, tmp_path: Path) -> None:
    from PIL import Image

    import clearhead
    from training import towers

    if "clearhead/pets-vit" not in clearhead.models():
        pytest.skip("this build has no embedded models")
    towers.main(["--data", str(photos), "--out", str(tmp_path), "--smoke"])
    model = clearhead.load(tmp_path / "model")
    joint = clearhead.explain(model, (Image.new("RGB", (144, 144)), ["a cat", "a dog"]), check=False)
    assert joint.image.grid == (16, 16) and joint.label in ("a cat", "a dog")
    assert json.loads((tmp_path / "recipe.json").read_text())["recipe"]["steps"] == 4


def test_an_interrupted_stage_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    from training.loop import Plan, fit

    def train(folder: Path, *, stop: int | None) -> torch.Tensor:
        torch.manual_seed(0)
        model, plan = torch.nn.Linear(3, 1), Plan(6, 0.1, average=0.5, checkpoint_seconds=-1)

        def loss_at(step: int) -> torch.Tensor:
            if step == stop:
                raise KeyboardInterrupt
            return (model(torch.rand(4, 3)) - 1).square().mean()

        try:
            fit("line", model, loss_at, plan, folder, seed=3)
        except KeyboardInterrupt:
            return train(folder, stop=None)
        return model.weight.detach()

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert torch.equal(train(tmp_path / "a", stop=None), train(tmp_path / "b", stop=4))
