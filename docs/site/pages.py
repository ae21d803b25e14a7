"""MkDocs hook: pages from outside docs/, links between all pages, and a menu that holds every page.

The pages are written to be read in the repository: their links are relative to it. On the site some of them live
elsewhere, and a link to what is not on the site (a script, a test) becomes plain text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESULTS = "benchmarks/results"
MEASUREMENTS = "measurements"
# The part of the menu for pages that it does not name.
REST = "Topics"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^\s*```")
CELL = re.compile(r"<td([^>]*)>(.*?)</td>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
# A cell with more characters holds sentences: narrow windows give it room, and its text starts at the left.
LONG_CELL = 40


def list_outside_files() -> dict[str, str]:
    """Return the files of the repository that the site shows beside docs/, with their paths on the site."""
    paths = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "training/README.md": "training.md"}
    paths["src/clearhead/web/static/icon.svg"] = "site/icon.svg"
    for file in sorted((ROOT / RESULTS).iterdir()):
        paths[f"{RESULTS}/{file.name}"] = f"{MEASUREMENTS}/{file.name}"
    for card in sorted((ROOT / "src/clearhead/model/zoo").glob("*/card.md")):
        paths[card.relative_to(ROOT).as_posix()] = f"models/{card.parent.name}.md"
    return paths


OUTSIDE = list_outside_files()
ORIGINS = {site_path: path for path, site_path in OUTSIDE.items()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the folders of the menu with their pages, and add the pages that it does not name."""
    menu = expand_entries(config.nav)
    named = set(list_named_pages(menu))
    rest = [page for page in list_pages("") if page not in named]
    for entry in menu:
        if REST in entry:
            entry[REST] += rest
    config.nav = menu
    return config


def expand_entries(entries: list[Any]) -> list[Any]:
    """Replace "folder/" by the folder's pages, at any depth of the menu."""
    expanded: list[Any] = []
    for entry in entries:
        if not isinstance(entry, str):
            expanded.append(expand_entry(entry))
        elif entry.endswith("/"):
            expanded += list_pages(entry)
        else:
            expanded.append(entry)
    return expanded


def expand_entry(entry: dict[str, Any]) -> dict[str, Any]:
    """Do the same for an entry with a title."""
    (title, value), *_ = entry.items()
    if isinstance(value, list):
        return {title: expand_entries(value)}
    if value.endswith("/"):
        return {title: list_pages(value)}
    return entry


def list_pages(folder: str) -> list[str]:
    """Return the paths on the site of the pages below a folder, its README first."""
    pages = [file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")]
    pages += [file.relative_to(DOCS).with_suffix(".md").as_posix() for file in DOCS.rglob("*.ipynb")]
    # Measurements are too many for a menu: they have a page of their own that lists them.
    pages += [path for path in ORIGINS if path.endswith(".md") and not path.startswith(MEASUREMENTS)]
    return sorted((page for page in pages if page.startswith(folder)), key=sort_key)


def sort_key(page: str) -> tuple[bool, str]:
    """Sort READMEs, which are the first pages of their folders, before all others."""
    return not page.endswith("README.md"), page


def list_named_pages(menu: list[Any]) -> list[str]:
    """Return every page of the menu, at any depth."""
    pages = []
    for entry in menu:
        if isinstance(entry, str):
            pages.append(entry)
            continue
        for value in entry.values():
            pages += list_named_pages(value if isinstance(value, list) else [value])
    return pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files from outside docs/ and the list of measurements."""
    for path, site_path in OUTSIDE.items():
        files.append(File.generated(config, site_path, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, f"{MEASUREMENTS}/README.md", content=list_measurements()))
    return files


def list_measurements() -> str:
    """Return the page that lists all measurements, the latest first."""
    lines = [
        "# Measurements",
        "",
        "Every measurement that the documentation cites, as it was written by its script.",
        "",
    ]
    for file in sorted((ROOT / RESULTS).glob("*.md"), reverse=True):
        title = file.read_text("utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"- {file.name[:10]}: [{title}]({file.name})")
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the links of a page lead to where their targets are on the site."""
    lines = markdown.split("\n")
    in_code = False
    for index, line in enumerate(lines):
        if FENCE.match(line):
            in_code = not in_code
        elif not in_code:
            lines[index] = LINK.sub(lambda match: rewrite_link(match, page.file.src_uri), line)
    if is_measurement(page):
        # The menu does not hold measurements: its place is left to their wide tables.
        page.meta["hide"] = ["navigation"]
        lines[1:1] = ["", "[All measurements](README.md)"]
    return "\n".join(lines)


def is_measurement(page: Page) -> bool:
    """Tell whether a page is one measurement, and not the list of them."""
    return page.file.src_uri.startswith(f"{MEASUREMENTS}/") and page.file.name != "index"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark the cells of tables that hold sentences, for the style sheet."""
    return CELL.sub(mark_long_cell, html)


def mark_long_cell(match: re.Match[str]) -> str:
    """Return a cell of a table, with a class if its text is long."""
    attributes, content = match.groups()
    if len(TAG.sub("", content)) <= LONG_CELL:
        return match.group()
    return f'<td class="long"{attributes}>{content}</td>'


def rewrite_link(match: re.Match[str], page: str) -> str:
    """Return a link of a page as it is on the site; only its words if the site does not have the target."""
    bang, words, target, anchor = match.groups()
    if not target or "://" in target or target.startswith("mailto:"):
        return match.group()
    origin = ORIGINS.get(page, f"docs/{page}")
    site_path = find_on_site(posixpath.normpath(posixpath.join(posixpath.dirname(origin), target)))
    if site_path is None:
        return words
    relative = posixpath.relpath(site_path, posixpath.dirname(page) or ".")
    return f"{bang}[{words}]({relative}{anchor or ''})"


def find_on_site(path: str) -> str | None:
    """Return where a path of the repository is on the site; None if it is not there."""
    if path == RESULTS:
        return f"{MEASUREMENTS}/README.md"
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path == "README.md":
        return "index.md"
    if not path.startswith("docs/") or path.endswith(".py"):
        return None
    return add_readme(path.removeprefix("docs/")).replace(".ipynb", ".md")


def add_readme(path: str) -> str:
    """Return the first page of a folder, or the path itself if it is a file."""
    if (DOCS / path / "README.md").exists():
        return f"{path}/README.md"
    return path
