"""Draw every picture of the documentation with Clearhead itself: `make pictures`.

Needs the embedded models, and Chromium with Playwright for the HTML views.
"""

import os
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import clearhead
from clearhead.explanation import Word
from clearhead.views import blocks, heads, heatmap, html, html_parts
from clearhead.views.line_chart import Curve, chart

PICTURES = Path(__file__).parent / "pictures"
TEXT = "a joyless , tedious film that never finds its heart"
MIXED_TEXT = "the jokes are stale , but the two leads are delightful"
WINDOW = {"width": 720, "height": 400}
PIXEL_RATIO = 2
# Cards have few colours: more would only make the files larger.
MAX_COLORS = 128
PHOTO_GAP = 12


def render_bodies() -> dict[str, str]:
    """Render the HTML views, by the name of their picture."""
    model = clearhead.load()
    by_method = clearhead.compare(model, TEXT, ["balanced-cat", "trans-att", "random"])
    return {
        "text": html.card(clearhead.explain(model, TEXT)),
        "classes": render_classes(model),
        "methods": html.methods(by_method),
        "blocks": render_blocks(model),
        "heads": render_heads(model),
        "curves": html_parts.card(render_deletion_curves(model, by_method)),
    }


def render_classes(model: clearhead.Model) -> str:
    """Explain a text with two sides for both classes."""
    return html.classes([clearhead.explain(model, MIXED_TEXT, target=label) for label in ("positive", "negative")])


def render_blocks(model: clearhead.Model) -> str:
    """Render the scores per block with the row of rollout."""
    by_block = clearhead.explain(model, TEXT, "att-cat")
    by_rollout = clearhead.explain(model, TEXT, "rollout", target=by_block.target)
    return html_parts.card(html_parts.render_heading(by_block), blocks.heat_map(by_block, by_rollout))


def render_heads(model: clearhead.Model) -> str:
    """Render the relevance per attention head."""
    by_head = clearhead.explain(model, TEXT, "attn-lrp", heads=True)
    return html_parts.card(html_parts.render_heading(by_head), heads.heat_map(by_head))


def render_deletion_curves(model: clearhead.Model, explanations: dict[str, clearhead.Explanation]) -> str:
    """Chart the probability as words are deleted, the most relevant first."""
    curves = []
    for method, explanation in explanations.items():
        curves.append(compute_deletion_curve(model, method, explanation))
    return chart(curves, title="Deleting words, the strongest first", x_label="words deleted")


def compute_deletion_curve(model: clearhead.Model, method: str, explanation: clearhead.Explanation) -> Curve:
    """Explain the text again after each deleted word; the cheapest method gives the same probability."""
    texts = delete_words(explanation)
    remaining = clearhead.explain(model, texts, "raw-attention", target=explanation.target)
    probabilities = [explanation.probability for explanation in remaining]
    shares = [count / len(texts) for count in range(len(texts))]
    return Curve(method, tuple(shares), tuple(probabilities))


def delete_words(explanation: clearhead.Explanation) -> list[str]:
    """Return the text without its 0, 1, 2 … most relevant words; at least one word is left."""
    words = explanation.words()
    order = sorted(range(len(words)), key=lambda index: -words[index].relevance)
    return [join_words(words, order[count:]) for count in range(len(words))]


def join_words(words: list[Word], indices: list[int]) -> str:
    """Return the words at these indices in reading order."""
    return " ".join(words[index].text for index in sorted(indices))


def take_screenshots(bodies: dict[str, str]) -> None:
    """Save every body as a browser shows it, cropped to its card."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        # Chromium's sandbox does not start as root, as in most containers; the pages are our own.
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport=WINDOW, device_scale_factor=PIXEL_RATIO)
        for name, body in bodies.items():
            file = Path(folder) / f"{name}.html"
            file.write_text(html.page([body], name), "utf-8")
            take_screenshot(page, file, PICTURES / f"{name}.png")
        browser.close()


def find_chromium() -> str | None:
    """Return the installed browser; None lets Playwright use its own."""
    return os.environ.get("CLEARHEAD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def take_screenshot(page: Page, source: Path, picture: Path) -> None:
    """Save the card of a page with at most 128 colours, which makes the file three times smaller."""
    page.goto(source.as_uri())
    page.locator("article").screenshot(path=picture)
    Image.open(picture).convert("RGB").quantize(MAX_COLORS).save(picture, optimize=True)


def draw_photo() -> None:
    """Draw the example photo twice: smooth, and by exact patches with the strongest fifth outlined."""
    model = clearhead.load("clearhead/pets-vit")
    photo = Path(str(files("clearhead.model.zoo") / "examples" / "chelsea.jpg"))
    explanation = clearhead.explain(model, photo)
    smooth = heatmap.overlay(explanation)
    exact = heatmap.overlay(explanation, smooth=False, top=20)
    join_photos(smooth, exact).save(PICTURES / "photo.jpg", quality=88)


def join_photos(left: Image.Image, right: Image.Image) -> Image.Image:
    """Return two photos of one height side by side on white."""
    x = left.width + PHOTO_GAP
    canvas = Image.new("RGB", (x + right.width, left.height), "white")
    canvas.paste(left, (0, 0))
    canvas.paste(right, (x, 0))
    return canvas


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    take_screenshots(render_bodies())
    draw_photo()
