"""Views of human annotations: marked text and outlined objects next to explanations of one or more classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.errors import BadFile, BadInput
from clearhead.explanation import Explanation, Word
from clearhead.model import images
from clearhead.views import heatmap, html, html_parts
from clearhead.views.text_spans import text_segments

Spans = Sequence[tuple[int, ...]]
Span = tuple[int, int, int]


def text_with_rationale(explanations: Sequence[Explanation], marked: Spans) -> str:
    """Render the text as people marked it, then each explanation with the share of its top words they marked.

    The explanations are on one scale, as in `html.classes`.
    `marked` are (start, end) characters of the text, or (segment, start, end) for a pair.
    """
    full = html.shared_full_scale(explanations)
    texts = text_segments(explanations[0])
    spans = [_resolve_span(span, texts) for span in marked]
    bodies = ["<h2>Marked by people</h2>"]
    for segment, text in enumerate(texts):
        bodies.append(_render_marked_text(text, spans, segment))
    for explanation in explanations:
        bodies.append(_render_explained_text(explanation, spans, full))
    return html_parts.card(*bodies)


def find_spans(text: str | tuple[str, str], phrases: Sequence[str]) -> list[tuple[int, int, int]]:
    """Find the first occurrence of each phrase in a text or pair, as (segment, start, end)."""
    is_list = not isinstance(phrases, str)
    if not is_list or not all(isinstance(phrase, str) and phrase for phrase in phrases):
        raise BadInput(f"{phrases!r} is not a list of phrases: put a single phrase in a list.")
    segments = text if isinstance(text, tuple) else (text,)
    return [_find_phrase(phrase, segments) for phrase in phrases]


def _find_phrase(phrase: str, segments: Sequence[str]) -> Span:
    for segment, text in enumerate(segments):
        start = text.find(phrase)
        if start >= 0:
            return segment, start, start + len(phrase)
    raise BadInput(f"The marked phrase '{phrase}' does not occur in the text. Check spelling and spaces.")


def read_mask(file: Path, picture: Path | None = None) -> Array:
    """Read a mask image as a Boolean array: every pixel that is not black belongs to the object.

    With `picture`, the image the mask belongs to, the mask is rotated by that image's EXIF orientation.
    """
    name = f"The mask '{file}'"
    try:
        mask = images.open_image_file(file, name)
    except BadInput as error:
        raise BadFile(f"{name} cannot be read as an image.") from error
    orientation = 1
    if picture is not None:
        orientation = images.orientation_after(file, picture, (name, f"'{picture}'"))
    return np.asarray(images.rotate(mask, orientation).convert("L")) > 0


def _resolve_span(span: tuple[int, ...], texts: Sequence[str]) -> Span:
    segment, start, end = span if len(span) == 3 else (0, *span)
    is_inside = 0 <= segment < len(texts) and 0 <= start < end <= len(texts[segment])
    if not is_inside:
        raise BadInput(f"The marked span {span} lies outside the text.")
    return segment, start, end


def _render_marked_text(text: str, spans: Sequence[Span], segment: int) -> str:
    return f'<p class="ch-text" dir="auto" lang="">{_mark(text, spans, segment)}</p>'


def _mark(text: str, spans: Sequence[Span], segment: int) -> str:
    fragments = []
    position = 0
    for span_segment, start, end in sorted(spans):
        # Spans may overlap: what an earlier one has marked is not marked again.
        start = max(start, position)
        if span_segment == segment and end > start:
            fragments.append(html_parts.escape(text[position:start]))
            fragments.append(f'<mark class="ch-gold">{html_parts.escape(text[start:end])}</mark>')
            position = end
    fragments.append(html_parts.escape(text[position:]))
    return "".join(fragments)


def _render_explained_text(explanation: Explanation, spans: Sequence[Span], full: float) -> str:
    heading = html_parts.render_heading(explanation, tag="h3")
    agreement = f'<p class="ch-faint">{_format_agreement(explanation, spans)}</p>'
    return heading + html.render_input(explanation, full) + agreement


def _format_agreement(explanation: Explanation, spans: Sequence[Span]) -> str:
    """Count the marked words among as many of the most relevant words as people marked."""
    words = explanation.words()
    count = sum(_is_marked(word, spans) for word in words)
    top_words = sorted(words, key=lambda word: -word.relevance)[:count]
    agreeing = sum(_is_marked(word, spans) for word in top_words)
    return f"{agreeing} of the {count} most relevant words are marked."


def _is_marked(word: Word, spans: Sequence[Span]) -> bool:
    return any(_overlaps(word, span) for span in spans)


def _overlaps(word: Word, span: Span) -> bool:
    segment, start, end = span
    return word.segment == segment and word.start < end and word.end > start


def image_with_mask(explanations: Sequence[Explanation], mask: Array) -> str:
    """Render the image with the outline of the marked object, then each explanation with it, on one scale."""
    full = html.shared_full_scale(explanations)
    marked = _draw_mask(heatmap.original_image(explanations[0]), mask)
    columns = ["<h3>Marked by people</h3>" + _render_image(marked, "Photo with the marked object outlined.")]
    for explanation in explanations:
        columns.append(_render_explained_image(explanation, mask, full))
    return html_parts.card(html_parts.side_by_side(columns))


def _render_explained_image(explanation: Explanation, mask: Array, full: float) -> str:
    overlay = _draw_mask(heatmap.overlay(explanation, full=full), mask)
    return (
        html_parts.render_heading(explanation, tag="h3")
        + _render_image(overlay, heatmap.describe(explanation))
        + heatmap.render_legend(explanation, full)
        + _render_share_inside(explanation, mask)
    )


def _draw_mask(image: Image.Image, mask: Array) -> Image.Image:
    rows_and_columns = image.size[::-1]
    if mask.shape != rows_and_columns:
        raise BadInput(f"The mask has shape {mask.shape}, but the photo {rows_and_columns} (rows, columns).")
    canvas = image.convert("RGBA")
    canvas.alpha_composite(heatmap.draw_border(mask.astype(bool)))
    return canvas.convert("RGB")


def _render_share_inside(explanation: Explanation, mask: Array) -> str:
    """Render the share of positive relevance inside the mask, or "" if there is no positive relevance."""
    # The heat map is NaN where the model did not see the image.
    positive = np.clip(np.nan_to_num(explanation.heatmap()), 0, None)
    total = positive.sum()
    if not total > 0:
        return ""
    share = float(positive[mask.astype(bool)].sum() / total)
    return f'<p class="ch-faint">{share * 100:.0f} % of the positive relevance lies inside.</p>'


def _render_image(image: Image.Image, description: str) -> str:
    small = heatmap.shrink_image(image)
    url = heatmap.encode_data_url(small, "JPEG")
    return f'<div class="ch-stack">{html_parts.render_image(url, small.size, description, "")}</div>'
