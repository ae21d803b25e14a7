"""Inputs as people have them: arrays, columns, words, and a class to contrast with."""

import numpy as np
import pytest
from helpers.custom_modules import like_bright_corner, like_fine

import clearhead
from clearhead.errors import BadInput

LABELS = ["bad", "good"]
PIXELS = np.random.default_rng(0).integers(0, 255, (16, 24, 3), dtype=np.uint8)


@pytest.fixture
def text_model():
    return clearhead.load(like_fine, labels=LABELS)


@pytest.fixture
def image_model():
    return clearhead.load(like_bright_corner, reads="images", labels=["dark", "bright"])


ARRAYS = {
    "bytes": PIXELS,
    "fractions": PIXELS / 255,
    "float32": (PIXELS / 255).astype(np.float32),
    "floats": PIXELS.astype(float),
    "integers": PIXELS.astype(np.int64),
    "with alpha": np.dstack([PIXELS, np.full((16, 24), 255, np.uint8)]),
}


@pytest.mark.parametrize("pixels", ARRAYS.values(), ids=ARRAYS)
def test_arrays_are_images(image_model, pixels):
    expected = clearhead.explain(image_model, clearhead_image(PIXELS), check=False)
    explanation = clearhead.explain(image_model, pixels, check=False)
    assert explanation.relevance == pytest.approx(expected.relevance)


def clearhead_image(pixels):
    from PIL import Image

    return Image.fromarray(pixels)


def test_arrays_of_several_images_and_grey_ones(image_model):
    assert len(clearhead.explain(image_model, np.stack([PIXELS, PIXELS]), check=False)) == 2
    assert len(clearhead.explain(image_model, [PIXELS, PIXELS], check=False)) == 2
    assert clearhead.explain(image_model, PIXELS[:, :, 0], check=False).grid == (8, 8)


NO_IMAGES = {
    "channels first": (PIXELS.transpose(2, 0, 1), "put the channels last"),
    "five axes": (np.zeros((1, 1, 4, 4, 3)), "no image"),
    "two channels": (PIXELS[:, :, :2], "no image"),
    "empty": (np.zeros((0, 4, 3)), "no image"),
    "negative": (PIXELS - 300.0, "values from -300"),
    "not a number": (np.full((4, 4, 3), np.nan), "values from nan"),
    "objects": (np.full((4, 4, 3), "x"), "no image"),
}


@pytest.mark.parametrize(("pixels", "message"), NO_IMAGES.values(), ids=NO_IMAGES)
def test_other_arrays_are_refused(image_model, pixels, message):
    with pytest.raises(BadInput, match=message):
        clearhead.explain(image_model, pixels)


def test_words_that_are_split_already(text_model):
    explanation = clearhead.explain(text_model, ["a", "fine", "film"], is_split_into_words=True)
    assert explanation.text == "a fine film"
    assert explanation.top(1) == [("fine", pytest.approx(0.7))]
    explained = clearhead.explain(text_model, [["a", "fine", "film"], ["bad"]], is_split_into_words=True)
    assert [each.text for each in explained] == ["a fine film", "bad"]


@pytest.mark.parametrize("words", ["a fine film", [], [["a", 3]], [["a b"]], [[""]], 3])
def test_what_is_no_list_of_words_is_refused(text_model, words):
    with pytest.raises(BadInput, match="word"):
        clearhead.explain(text_model, words, is_split_into_words=True)


def test_a_list_of_words_among_texts_is_told_the_option(text_model):
    with pytest.raises(BadInput, match="is_split_into_words=True"):
        clearhead.explain(text_model, [["a", "fine", "film"]])


def test_versus_contrasts_classes(text_model):
    explanation = clearhead.explain(text_model, "a fine film", versus="bad")
    assert explanation.label == "good rather than bad"
    expected = clearhead.explain(text_model, "a fine film", target=clearhead.Target("good", versus="bad"))
    assert explanation.relevance == pytest.approx(expected.relevance)
    several = clearhead.explain(text_model, ["a fine film", "no"], target=["good", "bad"], versus=["bad", "good"])
    assert [each.label for each in several] == ["good rather than bad", "bad rather than good"]
    compared = clearhead.compare(text_model, "a fine film", ["occlusion"], versus="bad")
    assert compared["occlusion"].label == "good rather than bad"


def test_a_contrast_of_a_contrast_is_refused(text_model):
    with pytest.raises(BadInput, match="leave out 'versus'"):
        clearhead.explain(text_model, "a", target=clearhead.Target("good", versus="bad"), versus="bad")


def test_columns_and_tables_of_pandas(text_model):
    pandas = pytest.importorskip("pandas")
    texts = ["a fine film", "no"]
    assert len(clearhead.explain(text_model, pandas.Series(texts))) == 2
    assert len(clearhead.explain(text_model, pandas.DataFrame({"text": texts, "n": [1, 2]}))) == 2
    with pytest.raises(BadInput, match=r"such as table\['foo'\]"):
        clearhead.explain(text_model, pandas.DataFrame({"foo": texts}))
    with pytest.raises(BadInput, match="Leave out missing values"):
        clearhead.explain(text_model, pandas.Series(["a fine film", float("nan")]))


def test_bytes_are_no_texts(text_model):
    with pytest.raises(BadInput, match="A bytes cannot be explained"):
        clearhead.explain(text_model, b"a fine film")


def test_a_model_is_printed_in_one_line(text_model):
    assert repr(text_model) == "<Model like_fine: TextFunction, single-label, 2 labels>"
