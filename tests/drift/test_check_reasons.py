"""check_reasons(): the data and the model that a baseline itself names."""

import pytest
from helpers.saved_models import save_text_model
from helpers.tiny_models import text_model

import clearhead
from clearhead.drift.check_reasons import restore_task
from clearhead.drift.snapshot_file import read_snapshot, write_snapshot
from clearhead.errors import BadFile, BadInput, BadOption

TEXTS = ["a bad film", "a good film"]


def test_the_texts_of_a_baseline_are_its_task(tmp_path):
    model = text_model()
    path = write_snapshot(clearhead.snapshot(model, TEXTS, noise=0), tmp_path / "a.json")
    result = clearhead.check_reasons(path, model)
    assert result.passes
    assert result.diff.shift == 0
    assert [example.input for example in restore_task(read_snapshot(path)).examples] == TEXTS


def test_pairs_of_texts_are_restored(tmp_path):
    model = text_model()
    path = write_snapshot(clearhead.snapshot(model, [("a bad film", "a film")], noise=0), tmp_path / "a.json")
    assert clearhead.check_reasons(path, model).diff.shift == 0


def test_the_model_of_a_baseline_is_loaded_again(tmp_path):
    folder = save_text_model(tmp_path / "model")
    taken = clearhead.snapshot(str(folder), TEXTS, noise=0)
    assert clearhead.check_reasons(taken).diff.shift == 0


def test_two_snapshots_are_checked_without_a_model():
    taken = clearhead.snapshot(text_model(), TEXTS, noise=0)
    assert clearhead.check_reasons(taken, taken, min_agreement=1).passes


def test_what_a_baseline_lacks_must_be_named(tmp_path):
    model = text_model()
    path = write_snapshot(clearhead.snapshot(model, TEXTS, noise=0), tmp_path / "a.json", texts=False)
    with pytest.raises(BadInput, match="does not hold its inputs"):
        clearhead.check_reasons(path, model)
    assert clearhead.check_reasons(path, model, TEXTS).passes
    with pytest.raises(BadInput, match="not of the same inputs"):
        clearhead.check_reasons(path, model, ["another text"])
    with pytest.raises(BadFile, match="cannot be read"):
        clearhead.check_reasons(tmp_path / "missing.json", model)
    with pytest.raises(BadOption, match="max_shift"):
        clearhead.check_reasons(path, model, TEXTS, max_shift=2)
