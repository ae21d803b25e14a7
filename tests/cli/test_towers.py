"""clearhead explain with a picture and texts, or two texts."""

import pytest
from helpers.commands import assert_one_line, records
from helpers.joined_models import joined_network
from helpers.pictures import photo
from helpers.two_towers import save_sentence_folder, save_tower_folder, tower_processor
from PIL import Image

import clearhead


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return str(save_tower_folder(tmp_path_factory.mktemp("clip")))


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "photo.png"
    photo().save(path)
    return str(path)


def test_a_picture_and_a_text(run, clip, picture, tmp_path):
    out = tmp_path / "joint.json"
    code, output, errors = run("explain", picture, "a fine film", "--model", clip, "--out", str(out))
    assert code == 0, errors
    assert "a fine film" in output and "% on the picture" in output
    joint = clearhead.read(out)
    assert joint.image.grid == (4, 4) and joint.text.text == "a fine film"


def test_several_texts_are_choices_of_a_page(run, clip, picture, tmp_path):
    out = tmp_path / "joint.html"
    texts = ("a fine film", "not bad", "a joyless film")
    code, _, errors = run("explain", picture, *texts, "--model", clip, "--no-check", "--out", str(out))
    assert code == 0, errors
    assert out.read_text().count("<details name=") == 3


def test_texts_as_records_and_a_named_one(run, clip, picture):
    arguments = ("explain", picture, "a fine film", "not bad", "--model", clip, "--no-check", "--json")
    code, output, errors = run(*arguments)
    assert code == 0, errors
    first, second = records(output)
    assert {first["label"], second["label"]} == {"a fine film", "not bad"}
    assert first["score"] >= second["score"]
    code, output, _ = run(*arguments, "--target", "1", "--versus", "0")
    assert [record["label"] for record in records(output)] == ["not bad rather than a fine film"]


def test_an_image_is_written(run, clip, picture, tmp_path):
    out = tmp_path / "joint.png"
    code, _, errors = run("explain", picture, "a fine film", "--model", clip, "--no-check", "--out", str(out))
    assert code == 0, errors
    assert Image.open(out).width > 1000


@pytest.mark.parametrize("ending", ["pdf", "svg", "md", "parquet"])
def test_every_format_is_written(ending, run, clip, picture, tmp_path):
    pytest.importorskip(
        {"pdf": "matplotlib", "parquet": "pyarrow"}.get(ending, "PIL"), reason="an extra of this format"
    )
    out = tmp_path / f"joint.{ending}"
    code, _, errors = run("explain", picture, "a film", "bad", "--model", clip, "--no-check", "--out", str(out))
    assert code == 0, errors
    assert out.stat().st_size > 500


def test_methods_are_compared(run, clip, picture, tmp_path):
    out = tmp_path / "methods.html"
    arguments = ("compare", picture, "a fine film", "not bad", "--model", clip, "--methods", "gae,random", "--no-check")
    code, output, errors = run(*arguments, "--target", "not bad", "--out", str(out))
    assert code == 0, errors
    assert "gae" in output and out.read_text().count('class="ch-figure"') == 2
    assert_one_line(*run(*arguments, "--out", str(tmp_path / "methods.png")), ".png shows one method")
    pytest.importorskip("matplotlib", reason="PDF files need Matplotlib")
    code, _, errors = run(*arguments, "--target", "not bad", "--out", str(tmp_path / "methods.pdf"))
    assert code == 0, errors
    # A page for each method.
    assert (tmp_path / "methods.pdf").read_bytes().count(b"/Type /Page ") == 2


def test_what_reads_single_inputs_refuses_pairs(run, clip, picture, tmp_path):
    page = str(tmp_path / "joint.html")
    assert_one_line(
        *run("explain", picture, "a film", "--model", clip, "--curves", "--out", page), "--curves is for single"
    )
    assert_one_line(*run("plan", picture, "a film", "--model", clip), "several inputs together")


def test_mistakes_are_told(run, clip, picture, tmp_path):
    assert_one_line(*run("explain", picture, "--model", clip), "give a picture and texts")
    assert_one_line(*run("explain", "a text", "another", "--model", clip), "no picture")
    out = str(tmp_path / "joint.json")
    assert_one_line(*run("explain", picture, "a film", "bad", "--model", clip, "--out", out), ".jsonl")
    assert_one_line(*run("explain", picture, "a film", "--model", clip, "--target", "a dog"), "a dog")


def test_two_texts(run, tmp_path):
    save_sentence_folder(tmp_path)
    code, output, errors = run("explain", "a fine film", "not bad", "--model", str(tmp_path), "--no-check")
    assert code == 0, errors
    assert "Similarity" in output


@pytest.fixture(scope="module")
def vilt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vilt")
    joined_network("vilt").float().save_pretrained(folder)
    tower_processor().tokenizer.save_pretrained(folder)
    tower_processor().image_processor.save_pretrained(folder)
    return str(folder)


def test_a_picture_and_a_question_that_are_read_together(run, picture, vilt, tmp_path):
    out = tmp_path / "joint.json"
    code, output, errors = run("explain", picture, "a fine film", "--model", vilt, "--out", str(out))
    assert code == 0, errors
    assert "% on the picture" in output and "Similarity" not in output
    assert clearhead.read(out).image.grid == (4, 4)


def test_methods_on_a_picture_and_a_question(run, picture, vilt, tmp_path):
    methods, page = ["--methods", "balanced-cat,attn-lrp"], tmp_path / "methods.html"
    code, output, errors = run("compare", picture, "a fine film", "-m", vilt, *methods, "--out", str(page))
    assert code == 0, errors
    # Once for each method, whose inputs are checked together.
    assert output.count("\nCheck ") == 2
    assert page.read_text().count("Of all relevance") == 2
    flags = [*methods, "--target", "LABEL_2", "--json", "--no-check"]
    code, output, errors = run("compare", picture, "a fine film", "bad", "-m", vilt, *flags)
    assert code == 0, errors
    assert [row["label"] for row in records(output)] == ["LABEL_2"] * 4


def test_flags_that_joint_models_lack(run, picture, clip, vilt, tmp_path):
    page = str(tmp_path / "joint.html")
    for command in ("explain", "compare"):
        assert_one_line(
            *run(command, picture, "a film", "-m", vilt, "--curves", "--out", page), "--curves is for single"
        )
        assert_one_line(*run(command, picture, "a film", "-m", vilt, "--answer", "yes"), "no language model")
    assert_one_line(*run("explain", picture, "a film", "-m", vilt, "--focus", "film"), "no language model")
    assert_one_line(*run("explain", picture, "a film", "-m", clip, "--answer", "yes"), "no language model")
    assert_one_line(*run("compare", picture, "a film", "-m", vilt, "--out", str(tmp_path / "joint.png")), ".html")


def test_two_towers_are_not_compared_with_other_models_of_two_inputs(run, picture, clip, vilt, tmp_path):
    texts = str(save_sentence_folder(tmp_path))
    assert_one_line(
        *run("compare", picture, "a film", "-m", clip, "-m", vilt), "reads a picture and a text as one sequence"
    )
    assert_one_line(*run("compare", "a film", "bad", "-m", texts, "-m", clip), "compares texts with texts")
