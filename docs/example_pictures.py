"""Draw the pictures of the pages of methods and metrics: one sentence, one photo and one prompt, explained by all.

    python docs/example_pictures.py methods     # docs/pictures/methods: needs Chromium with Playwright
    python docs/example_pictures.py metrics     # docs/pictures/metrics
    python docs/example_pictures.py answers     # metrics of answers: needs clearhead/smollm2

`make pictures` runs the first two.
"""

import io
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from pictures import PICTURES, TEXT, find_chromium, take_screenshot
from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright

import clearhead
from clearhead.data.task import Alignment, Example, Mask, Picture, Task, Writing
from clearhead.errors import ClearheadError
from clearhead.explanation import Explanation
from clearhead.views import heatmap, html, html_parts
from clearhead.views.annotations import find_spans

EXAMPLES = files("clearhead.model.zoo") / "examples"
PHOTO = Path(str(EXAMPLES / "chelsea.jpg"))
RATIONALE = ["joyless", "tedious"]
# The cat's head, in shares of the photo's width and height.
HEAD = (0.16, 0.02, 0.76, 0.98)
# Methods that hide features: superpixels of the photo instead of its 256 patches, so that seconds are enough.
PHOTO_OPTIONS = {"shapley-sampling": {"unit": "segment", "samples": 10}, "occlusion": {"unit": "segment"}}
# By default its units are sentences, and the example is a single one.
TEXT_OPTIONS = {"context-cite": {"unit": "word"}}
WINDOW = {"width": 520, "height": 400}
PHOTO_WIDTH = 300
COMPARED = ("balanced-cat", "trans-att", "gradient-x-input", "random")
COMPARED_ANSWERS = ("attn-lrp", "gradient-x-input", "rollout", "random")
# Metrics that compare classes, or need texts of both: they are shown on the embedded example sentences.
CORPUS_METRICS = ("token-overlap", "mosaic", "planted")
PROMPT = "The Louvre, the Eiffel Tower and the river Seine are in the city of"
TRANSLATION = "English: the red house is small. French:"


def draw_methods() -> None:
    """Draw the sentence and the photo as every method explains them."""
    folder = PICTURES / "methods"
    folder.mkdir(exist_ok=True)
    text_model, image_model = clearhead.load(), clearhead.load("clearhead/pets-vit")
    bodies = {}
    for name in clearhead.methods():
        explanation = try_method(text_model, TEXT, name, **TEXT_OPTIONS.get(name, {}))
        if explanation is not None:
            bodies[name] = render_text(explanation)
        explanation = try_method(image_model, PHOTO, name, **PHOTO_OPTIONS.get(name, {}))
        if explanation is not None:
            draw_photo(explanation, folder / f"{name}.jpg")
    take_screenshots(bodies, folder)


def try_method(model: clearhead.Model, example: object, name: str, **options: object) -> Explanation | None:
    """Explain by a method; None if it does not apply to the model."""
    try:
        return clearhead.explain(model, example, name, check=False, **options)
    except ClearheadError as error:
        print(f"{name}: {error}")
        return None


def render_text(explanation: Explanation) -> str:
    """Render the coloured text with its legend, without the heading that would be the same on every page."""
    return html_parts.card(html.render_input(explanation))


def draw_photo(explanation: Explanation, file: Path) -> None:
    """Save the photo with its heat map, small enough for a page with many of them."""
    photo = heatmap.overlay(explanation)
    height = round(photo.height * PHOTO_WIDTH / photo.width)
    photo.resize((PHOTO_WIDTH, height), Image.Resampling.LANCZOS).save(file, quality=82)


def take_screenshots(bodies: Mapping[str, str], folder: Path) -> None:
    """Save every body as a browser shows it."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as temporary:
        # Chromium's sandbox does not start as root, as in most containers; the pages are our own.
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport=WINDOW, device_scale_factor=2)
        for name, body in bodies.items():
            file = Path(temporary) / f"{name}.html"
            file.write_text(html.page([body], name), "utf-8")
            take_screenshot(page, file, folder / f"{name}.png")
        browser.close()


def draw_metrics() -> None:
    """Draw what the metrics of classes say of a few methods on the sentence and on the photo."""
    tasks = {"the sentence": ("clearhead/sst2-minilm", text_task()), "the photo": ("clearhead/pets-vit", image_task())}
    corpus = {"ten sentences": ("clearhead/sst2-minilm", corpus_task())}
    answer_metrics = list_answer_metrics()
    for name in clearhead.metrics():
        if name not in answer_metrics:
            draw_metric(name, corpus if name in CORPUS_METRICS else tasks, COMPARED)


def draw_answers() -> None:
    """Draw the metrics of answers on a prompt."""
    for name in list_answer_metrics():
        task = alignment_task() if name == "alignment-error-rate" else prompt_task()
        draw_metric(name, {"the prompt": ("clearhead/smollm2", task)}, COMPARED_ANSWERS)


def list_answer_metrics() -> list[str]:
    """Return the metrics that language models are measured by: those in the second table of the metrics' README."""
    page = (PICTURES.parent / "metrics" / "README.md").read_text("utf-8")
    table = page.split("For the answers of language models")[1]
    return [name for name in clearhead.metrics() if f"]({name}.md)" in table]


