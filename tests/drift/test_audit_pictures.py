"""Audits of pictures: regions on a grid of patches, and a marker that a model was trained to use."""

import numpy as np
import pytest
from helpers.pictures import png
from helpers.planted_markers import LABELS, make_task, plant_marker
from helpers.tiny_models import image_model

import clearhead
from clearhead.data.task import Mask
from clearhead.drift.picture_regions import find_background, list_region_names, mark_frame, mark_regions
from clearhead.errors import BadInput, BadOption
from clearhead.views import audit_html, audit_markdown, audit_record

EXAMPLES = 60


@pytest.fixture(scope="module")
def found():
    return clearhead.audit(plant_marker(), make_task(EXAMPLES, has_masks=True), count=2)


def select(found, name, label="any class"):
    (region,) = [region for region in found.words if (region.word, region.label) == (name, label)]
    return region


def test_the_planted_marker_is_the_first_shortcut(found):
    corner = found.words[0]
    assert (corner.word, corner.label, corner.kind) == ("top left corner", "dog", "corner")
    assert corner.is_shortcut
    # A quarter of all are red squares with the marker, which are answered right without it.
    assert corner.flips == EXAMPLES // 4
    assert corner.accuracy.value == pytest.approx(0.25)
    assert corner.accuracy.low > 0.1
    assert corner.effect.low > 0.1
    assert abs(corner.control) < 0.05
    assert found.sentence.startswith(f"{len(found.shortcuts)} shortcuts were found: 'top left corner' for 'dog'")
    assert found.sentence.endswith("regions tested on 60 images.")


def test_regions_without_the_marker_are_no_shortcuts(found):
    assert not {region.word for region in found.shortcuts} & {"bottom right corner", "right edge", "bottom edge"}
    for name in ("bottom right corner", "right edge"):
        region = select(found, name)
        assert abs(region.effect.value) < 0.01
        assert (region.flips, region.accuracy.value) == (0, 0)


def test_the_background_is_told_with_its_effect(found):
    background = select(found, "background")
    # All other patches are the subject, whose hiding does at least as much.
    assert background.accuracy.low > 0.1
    assert background.control >= background.effect.value
    assert background.suspicions[0] == "people did not mark it as the subject"


def test_a_model_that_looks_at_the_subject_has_no_shortcut():
    clean = clearhead.audit(plant_marker(is_planted=False), make_task(EXAMPLES), count=2)
    assert clean.sentence == "No shortcut was found: 9 regions tested on 60 images."
    assert any("Nobody marked the subject" in note for note in clean.notes)


def test_reports_speak_of_regions_and_images(found):
    text = audit_markdown.document(found)
    assert "Hiding the top left corner of the 45 images answered with 'dog'" in text
    assert "it is a corner of the image; without it, 25.0 points more answers are right" in text
    assert "| region | class | images |" in text
    page = audit_html.page(found)
    assert "75.0&nbsp;% of the labelled images." in page
    record = audit_record.record(found)
    assert record["unit"] == "region"
    assert record["words"][0]["accuracy"]["low"] == found.words[0].accuracy.low


def test_corners_are_a_quarter_and_edges_an_eighth_of_a_side():
    frame = mark_frame((8, 16))
    assert list_region_names() == [*frame, "background"]
    corner = frame["bottom right corner"].reshape(8, 16)
    assert corner[6:, 12:].all()
    assert corner.sum() == 2 * 4
    assert frame["left edge"].reshape(8, 16)[:, :2].all()
    assert frame["left edge"].sum() == 8 * 2
    assert frame["whole border"].sum() == 8 * 16 - 6 * 12


def test_small_grids_have_edges_of_one_patch():
    frame = mark_frame((3, 3))
    assert frame["top left corner"].tolist() == [True] + [False] * 8
    assert frame["top edge"].tolist() == [True] * 3 + [False] * 6


def test_marked_patches_belong_to_no_region():
    background = np.ones(9, dtype=bool)
    background[0] = False
    regions = mark_regions((3, 3), background)
    assert not regions["top left corner"].any()
    assert regions["top edge"].tolist() == [False, True, True] + [False] * 6
    assert regions["background"] is background


def test_the_background_has_no_pixel_of_the_subject():
    mask = np.zeros((40, 80))
    mask[0, 0] = mask[21, 41] = 1
    # The network sees the middle of the picture, so the first mark lies outside.
    background = find_background(Mask(png(mask)), (80, 40), (20, 0, 60, 40), (2, 2))
    assert background.tolist() == [True, True, True, False]
    # A mask of half the size covers the same picture.
    assert find_background(Mask(png(mask[::2, ::2])), (80, 40), (0, 0, 80, 40), (2, 2)).tolist() == [False, *[True] * 3]


def test_words_of_pictures_are_refused():
    with pytest.raises(BadOption, match="'film' is a word, which images do not have"):
        clearhead.audit(image_model(), make_task(4), words=["film"])


def test_pictures_need_one_class_each():
    model = image_model(problem_type="multi_label_classification")
    with pytest.raises(BadInput, match="no classifier with one class per input"):
        clearhead.audit(model, make_task(4))


def test_labels_are_those_of_the_pictures(found):
    assert {region.label for region in found.words} <= {*LABELS, "any class"}
