"""The documentation site: it is built strictly, holds every page and public name, and loads nothing from a network."""

import json
import re
from pathlib import Path

import pytest

import clearhead
from clearhead import errors, testing

pytest.importorskip("mkdocs", reason="the docs extra is not installed")

DOCS = Path(__file__).parents[2] / "docs"
# It needs a model of answer spans, and none is embedded.
METRICS_WITHOUT_PICTURE = {"precision-at-k"}
MAX_PICTURE_BYTES = 3_000_000


def list_pages():
    pages = [path for path in DOCS.rglob("*") if path.suffix in (".md", ".ipynb")]
    return sorted(path.relative_to(DOCS).with_suffix(".html").as_posix() for path in pages)


def test_every_page_is_in_the_menu(site):
    home = (site / "index.html").read_text("utf-8")
    menu = home[home.index('class="md-nav md-nav--primary') : home.index('class="md-content"')]
    links = set(re.findall(r'href="([^"#]+)"', menu))
    for page in [*list_pages(), "changelog.html", "contributing.html", "measurements/README.html"]:
        address = page.replace("README.html", "index.html")
        assert address in links or address == "index.html", f"{page} is not in the menu"


def test_every_public_name_is_in_the_reference(site):
    reference = "".join(page.read_text("utf-8") for page in (site / "api").glob("*.html"))
    # Exceptions are listed by their own module.
    names = [f"clearhead.{name}" for name in clearhead.__all__ if name != "__version__" and not hasattr(errors, name)]
    names += [f"clearhead.testing.{name}" for name in testing.__all__]
    names += [f"clearhead.errors.{name}" for name, value in vars(errors).items() if is_exception(value)]
    missing = [name for name in names if f'id="{name}"' not in reference]
    assert not missing
    assert "clearhead.__version__" in (DOCS / "api" / "README.md").read_text("utf-8")


def test_the_tree_of_errors_is_that_of_the_code():
    tree = (errors.__doc__ or "").split("\n\n", 1)[1].strip()
    assert tree in (DOCS / "api" / "errors.md").read_text("utf-8")


def is_exception(value):
    return isinstance(value, type) and issubclass(value, Exception)


def test_the_site_loads_nothing_from_a_network(site):
    loads = re.compile(r"""<(?:script|img|iframe|link|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//""")
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text("utf-8")), page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", sheet.read_text("utf-8")), sheet.name


def test_pages_from_outside_docs_are_linked(site):
    assert "measurements/2026-11-16-precision.html" in (site / "numbers.html").read_text("utf-8")
    assert "0.2.0" in (site / "changelog.html").read_text("utf-8")


def test_a_measurement_leads_back_to_the_list(site):
    page = (site / "measurements/2026-11-16-precision.html").read_text("utf-8")
    assert '<a href="index.html">All measurements</a>' in page
    assert "All measurements" not in (site / "measurements/index.html").read_text("utf-8")


def test_notebooks_are_pages_with_their_outputs(site):
    for notebook in (DOCS / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{notebook.stem}.html").read_text("utf-8")
        assert "Download this notebook" in page
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        rendered = [output for output in outputs if "text/html" in output.get("data", {})]
        assert page.count('class="notebook-output"') == len(rendered), notebook.name
        images = [output for output in outputs if "image/png" in output.get("data", {})]
        assert page.count('src="data:image/png') >= len(images), notebook.name


@pytest.mark.parametrize("name", sorted(clearhead.methods()))
def test_every_method_is_pictured(name):
    picture = f"pictures/methods/{name}.png"
    assert (DOCS / picture).exists()
    assert f"../{picture}" in (DOCS / "methods" / f"{name}.md").read_text("utf-8")
    assert f"]({picture})" in (DOCS / "gallery.md").read_text("utf-8")


@pytest.mark.parametrize("name", sorted(set(clearhead.metrics()) - METRICS_WITHOUT_PICTURE))
def test_every_metric_is_pictured(name):
    assert (DOCS / f"pictures/metrics/{name}.svg").exists()
    assert f"../pictures/metrics/{name}.svg" in (DOCS / "metrics" / f"{name}.md").read_text("utf-8")


def test_all_pictures_together_are_small():
    assert sum(file.stat().st_size for file in (DOCS / "pictures").rglob("*") if file.is_file()) < MAX_PICTURE_BYTES
