"""Pictures and texts explained together in a terminal."""

from collections.abc import Callable, Iterable, Iterator

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
    heading = render_heading(joint.explanations[0])
    return Group(heading, Text(), *_render_members(joint, render_input), *_render_notes(joint))


def _render_members(joint: JointExplanation, render_input: RenderInput) -> Iterator[RenderableType]:
    for explanation, scale in zip(list_members(joint), share_scale(joint), strict=True):
        yield from render_input(explanation, scale)
        yield from render_check(explanation)
        yield Text()


def _render_notes(joint: JointExplanation) -> Iterator[RenderableType]:
    yield Text(describe_score(joint), style="dim")
    yield Text(describe_shares(joint), style="dim")
