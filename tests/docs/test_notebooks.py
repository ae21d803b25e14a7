"""The notebooks of the documentation are executed; what is stored in them has no error and is small."""

import json
from pathlib import Path

import pytest

import clearhead
from clearhead.model.zoo import language_model

pytest.importorskip("nbclient", reason="the docs extra is not installed")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
EXPECTED = {"text", "image", "own-model", "benchmark", "language-model"}
MAX_BYTES = 400_000
# The real model is a package of 90 MB: without it a tiny one with random weights takes its place.
STAND_IN = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import clearhead
from helpers.language_models import make_decoder, make_tokenizer
stand_in = clearhead.load(make_decoder("gpt2"), make_tokenizer())
clearhead.load = lambda *_: stand_in
"""


def find_setup(path: Path) -> str:
    if path.stem == "language-model" and language_model.find_gguf() is None:
        return STAND_IN
    return ""


def test_there_is_a_notebook_for_every_purpose():
    assert {path.stem for path in NOTEBOOKS} == EXPECTED


@pytest.mark.skipif(not clearhead.models(), reason="this build has no embedded models")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, monkeypatch):
    from helpers.notebooks import execute

    # The kernel is a process of its own, which must import this checkout and keep to one thread.
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = execute(path, find_setup(path))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert outputs


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_whole_and_small(path):
    assert path.stat().st_size < MAX_BYTES
    cells = json.loads(path.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs and all(output["output_type"] != "error" for output in outputs)
    # A path of one machine does not belong into the repository.
    assert "site-packages" not in path.read_text("utf-8")
