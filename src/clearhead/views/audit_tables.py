"""An audit as tables and sentences, which the HTML, Markdown and terminal views share."""

from collections.abc import Iterator

from clearhead.drift.shortcuts import REGION_KINDS, Audit, AuditedWord, quote_class
from clearhead.evaluation.statistics import Interval
from clearhead.views.diff_tables import TextTable, format_bounds, format_p, format_signed
from clearhead.views.numbers import PROBABILITY, format_effect, format_percent

NUMBERS = ("share", "effect of hiding", "95 % interval", "others", "p", "answers", "accuracy")


def make_title(audit: Audit) -> str:
    """Return a title for a page or a document."""
    return f"Shortcuts of {audit.model} on {audit.task}"


def list_facts(audit: Audit) -> Iterator[str]:
    """Yield sentences about the data set, and how to read the tables."""
    if audit.accuracy is not None:
        yield f"The model is right on {format_percent(audit.accuracy)} of the labelled {audit.inputs}."
    yield EXPLANATIONS[audit.unit]
    yield from audit.notes


EXPLANATIONS = {
    "word": (
        "Share: of the relevance of a text of the class. Effect of hiding: change of the class's probability over the "
        "texts with the word when it is hidden; others: when as many other words are. p: of a paired test "
        "between both, corrected for all words. Answers: how many change. Accuracy: its change over all texts."
    ),
    "region": (
        "Class: what the images are answered with. Share: of their relevance. Effect of hiding: change of the "
        "probability of the answer when the region is hidden; others: when as many other patches are. p: of a paired "
        "test between both, corrected for all regions. Answers: how many change. Accuracy: its change over all images."
    ),
}


def list_tables(audit: Audit) -> Iterator[TextTable]:
    """Yield the tables that have rows: shortcuts, others that the model uses, and those that it does not."""
    columns = (audit.unit, "class", audit.inputs, *NUMBERS)
    for title, belongs in GROUPS.items():
        words = filter(belongs, audit.words)
        table = TextTable(title.format(audit.unit), columns, tuple(map(_make_row, words)))
        if table.rows:
            yield table


def _is_shortcut(word: AuditedWord) -> bool:
    return word.is_shortcut


def _is_used(word: AuditedWord) -> bool:
    return word.has_effect and not word.is_shortcut


def _is_unused(word: AuditedWord) -> bool:
    return not word.has_effect


GROUPS = {
    "Shortcuts: the model uses them, and they may be no evidence": _is_shortcut,
    "Other {}s that the model uses: judge yourself whether they are evidence": _is_used,
    "No more effect than hiding other parts of the same inputs": _is_unused,
}


def _make_row(word: AuditedWord) -> tuple[str, ...]:
    counts = (str(word.texts), format_signed(word.share.value))
    return word.word, word.label, *counts, *_format_effect(word), str(word.flips), _format_change(word.accuracy)


def _format_effect(word: AuditedWord) -> tuple[str, ...]:
    # Hiding lowers a probability: shown as the change that it is.
    bounds = format_bounds(-word.effect.high, -word.effect.low)
    return format_signed(-word.effect.value), bounds, format_signed(-word.control), format_p(word.p_corrected)


def _format_change(change: Interval | None) -> str:
    if change is None:
        return "no labels"
    return f"{format_signed(change.value)} ({format_bounds(change.low, change.high)})"


def describe_shortcut(word: AuditedWord) -> str:
    """Say in words what a shortcut does, and why it is suspicious."""
    # A region is in every image, a word stands in some texts.
    describe = _describe_region if word.kind in REGION_KINDS else _describe_word
    return f"{describe(word)} Suspicious: {'; '.join(word.suspicions)}."


def _describe_word(word: AuditedWord) -> str:
    return (
        f"'{word.word}' stands in {word.texts} texts, {format_percent(word.concentration)} of which are answered with "
        f"'{word.label}'. Without it, the probability of '{word.label}' changes by "
        f"{format_effect(-word.effect.value, PROBABILITY)}, and {word.flips} answers change."
    )


def _describe_region(region: AuditedWord) -> str:
    others = format_effect(-region.control, PROBABILITY)
    return (
        f"Hiding the {region.word} of the {region.texts} images answered with {quote_class(region.label)} changes the "
        f"probability of the answer by {format_effect(-region.effect.value, PROBABILITY)}, hiding as many other "
        f"patches by {others}; {region.flips} answers change."
    )
