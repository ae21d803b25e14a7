"""Cards of a page that have to be computed first: removal curves, and the words of each class."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.explanation import Explanation
    from clearhead.model.model import Model


def removal_card(model: "Model", source: Any, explanations: "Mapping[str, Explanation]", title: str = "") -> str:
    """Compute and draw what hiding and revealing the most relevant features of one input does, below a title."""
    # Imported here: torch would slow down every command, --help included.
    from clearhead.perturbation.curves import removal_curves
    from clearhead.views import removal_charts

    hiding = removal_curves(model, source, explanations)
    revealing = removal_curves(model, source, explanations, reveal=True)
    return removal_charts.card(next(iter(explanations.values())), hiding, revealing, title)


def class_words_cards(explanations: "Sequence[Explanation]") -> list[str]:
    """Compute and draw the words that speak for each class as one card; none if no explanation has a text."""
    texts = list(filter(_has_words, explanations))
    if not texts:
        return []
    return [_class_words_card(texts)]


def _class_words_card(explanations: "Sequence[Explanation]") -> str:
    from clearhead.evaluation.top_words import overlap_rows, top_words, word_records
    from clearhead.views import class_words

    records = word_records(explanations)
    return class_words.summary(top_words(records), overlap_rows(records))


def _has_words(explanation: "Explanation") -> bool:
    # Words are found in the text by the offsets of its tokens, which slow tokenizers do not give.
    return explanation.text is not None and bool(explanation.offsets)
