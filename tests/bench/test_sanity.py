"""check_sanity(): the two tests of a method on a user's model, and their verdict."""

import pytest
from helpers.pictures import picture
from helpers.planted_keywords import make_texts, train
from helpers.tiny_models import image_model, text_model

import clearhead
from clearhead.bench import sanity
from clearhead.bench.sanity import FAILS, PASSES, UNCLEAR, Estimate, SanityRow

METHODS = ["occlusion", "raw-attention"]


@pytest.fixture(scope="module")
def report():
    return clearhead.check_sanity(train("bert").model, make_texts(16), METHODS)


def make_row(correlation=(0.0, -0.1, 0.1), first=(1.0, 0.9, 1.0)):
    return SanityRow("gae", Estimate(*correlation), Estimate(*first), 20)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (make_row(), PASSES),
        (make_row(correlation=(0.9, 0.8, 1.0)), FAILS),
        (make_row(first=(0.1, 0.0, 0.3)), FAILS),
        (make_row(first=(0.5, 0.3, 0.7)), UNCLEAR),
        (make_row(first=()), UNCLEAR),
        (make_row(correlation=(0.9, 0.8, 1.0), first=(0.5, 0.3, 0.7)), FAILS),
    ],
)
def test_a_test_is_decided_only_if_the_interval_lies_on_one_side(row, verdict):
    assert row.verdict == verdict


def test_every_method_and_chance_have_a_row(report):
    rows = {row.method: row for row in report.rows}
    assert list(rows) == [*METHODS, "random:seed=0"]
    assert rows["occlusion"].evidence == PASSES
    # The same seed draws the same noise for any weights.
    assert rows["random:seed=0"].correlation.value == pytest.approx(1)
    assert rows["random:seed=0"].randomisation == FAILS


def test_the_verdict_names_methods_and_how_many_inputs_count(report):
    text = "\n".join(report.sentences)
    assert all(method in text for method in METHODS)
    assert "of 16 inputs" in text


@pytest.mark.parametrize(
    ("make_model", "example", "units"),
    [(text_model, "a joyless film", "words"), (image_model, picture(), "patches")],
)
def test_a_failure_names_what_the_model_reads(monkeypatch, make_model, example, units):
    failed = (make_row(first=(0.1, 0.0, 0.3)), SanityRow("random", Estimate(), Estimate(), 0))
    monkeypatch.setattr(sanity, "_make_rows", lambda table, seed: failed)
    sentences = clearhead.check_sanity(make_model(), [example], ["raw-attention"]).sentences
    assert f"Do not rely on gae for single {units}" in sentences[0]


def test_the_report_in_html_markdown_and_records(report):
    for text in (report.to_html(), report.to_markdown()):
        assert "Planted evidence" in text
        assert "occlusion" in text
    record = report.rows[0].as_record()
    assert record["method"] == "occlusion"
    assert record["verdict"] in (PASSES, FAILS, UNCLEAR)
    assert make_row(first=()).as_record()["first"]["value"] is None
    assert str(make_row(first=()).first) == "–"
