"""Pictures of a prompt in the views of answers."""

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.answers import explained_answer
from helpers.picture_models import make_picture
from PIL import Image

from clearhead.model.picture_span import PictureSpan
from clearhead.views import answer_pictures, answers, html, markdown, static_image, terminal
from clearhead.views.json_record import record as make_record

CELLS = [(row / 2, column / 2, (row + 1) / 2, (column + 1) / 2) for row in range(2) for column in range(2)]


def with_pictures(*, matrix=True):
    """An answer whose prompt begins with two pictures: four parts each, and of the first also the whole."""
    explanation = explained_answer()
    spans = (
        PictureSpan((0, 1, 2, 3, 4), (*CELLS, (0, 0, 1, 1)), make_picture(60, 40), (0, 0, 60, 40)),
        PictureSpan((5, 6, 7, 8), tuple(CELLS)),
    )
    values = np.array([0.0, 0.1, 0.0, 0.5, 0.4, 0.0, -0.9, 0.0, 0.0])
    added = len(values)
    shifted = {
        "tokens": ("<image>",) * added + explanation.tokens,
        "special": np.concatenate([np.ones(added, dtype=bool), explanation.special]),
        "relevance": np.concatenate([values, explanation.relevance]),
        "offsets": ((0, 0, 0),) * added + tuple(explanation.offsets),
        "prompt_length": explanation.prompt_length + added,
        "picture_spans": spans,
        "matrix": None,
    }
    if matrix:
        rows = np.tile(values, (len(explanation.steps), 1)) * np.arange(1, len(explanation.steps) + 1)[:, None]
        shifted["matrix"] = np.concatenate([rows, explanation.matrix], 1)
    return replace(explanation, **shifted)


def test_parts_are_added_up_in_place():
    first, second = with_pictures().pictures
    np.testing.assert_allclose(first.relevance, [0.1, 0.2, 0.1, 0.6])
    np.testing.assert_allclose(second.relevance, [0, -0.9, 0, 0])
    assert first.grid == second.grid == (2, 2)
    # Without the image a box of its own proportions.
    assert second.image is None
    assert second.heatmap().shape == (32, 32)


def test_pictures_have_one_scale_and_a_share_of_all_relevance():
    explanation = with_pictures()
    scale = answer_pictures.scale_pictures(explanation)
    total = np.abs(explanation.relevance).sum()
    assert scale.total == pytest.approx(total)
    assert scale.full > 0.8
    assert scale.signed
    shares = {share.group: share.size for share in answers.list_shares(explanation)}
    assert shares["pictures"] == pytest.approx(np.abs(explanation.relevance[1:9]).sum() / total)
    assert sum(shares.values()) == pytest.approx(1)
    assert sum(explanation.shares.values()) == pytest.approx(1)
    first, second = answer_pictures.describe_pictures(explanation)
    assert "row 2 of 2, column 2 of 2" in first
    assert "row 1 of 2, column 2 of 2" in second
    assert "<image>" not in answers.format_special(explanation)


def test_a_page_has_each_picture_once_and_a_heat_map_for_each_choice():
    explanation = with_pictures()
    page = html.card(explanation)
    choices = 1 + len(answers.list_words(explanation))
    assert page.count('class="ch-photo"') == 2
    for choice in range(choices):
        assert page.count(f'class="ch-heat ch-choice ch-k{choice}"') == 2
    assert "<script" not in page
    assert len(set(re.findall(r'ch-k\d+"[^>]*', page))) > 0
    assert page.count("<h3>Pictures</h3>") == 1
    alone = html.card(with_pictures(matrix=False))
    assert alone.count("ch-heat") == 2
    assert "<h3>Pictures</h3>" not in html.card(explained_answer())


def test_static_images_and_text_show_the_pictures(tmp_path):
    explanation = with_pictures()
    image = static_image.draw([explanation])
    plain = static_image.draw([replace(explanation, picture_spans=())])
    assert image.height > plain.height + 300
    svg = static_image.svg([explanation])
    assert svg.count("<image ") == 2
    assert "Picture 1" in terminal.render(explanation)
    assert "Picture 2" in markdown.document([explanation])
    assert isinstance(image, Image.Image)


def test_many_parts_are_joined_in_a_terminal():
    span = PictureSpan(
        tuple(range(9)),
        tuple((row / 3, column / 3, (row + 1) / 3, (column + 1) / 3) for row in range(3) for column in range(3)),
    )
    explanation = replace(with_pictures(), picture_spans=(span,))
    merged = answer_pictures.merge_parts(explanation.pictures[0], 2)
    assert merged.shape == (2, 2)
    assert merged.sum() == pytest.approx(explanation.relevance[:9].sum())


def test_records_list_the_parts():
    record = make_record(with_pictures())
    assert [picture["grid"] for picture in record["answer"]["pictures"]] == [(2, 2), (2, 2)]
    assert "pictures" not in make_record(explained_answer())["answer"]
