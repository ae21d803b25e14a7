"""The words that speak for each class over many texts, and how far classes share them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from PIL import Image

from clearhead.views import heatmap, html_parts
from clearhead.views.captions import percent

if TYPE_CHECKING:
    from clearhead.evaluation.top_words import Overlap

TopWords = Mapping[str, Sequence[tuple[str, float]]]
MAX_K_IN_SENTENCE = 10


def overlap_line(overlaps: "Sequence[Overlap]") -> str:
    """Say in a sentence what two classes share of their ten top words, or of as many as there are."""
    row = max((row for row in overlaps if row.k <= MAX_K_IN_SENTENCE), key=lambda row: row.k)
    return f"Of the top {row.k}, two classes share {row.count} ({percent(row.share)})."


def summary(
    tops: TopWords,
    overlaps: "Sequence[Overlap]" = (),
    *,
    count: int = 15,
    clouds: Mapping[str, Image.Image] | None = None,
) -> str:
    """Draw the top words of each class side by side, word clouds if given, and the overlap table.

    `tops` and `overlaps` are computed by `clearhead.evaluation.top_words`.
    """
    columns = [_column(label, words[:count], (clouds or {}).get(label)) for label, words in tops.items()]
    table = _overlap_table(overlaps) if overlaps else ""
    return html_parts.card("<h2>Words that speak for each class</h2>", html_parts.side_by_side(columns), table)


def _column(label: str, words: Sequence[tuple[str, float]], cloud: Image.Image | None) -> str:
    highest = max((weight for _, weight in words), default=1.0)
    rows = [(html_parts.escape(word), f"{weight:.3g}", _bar(weight / highest)) for word, weight in words]
    picture = "" if cloud is None else _cloud(label, cloud)
    return f"<h3>{html_parts.escape(label)}</h3>{picture}{html_parts.table(('word', 'weight', 'share'), rows)}"


def _bar(share: float) -> str:
    return f'<span class="ch-bar" style="width:{share * 6:.2f}rem"></span>'


def _cloud(label: str, cloud: Image.Image) -> str:
    url = heatmap.data_url(cloud.convert("RGB"), "PNG")
    return html_parts.image(url, cloud.size, f"Word cloud of {label}; the table has the words.", "ch-cloud")


def _overlap_table(overlaps: "Sequence[Overlap]") -> str:
    rows = [(str(row.k), str(row.count), percent(row.share)) for row in overlaps]
    return f"<h3>Overlap</h3>{html_parts.table(('top words', 'shared by two classes', 'share'), rows)}"
