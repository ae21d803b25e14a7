"""Which methods are controls: attributions without information, which show what chance reaches."""

from clearhead.attribution.names import CONTROL_METHODS


def is_control(method: str) -> bool:
    """Return whether a method, given as its spec ('random:seed=1'), is a control."""
    name = method.split(":")[0].split(" ")[0]
    return name in CONTROL_METHODS
