"""Pictures and texts explained together in a terminal."""

from collections.abc import Callable, Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views.joint_scale import describe_score, describe_shares, list_members, share_scale
from clearhead.views.scale import Scale
from clearhead.views.terminal_parts import render_check, render_heading

RenderInput = Callable[[Explanation, Scale], Iterable[RenderableType]]


def view(joint: JointExplanation, render_input: RenderInput) -> RenderableType:
    """Return heading, every input, checks, and how the relevance divides; `render_input` draws patches or words."""
    renderables: list[RenderableType] = [render_heading(joint.explanations[0]), Text()]
    for explanation, scale in zip(list_members(joint), share_scale(joint), strict=True):
        renderables += render_input(explanation, scale)
        renderables += render_check(explanation)
        renderables.append(Text())
    for note in (describe_score(joint), describe_shares(joint)):
        renderables.append(Text(note, style="dim"))
    return Group(*renderables)
