"""Top words of each class over many texts, and how many of them classes share."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from PIL import Image

from clearhead.views import heatmap, html_parts
from clearhead.views.numbers import format_percent

if TYPE_CHECKING:
    from clearhead.evaluation.top_words import ClassWord, Overlap

MAX_K_IN_SENTENCE = 10
BAR_WIDTH_REM = 4


def overlap_line(overlaps: "Sequence[Overlap]") -> str:
    """Say in a sentence what two classes share of their ten top words, or of as many as there are."""
    row = _longest_short_row(overlaps)
    shared = _format_shared(row)
    on_average = "" if shared == str(row.count) else " on average"
    return f"Of the top {row.k}, two classes share {shared}{on_average} ({format_percent(row.share)})."


def _format_shared(row: "Overlap") -> str:
    # The count is the sum over all pairs of classes, the share that of one pair.
    return f"{row.share * row.k:.3g}"


def _longest_short_row(overlaps: "Sequence[Overlap]") -> "Overlap":
    return max((row for row in overlaps if row.k <= MAX_K_IN_SENTENCE), key=attrgetter("k"))


def summary(
    tops: "Mapping[str, Sequence[ClassWord]]",
    overlaps: "Sequence[Overlap]" = (),
    *,
    count: int = 15,
    clouds: Mapping[str, Image.Image] | None = None,
) -> str:
    """Render the top words of each class side by side, word clouds if given, and the table of shared words.

    `tops` and `overlaps` are computed by `clearhead.evaluation.top_words`.
    """
    columns = _render_columns(tops, count, clouds or {})
    bodies = ["<h2>Words that speak for each class</h2>", html_parts.side_by_side(columns)]
    if overlaps:
        bodies.append(_render_overlaps(overlaps))
    return html_parts.card(*bodies)


def _render_columns(
    tops: "Mapping[str, Sequence[ClassWord]]", count: int, clouds: Mapping[str, Image.Image]
) -> Iterator[str]:
    for label, words in tops.items():
        yield _render_column(label, words[:count], clouds.get(label))


def _render_column(label: str, words: "Sequence[ClassWord]", cloud: Image.Image | None) -> str:
    heading = f"<h3>{html_parts.escape(label)}</h3>"
    if cloud is not None:
        heading += _render_cloud(label, cloud)
    return heading + html_parts.scrollable(f"Words of {label}", _render_words(words))


def _render_words(words: "Sequence[ClassWord]") -> str:
    # The bar of the heaviest word has the full width.
    highest = _highest_weight(words)
    rows = [_word_cells(word, highest) for word in words]
    return html_parts.table(("word", "mean share", "95 %", "texts", '<span class="ch-sr">bar</span>'), rows)


def _highest_weight(words: "Sequence[ClassWord]") -> float:
    return max((word.weight for word in words), default=1.0)


def _word_cells(word: "ClassWord", highest: float) -> tuple[str, str, str, str, str]:
    bar = _render_bar(word.weight / highest)
    return html_parts.escape(word.word), format_percent(word.weight), _format_interval(word), str(word.texts), bar


def _format_interval(word: "ClassWord") -> str:
    # A class of a single text has none.
    if word.low is None or word.high is None:
        return "–"
    return f"{format_percent(word.low)} … {format_percent(word.high)}"


def _render_bar(share: float) -> str:
    return f'<span class="ch-bar" style="width:{share * BAR_WIDTH_REM:.2f}rem"></span>'


def _render_cloud(label: str, cloud: Image.Image) -> str:
    # PNG keeps the edges of letters sharp.
    url = heatmap.encode_data_url(cloud.convert("RGB"), "PNG")
    description = f"Word cloud of {label}; the table has the words."
    return html_parts.render_image(url, cloud.size, description, "ch-cloud")


def _render_overlaps(overlaps: "Sequence[Overlap]") -> str:
    table = html_parts.table(("top words", "shared by two classes", "share"), map(_overlap_cells, overlaps))
    return f"<h3>Overlap</h3>{table}"


def _overlap_cells(row: "Overlap") -> tuple[str, str, str]:
    return str(row.k), _format_shared(row), format_percent(row.share)
