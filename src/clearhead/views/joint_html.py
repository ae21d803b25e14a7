"""A picture and texts explained together, side by side."""

from clearhead.joint_explanation import JointExplanation
from clearhead.views import notebook


def fragment(joint: JointExplanation) -> str:
    """Render a notebook cell."""
    return "".join(map(notebook.fragment, joint.explanations))
