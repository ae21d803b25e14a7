"""A picture and texts explained together, side by side on one scale; without scripts."""

from collections.abc import Sequence

import numpy as np

from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views import heatmap, html_parts
from clearhead.views.captions import format_probability
from clearhead.views.joint_scale import describe_score, describe_shares, list_members, share_scale
from clearhead.views.scale import Scale, scale_values
from clearhead.views.text_spans import default_level, is_image, split_segments

# Larger matrices of pairs are left to programs.
MAX_PAIRS = 1600


def card(joint: JointExplanation) -> str:
    """Render all inputs side by side, with their checks and notes."""
    return html_parts.card(html_parts.render_heading(joint.explanations[0]), render_body(joint))


def choices(joints: Sequence[JointExplanation], group: str = "ch-choices") -> str:
    """Render the same picture for several texts: the one that is opened colours it."""
    folded = []
    for number, joint in enumerate(joints):
        opened = " open" if number == 0 else ""
        title = html_parts.escape(f"{joint.label}{format_probability(joint.explanations[0])}")
        # Of the elements with one name a browser keeps one open.
        folded.append(
            f'<details name="{group}"{opened}><summary><b>{title}</b></summary>{render_body(joint)}</details>'
        )
    hint = html_parts.render_faint("Open a text to see which patches and words speak for it.")
    return html_parts.card(hint, *folded)


def render_body(joint: JointExplanation) -> str:
    """Render the inputs of a joint explanation with what is known of all of them."""
    scales = share_scale(joint)
    columns = list(map(_render_member, list_members(joint), scales))
    bodies = [
        html_parts.side_by_side(columns),
        # Once: it is the same for all inputs.
        html_parts.render_legend(scales[0], joint.label),
        html_parts.render_faint(f"{describe_score(joint)} {describe_shares(joint)}"),
        # Notes on the method and the precision are the same for all inputs.
        *map(html_parts.render_footer, joint.explanations[:1]),
        _render_pairs(joint),
    ]
    return "".join(bodies)


def _render_member(explanation: Explanation, scale: Scale) -> str:
    if is_image(explanation):
        drawn = heatmap.render_figure(explanation, scale)
    else:
        segments = split_segments(explanation, default_level(explanation))
        drawn = html_parts.render_text(segments, scale)
    return drawn + html_parts.render_check(explanation)


def _render_pairs(joint: JointExplanation) -> str:
    """Render the relevance of pairs of tokens as a folded table, without special tokens."""
    if joint.pairs is None:
        return ""
    if joint.pairs.size > MAX_PAIRS:
        count = " × ".join(map(str, joint.pairs.shape))
        return html_parts.render_faint(
            f"{count} pairs of tokens are too many for a page: .json and .jsonl files have them."
        )
    first, second = joint.explanations[:2]
    scale = scale_values(joint.pairs[~first.special][:, ~second.special], "pairs of tokens")
    rows = []
    for index in np.flatnonzero(~first.special).tolist():
        cells = [_render_pair(joint.pairs[index, column], scale) for column in np.flatnonzero(~second.special)]
        rows.append([html_parts.escape(first.tokens[index]), *cells])
    heads = ["", *(html_parts.escape(second.tokens[column]) for column in np.flatnonzero(~second.special))]
    table = html_parts.scrollable("Pairs of tokens", html_parts.table(heads, rows))
    return html_parts.details("Pair by pair", table + html_parts.render_legend(scale, joint.label))


def _render_pair(relevance: float, scale: Scale) -> str:
    return f'<span class="{_choose_class(relevance, scale)}">{scale.format(relevance)}</span>'


def _choose_class(relevance: float, scale: Scale) -> str:
    return html_parts.css_class(scale.find_step(relevance))


def fragment(joint: JointExplanation) -> str:
    """Render a notebook cell."""
    # Imported here, since `html` itself draws joint explanations.
    from clearhead.views import html

    return html.with_style([card(joint)])
