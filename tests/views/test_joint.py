"""A picture and texts side by side: pages, images, terminal, records."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.explanations import explained, pictured

from clearhead.explanation import Comparison, Explanations
from clearhead.joint_explanation import JointExplanation
from clearhead.views import html, joint_html, joint_image, json_record, markdown, notebook, static_image, terminal
from clearhead.views.joint_scale import describe_shares, share_scale


def joined(label="a cat on grass", **changes):
    text = explained(label, label=label, method="trans-att")
    fields = {
        "explanations": (pictured(label=label), text),
        "score": 21.5,
        "diagnostics": {"scores": {"a cat on grass": 21.5, "a dog": 19.0}},
    }
    return JointExplanation(**{**fields, **changes})


def compared(**changes):
    return joined(explanations=(explained("a fine film"), explained("not bad")), diagnostics={}, **changes)


def sum_weights(joint):
    """Return the absolute relevance on the patches, and on the words."""
    return [np.abs(joint.image.relevance[1:]).sum(), sum(abs(word.relevance) for word in joint.text.words())]


def test_compared_inputs_have_shares_of_their_own_relevance():
    joint = joined()
    image, text = share_scale(joint)
    assert [image.total, text.total] == pytest.approx(sum_weights(joint))
    words = len(joint.text.words())
    # The full colour is as many even shares of patches as of words.
    assert image.full * 16 / image.total == pytest.approx(text.full * words / text.total)
    assert image.full * 16 / image.total <= 4
    assert image.caption == text.caption
    assert f"6.2 % per patch, {100 / words:.0f} % per word" in image.caption


def test_inputs_that_are_read_together_have_shares_of_all_relevance():
    joint = joined(diagnostics={})
    image, text = share_scale(joint)
    assert image.total == text.total == pytest.approx(sum(sum_weights(joint)))
    assert image.full * 16 == pytest.approx(text.full * len(joint.text.words()))
    assert image.caption.startswith("Shares of all relevance on picture and text")
    assert "3.1 % per patch" in image.caption


def test_no_number_of_a_legend_is_more_than_everything():
    # All relevance of the picture on one patch of 16, which is more even shares than a single word can have.
    relevance = np.zeros(17)
    relevance[5] = 1.0
    word = explained("cat", label="cat", method="trans-att")
    joint = joined(explanations=(replace(joined().image, relevance=relevance), word))
    image, text = share_scale(joint)
    assert text.caption == image.caption
    assert text.caption.endswith("4 times an even share, which is 6.2 % per patch, 100 % per word.")


def with_effect(explanation, base, unit="probability", prediction=0.6):
    effect = {"unit": unit, "base": base, "prediction": prediction}
    return replace(explanation, diagnostics={**explanation.diagnostics, "effect": effect})


def with_effects(units=("probability", "probability"), **changes):
    joint = joined(**changes)
    bases = zip(joint.explanations, (0.2, 0.3), units, strict=True)
    return replace(joint, explanations=tuple(with_effect(*entry) for entry in bases))


def test_effects_have_one_unit_and_one_sentence():
    image, text = share_scale(with_effects())
    assert image.caption == (
        "Effects in points of probability: 20 % with every patch hidden, 30 % with every word hidden → 60 %. "
        "Full colour: 50 points per patch or word."
    )
    assert text.caption == image.caption


def test_effects_without_limits_are_compared_with_the_largest_score():
    image, text = share_scale(with_effects(units=("value", "value")))
    assert image.full == text.full == pytest.approx(0.3)
    assert image.caption.startswith("Effects in similarity: ")


def test_effects_in_different_units_are_shown_as_shares():
    image, text = share_scale(with_effects(units=("probability", "value")))
    assert image.measure == text.measure == "share"
    assert "even share" in image.caption


def test_every_view_has_the_legend_once():
    joint = with_effects()
    caption = share_scale(joint)[0].caption
    shown = terminal.capture(terminal.view(joint), width=200)
    assert shown.count(caption) == 1
    for page in (html.card(joint), notebook.fragment(joint)):
        assert page.replace("&nbsp;", " ").count(caption) == 1
        assert page.count('class="ch-legend"') == 1
    drawn = "".join(box.text for box in joint_image.lay_out(joint)[0])
    assert drawn.count("50 points per patch or word") == 1


def test_the_shares_are_told_in_words():
    assert "% on the picture" in describe_shares(joined())
    assert "“not bad”" in describe_shares(compared())


def test_a_card_has_picture_and_words_without_scripts():
    card = html.card(joined())
    assert "<img" in card and "grass" in card and "Similarities: “a cat on grass” 21.5, “a dog” 19." in card
    assert "<script" not in html.page([card], "x")
    assert html.brief_card(joined()) == card


def test_of_several_texts_one_is_open():
    page = joint_html.choices([joined(), joined("a dog")])
    assert page.count("<details name=") == 2
    assert page.count(" open>") == 1
    assert page.count('class="ch-figure"') == 2


def test_too_many_pairs_are_counted(monkeypatch):
    monkeypatch.setattr(joint_html, "MAX_PAIRS", 5)
    card = html.card(compared(pairs=np.zeros((2, 3))))
    assert "2 × 3 pairs of tokens are too many for a page" in card and "Pair by pair" not in card


def test_pairs_are_a_folded_table():
    sizes = [len(text.tokens) for text in compared().explanations]
    card = html.card(compared(pairs=np.linspace(-1, 1, sizes[0] * sizes[1]).reshape(sizes)))
    assert "Pair by pair" in card
    assert "Pair by pair" not in html.card(compared())


def test_an_image_has_the_picture_beside_the_words():
    image = static_image.draw([joined()])
    words_only = static_image.draw([compared()])
    assert image.width > words_only.width
    assert "<image" in static_image.svg([joined()])


def test_a_figure_has_the_picture_left_of_the_words():
    pytest.importorskip("matplotlib", reason="figures need Matplotlib")
    axes = joined().plot().axes[0]
    (picture,) = axes.images
    words = [text for text in axes.texts if text.get_text() == "grass"]
    assert words[0].get_position()[0] > picture.get_extent()[1]
    # Nothing lies outside of the figure.
    assert axes.get_xlim()[1] > words[0].get_position()[0]
    assert not compared().plot().axes[0].images


def test_the_terminal_shows_patches_and_words():
    shown = terminal.capture(terminal.view(joined()))
    assert "grass" in shown and "█" in shown and "% on the picture" in shown


def test_notebooks_show_one_and_several():
    assert "ch-figure" in notebook.fragment(joined())
    assert notebook.listing(Explanations([joined(), joined("a dog")])).count('class="ch-figure"') == 2
    methods = Comparison({"gae": joined(), "cat": joined()})
    assert "<h3>gae</h3>" in methods._repr_html_()


def test_records_have_every_input():
    record = json_record.record(joined(), "trans-att")
    assert [entry["grid"] for entry in record["inputs"]] == [[4, 4], None]
    assert record["score"] == 21.5
    (row,) = Explanations([joined()]).to_records()
    assert row["text"] == "a cat on grass" and len(row["patches"]) == 16 and row["row"] == 1
    (row,) = Explanations([compared()]).to_records()
    assert (row["text"], row["second"]) == ("a fine film", "not bad")


def test_a_row_of_parquet_has_every_input():
    row = json_record.row(joined())
    assert [entry["text"] for entry in row["inputs"]] == [None, "a cat on grass"]
    assert isinstance(row["inputs"][0]["diagnostics"], str)


def test_markdown_has_a_section_per_input():
    assert markdown.document([compared()]).count("## ") == 2


def test_markdown_has_the_numbers_of_the_other_views():
    joint = joined()
    document = markdown.document([joint])
    image, text = share_scale(joint)
    strongest = max(joint.text.words(), key=lambda word: abs(word.relevance))
    assert f"| {strongest.text} | {text.format(strongest.relevance)} |" in document
    assert document.count(image.caption) == 1
