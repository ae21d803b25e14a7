"""Variables of the environment: settings for libraries that read them there, and the folder of the user's own."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

CONFIG_VARIABLE = "CLEARHEAD_CONFIG"
DELIMITER_VARIABLE = "CLEARHEAD_DELIMITER"
ENCODING_VARIABLE = "CLEARHEAD_ENCODING"
ONEDNN_VARIABLE = "CLEARHEAD_ONEDNN"
REPLAY_VARIABLE = "CLEARHEAD_REPLAY"


def set_defaults(variables: Mapping[str, str]) -> None:
    """Set variables for libraries that are imported afterwards; what the user has set stays as it is."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def csv_delimiter() -> str | None:
    """Return what separates the columns of .csv files, if the user has said so."""
    # In the environment, so that processes on which work is divided read the same.
    return os.environ.get(DELIMITER_VARIABLE) or None


def text_encoding() -> str:
    """Return the encoding of text files: UTF-8 unless the user has named another."""
    return os.environ.get(ENCODING_VARIABLE) or "utf-8"


def allows_replay() -> bool:
    """Return whether small inputs on a GPU may be explained by recorded passes: unless CLEARHEAD_REPLAY is 0."""
    return os.environ.get(REPLAY_VARIABLE) != "0"


def allows_onednn() -> bool:
    """Return whether linear layers on a CPU may be computed by oneDNN: unless CLEARHEAD_ONEDNN is 0."""
    return os.environ.get(ONEDNN_VARIABLE) != "0"


def config_folder() -> Path:
    """Return Clearhead's folder among the user's settings, or the one that CLEARHEAD_CONFIG names."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return Path(chosen)
    shared = os.environ.get("XDG_CONFIG_HOME") or os.environ.get("APPDATA") or _system_folder()
    return Path(shared) / "clearhead"


def _system_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path.home() / ".config"
