"""Views of human annotations: marked text and outlined objects next to explanations of one or more classes."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.errors import BadFile, BadInput
from clearhead.explanation import Explanation, Word
from clearhead.model import images
from clearhead.views import heatmap, html, html_parts, outline
from clearhead.views.scale import Scale, scale_pixels, share_scales
from clearhead.views.text_spans import require_explanations, text_segments

# Spans as users give them: (start, end), or (segment, start, end) for a pair.
Spans = Sequence[tuple[int, ...]]
Span = tuple[int, int, int]


def text_with_rationale(explanations: Sequence[Explanation], marked: Spans) -> str:
    """Render the text as people marked it, then each explanation with the share of its top words they marked.

    Equal shares have equal colours, as in `html.classes`.
    `marked` are (start, end) characters of the text, or (segment, start, end) for a pair.
    """
    require_explanations(explanations)
    texts = text_segments(explanations[0])
    spans = [_resolve_span(span, texts) for span in marked]
    bodies = ["<h2>Marked by people</h2>"]
    bodies += _render_marked_texts(texts, spans)
    for explanation, scale in zip(explanations, share_scales(explanations), strict=True):
        bodies.append(_render_explained_text(explanation, spans, scale))
    return html_parts.card(*bodies)


def find_spans(text: str | tuple[str, str], phrases: Sequence[str]) -> list[tuple[int, int, int]]:
    """Find the first occurrence of each phrase in a text or pair, as (segment, start, end)."""
    _require_phrases(phrases)
    segments = _as_segments(text)
    return [_find_phrase(phrase, segments) for phrase in phrases]


def _require_phrases(phrases: Sequence[str]) -> None:
    if not _are_phrases(phrases):
        raise BadInput(f"{phrases!r} is not a list of phrases: put a single phrase in a list.")


def _as_segments(text: str | tuple[str, str]) -> tuple[str, ...]:
    if isinstance(text, str):
        return (text,)
    return text


def _are_phrases(phrases: Iterable[object]) -> bool:
    # A string is a sequence too: each of its characters would be found somewhere.
    if isinstance(phrases, str):
        return False
    return all(isinstance(phrase, str) and phrase for phrase in phrases)


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
    mask = _open_mask(file, name)
    if picture is not None:
        orientation = images.orientation_after(file, picture, (name, f"'{picture}'"))
        mask = images.rotate(mask, orientation)
    return np.asarray(mask.convert("L")) > 0


def _open_mask(file: Path, name: str) -> Image.Image:
    try:
        return images.open_image_file(file, name)
    except BadInput as error:
        raise BadFile(f"{name} cannot be read as an image.") from error


def _resolve_span(span: tuple[int, ...], texts: Sequence[str]) -> Span:
    segment, start, end = _add_segment(span)
    if not 0 <= segment < len(texts) or not 0 <= start < end <= len(texts[segment]):
        raise BadInput(f"The marked span {span} lies outside the text.")
    return segment, start, end


def _add_segment(span: tuple[int, ...]) -> tuple[int, ...]:
    if len(span) == 3:
        return span
    return (0, *span)


def _render_marked_texts(texts: Sequence[str], spans: Sequence[Span]) -> Iterator[str]:
    for segment, text in enumerate(texts):
        yield f'<p class="ch-text" dir="auto" lang="">{_mark(text, _select_segment(spans, segment))}</p>'


def _select_segment(spans: Iterable[Span], segment: int) -> list[tuple[int, int]]:
    return [(start, end) for number, start, end in sorted(spans) if number == segment]


def _mark(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with its spans, from left to right, marked."""
    fragments = []
    position = 0
    for start, end in _cut_overlaps(spans):
        fragments += [html_parts.escape(text[position:start]), _render_mark(text[start:end])]
        position = end
    fragments.append(html_parts.escape(text[position:]))
    return "".join(fragments)


