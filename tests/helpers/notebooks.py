"""Execute notebooks of the documentation: `python tests/helpers/notebooks.py FILE…` also stores their outputs."""

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

# A machine that does other work as well may take several times as long as a quiet one.
TIMEOUT_S = 240


def execute(path: Path, setup: str = "") -> Any:
    """Return the notebook with new outputs; `setup` runs before its first cell."""
    notebook = nbformat.read(path, as_version=4)
    if setup:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(setup))
    client = NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": "."}})
    client.execute()
    return notebook


def store(path: Path) -> None:
    """Execute a notebook and write it with its outputs, without what is of this run only."""
    notebook = execute(path)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            # Warnings of other libraries, with paths of this machine.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        store(Path(name))
