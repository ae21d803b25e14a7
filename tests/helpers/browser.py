"""A real browser: Playwright with Chromium, and axe-core to check accessibility.

Chromium is named by CLEARHEAD_CHROMIUM or found on the path; axe-core's axe.min.js is named by CLEARHEAD_AXE or is in
node_modules. Tests that need a missing one are skipped.
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
def launch_browser() -> Iterator[Any]:
    """Start Chromium and close it at the end."""
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def find_violations(page: Any, selector: str = "html") -> dict[str, list[str]]:
    """Return the accessibility rules of axe-core that a part of the page breaks, with the elements that do."""
    # What is being computed is faded, too faint for text that is to be read.
    page.wait_for_selector("[aria-busy=true]:visible", state="detached")
    page.add_script_tag(path=AXE)
    result = page.evaluate("selector => axe.run(selector, {resultTypes: ['violations']})", selector)
    assert len(result["passes"]) > 10, "axe-core checked almost nothing"
    violations = {}
    for violation in result["violations"]:
        violations[violation["id"]] = [node["html"] for node in violation["nodes"]][:3]
    return violations
