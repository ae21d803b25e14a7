"""Words, choices, shares and grids of answers, and the views of them."""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers.answers import ANSWER, CHAT, PROMPT, contrasted_answer, explained_answer
from helpers.explanations import HOSTILE
from helpers.html_reader import shown
from PIL import Image

from clearhead.answer_explanation import AnswerExplanation, Step
from clearhead.explanation import Explanations
from clearhead.views import answer_grid, answers, html, markdown, notebook, static_image, terminal
from clearhead.views.scale import make_scale


@dataclass(frozen=True)
class Source:
    name: str
    text: str
    relevance: float


class SourcedExplanation(AnswerExplanation):
    sources = (Source("first.txt", "Little here.", 0.1), Source("second.txt", "Paris is the capital.", 0.8))


def sourced() -> SourcedExplanation:
    plain = explained_answer()
    return SourcedExplanation(**{name: getattr(plain, name) for name in plain.__dataclass_fields__})


def test_words_of_an_answer_gather_their_steps():
    words = answers.list_words(explained_answer(answer="Sauvignon blanc, please"))
    assert [word.text for word in words] == ["Sauvignon", "blanc,", "please"]
    assert [word.steps for word in words] == [(0, 1), (2, 3), (4, 5)]
    assert words[0].probability == pytest.approx(0.9 * 0.45)


def test_steps_of_blanks_belong_to_no_word():
    steps = (Step("ĠParis", 0, 5, 0.9), Step("Ċ", 6, 6, 0.5), Step("The", 6, 9, 0.4))
    words = answers.list_words(explained_answer(answer="Paris\nThe", steps=steps))
    assert [(word.text, word.steps) for word in words] == [("Paris", (0,)), ("The", (2,))]


def test_the_template_of_a_chat_is_no_word():
    explanation = explained_answer(CHAT)
    assert [word.text for word in explanation.prompt_words()] == ["Which", "river", "flows", "through", "Paris?"]
    source = html.card(explanation)
    assert '<span class="ch-dim">&lt;|user|&gt;' in source
    assert 'Paris?</span><span class="ch-dim">&lt;|end|&gt;' in source


def test_shares_name_the_first_token_and_sum_to_one():
    explanation = explained_answer()
    shares = answers.list_shares(explanation)
    assert [share.group for share in shares] == ["first", "prompt", "own"]
    assert sum(share.size for share in shares) == pytest.approx(1)
    assert shares[0].size == pytest.approx(explanation.first_token_share)
    assert shares[0].name == "first token “The”"
    assert answers.list_shares(replace(explanation, relevance=np.zeros(len(explanation.tokens)))) == []


def test_a_sink_is_ranked_apart_and_leaves_the_colours_to_the_others():
    explanation = explained_answer()
    assert answers.has_sink(explanation)
    strongest = answers.strongest_words(explanation, 3)
    assert "The" not in [span.text for span in strongest]
    assert answers.format_sink(explanation).startswith("First token, ranked apart: The 54 % of all relevance")
    weak = replace(
        explanation, relevance=np.where(np.arange(len(explanation.tokens)) == 0, 0.001, explanation.relevance)
    )
    assert answers.format_sink(weak) == ""


def test_the_first_token_of_an_encoder_is_a_word_like_any_other():
    explanation = replace(explained_answer(), has_encoder=True)
    assert answers.strongest_words(explanation, 1)[0].text == "The"
    assert answers.format_sink(explanation) == ""
    assert "first token" not in answers.format_shares(explanation)


def test_the_grid_has_the_sums_of_the_matrix():
    explanation = explained_answer()
    grid = answer_grid.make_grid(explanation)
    assert grid.rows == ("Paris", "on", "the", "Seine", "whole answer")
    assert grid.columns == tuple(PROMPT.split())
    in_prompt = explanation.prompt_words()
    np.testing.assert_allclose(grid.values[-1], [word.relevance for word in in_prompt])
    np.testing.assert_allclose(grid.values[1], [word.relevance for word in explanation.span("on").prompt_words()])


def test_a_grid_of_a_long_prompt_shows_its_strongest_words_and_says_so():
    explanation = explained_answer(" ".join(f"w{index}" for index in range(100)))
    grid = answer_grid.make_grid(explanation, 10)
    assert len(grid.columns) == 10
    assert grid.note == "90 less relevant words of the prompt are not shown."
    assert answer_grid.make_grid(explained_answer(with_matrix=False)) is None


def test_html_shows_answer_prompt_probabilities_and_a_choice_per_word():
    reader = shown(html.page([html.card(explained_answer())], "x"))
    answer, prompt = reader.paragraphs
    assert prompt == PROMPT
    assert answer == "Paris90 % on45 % the30 % Seine22 %"
    assert reader.tags.count("input") == 5
    assert "script" not in reader.tags


