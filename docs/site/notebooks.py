"""MkDocs hook: notebooks as pages, with the outputs that are stored in them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every notebook."""
    for notebook in sorted(DOCS.glob("notebooks/*.ipynb")):
        content = "\n\n".join(render_notebook(notebook))
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=content))
    return files


def render_notebook(path: Path) -> Iterator[str]:
    """Yield the cells of a notebook as Markdown, with a link to the file below the title."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    yield "".join(cells[0]["source"])
    yield f'<p><a href="{path.name}" download>Download this notebook</a></p>'
    for cell in cells[1:]:
        yield from render_cell(cell)


def render_cell(cell: dict[str, Any]) -> Iterator[str]:
    """Yield the source of a cell, then its outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield render_output(output)


def render_output(output: dict[str, Any]) -> str:
    """Render an output: HTML as it is, images inline, everything else as text."""
    data = output.get("data", {})
    if "text/html" in data:
        return f'<div class="notebook-output">{as_html_block("".join(data["text/html"]))}</div>'
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```"


def as_html_block(html: str) -> str:
    """Remove blank lines, at which Markdown would end a block of HTML."""
    return "\n".join(line for line in html.splitlines() if line.strip())
