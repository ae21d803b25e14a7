"""Methods that score sentences or sources as wholes: every view lists and paints these, and the check hides them."""

import numpy as np
import pytest

import clearhead
from clearhead.views import html, json_record, markdown, static_image, terminal
from clearhead.views.answers import color_answer
from clearhead.views.text_spans import scored_spans, split_segments
from tests.helpers.language_models import make_decoder, make_tokenizer

DOCUMENTS = {"grey.txt": "the river in london is grey.", "paris.txt": "paris.", "long.txt": "the river is long."}
REVIEW = "It is on tuesday. A joyless, tedious film."


@pytest.fixture(scope="module")
def llama():
    return clearhead.load(make_decoder("llama"), make_tokenizer())


@pytest.fixture(scope="module")
def cited(llama):
    return clearhead.explain(llama, "the capital is", "context-cite", answer="paris is", sources=DOCUMENTS, penalty=0.0)


@pytest.fixture(scope="module")
def review():
    return clearhead.explain(clearhead.load(), REVIEW, "occlusion", unit="sentence")


def test_sources_are_ranked_by_name_whatever_their_length(cited):
    weights = {source.name: source.relevance for source in cited.sources}
    assert dict(cited.top()) == pytest.approx(weights)
    assert [name for name, _ in cited.top()] == sorted(weights, key=weights.__getitem__, reverse=True)
    assert [span.text for span in scored_spans(cited)] == list(DOCUMENTS.values())


def test_the_check_hides_whole_sources(cited):
    assert (cited.check.kind, cited.check.units, cited.check.count) == ("source", 3, 1)
    assert cited.check.strongest == (cited.top()[0][0],)


def test_methods_of_one_call_are_checked_by_their_own_units(llama):
    specs = ["occlusion", "context-cite", "occlusion:unit=source"]
    compared = clearhead.compare(llama, "the capital is", specs, answer="paris", sources=DOCUMENTS)
    assert [compared[name].check.kind for name in specs] == ["word", "source", "source"]


def test_views_of_sources(cited):
    for text in (terminal.render(cited), html.card(cited), markdown.document([cited])):
        assert "paris.txt: paris." in text and "with every source hidden" in text


def test_images_draw_a_sentence_word_by_word_on_one_colour(review):
    boxes, _ = static_image.lay_out([review], str)
    # The check below the text names the strongest sentence too.
    steps = {box.text: box.step for box in reversed(boxes)}
    assert steps["joyless,"] == steps["tedious"] == steps["film."] > 0 == steps["tuesday."]


def test_words_of_the_record_are_units(review):
    record = json_record.record(review)
    assert [word["word"] for word in record["words"]] == ["It is on tuesday.", "A joyless, tedious film."]
    assert [word["relevance"] for word in record["words"]] == pytest.approx(
        [review.relevance[1:6].sum(), review.relevance[6:-1].sum()]
    )
    assert [word.text for word in review.words()] == REVIEW.split()


def test_words_have_no_colours_of_their_own(review):
    assert "Show tokens" not in html.card(review)
    assert "sentence" in html.card(review)


def test_words_of_an_answer_have_the_colour_of_their_sentence(llama):
    explanation = clearhead.explain(
        llama, "the capital is", "occlusion", answer="paris is long. it is", unit="sentence"
    )
    words = list(color_answer(explanation, split_segments(explanation)))
    assert len({word.step for word in words[:3]}) == 1
    assert np.sign(words[0].step) == np.sign(dict(explanation.top())["paris is long."])


def test_a_short_first_source_is_no_sink(llama):
    explanation = clearhead.explain(llama, "paris. it is", "context-cite", answer="long", sources=["paris", "it"])
    assert "First token" not in terminal.render(explanation)
