"""clearhead compare, and options that compare and explain share."""

import re
import sys

import pytest
from helpers.commands import TEXT, assert_one_line, records
from PIL import Image

import clearhead


def test_compare_by_names_and_spellings(run, model, tmp_path):
    flags = ["--methods", "att-cat,rollout", "--methods", "layer-gradcam:layer=1"]
    _, output, _ = run("compare", TEXT, "-m", model, *flags, "--json")
    assert [record["name"] for record in records(output)] == ["att-cat", "rollout", "layer-gradcam:layer=1"]
    code, output, errors = run("compare", TEXT, "-m", model, *flags, "--out", str(tmp_path / "all.html"))
    assert code == 0, errors
    assert output.count(TEXT) == 3
    assert (tmp_path / "all.html").read_text().count("<h3>") == 3


def test_compare_takes_many_inputs(run, model, tmp_path):
    (tmp_path / "a.csv").write_text("text\na bad film\na good film\n")
    inputs = [TEXT, str(tmp_path / "a.csv")]
    _, output, _ = run("compare", *inputs, "-m", model, "--methods", "att-cat,rollout", "--json")
    rows = records(output)
    texts = [TEXT, "a bad film", "a good film"]
    assert [(row["text"], row["name"]) for row in rows] == [(t, n) for t in texts for n in ("att-cat", "rollout")]
    out = tmp_path / "all.html"
    code, output, errors = run("compare", *inputs, "-m", model, "--methods", "att-cat,rollout", "--out", str(out))
    assert code == 0, errors
    assert output.count("a good film") == 2
    assert out.read_text().count("<article") == 3


def test_a_pdf_file_has_a_page_for_each_input(run, model, tmp_path):
    pytest.importorskip("matplotlib", reason="PDF files need Matplotlib")
    out = tmp_path / "all.pdf"
    flags = ["-m", model, "--no-check", "--out", str(out)]
    # The same text twice is two inputs.
    code, _, errors = run("compare", TEXT, "a bad film", "a bad film", "--methods", "att-cat,rollout", *flags)
    assert code == 0, errors
    assert len(re.findall(rb"/Type /Page\b", out.read_bytes())) == 3
    code, _, errors = run("explain", TEXT, "a bad film", *flags)
    assert code == 0, errors
    assert len(re.findall(rb"/Type /Page\b", out.read_bytes())) == 2


@pytest.mark.parametrize("ending", ["png", "svg", "SVG"])
def test_an_image_shows_one_input(run, model, tmp_path, ending):
    out = str(tmp_path / f"x.{ending}")
    message = f"A .{ending.lower()} file shows one input, but there are 2: use .html, or .pdf"
    assert_one_line(*run("compare", TEXT, "a bad film", "-m", model, "--out", out), message)


def test_a_pdf_file_without_matplotlib_is_refused_before_the_work(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = "need Matplotlib: pip install 'clearhead[plots]'"
    assert_one_line(*run("compare", TEXT, "-m", "nowhere/model", "--out", str(tmp_path / "x.pdf")), message)


def test_gold_marks_of_a_text_a_table_and_a_photo(run, model, image_model, tmp_path):
    out = tmp_path / "gold.html"
    classes = ["--target", "0", "--versus", "1"]
    marks = ["--gold", "bad", "--gold", "never"]
    code, _, errors = run("explain", TEXT, "-m", model, *marks, *classes, "--out", str(out))
    assert code == 0, errors
    page = out.read_text()
    assert page.count('<mark class="ch-gold">') == 2
    assert page.count("of the 2 most relevant words are marked") == 2
    (tmp_path / "a.csv").write_text("text,why\na bad film,bad\na good film,\nnever a heart,never|heart\n")
    code, _, errors = run("explain", str(tmp_path / "a.csv"), "-m", model, "--gold", "why", "--out", str(out))
    assert code == 0, errors
    assert out.read_text().count('<mark class="ch-gold">') == 3
    Image.effect_noise((40, 30), 60).convert("RGB").save(tmp_path / "photo.png")
    Image.new("L", (40, 30), 255).save(tmp_path / "mask.png")
    photo = [str(tmp_path / "photo.png"), "-m", image_model, "--gold", str(tmp_path / "mask.png")]
    code, _, errors = run("explain", *photo, "--out", str(out))
    assert code == 0, errors
    assert "100&nbsp;% of the positive relevance lies inside" in out.read_text()


def test_curves_are_the_models_own_answers(run, model, image_model, tmp_path):
    out = tmp_path / "curves.html"
    methods = ["--methods", "att-cat,rollout"]
    code, _, errors = run(
        "compare", "a bad film", "-m", model, *methods, "--target", "0", "--curves", "--out", str(out)
    )
    assert code == 0, errors
    page = out.read_text()
    assert page.count("<polyline") == 6
    assert page.count("Random order: the mean of 5 random orders; the band is their range, lowest to highest.") == 1
    unmasked = clearhead.explain(clearhead.load(model), "a bad film", target=0).probability
    masked = clearhead.explain(clearhead.load(model), "[MASK] [MASK] [MASK]", target=0).probability
    for chart, first, last in zip(page.split("<svg")[1:], (unmasked, masked), (masked, unmasked), strict=True):
        rows = chart.split("<tbody>")[1].split("</tbody>")[0].split("<tr>")[1:]
        for row, value in ((rows[0], first), (rows[-1], last)):
            assert row.count(f">{value:.3g}<") + row.count(f">{value:.3g} [{value:.3g}, {value:.3g}]<") == 3
    photo = tmp_path / "photo.png"
    Image.effect_noise((40, 40), 60).convert("RGB").save(photo)
    code, _, errors = run("explain", str(photo), "-m", image_model, "--curves", "--out", str(out))
    assert code == 0, errors
    assert "patches hidden" in out.read_text()
