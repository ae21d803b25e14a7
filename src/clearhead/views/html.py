"""HTML: pages and parts of pages; self-contained, without scripts, nothing fetched."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from clearhead.errors import BadInput
from clearhead.explanation import Explanation
from clearhead.views import blocks as layers
from clearhead.views import heatmap
from clearhead.views import html_parts as markup
from clearhead.views.text_spans import LEVELS, largest, level_for, pieces, require_explanations, scored, visible

MANY = 20
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"


def wrapped(bodies: Iterable[str]) -> str:
    """Bodies with their style sheet, ready to stand inside another page."""
    body = "".join(bodies)
    return f'<div class="clearhead">{markup.style(body)}{body}</div>'


def page(bodies: Iterable[str], title: str) -> str:
    """Bodies as one self-contained file."""
    name = escape(visible(title))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{name}</title>\n{markup.style()}\n"
        "<style>body.clearhead{margin:0}.clearhead main{max-width:64rem;margin:0 auto;padding:1.5rem 1rem}"
        ".clearhead h1{font-size:1.3rem;margin:0 0 1rem}</style>\n</head>\n"
        f'<body class="clearhead">\n<main>\n<h1>{name}</h1>\n{chr(10).join(bodies)}\n</main>\n</body>\n</html>\n'
    )


# --- bodies ----------------------------------------------------------------------------------------------------


def card(explanation: Explanation, *, level: str | None = None, rollout: Explanation | None = None) -> str:
    """One explanation with everything there is to see; `rollout` adds its row to the blocks."""
    if explanation.grid is not None:
        return markup.card(markup.heading(explanation), visible_explanations(explanation), markup.footer(explanation))
    level = level or level_for(explanation)
    return markup.card(
        markup.heading(explanation),
        markup.spoken(explanation, level),
        markup.levels(explanation, level, markup.full_of(explanation)),
        _legend(explanation, markup.full_of(explanation)),
        markup.footer(explanation),
        markup.numbers(explanation, level),
        _blocks(explanation, rollout),
    )


def _blocks(explanation: Explanation, rollout: Explanation | None) -> str:
    if explanation.layers is None:
        return ""
    return markup.folded("Block by block", layers.heat_map(explanation, rollout))


def cards(explanations: Sequence[Explanation]) -> list[str]:
    """A card each; where there are many, only their texts."""
    if len(explanations) <= MANY:
        return [card(one) for one in explanations]
    return list(map(brief, explanations))


def brief(explanation: Explanation) -> str:
    """Label and coloured text, nothing to unfold."""
    return markup.card(markup.heading(explanation), visible_explanations(explanation))


def methods(found: Mapping[str, Explanation]) -> str:
    """The same input by several methods, stacked; each has its own scale."""
    if not isinstance(found, Mapping):
        raise BadInput("This view takes explanations by the name of their method, as `compare` answers for one input.")
    require_explanations(found.values())
    first = next(iter(found.values()))
    rows = [f"<h3>{markup.escape(name)}</h3>{visible_explanations(one)}" for name, one in found.items()]
    body = markup.side_by_side(rows) if first.grid is not None else "".join(rows)
    return markup.card(markup.heading(first, method=False), body)


def classes(explanations: Sequence[Explanation]) -> str:
    """The same input for two or more classes side by side, on one scale."""
    full = full_of(explanations)
    return markup.card(
        markup.side_by_side(markup.heading(one, tag="h3") + visible_explanations(one, full) for one in explanations)
    )


def title_of(explanations: Sequence[Explanation]) -> str:
    """A title for a page of explanations."""
    if len(explanations) == 1 or len({one.label for one in explanations}) == 1:
        return f"Why “{explanations[0].label}”?"
    return f"{len(explanations)} explanations by {', '.join(dict.fromkeys(one.method for one in explanations))}"


def visible_explanations(explanation: Explanation, full: float | None = None) -> str:
    """The coloured text or photo with its legend."""
    full = full or full_of([explanation])
    if explanation.grid is not None:
        signed = heatmap.is_signed([explanation])
        return heatmap.figure(explanation, full=full) + heatmap.legend(full, explanation.label, signed)
    level = level_for(explanation)
    return markup.text(pieces(explanation, level), full) + _legend(explanation, full)


def full_of(explanations: Sequence[Explanation]) -> float:
    """What the full colour stands for where explanations share a scale: the strongest of any of them."""
    require_explanations(explanations)
    return max(map(_full, explanations))


def _full(explanation: Explanation) -> float:
    if explanation.grid is not None:
        return heatmap.full_of(explanation)
    return largest(scored(explanation, level_for(explanation)))


def _legend(explanation: Explanation, full: float) -> str:
    signed = any((piece.relevance or 0.0) < 0 for level in LEVELS for piece in scored(explanation, level))
    return markup.legend(full, explanation.label, signed)
