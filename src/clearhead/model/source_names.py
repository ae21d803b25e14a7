"""Names of models: embedded ones, folders and hub ids."""

import re
from pathlib import Path

from clearhead.model.load_errors import list_names, load_error
from clearhead.registry import unknown_name

# No longer than the hub allows: names that are too long for a file system make it raise errors.
HUB_ID = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?", re.ASCII)


def validate_source(source: str) -> None:
    """Raise at once if `source` is neither a folder nor a possible hub id, without network requests."""
    if source_exists(source):
        return
    # The hub would be asked several times, with pauses, before it gives up.
    if _is_embedded_name(source):
        raise unknown_name("embedded model", source, list_names())
    if is_path(source):
        raise load_error(source, "There is no such folder.")


def _is_embedded_name(source: str) -> bool:
    """Whether a name was meant for an embedded model: with their prefix, or one of them without it."""
    return source.startswith("clearhead/") or f"clearhead/{source}" in list_names()


def is_path(source: str) -> bool:
    """Whether a name cannot be a hub id, which is NAME or OWNER/NAME."""
    return has_path_marks(source) or HUB_ID.fullmatch(source) is None


def has_path_marks(source: str) -> bool:
    """Whether a name has what only paths have."""
    return source.startswith((".", "/", "~")) or source.endswith("/") or "\\" in source


def source_exists(source: str) -> bool:
    """Whether there is such a folder."""
    try:
        return Path(source).exists()
    except (OSError, ValueError):  # Too long for a file name, or with a null character.
        return False
