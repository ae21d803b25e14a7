"""TODO."""

import os
import tempfile
from pathlib import Path

from clearhead.errors import BadFile


def write_atomically(path: Path, content: bytes) -> None:
    """Writes beside the place and moves, so that a file is never half-written and nothing else is left."""
    try:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(beside, 0o644)
            os.replace(beside, path)
        finally:
            Path(beside).unlink(missing_ok=True)
    except OSError as error:
        raise BadFile(f"'{path}' cannot be written: {error.strerror or error}") from error
