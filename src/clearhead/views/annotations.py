"""The gold view: what people marked, beside what the explanation found, for the true class and others."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.errors import BadFile, BadInput
from clearhead.explanation import Explanation
from clearhead.model import images as photo
from clearhead.views import heatmap, html
from clearhead.views import html_parts as markup
from clearhead.views.text_spans import segments

Spans = Sequence[tuple[int, ...]]


def text_with_rationale(explanations: Sequence[Explanation], marked: Spans) -> str:
    """The text as people marked it, then each explanation, with how many of its strongest words they marked.

    The explanations share a scale, as in `html.classes`.
    `marked` are (start, end) characters of the text, or (segment, start, end) for a pair.
    """
    full = html.full_of(explanations)
    texts = segments(explanations[0])
    spans = [_span(one, texts) for one in marked]
    framed = [
        f'<p class="ch-text" dir="auto" lang="">{_framed(text, spans, place)}</p>' for place, text in enumerate(texts)
    ]
    rows = [
        markup.heading(one, tag="h3")
        + html.visible_explanations(one, full)
        + f'<p class="ch-faint">{_found(one, spans)}</p>'
        for one in explanations
    ]
    return markup.card("<h2>Marked by people</h2>", *framed, *rows)


def spans_of(text: str | tuple[str, str], phrases: Sequence[str]) -> list[tuple[int, int, int]]:
    """Where phrases first stand in a text or pair, as (segment, start, end)."""
    texts = text if isinstance(text, tuple) else (text,)
    if isinstance(phrases, str) or not all(isinstance(phrase, str) and phrase for phrase in phrases):
        raise BadInput(f"{phrases!r} is not a list of phrases: put a single one in a list.")
    found = []
    for phrase in phrases:
        places = [(segment, one.find(phrase)) for segment, one in enumerate(texts) if phrase in one]
        if not places:
            raise BadInput(f"'{phrase}' was marked, but does not stand in the text. Check spelling and blanks.")
        found.append((*places[0], places[0][1] + len(phrase)))
    return found


def mask_of(file: Path, picture: Path | None = None) -> Array:
    """A mask picture as an array: whatever is not black belongs to the object. It turns with the picture it lies on."""
    try:
        mask = photo.open_image_file(file, f"The mask '{file}'")
    except BadInput as error:
        raise BadFile(f"The mask '{file}' cannot be read as a picture.") from error
    note = 1 if picture is None else photo.orientation_after(file, picture, (f"The mask '{file}'", f"'{picture}'"))
    return np.asarray(photo.rotate(mask, note).convert("L")) > 0


def _span(one: tuple[int, ...], texts: Sequence[str]) -> tuple[int, int, int]:
    segment, start, end = one if len(one) == 3 else (0, *one)
    if not (0 <= segment < len(texts) and 0 <= start < end <= len(texts[segment])):
        raise BadInput(f"The marked span {one} lies outside the text.")
    return segment, start, end


def _framed(text: str, spans: Sequence[tuple[int, int, int]], segment: int) -> str:
    parts, at = [], 0
    for _, start, end in sorted(span for span in spans if span[0] == segment):
        start = max(start, at)
        if end > start:
            parts += [markup.escape(text[at:start]), f'<mark class="ch-gold">{markup.escape(text[start:end])}</mark>']
            at = end
    return "".join([*parts, markup.escape(text[at:])])


def _found(explanation: Explanation, spans: Sequence[tuple[int, int, int]]) -> str:
    """How many of the most relevant words people marked too."""
    words = explanation.words()
    gold = [
        any(word.segment == s and word.start < end and word.end > start for s, start, end in spans) for word in words
    ]
    count = min(sum(gold), len(words))
    order = sorted(range(len(words)), key=lambda place: -words[place].relevance)[:count]
    return f"{sum(gold[place] for place in order)} of the {count} most relevant words are marked."


def image_with_mask(explanations: Sequence[Explanation], mask: Array) -> str:
    """The photo with the object people outlined, then each explanation with the same outline, on one scale."""
    full = html.full_of(explanations)
    marked = _with_outline(heatmap.photograph(explanations[0]), mask)
    gold = "<h3>Marked by people</h3>" + _image(marked, "Photo with the marked object outlined.")
    return markup.card(markup.side_by_side([gold, *(_outlined(one, mask, full) for one in explanations)]))


def _outlined(explanation: Explanation, mask: Array, full: float) -> str:
    picture = _with_outline(heatmap.overlay(explanation, full=full), mask)
    share = _inside(explanation, mask)
    said = (
        "" if share is None else f'<p class="ch-faint">{share * 100:.0f} % of the positive relevance lies inside.</p>'
    )
    legend = heatmap.legend(full, explanation.label, heatmap.is_signed([explanation]))
    return markup.heading(explanation, tag="h3") + _image(picture, heatmap.description(explanation)) + legend + said


def _with_outline(picture: Image.Image, mask: Array) -> Image.Image:
    if mask.shape != picture.size[::-1]:
        raise BadInput(f"The mask has shape {mask.shape}, but the photo {picture.size[::-1]} (rows, columns).")
    canvas = picture.convert("RGBA")
    canvas.alpha_composite(heatmap.edge_of(mask.astype(bool)))
    return canvas.convert("RGB")


def _inside(explanation: Explanation, mask: Array) -> float | None:
    positive = np.clip(np.nan_to_num(explanation.heatmap()), 0, None)
    return float(positive[mask.astype(bool)].sum() / positive.sum()) if positive.sum() > 0 else None


def _image(picture: Image.Image, described: str) -> str:
    shown = heatmap.small(picture)
    return f'<div class="ch-stack">{markup.image(heatmap.data_url(shown, "JPEG"), shown.size, described, "")}</div>'
