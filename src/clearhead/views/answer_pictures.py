"""Pictures of a prompt in the views of answers: heat maps of all pictures on one scale."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from PIL import Image

from clearhead.answer_explanation import AnswerExplanation
from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.views import heatmap, html_parts
from clearhead.views.numbers import format_percent
from clearhead.views.scale import Scale, make_scale

TITLE = "Pictures"


def scale_pictures(explanation: AnswerExplanation) -> Scale:
    """Return one scale for all pictures of a prompt, on which numbers are shares of all relevance, words included."""
    scales = list(map(make_scale, explanation.pictures))
    # The picture with the strongest parts has the full colour.
    scale = max(scales, key=lambda candidate: candidate.full)
    total = float(np.abs(explanation.relevance).sum())
    return replace(scale, total=total, signed=any(candidate.signed for candidate in scales))


def describe_pictures(explanation: AnswerExplanation) -> list[str]:
    """Return a line for each picture: its share of all relevance, and where its strongest part is."""
    return [_describe(explanation, number) for number in range(len(explanation.picture_spans))]


def _describe(explanation: AnswerExplanation, number: int) -> str:
    share = _find_share(explanation, explanation.picture_spans[number].tokens)
    position = heatmap.describe_strongest(explanation.pictures[number])
    return f"Picture {number + 1}: {format_percent(share)} of all relevance, most at the {position}."


def _find_share(explanation: AnswerExplanation, tokens: Sequence[int]) -> float:
    sizes = np.abs(explanation.relevance)
    # Without any relevance every share is zero.
    total = float(sizes.sum()) or 1.0
    return float(sizes[list(tokens)].sum()) / total


def format_full(explanation: AnswerExplanation) -> str:
    """Return what the full colour of the pictures stands for; "" if there are none."""
    if not explanation.picture_spans:
        return ""
    scale = scale_pictures(explanation)
    size = scale.format_distance(scale.full)
    return f"Full colour on the pictures: a part with {size} of all relevance or more."


def draw_picture(picture: Explanation, scale: Scale, max_side: int) -> Image.Image:
    """Draw the heat map over a picture."""
    return heatmap.overlay(heatmap.shrink(picture, max_side), full=scale.full or None)


def merge_parts(picture: Explanation, columns: int) -> Array:
    """Return the relevance of a picture's parts, joined by squares until a row has at most so many."""
    assert picture.grid is not None
    grid = picture.relevance.reshape(picture.grid)
    # Rounded up.
    side = -(-grid.shape[1] // columns)
    return _add_squares(grid, side)


def _add_squares(grid: Array, side: int) -> Array:
    """Return the sums over squares of a grid, which is filled up with zeros where they do not divide it."""
    padded = np.pad(grid, [(0, -length % side) for length in grid.shape])
    rows, columns = padded.shape
    sums: Array = padded.reshape(rows // side, side, columns // side, side).sum((1, 3))
    return sums


def render_html(choices: Sequence[AnswerExplanation]) -> str:
    """Render every picture once, with a heat map for each choice on top, of which the chosen one is shown."""
    count = len(choices[0].picture_spans)
    if not count:
        return ""
    figures = [_render_figure(choices, number) for number in range(count)]
    return f"<h3>{TITLE}</h3>{html_parts.side_by_side(figures)}"


def _render_figure(choices: Sequence[AnswerExplanation], number: int) -> str:
    image = _shrink_photo(choices[0].pictures[number])
    url = heatmap.encode_data_url(image, "JPEG")
    photo = html_parts.render_image(url, image.size, describe_pictures(choices[0])[number], "ch-photo")
    layers = [_render_layer(choice, number, index, image.size) for index, choice in enumerate(choices)]
    return f'<div class="ch-stack">{photo}{"".join(layers)}</div>'


def _shrink_photo(picture: Explanation) -> Image.Image:
    small = heatmap.shrink(picture, heatmap.MAX_PAGE_SIDE)
    # Once more for pictures of which only tensors are there.
    return heatmap.shrink_image(heatmap.original_image(small))


def _render_layer(choice: AnswerExplanation, number: int, index: int, size: tuple[int, int]) -> str:
    picture = heatmap.shrink(choice.pictures[number], heatmap.MAX_PAGE_SIDE)
    full = scale_pictures(choice).full or None
    url = heatmap.encode_heat(picture, full)
    # The photo has the description of all layers.
    return html_parts.render_image(url, size, "", f"ch-heat ch-choice ch-k{index}")
