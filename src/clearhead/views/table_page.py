"""A page for the explanations of a whole table: one line per row, sorted and filtered without scripts.

Sorting and filtering are choices whose state the style sheet reads with `:has()`: every row carries its position in
each order as a variable, and its label and correctness as classes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from clearhead.check import summarise_verdicts
from clearhead.plain import finite
from clearhead.tables.records import OWN_COLUMNS
from clearhead.views import html
from clearhead.views.captions import clip
from clearhead.views.color import color_step
from clearhead.views.html_parts import card, css_class, escape, render_colors, render_faint
from clearhead.views.notes import explains_another_class
from clearhead.views.numbers import format_percent, format_size, join_unit
from clearhead.views.scale import LIMITS, find_effect, find_full_effect

Record = Mapping[str, Any]
Word = Mapping[str, Any]
# More rows would make a page slow to open.
MAX_ROWS = 2000
# Choices of labels; the rows of further ones are found by sorting.
MAX_LABELS = 20
MAX_CHARACTERS = 500
MAX_NOTE = 160
MAX_NAME = 40
ORDERS = {"table": "as in the table", "wrong": "wrong ones first", "sure": "least certain first"}
CHECKED = {True: " checked", False: ""}
CORRECTNESS = {True: "ch-wrong", False: "ch-right", None: ""}
HEADINGS = ("predicted", "probability", "check", "text")
FILTERS = {"all": "all", "wrong": "wrong", "right": "right"}
SCALE_NOTE = "The full colour is that of the strongest word of each row: colours of different rows have no common unit."
EFFECTS_NOTE = "The full colour is an effect of {}; in rows of more than 20 words, of less."
UNCHECKED = "The explanations were not checked: of many inputs only --check 5 (check=5 in Python) asks for that."
STYLE = (
    ".ch-rows fieldset{display:inline-block;border:0;padding:0;margin:0 1.5rem .6rem 0}"
    ".ch-rows legend{float:left;margin-right:.6rem;color:var(--ch-faint)}.ch-rows label{margin-right:.7rem}"
    ".ch-rows [role=rowgroup]{display:flex;flex-direction:column}"
    ".ch-rows [role=row]{display:grid;grid-template-columns:6rem 11rem 6rem 4rem 1fr;gap:.2rem .8rem;"
    "padding:.45rem 0;border-top:1px solid var(--ch-line);order:var(--table);align-items:baseline}"
    ".ch-rows [role=cell]{overflow-wrap:anywhere;min-width:0}.ch-rows b{font-weight:inherit}"
    ".ch-rows small{display:block;color:var(--ch-faint)}.ch-rows em{font-style:normal;font-weight:600}"
    ".ch-rows .ch-error{display:block}"
    ".ch-rows:has([value=wrong][name=ch-order]:checked) [role=row]{order:var(--wrong)}"
    ".ch-rows:has([value=sure]:checked) [role=row]{order:var(--sure)}"
    ".ch-rows:has([value=wrong][name=ch-filter]:checked) [role=row]:not(.ch-wrong,.ch-head){display:none}"
    ".ch-rows:has([value=right]:checked) [role=row]:not(.ch-right,.ch-head){display:none}"
    ".ch-rows .ch-head{order:-1;border:0;color:var(--ch-faint)}"
    "@media(max-width:48rem){.ch-rows [role=row]{grid-template-columns:1fr 1fr}.ch-rows .ch-long{grid-column:1/-1}}"
)


def page(records: Iterable[Record], title: str | None = None) -> str:
    """Render a self-contained page of records, as `explain_table` makes them."""
    return html.page([rows_card(records)], title or "Explained table")


def rows_card(records: Iterable[Record]) -> str:
    """Render one line per record in a card, with its choices of order, correctness and label."""
    selection = _select_rows(records)
    shown = selection.rows
    labels = _list_labels(shown)
    notes = "".join(map(render_faint, filter(None, _describe_rows(selection))))
    choices = _render_choices(labels, has_gold=_has_gold(shown))
    body = f'<div class="ch-rows">{notes}{_render_legend(shown)}{choices}{_render_table(shown, labels)}</div>'
    return card(_render_style(len(labels)), body)


def _render_style(labels: int) -> str:
    return f"<style>{STYLE}{''.join(_label_rules(labels))}</style>"


def _render_legend(records: Sequence[Record]) -> str:
    """Render what the colours of words mean; nothing for tables of images."""
    relevances = _list_relevances(records)
    if not relevances:
        return ""
    # What is explained is a class or an answer.
    colors = render_colors(_name_lowest(relevances), "for what is explained")
    return colors + render_faint(_describe_scale(records))


def _describe_scale(records: Iterable[Record]) -> str:
    """Say what the full colour is; the rows of a table are explained by one method."""
    effects = filter(None, map(_find_effect, records))
    effect = next(effects, None)
    if effect is None:
        return SCALE_NOTE
    return EFFECTS_NOTE.format(_name_full_effect(effect["unit"]))


def _name_full_effect(unit: str) -> str:
    if unit not in LIMITS:
        return "half of the prediction"
    return join_unit(format_size(LIMITS[unit], unit), unit)


def _find_effect(record: Record) -> Mapping[str, Any] | None:
    return find_effect(_diagnostics(record))


def _name_lowest(relevances: Iterable[float]) -> str | None:
    # Methods without signs have no colours below 0.
    return "against" if min(relevances) < 0 else None


def _list_relevances(records: Iterable[Record]) -> list[float]:
    words = chain.from_iterable(map(_list_words, records))
    return list(map(itemgetter("relevance"), words))


def _list_words(record: Record) -> Sequence[Word]:
    return record.get("words") or ()


def _has_gold(records: Sequence[Record]) -> bool:
    return any(record.get("wrong") is not None for record in records)


def _render_table(records: Sequence[Record], labels: Sequence[str]) -> str:
    lines = "".join(_render_rows(records, labels))
    groups = f'<div role="rowgroup">{_render_head(_name_first_column(records))}{lines}</div>'
    return f'<div role="table" aria-label="Explained rows">{groups}</div>'


def _name_first_column(records: Sequence[Record]) -> str:
    if any(record.get("id") is not None for record in records):
        return "row, id"
    return "row"


def _render_head(first: str) -> str:
    cells = "".join(f'<span role="columnheader">{name}</span>' for name in (first, *HEADINGS))
    return f'<div role="row" class="ch-head">{cells}</div>'


class _Selection:
    """The rows that are shown, wrong ones before others if there are too many, and counts of all rows."""

    def __init__(self) -> None:
        self.total = 0
        self.judged: Counter[bool] = Counter()
        self.verdicts: Counter[str] = Counter()
        self._wrong: list[tuple[int, Record]] = []
        self._others: list[tuple[int, Record]] = []

    def add(self, record: Record) -> None:
        self.total += 1
        self._count(record)
        group = self._choose_group(record)
        # No more than could be shown are held.
        if len(group) < MAX_ROWS:
            group.append((self.total, record))

    def _count(self, record: Record) -> None:
        if record.get("wrong") is not None:
            self.judged[bool(record["wrong"])] += 1
        if record.get("check"):
            self.verdicts[record["check"]] += 1

    def _choose_group(self, record: Record) -> list[tuple[int, Record]]:
        if record.get("wrong"):
            return self._wrong
        return self._others

    @property
    def rows(self) -> list[Record]:
        """The rows in the order of the table."""
        shown = [*self._wrong, *self._others][:MAX_ROWS]
        return [record for _, record in sorted(shown, key=itemgetter(0))]


def _select_rows(records: Iterable[Record]) -> _Selection:
    selection = _Selection()
    for record in records:
        selection.add(record)
    return selection


def _list_labels(records: Sequence[Record]) -> list[str]:
    counts = Counter(record["predicted"] for record in records if record.get("predicted") is not None)
    return [label for label, _ in counts.most_common(MAX_LABELS)]


def _render_choices(labels: Sequence[str], *, has_gold: bool) -> str:
    return _render_correctness(has_gold=has_gold) + _render_labels_choice(labels)


def _render_correctness(*, has_gold: bool) -> str:
    if has_gold:
        shown = _render_choice("Show", "ch-filter", FILTERS, "all")
        return shown + _render_choice("Order", "ch-order", ORDERS, "wrong")
    # Without labels nothing is known to be wrong.
    orders = {name: text for name, text in ORDERS.items() if name != "wrong"}
    return _render_choice("Order", "ch-order", orders, "table")


def _render_labels_choice(labels: Sequence[str]) -> str:
    if len(labels) < 2:
        return ""
    names = {str(number): label for number, label in enumerate(labels)}
    return _render_choice("Predicted", "ch-label", {"all": "all", **names}, "all")


def _render_choice(title: str, name: str, choices: Mapping[str, str], checked: str) -> str:
    buttons = "".join(_render_button(name, value, text, value == checked) for value, text in choices.items())
    return f"<fieldset><legend>{title}</legend>{buttons}</fieldset>"


def _render_button(name: str, value: str, text: str, is_checked: bool) -> str:
    state = CHECKED[is_checked]
    return f'<label><input type="radio" name="{name}" value="{value}"{state}> {escape(text)}</label>'


def _label_rules(labels: int) -> Iterator[str]:
    for number in range(labels):
        chosen = f"[name=ch-label][value='{number}']:checked"
        yield f".ch-rows:has({chosen}) [role=row]:not(.k{number},.ch-head){{display:none}}"


def _describe_rows(selection: _Selection) -> Iterator[str]:
    yield _count_shown(len(selection.rows), selection.total)
    # Of all rows: of those that are shown, more are wrong.
    yield _count_wrong(selection.judged)
    yield summarise_verdicts(selection.verdicts) if selection.verdicts else UNCHECKED


def _count_shown(shown: int, total: int) -> str:
    if shown == total:
        return ""
    return f"{shown:,} of {total:,} rows are shown: wrong ones first, then others in the order of the table."


def _count_wrong(judged: Counter[bool]) -> str:
    if not judged:
        return ""
    return f"{judged[True]:,} of {judged.total():,} predictions differ from the gold label."


def _render_rows(records: Sequence[Record], labels: Sequence[str]) -> Iterator[str]:
    wrong = _rank(records, _wrong_first)
    sure = _rank(records, _least_certain_first)
    for index, record in enumerate(records):
        style = f"--table:{index};--wrong:{wrong[index]};--sure:{sure[index]}"
        yield _render_row(record, _row_class(record, labels), style)


def _render_row(record: Record, css: str, style: str) -> str:
    return f'<div role="row" class="{css}" style="{style}">{_render_cells(record)}</div>'


def _rank(records: Sequence[Record], key: Any) -> list[int]:
    """Return for each record its position in an order."""
    ranks = [0] * len(records)
    for rank, index in enumerate(sorted(range(len(records)), key=lambda index: key(records[index]))):
        ranks[index] = rank
    return ranks


def _wrong_first(record: Record) -> tuple[bool, float]:
    # Among the wrong ones those that the model is most sure of come first.
    return not record.get("wrong"), -(_find_certainty(record) or 0)


def _least_certain_first(record: Record) -> tuple[bool, float]:
    certainty = _find_certainty(record)
    # Rows without a prediction are neither certain nor uncertain.
    return certainty is None, certainty or 0


def _find_certainty(record: Record) -> float | None:
    """Return the probability of the predicted class, or of what is explained where there are no classes."""
    probability: float | None = _diagnostics(record).get("predicted_probability")
    if probability is None and record.get("predicted") in (None, record.get("label")):
        return record.get("probability")
    return probability


def _diagnostics(record: Record) -> Mapping[str, Any]:
    # Flat records have none.
    return record.get("diagnostics") or {}


def _row_class(record: Record, labels: Sequence[str]) -> str:
    names = []
    if record.get("predicted") in labels:
        names.append(f"k{labels.index(record['predicted'])}")
    names.append(CORRECTNESS[record.get("wrong")])
    return " ".join(filter(None, names))


def _render_cells(record: Record) -> str:
    cells = (_render_name(record), _render_labels(record), _render_probability(record), _render_check(record))
    short = "".join(f'<span role="cell">{cell}</span>' for cell in cells)
    return f'{short}<span role="cell" class="ch-long">{_render_content(record)}</span>'


def _render_name(record: Record) -> str:
    number = escape(str(record.get("row") or ""))
    if record.get("id") is None:
        return number
    return f"{number}<small>{escape(clip(str(record['id']), MAX_NAME))}</small>"


def _render_labels(record: Record) -> str:
    label = escape(clip(str(record.get("predicted") or record.get("label") or "")))
    if record.get("wrong"):
        label = f"<em>✗ {label}</em>"
    return label + "".join(f"<small>{escape(note)}</small>" for note in _describe_labels(record))


def _describe_labels(record: Record) -> Iterator[str]:
    """Yield the gold label if it is not the predicted one, and what is explained if that is not the prediction."""
    if record.get("gold") is not None and (record.get("wrong") or record.get("error")):
        yield f"gold: {clip(str(record['gold']))}"
    if record.get("predicted") not in (None, record.get("label")):
        yield f"explained: {_format_explained(record)}"


def _format_explained(record: Record) -> str:
    label = str(record.get("label"))
    # A contrast of the prediction has its probability.
    if record.get("probability") is None or not explains_another_class(label, _diagnostics(record)):
        return clip(label)
    return f"{clip(label)} {format_percent(record['probability'])}"


def _render_probability(record: Record) -> str:
    certainty = _find_certainty(record)
    if certainty is None:
        return ""
    return format_percent(certainty)


def _render_check(record: Record) -> str:
    return escape(str(record.get("check") or ""))


def _render_content(record: Record) -> str:
    return f"{_render_text(record)}{_render_error(record)}<small>{escape(_format_passed(record))}</small>"


def _render_error(record: Record) -> str:
    if not record.get("error"):
        return ""
    return f'<span class="ch-error"><em>not explained:</em> {escape(record["error"])}</span>'


def _format_passed(record: Record) -> str:
    # As files have it: of a picture inside a table the number of its bytes.
    passed = {name: finite(value) for name, value in record.items() if name not in OWN_COLUMNS}
    return clip(" · ".join(f"{name}: {value}" for name, value in passed.items() if _has_value(value)), MAX_NOTE)


def _has_value(value: Any) -> bool:
    return value is not None and value != ""


def _render_text(record: Record) -> str:
    words = _list_words(record)
    full = _find_full(record, words)
    texts = filter(None, (record.get("text"), record.get("second")))
    return " / ".join(_render_segment(text, _select_words(words, segment), full) for segment, text in enumerate(texts))


def _find_full(record: Record, words: Sequence[Word]) -> float:
    """Return the relevance of the full colour: a fixed effect, as in every view, else that of the strongest word."""
    effect = _find_effect(record)
    full = find_full_effect(effect, len(words)) if effect is not None else 0.0
    return full or max((abs(word["relevance"]) for word in words), default=0.0)


def _select_words(words: Iterable[Word], segment: int) -> list[Word]:
    """Return the words of one text that begin within what is shown of it; a source may go on behind that."""
    return [word for word in words if word["segment"] == segment and word["start"] < MAX_CHARACTERS]


def _render_segment(text: str, words: Iterable[Word], full: float) -> str:
    return f'<span dir="auto" lang="">{"".join(_color_words(text, words, full))}</span>'


def _color_words(text: str, words: Iterable[Word], full: float) -> Iterator[str]:
    """Yield a text with its relevant words on their colour; the rest is left as it is, to keep pages small."""
    position = 0
    for word in words:
        step = color_step(word["relevance"], full)
        if step:
            yield escape(text[position : word["start"]])
            position = min(word["end"], MAX_CHARACTERS)
            yield f'<b class="{css_class(step)}">{escape(text[word["start"] : position])}</b>'
    yield escape(text[position:MAX_CHARACTERS])
    if len(text) > MAX_CHARACTERS:
        yield "…"
