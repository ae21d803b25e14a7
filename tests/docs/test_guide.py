"""The guide is run: its Python in one go, its commands as typed; and every picture and link it shows is there."""

import re
import shlex
from pathlib import Path

import pytest

import clearhead
from clearhead.cli import main

DOCS = Path(__file__).parents[2] / "docs"


def find_blocks(page: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text("utf-8")
    return re.findall(r"^```(python|console)\n(.*?)^```", text, re.M | re.S)


BLOCKS = find_blocks("guide.md")
TASKS = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.glob("tasks/*.md"))


def run_commands(block: str) -> None:
    for line in block.splitlines():
        if line.startswith("$ clearhead "):
            with pytest.raises(SystemExit) as left:
                main(shlex.split(line)[2:])
            assert not left.value.code, line


def run_blocks(blocks: list[tuple[str, str]]) -> None:
    names: dict[str, object] = {}
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, "docs", "exec"), names)
        else:
            run_commands(block)


def test_the_guide_has_something_to_run():
    assert sum(kind == "python" for kind, _ in BLOCKS) >= 8
    assert sum(kind == "console" for kind, _ in BLOCKS) >= 4


@pytest.mark.skipif(not clearhead.models(), reason="this build has no embedded models")
def test_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(BLOCKS)
    written = {path.name for path in tmp_path.iterdir()}
    assert {"review.html", "classes.html", "methods.html", "curves.html", "cat.png"} <= written


@pytest.mark.skipif(not clearhead.models(), reason="this build has no embedded models")
def test_the_page_about_tables_runs(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="the tables extra is not installed")
    monkeypatch.chdir(tmp_path)
    run_blocks(find_blocks("tables.md"))
    written = {path.name for path in tmp_path.iterdir()}
    assert {"explained.parquet", "explained.csv", "errors.jsonl", "reviews.html"} <= written


@pytest.mark.skipif(not clearhead.models(), reason="this build has no embedded models")
@pytest.mark.parametrize("page", ["index.md", *(page for page in TASKS if find_blocks(page))])
def test_the_home_page_and_the_tasks_run(page, tmp_path, monkeypatch):
    pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.chdir(tmp_path)
    run_blocks(find_blocks(page))


def test_most_tasks_have_something_to_run():
    assert sum(len(find_blocks(page)) >= 2 for page in TASKS) >= 5


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pictures_are_small():
    assert sum(file.stat().st_size for file in (DOCS / "pictures").glob("*")) < 1_000_000