def _cut_overlaps(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Iterate over the spans without what an earlier one has covered."""
    position = 0
    for start, end in spans:
        if end > position:
            yield max(start, position), end
            position = end


def _render_mark(text: str) -> str:
    return f'<mark class="ch-gold">{html_parts.escape(text)}</mark>'


def _render_explained_text(explanation: Explanation, spans: Sequence[Span], scale: Scale) -> str:
    heading = html_parts.render_heading(explanation, tag="h3")
    agreement = html_parts.render_faint(_format_agreement(explanation, spans))
    return heading + html.render_input(explanation, scale) + agreement


def _format_agreement(explanation: Explanation, spans: Sequence[Span]) -> str:
    """Count the marked words among as many of the most relevant words as people marked."""
    words = explanation.words()
    # As many words as people marked, so that full agreement is possible.
    count = _count_marked(words, spans)
    top_words = sorted(words, key=lambda word: -word.relevance)[:count]
    return f"{_count_marked(top_words, spans)} of the {count} most relevant words are marked."


def _count_marked(words: Iterable[Word], spans: Sequence[Span]) -> int:
    return sum(_is_marked(word, spans) for word in words)


def _is_marked(word: Word, spans: Sequence[Span]) -> bool:
    return any(_overlaps(word, span) for span in spans)


def _overlaps(word: Word, span: Span) -> bool:
    segment, start, end = span
    return word.segment == segment and word.start < end and word.end > start


def image_with_mask(explanations: Sequence[Explanation], mask: Array) -> str:
    """Render the image with the outline of the marked object, then each explanation with it."""
    require_explanations(explanations)
    columns = [_render_marked_image(explanations[0], mask)]
    for explanation, scale in zip(explanations, share_scales(explanations), strict=True):
        columns.append(_render_explained_image(explanation, mask, scale))
    return html_parts.card(html_parts.side_by_side(columns))


def _render_marked_image(explanation: Explanation, mask: Array) -> str:
    marked = _draw_mask(heatmap.original_image(explanation), mask)
    return "<h3>Marked by people</h3>" + _render_image(marked, "Photo with the marked object outlined.")


def _render_explained_image(explanation: Explanation, mask: Array, scale: Scale) -> str:
    full = scale_pixels(explanation, scale).full
    overlay = _draw_mask(heatmap.overlay(explanation, full=full), mask)
    return (
        html_parts.render_heading(explanation, tag="h3")
        + _render_image(overlay, heatmap.describe(explanation))
        + heatmap.render_legend(explanation, scale)
        + _render_share_inside(explanation, mask)
    )


def _draw_mask(image: Image.Image, mask: Array) -> Image.Image:
    _check_mask(mask, image)
    # Only images with an alpha channel can be composited.
    canvas = image.convert("RGBA")
    canvas.alpha_composite(outline.draw_border(mask.astype(bool)))
    return canvas.convert("RGB")


def _check_mask(mask: Array, image: Image.Image) -> None:
    # Pillow counts columns first, NumPy rows.
    rows_and_columns = image.size[::-1]
    if mask.shape != rows_and_columns:
        raise BadInput(f"The mask has shape {mask.shape}, but the photo {rows_and_columns} (rows, columns).")


def _render_share_inside(explanation: Explanation, mask: Array) -> str:
    """Render the share of positive relevance inside the mask, or "" if there is no positive relevance."""
    positive = _positive_relevance(explanation)
    total = positive.sum()
    if not total > 0:
        return ""
    share = float(positive[mask.astype(bool)].sum() / total)
    return html_parts.render_faint(f"{share * 100:.0f} % of the positive relevance lies inside.")


def _positive_relevance(explanation: Explanation) -> Array:
    # The heat map is NaN where the model did not see the image.
    positive: Array = np.clip(np.nan_to_num(explanation.heatmap()), 0, None)
    return positive


def _render_image(image: Image.Image, description: str) -> str:
    # JPEG, because the outline is part of the photo and needs no transparency.
    small = heatmap.shrink_image(image)
    url = heatmap.encode_data_url(small, "JPEG")
    return f'<div class="ch-stack">{html_parts.render_image(url, small.size, description, "")}</div>'