def test_the_legend_has_both_colours_where_only_the_grid_has_both():
    plain = explained_answer()
    plain = replace(plain, relevance=np.abs(plain.relevance), matrix=np.abs(plain.matrix))
    matrix = plain.matrix.copy()
    matrix[0, 0] *= -1
    mixed = replace(plain, matrix=matrix)
    assert not make_scale(plain).signed
    assert make_scale(mixed).signed
    assert ">against" in html.card(mixed) and ">against" not in html.card(plain)


def test_html_without_a_matrix_has_no_choices():
    source = html.card(explained_answer(with_matrix=False))
    assert "input" not in shown(source).tags
    assert "Prompt × answer" not in source


def test_html_of_a_contrast_has_both_probabilities():
    source = html.card(contrasted_answer())
    assert "rather than London 3.0 %" in source
    assert "90 %" in source


def test_html_of_hostile_words_is_literal():
    explanation = explained_answer(f"a {HOSTILE}", f"b {HOSTILE} c")
    reader = shown(html.page([html.card(explanation), html.methods({HOSTILE: explanation})], HOSTILE))
    assert "script" not in reader.tags


def test_cards_of_different_explanations_have_their_own_choices():
    names = set()
    for explanation in (explained_answer(), explained_answer(answer="London on the Thames")):
        names.add(html.card(explanation).partition(' name="')[2][:14])
    assert len(names) == 2
    assert html.card(explained_answer()) == html.card(explained_answer())


def test_too_many_colours_leave_the_choices_out(monkeypatch):
    monkeypatch.setattr(answers, "MAX_CHOICE_COLORS", 10)
    assert "input" not in shown(html.card(explained_answer())).tags


@pytest.mark.parametrize("explanation", [explained_answer(), contrasted_answer(), explained_answer(CHAT)])
def test_every_view_names_answer_and_method(explanation):
    image = static_image.draw([explanation])
    assert isinstance(image, Image.Image)
    first = explanation.answer.split()[0]
    for text in (
        terminal.render(explanation),
        markdown.section(explanation),
        static_image.svg([explanation]),
        notebook.fragment(explanation),
    ):
        assert first in text
        assert "attn-lrp" in text
        assert "90 %" in text


def test_static_views_show_the_grid_and_the_shares():
    explanation = explained_answer()
    # An SVG has an element for each word.
    drawn = " ".join(re.findall(r">([^<]+)</text>", static_image.svg([explanation])))
    for text in (terminal.render(explanation), markdown.section(explanation), drawn):
        assert "rompt × answer" in text
        assert "own earlier words" in text
        assert "ranked apart" in text


def test_sources_are_ranked_in_every_view():
    explanation = sourced()
    for text in (html.card(explanation), terminal.render(explanation), markdown.section(explanation)):
        assert text.index("second.txt") < text.index("first.txt")
    assert "second.txt" in static_image.svg([explanation])


def test_rotated_names_of_columns_are_drawn():
    explanation = explained_answer()
    with_grid = static_image.draw([explanation])
    without = static_image.draw([replace(explanation, matrix=None)])
    assert with_grid.height > without.height + 100
    assert static_image.svg([explanation]).count("rotate(-90)") == len(PROMPT.split())


def test_an_answer_without_original_text_is_shown_as_tokens():
    explanation = explained_answer(text=None, offsets=None)
    source = html.card(explanation)
    assert "Paris" in source
    assert "The capit al of" in shown(source).paragraphs[1]
    assert "Paris" in terminal.render(explanation)
    assert "> Paris on the Seine" in markdown.section(explanation)


def test_a_notebook_shows_answers_twice_without_coupling_their_choices():
    first, second = (notebook.fragment(explained_answer()).partition(' name="')[2][:14] for _ in range(2))
    assert first != second
    listed = notebook.listing(Explanations([explained_answer()] * 5))
    assert listed.count("Prompt</h3>") == 5
    assert notebook.comparison({"a": explained_answer(), "b": explained_answer()}).count("Prompt</h3>") == 2


def test_long_answers_have_short_headings():
    explanation = explained_answer(answer=" ".join(f"word{index}" for index in range(60)), with_matrix=False)
    heading = html.card(explanation).partition("</h2>")[0]
    assert "word59" not in heading
    assert "per token" in heading
    assert len(html.make_title([explanation])) < 80


def test_answers_are_in_the_terminal_within_its_width():
    explanation = explained_answer(answer=" ".join(["word"] * 40), with_matrix=False)
    lines = terminal.render(explanation, width=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert ANSWER not in lines
