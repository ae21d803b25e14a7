"""How much of a text the model read: what was cut off, and words that it does not know."""

from types import SimpleNamespace

import pytest
from helpers import tiny_models
from helpers.explanations import explained

import clearhead
from clearhead.model.batches import Item
from clearhead.model.coverage import describe_coverage, find_unknown_token
from clearhead.views import html, markdown, notebook, static_image, terminal
from clearhead.views.text_spans import split_segments

OFFSETS = ((0, 0), (0, 4), (5, 8), (0, 0))
SPECIAL = (True, False, False, True)


def make_item(text, offsets=OFFSETS, tokens=("[CLS]", "good", "[UNK]", "[SEP]")):
    return Item(tokens, SPECIAL, text, offsets)


def test_a_text_that_was_read_has_no_diagnostics():
    assert describe_coverage(make_item("good xyz "), None) == {}


def test_the_share_of_characters_that_was_read():
    assert describe_coverage(make_item("good xyz  cut it off"), None) == {"read_share": 7 / 15}


@pytest.mark.parametrize("text", ["good xyz\ufe0f", "good xyz \u200d\u200b", "good xyz \ufffd"])
def test_characters_that_tokenizers_drop_were_not_cut_off(text):
    assert describe_coverage(make_item(text), None) == {}


def test_a_text_that_ends_with_a_heart_was_read():
    (heart,) = clearhead.explain(tiny_models.text_model(), ["\ufefffilm ❤\ufe0f"], check=False)
    assert "read_share" not in heart.diagnostics


def test_the_share_of_a_pair_counts_both_texts():
    offsets = ((0, 0, 0), (0, 0, 4), (1, 0, 2), (0, 0, 0))
    assert describe_coverage(make_item(("good", "ok no"), offsets), None) == {"read_share": 6 / 8}


def test_the_share_of_unknown_tokens():
    item = make_item("good xyz")
    assert describe_coverage(item, "[UNK]") == {"unknown_share": 0.5, "unknown_token": "[UNK]"}
    assert describe_coverage(item, None) == {}


def test_byte_level_tokenizers_know_every_word():
    end = "<|endoftext|>"
    tokenizer = SimpleNamespace(unk_token=end, eos_token=end, bos_token=end, pad_token=None)
    assert find_unknown_token(SimpleNamespace(processor=tokenizer)) is None
    assert find_unknown_token(tiny_models.text_model()) == "[UNK]"


def test_explanations_tell_what_was_cut_and_what_is_unknown():
    model = tiny_models.text_model()
    text = "a film is good " * 60
    (cut,) = clearhead.explain(model, [text], overflow="truncate", check=False)
    assert 0 < cut.diagnostics["read_share"] < 1
    (stitched,) = clearhead.explain(model, [text], overflow="windows", check=False)
    assert "read_share" not in stitched.diagnostics
    (unknown,) = clearhead.explain(model, ["film 猫 film"], check=False)
    assert unknown.diagnostics["unknown_share"] == pytest.approx(1 / 3)


def test_every_view_tells_what_was_not_read():
    text = "a film that nobody saw"
    explanation = explained(text, diagnostics={"read_share": 0.5, "unknown_share": 0.4, "unknown_token": "[UNK]"})
    notes = ("Only 50.0 % of the text was read", "40.0 % of the tokens are unknown")
    for view in (html.card, markdown.section, notebook.fragment, terminal.render):
        shown = view(explanation).replace("&nbsp;", " ").replace("\\", "")
        assert all(note in " ".join(shown.split()) for note in notes), view
    assert "50.0" in static_image.svg([explanation])


def cut_explanation():
    """An explanation of a text whose last words have no tokens."""
    whole = explained("good film cut off")
    keep = [
        index for index, offset in enumerate(whole.offsets) if whole.special[index] or offset[-1] <= len("good film")
    ]
    return explained(
        "good film cut off",
        tokens=tuple(whole.tokens[index] for index in keep),
        relevance=whole.relevance[keep],
        special=whole.special[keep],
        offsets=tuple(whole.offsets[index] for index in keep),
        diagnostics={"read_share": 0.6},
    )


def test_what_was_cut_off_is_grey():
    (spans,) = split_segments(cut_explanation())
    assert [span.text for span in spans if not span.is_read] == [" cut off"]
    assert '<span class="ch-unread"> cut off</span>' in html.card(cut_explanation())
    assert "<s> cut off</s>" in notebook.fragment(cut_explanation())


def test_unknown_words_are_grey_whatever_their_relevance():
    explanation = explained("good film", diagnostics={"unknown_share": 0.5, "unknown_token": "good"})
    (spans,) = split_segments(explanation)
    assert [span.text for span in spans if not span.is_read] == ["good"]
    assert spans[0].relevance is not None
