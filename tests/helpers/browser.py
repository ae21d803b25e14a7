"""A real browser: Playwright with Debian's Chromium, and axe-core to ask whether a page is accessible.

Chromium is named by CLEARHEAD_CHROMIUM or found on the path; axe-core's axe.min.js is named by CLEARHEAD_AXE or lies in
node_modules. A test that needs what is not here is skipped and says so.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = os.environ.get("CLEARHEAD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
AXE = Path(os.environ.get("CLEARHEAD_AXE") or "node_modules/axe-core/axe.min.js")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]

# CI sets these where the browser or axe-core could be installed: then a missing one fails its tests.
REQUIRES_CHROMIUM = bool(os.environ.get("CLEARHEAD_REQUIRE_CHROMIUM"))
REQUIRES_AXE = bool(os.environ.get("CLEARHEAD_REQUIRE_AXE"))

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and not REQUIRES_CHROMIUM, reason="no Chromium is installed: apt-get install chromium"
)
needs_axe = pytest.mark.skipif(
    not AXE.is_file() and not REQUIRES_AXE,
    reason="axe-core is not here: npm install axe-core, or name axe.min.js in CLEARHEAD_AXE",
)


@contextmanager
def launched() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def violations(page: Any, part: str = "html") -> dict[str, list[str]]:
    """By axe-core's rules those that a part of the page breaks, and where."""
    page.add_script_tag(path=AXE)
    found = page.evaluate("part => axe.run(part, {resultTypes: ['violations']})", part)
    assert len(found["passes"]) > 10, "axe-core looked at next to nothing"
    return {one["id"]: [node["html"] for node in one["nodes"]][:3] for one in found["violations"]}