def text_task() -> Task:
    """Return the sentence with the words that a person would mark."""
    return Task("sentence", [Example("sentence", TEXT, "negative", tuple(find_spans(TEXT, RATIONALE)))])


def image_task() -> Task:
    """Return the photo with the cat's head as its mask."""
    photo = Image.open(PHOTO)
    left, top, right, bottom = HEAD
    mask = Image.new("L", photo.size)
    box = (left * photo.width, top * photo.height, right * photo.width, bottom * photo.height)
    ImageDraw.Draw(mask).ellipse(box, fill=255)
    content = io.BytesIO()
    mask.save(content, "PNG")
    label = clearhead.explain(clearhead.load("clearhead/pets-vit"), PHOTO, check=False).label
    return Task("photo", [Example("photo", PHOTO, label, Mask(Picture(content.getvalue())))])


def corpus_task() -> Task:
    """Return the embedded example sentences with the classes that the model predicts."""
    sentences = json.loads((EXAMPLES / "sentences.json").read_text("utf-8"))["clearhead/sst2-minilm"]
    explanations = clearhead.explain(clearhead.load(), sentences, "raw-attention", check=False)
    examples = []
    for number, (sentence, explanation) in enumerate(zip(sentences, explanations, strict=True)):
        examples.append(Example(str(number), sentence, explanation.label))
    return Task("sentences", examples)


def prompt_task() -> Task:
    """Return a prompt with its answer, another answer and the evidence."""
    evidence = tuple(find_spans(PROMPT, ["Louvre", "Eiffel", "Seine"]))
    return Task("prompt", [Example("prompt", PROMPT, gold=evidence, writing=Writing(" Paris", " London"))])


def alignment_task() -> Task:
    """Return a sentence with its translation and the links between their words."""
    links = frozenset({(1, 0), (2, 2), (3, 1), (4, 3), (5, 4)})
    writing = Writing(" la maison rouge est petite", alignment=Alignment(links, links))
    return Task("translation", [Example("translation", TRANSLATION, writing=writing)])


def draw_metric(name: str, tasks: Mapping[str, tuple[str, Task]], methods: Sequence[str]) -> None:
    """Save a chart of the metric's first value on every task that it applies to."""
    groups = {}
    for title, (model, task) in tasks.items():
        values = measure(name, model, task, methods)
        if values:
            groups[title] = values
    if groups:
        folder = PICTURES / "metrics"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.svg").write_text(render_bars(name, groups), "utf-8")


def measure(name: str, model: str, task: Task, methods: Sequence[str]) -> dict[str, float]:
    """Return the first value of the metric by method; empty if it does not apply."""
    try:
        table = clearhead.evaluate(clearhead.load(model), task, list(methods), [name])
    except ClearheadError as error:
        print(f"{name}: {error}")
        return {}
    part = clearhead.metrics()[name].values[0]
    rows = [row for row in table.rows if row["part"] == part and not math.isnan(row["value"])]
    return {row["method"]: row["value"] for row in rows}


BAR_WIDTH, ROW_HEIGHT, NAME_WIDTH, GROUP_HEIGHT = 220, 24, 130, 26
WIDTH = 520


def render_bars(name: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """Render horizontal bars as SVG, each group on its own scale."""
    rows = list(render_rows(groups))
    height = rows[-1][0] + 14
    better = clearhead.metrics()[name].better
    label = escape(f"{name} of {', '.join(groups)} by method; {better} is better")
    body = "".join(text for _, text in rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{label}" font-family="system-ui, sans-serif" font-size="13">'
        f'<rect width="100%" height="100%" rx="8" fill="#fff"/>{body}</svg>\n'
    )


def render_rows(groups: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[int, str]]:
    """Yield the lines of the chart, each with the height that is used up to its end."""
    y = 8
    for title, values in groups.items():
        y += GROUP_HEIGHT
        yield y, f'<text x="14" y="{y - 7}" fill="#555" font-weight="600">on {escape(title)}</text>'
        span = max(map(abs, values.values())) or 1.0
        has_negative = min(values.values()) < 0
        for method, value in values.items():
            y += ROW_HEIGHT
            yield y, render_bar(y, method, value, span, has_negative)


def render_bar(y: int, method: str, value: float, span: float, has_negative: bool) -> str:
    """Render one bar with the method's name and the value; negative values go to the left of the middle."""
    room = BAR_WIDTH / 2 if has_negative else BAR_WIDTH
    zero = 14 + NAME_WIDTH + (room if has_negative else 0)
    width = abs(value) / span * room
    x = zero if value >= 0 else zero - width
    color = "#9aa0a6" if method == "random" else "#d9731a" if value >= 0 else "#2f6fb5"
    return (
        f'<text x="14" y="{y - 7}" fill="#222">{escape(method)}</text>'
        f'<rect x="{x:.1f}" y="{y - 19}" width="{max(width, 1):.1f}" height="15" rx="2" fill="{color}"/>'
        f'<text x="{14 + NAME_WIDTH + BAR_WIDTH + 12}" y="{y - 7}" fill="#222">{format(value, ".3g")}</text>'
    )


if __name__ == "__main__":
    {"methods": draw_methods, "metrics": draw_metrics, "answers": draw_answers}[sys.argv[1]]()
