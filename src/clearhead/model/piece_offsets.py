"""Where the pieces of SentencePiece stand in a text, for tokenizers that do not tell."""

import unicodedata
from collections.abc import Iterator, Sequence

BLANK = "▁"
"""What stands for a blank in a piece."""


def place_pieces(text: str, pieces: Sequence[str], special: Sequence[bool]) -> tuple[tuple[int, int], ...] | None:
    """Return the characters of each piece, found one after the other; None if the tokens are not such pieces.

    Special tokens, and pieces that do not occur in the text, have the empty span (0, 0).
    """
    if not any(piece.startswith(BLANK) for piece in pieces):
        return None
    characters, positions = _normalise(text)
    spans = _find_pieces(characters, pieces, special)
    return tuple(_convert_span(positions, start, end) for start, end in spans)


def _find_pieces(characters: str, pieces: Sequence[str], special: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield where each piece stands after those before it; (0, 0) for special tokens."""
    after = 0
    for piece, is_special in zip(pieces, special, strict=True):
        start = end = 0
        if not is_special:
            start, end = _find_piece(characters, piece, after)
        yield start, end
        # A piece that does not occur must not send the search back to the beginning.
        after = max(after, end)


def _find_piece(characters: str, piece: str, after: int) -> tuple[int, int]:
    """Return where a piece stands next; an empty span if it does not, or is nothing but a blank."""
    written = piece.replace(BLANK, " ").strip()
    start = characters.find(written, after)
    if start < 0:
        return 0, 0
    return start, start + len(written)


def _convert_span(positions: list[int], start: int, end: int) -> tuple[int, int]:
    if start == end:
        return 0, 0
    return positions[start], positions[end - 1] + 1


def _normalise(text: str) -> tuple[str, list[int]]:
    """Return a text as SentencePiece reads it, and from which character each of its characters comes."""
    normalised = ""
    positions = []
    for index, character in enumerate(text):
        # Full-width punctuation, ligatures and the like.
        replacement = unicodedata.normalize("NFKC", character)
        normalised += replacement
        positions += [index] * len(replacement)
    return normalised, positions
