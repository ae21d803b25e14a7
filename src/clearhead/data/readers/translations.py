"""Read sentence pairs with hand alignments."""

import re
from itertools import zip_longest
from pathlib import Path

from clearhead.data.task import Alignment, Example, Task, Writing, build_task, reader, skip_invalid
from clearhead.data.text_files import read_lines
from clearhead.errors import BadFile, BadInput

SENTENCES_SUFFIX = ".src-tgt"
LINKS_SUFFIX = ".gold"
SEPARATOR = "|||"
# Word of the source, "-" for a sure link or "p" for a possible one, word of the translation; counted from 1.
LINK = re.compile(r"(\d+)([-p])(\d+)")
IndexPair = tuple[int, int]


@reader(lambda path: path.suffix == SENTENCES_SUFFIX)
def translations(path: Path, *, limit: int | None = None) -> Task:
    """Sentences as `source ||| translation` in NAME.src-tgt, and their alignments as 1-1 2p3 … in NAME.gold."""
    sentences = read_lines(path)
    links = read_lines(_require_links(path))
    # The longest, so that a file that was cut off shows as invalid rows.
    numbered = enumerate(zip_longest(sentences, links), 1)
    rows = [_make_example(number, sentence, link) for number, (sentence, link) in numbered]
    return build_task(path.name, rows, limit=limit)


def _require_links(path: Path) -> Path:
    links = path.with_suffix(LINKS_SUFFIX)
    if not links.exists():
        raise BadFile(f"'{path}' needs its alignments in '{links}', which does not exist.")
    return links


@skip_invalid
def _make_example(number: int, sentence: str | None, links: str | None) -> Example:
    if sentence is None or links is None:
        raise BadInput("sentences and alignments do not have as many lines")
    source, translation = _split_sentence(sentence)
    alignment = _parse_links(links)
    _validate_links(alignment, len(source.split()), len(translation.split()))
    return Example(str(number), source, writing=Writing(translation, alignment=alignment))


def _split_sentence(sentence: str) -> tuple[str, str]:
    source, separator, translation = map(str.strip, sentence.partition(SEPARATOR))
    _require_both_sides(source, separator, translation)
    return source, translation


def _require_both_sides(source: str, separator: str, translation: str) -> None:
    if not (source and separator and translation):
        raise BadInput(f"not of the form source {SEPARATOR} translation")


def _parse_links(text: str) -> Alignment:
    pairs = _group_links(text)
    sure = frozenset(pairs["-"])
    _require_sure_links(sure)
    return Alignment(sure, sure | frozenset(pairs["p"]))


def _require_sure_links(sure: frozenset[IndexPair]) -> None:
    if not sure:
        raise BadInput("no sure link")


def _group_links(text: str) -> dict[str, list[IndexPair]]:
    """Return the links by their sign."""
    pairs: dict[str, list[IndexPair]] = {"-": [], "p": []}
    for sign, pair in map(_parse_link, text.split()):
        pairs[sign].append(pair)
    return pairs


def _parse_link(link: str) -> tuple[str, IndexPair]:
    match = LINK.fullmatch(link)
    if match is None:
        raise BadInput(f"the link {link!r} is not of the form 3-4 or 3p4")
    return match[2], (int(match[1]) - 1, int(match[3]) - 1)


def _validate_links(alignment: Alignment, source_words: int, answer_words: int) -> None:
    # -1, from a link that counts from 0, would silently mean the last word.
    for source, answer in alignment.possible:
        if source not in range(source_words) or answer not in range(answer_words):
            raise BadInput(f"the link {source + 1}-{answer + 1} points outside the sentences")
