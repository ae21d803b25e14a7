"""The same input as several models explain it: on a page, in a terminal, and in pictures."""

from dataclasses import replace

import pytest
from helpers.explanations import explained, pictured, review

from clearhead.views import figure, model_grid, static_image, terminal
from clearhead.views.photo_image import GAP, split_rows

OLD, NEW = "old/model", "new/model"


def by_model(make, **changes):
    return {
        name: make(model=name, diagnostics={"model_agreement": {"the other": 0.5}}, **changes) for name in (OLD, NEW)
    }


@pytest.fixture(scope="module")
def row():
    return {"att-cat": by_model(review), "rollout": by_model(review, method="rollout")}


def test_a_page_has_a_row_per_method_and_a_column_per_model(row):
    card = model_grid.card(row)
    assert [card.count(f"<h2>{method}</h2>") for method in row] == [1, 1]
    assert card.count(f"<h3>{OLD}</h3>") == card.count(f"<h3>{NEW}</h3>") == 2
    assert card.count("for the same reasons: 0% of the relevance moved. Rank correlation 1.00 over") == 2
    assert card.count("Strongest words, model by model") == 4


def test_a_terminal_has_words_beside_each_other(row):
    text = terminal.capture(terminal.models(row), width=80)
    assert text.count(f"{OLD}  {NEW}") == 2
    assert f"{OLD} and {NEW}: Both predict" in text
    assert max(map(len, text.splitlines())) <= 80


def test_words_that_one_model_did_not_read_have_a_dash():
    longer, shorter = explained("a good film"), explained("a good film")
    shorter = replace(
        shorter, tokens=shorter.tokens[:-2], relevance=shorter.relevance[:-2], special=shorter.special[:-2],
        offsets=shorter.offsets[:-2],
    )  # fmt: skip
    table = model_grid.tabulate_words({OLD: longer, NEW: shorter})
    assert {cells[0]: cells[2] for cells in table.rows}["film"] == "–"


def test_pictures_of_several_models_are_a_grid():
    panels = [*by_model(pictured).values(), *by_model(pictured, method="rollout").values()]
    assert [[e.method for e in row] for row in split_rows(panels)] == [[panels[0].method] * 2, ["rollout"] * 2]
    assert len(split_rows([replace(panel, model=OLD) for panel in panels])) == 1
    single = static_image.draw(panels[:2])
    both = static_image.draw(panels)
    assert (both.width, both.height) == (single.width, 2 * single.height + GAP)
    written = static_image.svg(panels)
    assert written.count(OLD) == written.count(NEW) == 2
    assert "rank correlation with the other 0.50" in written


def test_figures_name_the_models():
    pytest.importorskip("matplotlib", reason="figures need Matplotlib")
    panels = [*by_model(pictured).values(), *by_model(pictured, method="rollout").values()]
    texts = [text.get_text() for text in figure.make_figure(panels).axes[0].texts]
    assert texts.count(OLD) == texts.count(NEW) == 2


def test_pictures_with_other_patches_keep_their_own_colours():
    coarse = pictured(model=OLD)
    columns, rows = coarse.grid
    fine = replace(coarse, model=NEW, grid=(rows, columns))
    own = model_grid.card({"m": {OLD: coarse, NEW: replace(fine, relevance=fine.relevance / 2)}})
    assert own.count("<h3>") == 2
