"""Snapshots: what they hold, and their files."""

import json

import numpy as np
import pytest
from helpers.explanations import explained
from helpers.tiny_models import image_model, text_model

import clearhead
from clearhead.data.task import Example
from clearhead.drift.reasons import extract_reasons
from clearhead.drift.snapshot_file import read_snapshot, write_snapshot
from clearhead.errors import BadFile, BadInput, BadOption
from clearhead.explanation import Explanation
from clearhead.model.checksum import weights_checksum
from clearhead.model.target import Target
from clearhead.model.weight_noise import with_weight_noise

TEXTS = ["a bad film", "the film is not very bad", "we see the heart of a good film"]


@pytest.fixture(scope="module")
def taken(text):
    return clearhead.snapshot(text, TEXTS, noise=1)


def write_texts(folder, *, texts=True):
    return write_snapshot(clearhead.snapshot(text_model(), TEXTS, noise=0), folder / "a.json", texts=texts)


def test_shares_are_those_of_the_words(text, taken):
    for reasons, explanation in zip(taken.examples, clearhead.explain(text, TEXTS, check=False), strict=True):
        words = explanation.words()
        relevance = np.array([word.relevance for word in words])
        assert reasons.words == tuple(word.text for word in words)
        np.testing.assert_allclose(reasons.shares, relevance / np.abs(relevance).sum(), rtol=1e-3)
        assert reasons.prediction == explanation.label
        assert reasons.blocks.shape == (len(explanation.layers), len(words))
        assert reasons.ranks[reasons.order].tolist() == list(range(len(words)))
        assert reasons.top(1) == [(reasons.words[reasons.order[0]], reasons.shares.max())]


def test_a_file_holds_everything(taken, tmp_path):
    path = write_snapshot(taken, tmp_path / "a.json")
    saved = read_snapshot(path)
    assert write_snapshot(saved, tmp_path / "b.json").read_bytes() == path.read_bytes()
    for first, second in zip(taken.examples, saved.examples, strict=True):
        assert np.array_equal(first.shares, second.shares)
        assert np.array_equal(first.blocks, second.blocks)
        assert (first.words, first.digest, first.label) == (second.words, second.digest, second.label)
    names = [draw.name for draw in saved.noise.sources]
    # Some CPUs cannot compute in bfloat16.
    assert names in (["weight noise 0", "bfloat16"], ["weight noise 0"])
    assert (saved.checksum, saved.options, saved.versions) == (taken.checksum, taken.options, taken.versions)


def test_snapshots_are_deterministic(text, tmp_path):
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        write_snapshot(clearhead.snapshot(text, TEXTS, noise=1), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_snapshot_without_texts_names_no_word(tmp_path):
    path = write_texts(tmp_path, texts=False)
    assert "film" not in path.read_text()
    saved = read_snapshot(path)
    assert not saved.has_texts
    assert saved.examples[0].words == ()
    assert len(saved.examples[0].spans) == 3


def test_changed_and_foreign_files_are_refused(tmp_path):
    path = write_texts(tmp_path)
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "format": 99}))
    with pytest.raises(BadFile, match="has format 99; this version of Clearhead reads 1"):
        read_snapshot(path)
    body["snapshot"]["model"] = "another"
    path.write_text(json.dumps(body))
    with pytest.raises(BadFile, match="changed or damaged"):
        read_snapshot(path)
    path.write_text("{}")
    with pytest.raises(BadFile, match="make one with clearhead snapshot"):
        read_snapshot(path)
    with pytest.raises(BadFile, match="cannot be read"):
        read_snapshot(tmp_path / "missing.json")
    with pytest.raises(BadOption, match=r"does not end in \.json"):
        write_snapshot(clearhead.snapshot(text_model(), TEXTS, noise=0), tmp_path / "a.html")


def test_scripts_without_blanks_are_compared_by_character():
    # Two tokens of two characters each, cut differently from the words.
    explanation = Explanation(
        tokens=("很好", "看 ok"),
        relevance=np.array([0.5, 0.3]),
        special=np.array([False, False]),
        target=Target(0),
        label="positive",
        method="cat",
        text="很好看 ok",
        offsets=((0, 2), (2, 6)),
    )
    reasons = extract_reasons(explanation, Example("0", "很好看 ok"), ["positive"])
    assert reasons.words == ("很", "好", "看", "ok")
    # Tokens are shared among their characters, blanks left out.
    np.testing.assert_allclose(reasons.shares, [0.3125, 0.3125, 0.125, 0.25], rtol=1e-3)


def test_pairs_of_texts_keep_their_segments():
    reasons = extract_reasons(explained(("a bad film", "not good")), Example("0", ("a bad film", "not good")), [])
    assert [span[0] for span in reasons.spans] == [0, 0, 0, 1, 1]
    assert reasons.words == ("a", "bad", "film", "not", "good")


def test_images_have_patches():
    from PIL import Image

    model = image_model()
    taken = clearhead.snapshot(model, [Image.new("RGB", (32, 32), "red")], noise=0)
    reasons = taken.examples[0]
    assert reasons.kind == "patch"
    assert len(reasons.shares) == np.prod(reasons.grid)
    assert clearhead.diff(taken, taken).verdict.outcome == "same reasons"


def test_labels_may_be_numbers(text):
    task = clearhead.data.task.Task("reviews", [Example("0", "a bad film", 1)])
    assert clearhead.snapshot(text, task, noise=0).examples[0].label == text.labels[1]


def test_inputs_or_a_task_are_needed(text):
    with pytest.raises(BadInput, match="either inputs"):
        clearhead.snapshot(text)
    with pytest.raises(BadInput, match="either inputs"):
        clearhead.snapshot(text, TEXTS, task="dev.tsv")
    with pytest.raises(BadOption, match="noise"):
        clearhead.snapshot(text, TEXTS, noise=-1)


def test_noise_changes_the_weights_of_a_copy_alone(text):
    before = weights_checksum(text)
    noisy = with_weight_noise(text, 0)
    assert weights_checksum(text) == before != weights_checksum(noisy)
    assert weights_checksum(with_weight_noise(text, 0)) == weights_checksum(noisy)
    assert weights_checksum(with_weight_noise(text, 1)) != weights_checksum(noisy)
