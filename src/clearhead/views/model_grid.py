"""The same input as several models explain it: a row per method, a column per model, and how far the models agree."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from clearhead.explanation import Explanation, ModelComparison
from clearhead.joint_explanation import JointExplanation
from clearhead.views import html, html_parts, joint_html
from clearhead.views.captions import format_label, format_probability
from clearhead.views.diff_tables import TextTable
from clearhead.views.notebook import group_by_input
from clearhead.views.scale import Scale, make_scale, share_scales
from clearhead.views.text_spans import escape_hidden, has_text

MAX_WORDS = 8
MAX_SHOWN = 20
NO_WORD = "–"

ByModel = Mapping[str, Any]
"""The explanations of one input by one method, by model."""
ModelRow = Mapping[str, ByModel]
"""The explanations of one input by method, and of each method by model."""
Span = tuple[int, int, int]


def card(row: ModelRow) -> str:
    """Render one input: the models side by side for each method, and below them how far they agree."""
    bodies: list[str] = []
    for method, by_model in row.items():
        bodies.append(f"<h2>{html_parts.escape(method)}</h2>")
        bodies += _render_models(by_model)
    return html_parts.card(*bodies)


def fragment(comparison: ModelComparison) -> str:
    """Render a comparison for a notebook."""
    rows = group_rows({name: group_by_input(by_method) for name, by_method in comparison.items()})
    return html.with_style(map(card, rows[:MAX_SHOWN]))


def group_rows(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, dict[str, Any]]]:
    """Turn the explanations of each model, by method for each input, into one ModelRow per input."""
    grouped = []
    for by_model in zip(*rows.values(), strict=True):
        named = dict(zip(rows, by_model, strict=True))
        grouped.append({method: _select_method(named, method) for method in by_model[0]})
    return grouped


def _select_method(rows: Mapping[str, Mapping[str, Any]], method: str) -> dict[str, Any]:
    return {name: row[method] for name, row in rows.items()}


def flatten_row(row: ModelRow) -> dict[str, Any]:
    """Return the explanations of one input by names that tell model and method."""
    flat = {}
    for method, by_model in row.items():
        for name, explanation in by_model.items():
            flat[f"{name} · {method}"] = explanation
    return flat


def _render_models(by_model: ByModel) -> Iterator[str]:
    yield html_parts.side_by_side(map(_render_model, by_model.keys(), by_model.values(), _share_scales(by_model)))
    for sentence in describe_pairs(by_model):
        yield f'<p class="ch-check">{html_parts.escape(sentence)}</p>'
    table = tabulate_words(by_model)
    if table.rows:
        yield html_parts.details(table.title, _render_table(table))


def _share_scales(by_model: ByModel) -> Sequence[Scale | None]:
    explanations = list(by_model.values())
    # The inputs of a joint explanation share a scale of their own.
    if isinstance(explanations[0], JointExplanation):
        return [None] * len(explanations)
    # Of more patches each has a smaller share.
    if len({explanation.grid for explanation in explanations}) > 1:
        return list(map(make_scale, explanations))
    return share_scales(explanations)


def _render_model(name: str, explanation: Any, scale: Scale | None) -> str:
    heading = f"<h3>{html_parts.escape(name)}</h3><p><b>{html_parts.escape(_describe_answer(explanation))}</b></p>"
    if isinstance(explanation, JointExplanation):
        return heading + joint_html.render_body(explanation)
    return heading + html.render_input(explanation, scale) + html_parts.render_check(explanation)


def _describe_answer(explanation: Any) -> str:
    first = explanation
    if isinstance(explanation, JointExplanation):
        first = explanation.explanations[0]
    return f"{format_label(first)}{format_probability(first)}"


def _render_table(table: TextTable) -> str:
    rows = [list(map(html_parts.escape, row)) for row in table.rows]
    return html_parts.scrollable(table.title, html_parts.table(list(map(html_parts.escape, table.columns)), rows))


def describe_pairs(by_model: ByModel) -> Iterator[str]:
    """Say of every two models whether they give the same answer for the same reasons."""
    # Imported here because it imports torch, which views of saved explanations do without.
    from clearhead.drift.side_by_side import compare_pair

    for (name, first), (other, second) in combinations(by_model.items(), 2):
        diff = compare_pair(first, second)
        if diff is not None:
            correlation = f"Rank correlation {diff.agreement.correlation:.2f} over {_count_units(diff)}.".replace(
                " -", " −"
            )
            yield escape_hidden(f"{name} and {other}: {diff.sentence} {correlation}")


def _count_units(diff: Any) -> str:
    plural = "es" if diff.kind.endswith("ch") else "s"
    return f"{len(diff.first_U)} {diff.kind}{plural}"


def tabulate_words(by_model: ByModel) -> TextTable:
    """Return the strongest words of a text with their share in each model; no rows for pictures and answers."""
    columns = [_list_words(explanation) for explanation in by_model.values()]
    if not all(columns):
        return TextTable("", (), ())
    rows = [_write_row(span, columns) for span in _rank_spans(columns)[:MAX_WORDS]]
    return TextTable("Strongest words, model by model", ("word", *by_model), tuple(rows))


def _list_words(explanation: Any) -> dict[Span, tuple[str, Scale, float]]:
    """Return word, scale and relevance by the place of a word in the text, which does not depend on the tokenizer."""
    if type(explanation) is not Explanation or explanation.grid is not None or not has_text(explanation):
        return {}
    scale = make_scale(explanation)
    words = {}
    for word in explanation.words():
        words[word.segment, word.start, word.end] = (word.text, scale, word.relevance)
    return words


def _rank_spans(columns: Sequence[Mapping[Span, Any]]) -> list[Span]:
    """Return the places of words, the one with the largest share in any model first."""
    sizes: dict[Span, float] = {}
    for words in columns:
        for span, (_, scale, relevance) in words.items():
            sizes[span] = max(sizes.get(span, 0.0), abs(scale.find_share(relevance)))
    return sorted(sizes, key=lambda span: -sizes[span])


def _write_row(span: Span, columns: Sequence[Mapping[Span, Any]]) -> tuple[str, ...]:
    cells = [_write_cell(words.get(span)) for words in columns]
    text = next(words[span][0] for words in columns if span in words)
    return escape_hidden(text), *cells


def _write_cell(word: tuple[str, Scale, float] | None) -> str:
    # A model that takes fewer tokens has not read the end of the text.
    if word is None:
        return NO_WORD
    _, scale, relevance = word
    return scale.format(relevance)
