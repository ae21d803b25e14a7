"""Static images of pictures and texts explained together: pictures on the left, words on the right."""

from collections.abc import Iterator, Sequence
from typing import Any

from PIL import Image

from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views import heatmap
from clearhead.views.captions import clip, format_label, format_probability, format_source
from clearhead.views.color import LIGHT
from clearhead.views.fonts import SCALE, replace_missing_glyphs
from clearhead.views.joint_scale import describe_score, describe_shares, list_members, share_scale
from clearhead.views.scale import Scale
from clearhead.views.text_layout import MARGIN, SMALL_SIZE, Box, Layout
from clearhead.views.text_spans import is_image, split_segments

GAP = 14
TITLE_SIZE = 22
# The height of a picture beside a text, in pixels of the image.
PICTURE_HEIGHT = 480
# Words are laid out in CSS pixels, pictures in those of the image.
PICTURE_MARGIN = MARGIN * SCALE


def find_joint(explanations: Any) -> JointExplanation | None:
    """Return the joint explanation that is to be drawn; None if there is none."""
    # What is no list at all is refused by those who draw other explanations.
    if isinstance(explanations, Sequence) and explanations and isinstance(explanations[0], JointExplanation):
        return explanations[0]
    return None


def lay_out(joint: JointExplanation) -> tuple[list[Box], float]:
    """Return the boxes of heading, texts, legend, checks and notes, and the height they need."""
    layout = Layout(replace_missing_glyphs)
    _add_heading(layout, joint.explanations[0])
    scales = share_scale(joint)
    for explanation, scale in zip(list_members(joint), scales, strict=True):
        _lay_out_member(layout, explanation, scale)
    layout.y += GAP
    # Once: it is the same for all inputs.
    layout.add_legend(clip(joint.label), scales[0])
    _add_note(layout, describe_score(joint))
    _add_note(layout, describe_shares(joint))
    return layout.boxes, layout.y + MARGIN


def _add_heading(layout: Layout, explanation: Explanation) -> None:
    layout.add_line(_format_title(explanation), TITLE_SIZE)
    _add_note(layout, format_source(explanation))


def _format_title(explanation: Explanation) -> str:
    return f"{format_label(explanation)}{format_probability(explanation)}"


def _lay_out_member(layout: Layout, explanation: Explanation, scale: Scale) -> None:
    layout.y += GAP
    if not is_image(explanation):
        _add_words(layout, explanation, scale)
    layout.add_check(explanation)


def _add_words(layout: Layout, explanation: Explanation, scale: Scale) -> None:
    for segment in split_segments(explanation):
        layout.add_text(segment, scale)


def _add_note(layout: Layout, text: str) -> None:
    layout.add_line(text, SMALL_SIZE, LIGHT.faint)


def join_pictures(joint: JointExplanation, words: Image.Image) -> Image.Image:
    """Return an image of the words with the pictures to the left of it."""
    pictures = list(draw_pictures(joint))
    canvas = _make_canvas(pictures, words)
    left = 0
    for picture in pictures:
        canvas.paste(picture, (left + PICTURE_MARGIN, PICTURE_MARGIN))
        left += picture.width + PICTURE_MARGIN
    canvas.paste(words, (left, 0))
    return canvas


def draw_pictures(joint: JointExplanation) -> Iterator[Image.Image]:
    """Yield the pictures with their maps, all of one height."""
    for explanation, scale in zip(list_members(joint), share_scale(joint), strict=True):
        if is_image(explanation):
            yield _fit(heatmap.overlay(explanation, full=scale.full))


def _make_canvas(pictures: Sequence[Image.Image], words: Image.Image) -> Image.Image:
    """Return an empty image with space for pictures, and for the words on the right of them."""
    width = sum(picture.width + PICTURE_MARGIN for picture in pictures)
    return Image.new("RGB", (width + words.width, _find_height(pictures, words)), LIGHT.paper)


def _find_height(pictures: Sequence[Image.Image], words: Image.Image) -> int:
    heights = [picture.height + 2 * PICTURE_MARGIN for picture in pictures]
    return max([words.height, *heights])


def _fit(picture: Image.Image) -> Image.Image:
    # All of one height, so that they stand in a row.
    width = round(picture.width * PICTURE_HEIGHT / picture.height)
    return picture.resize((width, PICTURE_HEIGHT), Image.Resampling.LANCZOS)
