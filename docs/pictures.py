"""Draws every picture of the documentation with the tool itself: `make pictures`.

Needs the embedded models, and Chromium with Playwright for the views that are HTML.
"""

import os
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import clearhead
from clearhead.views import blocks as layers
from clearhead.views import heatmap, html
from clearhead.views import html_parts as markup
from clearhead.views.line_chart import Curve, chart

HERE = Path(__file__).parent / "pictures"
TEXT = "a joyless , tedious film that never finds its heart"
MIXED = "slow , but never dull , and the ending is wonderful"
WIDTH, SCALE = 720, 2


def bodies() -> dict[str, str]:
    """The HTML views, by the name of their picture."""
    model = clearhead.load()
    e = clearhead.explain(model, TEXT)
    blocks = clearhead.explain(model, TEXT, "att-cat")
    both = [clearhead.explain(model, MIXED, "att-cat", target) for target in ("positive", "negative")]
    methods = clearhead.compare(model, TEXT, ["trans-att", "att-cat", "random"])
    rollout = clearhead.explain(model, TEXT, "rollout", target=blocks.target)
    return {
        "text": html.card(e),
        "classes": html.classes(both),
        "methods": html.methods(methods),
        "blocks": markup.card(markup.heading(blocks), layers.heat_map(blocks, rollout)),
        "curves": markup.card(deletion(model, methods)),
    }


def deletion(model: clearhead.Model, methods: dict[str, clearhead.Explanation]) -> str:
    """The probability as words are deleted, the strongest first."""
    words = TEXT.split()
    curves = []
    for name, one in methods.items():
        scores = [word.relevance for word in one.words()]
        order = sorted(range(len(words)), key=lambda place: -scores[place])
        texts = [" ".join(w for i, w in enumerate(words) if i not in order[:k]) for k in range(len(words))]
        found = clearhead.explain(model, texts, "raw-attention", target=one.target)
        shares = tuple(k / len(words) for k in range(len(words)))
        curves.append(Curve(name, shares, tuple(answer.probability for answer in found)))
    return chart(curves, title="Deleting words, the strongest first", across="words deleted")


def photograph(found: dict[str, str]) -> None:
    """Every body as a browser shows it, cut to its card."""
    chromium = os.environ.get("CLEARHEAD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as started, tempfile.TemporaryDirectory() as folder:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 400}, device_scale_factor=SCALE)
        for name, body in found.items():
            file = Path(folder) / f"{name}.html"
            file.write_text(html.page([body], name), "utf-8")
            page.goto(file.as_uri())
            page.locator("article").screenshot(path=HERE / f"{name}.png")
            smaller(HERE / f"{name}.png")
        browser.close()


def smaller(file: Path) -> None:
    """At most 128 colours: plenty for these, and a third of the size."""
    Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)


def photo() -> None:
    """The example photo: smooth, and patch-exact with the strongest fifth outlined."""
    model = clearhead.load("clearhead/pets-vit")
    cat = clearhead.explain(model, Path(str(files("clearhead.model.zoo") / "examples" / "chelsea.jpg")))
    pair = [heatmap.overlay(cat), heatmap.overlay(cat, smooth=False, top=20)]
    canvas = Image.new("RGB", (pair[0].width * 2 + 12, pair[0].height), "white")
    canvas.paste(pair[0], (0, 0))
    canvas.paste(pair[1], (pair[0].width + 12, 0))
    canvas.save(HERE / "photo.jpg", quality=88)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    photograph(bodies())
    photo()
