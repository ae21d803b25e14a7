"""HTML: a fragment for a notebook, a page for a file; self-contained, without scripts, nothing fetched."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from clearhead.explanation import Explanation
from clearhead.views import markup
from clearhead.views.piece import largest, level_for, pieces, scored, visible
from clearhead.views.wording import headline

MANY = 20
NOTEBOOK = 100
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"


def fragment(explanation: Explanation) -> str:
    """One explanation for a notebook cell."""
    return wrapped([card(explanation)])


def listing(explanations: Sequence[Explanation]) -> str:
    """Many explanations for a notebook cell: the text of each, no more than a hundred."""
    rest = len(explanations) - NOTEBOOK
    more = [f'<p class="ch-faint">… and {rest} more.</p>'] if rest > 0 else []
    return wrapped([*cards(explanations[:NOTEBOOK]), *more])


def comparison(found: Mapping[str, Explanation]) -> str:
    """Several methods on one input for a notebook cell."""
    return wrapped([methods(found)])


def wrapped(bodies: Iterable[str]) -> str:
    """Bodies with their style sheet, ready to stand inside another page."""
    return f'<div class="clearhead">{markup.style()}{"".join(bodies)}</div>'


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


def card(explanation: Explanation, *, level: str | None = None) -> str:
    """One explanation with everything there is to see."""
    level = level or level_for(explanation)
    return _article(
        markup.heading(explanation),
        markup.spoken(explanation, level),
        markup.levels(explanation, level),
        _legend(explanation, level),
        markup.footer(explanation),
        markup.numbers(explanation, level),
    )


def cards(explanations: Sequence[Explanation]) -> list[str]:
    """A card each; where there are many, only their texts."""
    return [card(one) if len(explanations) <= MANY else brief(one) for one in explanations]


def brief(explanation: Explanation) -> str:
    """Label and coloured text, nothing to unfold."""
    level = level_for(explanation)
    parts = pieces(explanation, level)
    return _article(markup.heading(explanation), markup.text(parts, largest(scored(explanation, level))))


def methods(found: Mapping[str, Explanation]) -> str:
    """The same input by several methods, stacked; each has its own scale."""
    first = next(iter(found.values()))
    rows = [f"<h3>{markup.escaped(name)}</h3>{_text(one)}{_legend(one, level_for(one))}" for name, one in found.items()]
    return _article(markup.heading(first, method=False), *rows)


def classes(explanations: Sequence[Explanation]) -> str:
    """The same input for two or more classes side by side, on one scale."""
    full = largest(piece for one in explanations for piece in scored(one, level_for(one)))
    columns = [
        f"<div>{markup.heading(one, tag='h3')}{_text(one, full)}{_legend(one, level_for(one), full)}</div>"
        for one in explanations
    ]
    return _article(f'<div class="ch-side">{"".join(columns)}</div>')


def title_of(explanations: Sequence[Explanation]) -> str:
    """A title for a page of explanations."""
    if len(explanations) == 1:
        return headline(explanations[0])
    return f"{len(explanations)} explanations by {', '.join(dict.fromkeys(one.method for one in explanations))}"


def _text(explanation: Explanation, full: float | None = None) -> str:
    level = level_for(explanation)
    return markup.text(pieces(explanation, level), full or largest(scored(explanation, level)))


def _legend(explanation: Explanation, level: str, full: float | None = None) -> str:
    several = scored(explanation, level)
    signed = any((piece.relevance or 0.0) < 0 for piece in several)
    return markup.legend(full or largest(several), explanation.label, signed)


def _article(*parts: str) -> str:
    return f'<article class="ch-card">{"".join(parts)}</article>'
