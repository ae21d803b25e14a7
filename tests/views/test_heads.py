"""Blocks × heads heat maps in every view."""

from itertools import pairwise
from xml.dom import minidom

import numpy as np
import pytest
from helpers.explanations import pictured, review

from clearhead.errors import BadOption
from clearhead.views import heads, html, markdown, notebook, static_image, terminal

# Block 0 has one head less than block 1.
HEADS = np.array([[0.25, -0.5, np.nan], [1.0, 0.0, -0.75]])


def test_the_last_block_is_on_top_and_values_are_in_tooltips():
    table = heads.heat_map(review(heads=HEADS))
    names = [row.partition("<")[0] for row in table.split('<th scope="row">')[1:]]
    assert names == ["block 1", "block 0"]
    assert '<td class="f9" title="block 1, head 0 · +40 %">' in table
    assert '<td class="a7" title="block 1, head 2 · −30 %">' in table
    assert '<td class="" title="block 1, head 1 · 0 %">' in table
    assert "Shares of all relevance on heads: 50&nbsp;% for, 50&nbsp;% against." in table
    assert table.count("<td></td>") == 1


def test_screen_readers_hear_the_strongest_heads_and_every_number():
    table = heads.heat_map(review(heads=HEADS))
    assert "Strongest heads: block 1, head 0 · +40 %; block 1, head 2 · −30 %; block 0, head 1 · −20 %;" in table
    assert '<span class="ch-sr">−20 %</span>' in table


@pytest.mark.parametrize("make", [review, pictured])
def test_cards_show_heads_only_if_there_are_any(make):
    assert "Head by head" in html.card(make(heads=HEADS))
    assert "Head by head" not in html.card(make())
    assert ".ch-heads" in html.with_style([html.card(make(heads=HEADS))])


@pytest.mark.parametrize("make", [review, pictured])
def test_terminal_draws_a_grid(make):
    lines = terminal.render(make(heads=HEADS)).splitlines()
    assert "head       0  1  2" in lines
    assert "block 1   ██    ==" in lines
    assert "block 0   ░░ --" in lines
    assert any(line.startswith("block 1, head 0 · +40 %") for line in lines)


def test_markdown_lists_the_strongest_heads():
    section = markdown.section(review(heads=HEADS))
    assert "| block 1, head 0 | +40 % |\n| block 1, head 2 | −30 % |" in section
    assert "attention head" not in markdown.section(review())


def test_notebook_cells_fold_heads_away():
    cell = notebook.fragment(review(heads=HEADS))
    assert 'title="block 1, head 2 · −30 %">−</td>' in cell
    assert cell.count("<td></td>") == 1
    assert "Heads" not in notebook.fragment(review())


def test_static_images_have_a_cell_per_head():
    drawn = minidom.parseString(static_image.svg([review(heads=HEADS)]).encode())
    cells = [node.firstChild.data for node in drawn.getElementsByTagName("title")[1:]]
    # Heads without relevance have no colour, and thus no cell.
    assert cells == [
        *("block 1, head 0 · +40 %", "block 1, head 2 · −30 %"),
        *("block 0, head 0 · +10 %", "block 0, head 1 · −20 %"),
    ]
    assert static_image.draw([review(heads=HEADS)]).height > static_image.draw([review()]).height


def test_a_grid_of_many_heads_stays_within_the_image():
    boxes, _ = static_image.lay_out([review(heads=np.ones((2, 64)))], str)
    assert max(box.right for box in boxes) <= static_image.WIDTH
    head = next(box for box in boxes if box.text == "head")
    numbers = [box for box in boxes if box.text.isdigit() and box.y == head.y]
    assert len(numbers) > 10
    assert all(first.right < second.x for first, second in pairwise(numbers))


def test_many_heads_fit_a_narrow_terminal():
    lines = terminal.render(review(heads=np.ones((2, 64))), width=80).splitlines()
    assert f"block 1   {'█' * 64}" in lines


def test_heat_maps_need_relevance_per_head():
    with pytest.raises(BadOption, match="explain with heads=True"):
        heads.heat_map(review())
