"""Variables of the environment, for libraries that read their settings there."""

import os
from collections.abc import Mapping


def set_defaults(variables: Mapping[str, str]) -> None:
    """Set variables for libraries that are imported afterwards; what the user has set stays as it is."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)
