"""Pictures and texts explained together in a terminal."""

from collections.abc import Callable, Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views.joint_scale import describe_score, describe_shares, list_members, share_scale
from clearhead.views.scale import Scale
from clearhead.views.terminal_parts import render_check, render_heading, render_legend

RenderInput = Callable[[Explanation, Scale], Iterable[RenderableType]]


def view(joint: JointExplanation, render_input: RenderInput) -> RenderableType:
    """Return heading, every input, checks, and one legend; `render_input` draws patches or words without any."""
    heading = render_heading(joint.explanations[0])
    return Group(heading, Text(), *_render_members(joint, render_input), *_render_notes(joint))


def _render_members(joint: JointExplanation, render_input: RenderInput) -> Iterator[RenderableType]:
    scales = share_scale(joint)
    for explanation, scale in zip(list_members(joint), scales, strict=True):
        yield from render_input(explanation, scale)
        yield from render_check(explanation)
        yield Text()
    # Once: it is the same for all inputs.
    yield render_legend(scales[0], joint.label)
    yield Text(scales[0].caption, style="dim")


def _render_notes(joint: JointExplanation) -> Iterator[RenderableType]:
    yield Text(describe_score(joint), style="dim")
    yield Text(describe_shares(joint), style="dim")
