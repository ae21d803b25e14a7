"""HTML views: cards and self-contained pages, without scripts and without external resources."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from clearhead.answer_explanation import AnswerExplanation
from clearhead.errors import BadInput
from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views import answer_html, blocks, heads, heatmap, html_parts, joint_html
from clearhead.views.captions import format_label
from clearhead.views.notes import format_reliability
from clearhead.views.scale import Scale, make_scale, share_scales
from clearhead.views.text_spans import default_level, escape_hidden, is_image, require_explanations, split_segments
from clearhead.views.trust import summarise_checks, summarise_methods

# More explanations than this get brief cards.
MAX_FULL_CARDS = 20
# No scripts and no requests, whatever an explained text contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
PAGE_STYLE = (
    "body.clearhead{margin:0}.clearhead main{max-width:64rem;margin:0 auto;padding:1.5rem 1rem}"
    ".clearhead h1{font-size:1.3rem;margin:0 0 1rem}"
)


def with_style(bodies: Iterable[str]) -> str:
    """Render bodies with the style rules they use, to be inserted into another page."""
    # Every cell of a notebook repeats its style, so unused rules are left out.
    body = "".join(bodies)
    return f'<div class="clearhead">{html_parts.style_element(body)}{body}</div>'


def page(bodies: Iterable[str], title: str) -> str:
    """Render bodies as one self-contained file."""
    name = escape(escape_hidden(title))
    body = "\n".join(bodies)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{_render_head(name)}</head>\n'
        f'<body class="clearhead">\n<main>\n<h1>{name}</h1>\n{body}\n</main>\n</body>\n</html>\n'
    )


def _render_head(name: str) -> str:
    return (
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # The empty icon keeps browsers from requesting /favicon.ico.
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{name}</title>\n{html_parts.style_element()}\n<style>{PAGE_STYLE}</style>\n"
    )


def card(
    explanation: Explanation | JointExplanation, *, level: str | None = None, rollout: Explanation | None = None
) -> str:
    """Render one explanation in full; `rollout` adds its row to the scores per block."""
    if isinstance(explanation, JointExplanation):
        return joint_html.card(explanation)
    if is_image(explanation):
        return _image_card(explanation)
    if isinstance(explanation, AnswerExplanation):
        return answer_html.card(explanation)
    return _text_card(explanation, level or default_level(explanation), rollout)


def _text_card(explanation: Explanation, level: str, rollout: Explanation | None) -> str:
    scale = make_scale(explanation)
    return html_parts.card(
        html_parts.render_heading(explanation),
        html_parts.render_spoken_summary(explanation, level, scale),
        html_parts.render_levels(explanation, level, scale),
        html_parts.render_legend(scale, explanation.label),
        html_parts.render_check(explanation),
        html_parts.render_footer(explanation),
        html_parts.render_numbers(explanation, level, scale),
        _render_blocks(explanation, rollout),
        _render_heads(explanation),
    )


def _image_card(explanation: Explanation) -> str:
    return html_parts.card(
        html_parts.render_heading(explanation),
        render_input(explanation),
        html_parts.render_check(explanation),
        html_parts.render_footer(explanation),
        _render_heads(explanation),
    )


def _render_blocks(explanation: Explanation, rollout: Explanation | None) -> str:
    if explanation.layers is None:
        return ""
    return html_parts.details("Block by block", blocks.heat_map(explanation, rollout))


def _render_heads(explanation: Explanation) -> str:
    if explanation.heads is None:
        return ""
    return html_parts.details("Head by head", heads.heat_map(explanation))


def cards(explanations: Sequence[Explanation]) -> list[str]:
    """Render a card each; of more than 20 only the inputs. Above several stands the share whose check holds."""
    render = card if len(explanations) <= MAX_FULL_CARDS else brief_card
    return [*summarise(explanations), *map(render, explanations)]


def summarise(explanations: Sequence[Explanation]) -> list[str]:
    """Render how many of several explanations hold, as a list of at most one body."""
    return _render_summary(summarise_checks(explanations))


def summarise_rows(rows: Sequence[Mapping[str, Explanation]]) -> list[str]:
    """Render on how many of several inputs each method holds, as a body each."""
    return _render_summary(summarise_methods(rows))


def list_errors(errors: Sequence[Exception]) -> list[str]:
    """Render why some inputs have no explanation, as a list of at most one body."""
    if not errors:
        return []
    lines = "".join(f"<li>{html_parts.escape(str(error))}</li>" for error in errors)
    return [html_parts.card(f"<h2>Rows that could not be explained: {len(errors):,}</h2><ul>{lines}</ul>")]


def _render_summary(summary: str) -> list[str]:
    lines = filter(None, summary.splitlines())
    return [f'<p class="ch-check">{html_parts.escape(line)}</p>' for line in lines]


def brief_card(explanation: Explanation | JointExplanation) -> str:
    """Render only label, coloured input and check."""
    if isinstance(explanation, JointExplanation):
        return joint_html.card(explanation)
    heading = html_parts.render_heading(explanation)
    return html_parts.card(heading, render_input(explanation), html_parts.render_check(explanation))


def methods(explanations: Mapping[str, Explanation]) -> str:
    """Render the same input explained by several methods, each on its own scale."""
    joints = _find_joints(explanations)
    if joints:
        heading = html_parts.render_heading(joints[0].explanations[0], method=False)
        return html_parts.card(heading, *map(_render_named_joint, explanations.keys(), joints))
    _check_by_method(explanations)
    first = next(iter(explanations.values()))
    inputs = list(map(_render_named_input, explanations.keys(), explanations.values()))
    # Images are compared side by side, texts line by line below each other.
    if is_image(first):
        inputs = [html_parts.side_by_side(inputs)]
    return html_parts.card(html_parts.render_heading(first, method=False), *inputs)


def _check_by_method(explanations: Mapping[str, Explanation]) -> None:
    if not isinstance(explanations, Mapping):
        raise BadInput("This view takes explanations by the name of their method, as `compare` returns for one input.")
    require_explanations(explanations.values())


def _find_joints(explanations: Any) -> list[JointExplanation]:
    """Return joint explanations by method; none if there are others."""
    # What is no mapping is refused together with other mistakes.
    if not isinstance(explanations, Mapping):
        return []
    return [explanation for explanation in explanations.values() if isinstance(explanation, JointExplanation)]


def _render_named_joint(name: str, joint: JointExplanation) -> str:
    return f"<h3>{html_parts.escape(name)}</h3>{joint_html.render_body(joint)}"


def _render_named_input(name: str, explanation: Explanation) -> str:
    heading = f"<h3>{html_parts.escape(name)}</h3>"
    reliability = "".join(map(html_parts.render_faint, format_reliability(explanation)))
    return heading + render_input(explanation) + html_parts.render_check(explanation) + reliability


def classes(explanations: Sequence[Explanation]) -> str:
    """Render the same input explained for two or more classes side by side; equal shares have equal colours."""
    require_explanations(explanations)
    columns = list(map(_render_class, explanations, share_scales(explanations)))
    return html_parts.card(html_parts.side_by_side(columns))


def _render_class(explanation: Explanation, scale: Scale) -> str:
    heading = html_parts.render_heading(explanation, tag="h3")
    return heading + render_input(explanation, scale) + html_parts.render_check(explanation)


def make_title(explanations: Sequence[Explanation]) -> str:
    """Return a title for a page of explanations."""
    labels = {explanation.label for explanation in explanations}
    if len(labels) == 1:
        return f"Why “{format_label(explanations[0])}”?"
    return f"{len(explanations)} explanations by {_list_methods(explanations)}"


def _list_methods(explanations: Sequence[Explanation]) -> str:
    # A dict instead of a set: the methods keep their order.
    names = dict.fromkeys(explanation.method for explanation in explanations)
    return ", ".join(names)


def render_input(explanation: Explanation, scale: Scale | None = None) -> str:
    """Render the coloured text or image with its legend; `scale` is the explanation's own, or one it shares."""
    if isinstance(explanation, AnswerExplanation):
        return answer_html.render_input(explanation)
    scale = scale or make_scale(explanation)
    if is_image(explanation):
        return heatmap.render_figure(explanation, scale) + heatmap.render_legend(explanation, scale)
    segments = split_segments(explanation, default_level(explanation))
    return html_parts.render_text(segments, scale) + html_parts.render_legend(scale, explanation.label)
