"""Where the pieces of SentencePiece stand in a text."""

from clearhead.model.piece_offsets import place_pieces


def place(text, pieces):
    return place_pieces(text, pieces, [piece == "</s>" for piece in pieces])


def test_pieces_are_found_one_after_the_other():
    spans = place("a rose is a rose", ["▁a", "▁ro", "se", "▁is", "▁a", "▁rose", "</s>"])
    assert spans == ((0, 1), (2, 4), (4, 6), (7, 9), (10, 11), (12, 16), (0, 0))


def test_characters_are_compared_as_sentencepiece_normalises_them():
    # Full-width punctuation, and one character that becomes several.
    assert place("好，①㌔", ["▁好", ",", "1", "キロ"]) == ((0, 1), (1, 2), (2, 3), (3, 4))


def test_pieces_that_are_not_in_the_text_have_an_empty_span():
    assert place("a rose", ["▁a", "<unk>", "▁", "▁rose"]) == ((0, 1), (0, 0), (0, 0), (2, 6))


def test_other_tokens_are_not_searched():
    assert place("a rose", ["a", "Ġrose"]) is None
