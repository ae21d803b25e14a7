"""The corpus view: the words that speak for each class over many texts, and how far classes share them."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from PIL import Image

from clearhead.errors import BadInput
from clearhead.explanation import Explanation
from clearhead.validation import require_integer
from clearhead.views import heatmap
from clearhead.views import html_parts as markup
from clearhead.views.captions import percent
from clearhead.views.text_spans import require_explanations

TopWords = Mapping[str, Sequence[tuple[str, float]]]
TEN = 10
PUNCTUATION = ".,;:!?\"'()[]{}<>«»“”‘’…–—-*_/\\|"


def normal(word: str) -> str:
    """A word as it is counted: lower case, without the punctuation around it."""
    return word.strip(PUNCTUATION).casefold()


def inverse_document_frequency(texts: Iterable[str]) -> dict[str, float]:
    """ln(N / n) for every word of a reference corpus, n the texts that hold it."""
    count, holding = 0, Counter[str]()
    for text in texts:
        count += 1
        holding.update({normal(word) for word in text.split()} - {""})
    if not count:
        raise BadInput("The reference corpus is empty: give the texts that word frequencies are counted in.")
    return {word: math.log(count / number) for word, number in holding.items()}


def top_words(
    explanations: Sequence[Explanation], *, weights: Mapping[str, float] | None = None, count: int = 50
) -> dict[str, list[tuple[str, float]]]:
    """Per explained class the words with the highest relevance summed over all texts.

    With `weights`, the inverse document frequencies of a reference corpus, a word that the corpus does not hold
    counts as rare as its rarest word.
    """
    require_explanations(explanations)
    require_integer("count", count)
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for explanation in explanations:
        for word in explanation.words():
            if name := normal(word.text):
                sums[explanation.label][name] += word.relevance  # type: ignore[assignment]
    rarest = max(weights.values(), default=1.0) if weights else 1.0
    weighed = {
        label: Counter({word: total * ((weights or {}).get(word, rarest)) for word, total in words.items()})
        for label, words in sorted(sums.items())
    }
    return {label: [(w, float(v)) for w, v in words.most_common(count) if v > 0] for label, words in weighed.items()}


def overlap(tops: TopWords, k: int) -> tuple[int, float]:
    """How many words the top k of two classes have in common, over all pairs, and the share of what is possible.

    A class with fewer words than k can share no more than it has.
    """
    pairs = list(combinations([{word for word, _ in words[:k]} for words in tops.values()], 2))
    count = sum(len(first & second) for first, second in pairs)
    possible = sum(min(len(first), len(second)) for first, second in pairs)
    return count, count / possible if possible else 0.0


def steps(tops: TopWords) -> list[int]:
    """How many top words are looked at for what classes share: never more than there are."""
    longest = max((len(words) for words in tops.values()), default=0)
    return sorted({min(k, longest) for k in (5, TEN, 20, 30, 40, 50)} - {0})


def overlap_line(tops: TopWords) -> str:
    """What two classes share of their ten top words, or of as many as there are, in a sentence."""
    k = max(one for one in steps(tops) if one <= TEN)
    shared, share = overlap(tops, k)
    return f"Of the top {k}, two classes share {shared} ({percent(share)})."


def summary(tops: TopWords, *, count: int = 15, clouds: Mapping[str, Image.Image] | None = None) -> str:
    """Top words of each class side by side, word clouds if given, and the overlap table."""
    columns = [_column(label, words[:count], (clouds or {}).get(label)) for label, words in tops.items()]
    table = _overlap_table(tops) if len(tops) > 1 and steps(tops) else ""
    return markup.card("<h2>Words that speak for each class</h2>", markup.side_by_side(columns), table)


def _column(label: str, words: Sequence[tuple[str, float]], cloud: Image.Image | None) -> str:
    full = max((weight for _, weight in words), default=1.0)
    rows = [(markup.escape(word), f"{weight:.3g}", _bar(weight / full)) for word, weight in words]
    picture = "" if cloud is None else _cloud(label, cloud)
    return f"<h3>{markup.escape(label)}</h3>{picture}{markup.table(('word', 'weight', 'share'), rows)}"


def _bar(share: float) -> str:
    return f'<span class="ch-bar" style="width:{share * 6:.2f}rem"></span>'


def _cloud(label: str, cloud: Image.Image) -> str:
    url = heatmap.data_url(cloud.convert("RGB"), "PNG")
    return markup.image(url, cloud.size, f"Word cloud of {label}; the table has the words.", "ch-cloud")


def _overlap_table(tops: TopWords) -> str:
    shared = [(k, *overlap(tops, k)) for k in steps(tops)]
    rows = [(str(k), str(number), percent(share)) for k, number, share in shared]
    return f"<h3>Overlap</h3>{markup.table(('top words', 'shared by two classes', 'share'), rows)}"
