"""clearhead compare with several models."""

import shlex

import pytest
from helpers.commands import TEXT, assert_one_line, records
from helpers.pictures import photo
from helpers.saved_models import save_image_model, save_language_model, save_regression_model, save_text_model


@pytest.fixture(scope="module")
def other_model(tmp_path_factory):
    return str(save_text_model(tmp_path_factory.mktemp("other-model"), num_hidden_layers=3))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models that cannot be compared with each other, by the words of the commands below."""
    base = tmp_path_factory.mktemp("models")
    labels = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    return {
        "LABELS": str(save_text_model(base / "labels", **labels)),
        "STARS": str(save_regression_model(base / "stars")),
        "NER": str(save_text_model(base / "ner", "BertForTokenClassification")),
        "WRITER": str(save_language_model(base / "writer")),
    }


def test_records_are_by_input_method_and_model(run, model, other_model):
    flags = ["-m", model, "-m", other_model, "--methods", "att-cat,rollout", "--json", "--no-check"]
    code, output, errors = run("compare", TEXT, "a bad film", *flags)
    assert code == 0, errors
    rows = records(output)
    expected = [
        (text, method, name) for text in (TEXT, "a bad film") for method in ("att-cat", "rollout")
        for name in (model, other_model)
    ]  # fmt: skip
    assert [(row["text"], row["name"], row["model"]) for row in rows] == expected
    for row in rows:
        (other,) = {model, other_model} - {row["model"]}
        assert -1 <= row["diagnostics"]["model_agreement"][other] <= 1


@pytest.mark.parametrize("ending", [".html", ".png", ".svg", ".pdf", ".md", ".jsonl", ".parquet"])
def test_every_file_holds_both_models(run, model, other_model, tmp_path, ending):
    out = tmp_path / f"models{ending}"
    code, output, errors = run("compare", TEXT, "-m", model, "-m", other_model, "--out", str(out))
    assert code == 0, errors
    assert output.count("balanced-cat") == 1
    assert "Rank correlation" in " ".join(output.split())
    assert out.stat().st_size > 0
    # The lines of an .svg are broken anywhere in a long name, as those of a .png are.
    if ending in (".html", ".md", ".jsonl"):
        content = out.read_text().replace("\\", "")
        assert model.rsplit("/", 1)[-1] in content
        assert other_model.rsplit("/", 1)[-1] in content


def test_photos_and_curves(run, image_model, tmp_path, tmp_path_factory):
    other = str(save_image_model(tmp_path_factory.mktemp("other-image"), patch_size=16))
    photo(40, 30).save(tmp_path / "photo.png")
    models = ["-m", image_model, "-m", other, "--methods", "trans-att"]
    code, _, errors = run("compare", str(tmp_path / "photo.png"), *models, "--out", str(tmp_path / "grid.png"))
    assert code == 0, errors
    page = tmp_path / "curves.html"
    code, _, errors = run("compare", str(tmp_path / "photo.png"), *models, "--curves", "--out", str(page))
    assert code == 0, errors
    # A chart for each model, which has its title and its axis.
    content = page.read_text()
    assert content.count("patches hidden") == 4
    assert [f"<h2>{name}</h2>" in content for name in (image_model, other)] == [True, True]


# MODEL and OTHER are classifiers with the same classes, IMAGE one of pictures.
MISTAKES = {
    "one missing": ("compare TEXT -m MODEL -m ./nowhere", "'./nowhere'"),
    "both missing": ("compare TEXT -m ./nowhere -m ./neither", "'./nowhere'"),
    "a photo for text models": ("compare photo.png -m MODEL -m OTHER", "the model reads text"),
    "a text for image models": ("compare TEXT -m IMAGE -m IMAGE2", "image"),
    "texts and images": ("compare TEXT -m MODEL -m IMAGE", "reads texts, but"),
    "other classes": ("compare TEXT -m MODEL -m LABELS", "different classes"),
    "a class that one lacks": ("compare TEXT -m MODEL -m LABELS --target positive", "yes"),
    "a class number that both lack": ("compare TEXT -m MODEL -m LABELS --target 7", "7"),
    "the same twice": ("compare TEXT -m MODEL -m MODEL", "given twice"),
    "the same in other words": ("compare TEXT -m MODEL -m MODEL/../MODELNAME", "given twice"),
    "a number and a class": ("compare TEXT -m MODEL -m STARS", "different classes"),
    "a classifier and labels of words": ("compare TEXT -m MODEL -m NER", "labels words"),
    "a classifier and a writer": ("compare TEXT -m MODEL -m WRITER", "writes text"),
    "an answer of classifiers": ("compare TEXT -m MODEL -m OTHER --answer yes", "no language model"),
    "curves of writers": ("compare TEXT -m WRITER --answer yes --curves --out x.html", "--curves is for models with"),
    "one file for two explanations": ("compare TEXT -m MODEL -m OTHER --out x.json", "there are 2: use .jsonl"),
    "an unknown method": ("compare TEXT -m MODEL -m OTHER --methods lim", "Did you mean 'lime'?"),
    "a method without a head": ("compare TEXT -m MODEL -m OTHER --methods decoded-gradcam", "--lm-head"),
    "a file as a model": ("compare TEXT -m MODEL -m photo.png", "photo.png"),
    "explain has one model": ("explain TEXT -m MODEL -m OTHER", "clearhead compare INPUT -m A -m B"),
}


@pytest.mark.parametrize(("command", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(run, model, other_model, image_model, folders, tmp_path, monkeypatch, command, message):
    monkeypatch.chdir(tmp_path)
    photo(40, 30).save("photo.png")
    name = model.rsplit("/", 1)[-1]
    words = {"TEXT": TEXT, "MODEL": model, "OTHER": other_model, "IMAGE": image_model, **folders}
    words |= {"IMAGE2": str(save_image_model(tmp_path / "image")), "MODEL/../MODELNAME": f"{model}/../{name}"}
    arguments = [words.get(word, word) for word in shlex.split(command)]
    assert_one_line(*run(*arguments), message)
