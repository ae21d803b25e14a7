"""Static images of pictures and texts explained together: pictures on the left, words on the right."""

from collections.abc import Sequence
from typing import Any

from PIL import Image

from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views import heatmap
from clearhead.views.captions import format_label, format_probability, format_source
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


def find_joint(explanations: Any) -> JointExplanation | None:
    """Return the joint explanation that is to be drawn; None if there is none."""
    # What is no list at all is refused by those who draw other explanations.
    if isinstance(explanations, Sequence) and explanations and isinstance(explanations[0], JointExplanation):
        return explanations[0]
    return None


def lay_out(joint: JointExplanation) -> tuple[list[Box], float]:
    """Return the boxes of heading, texts, legend, checks and notes, and the height they need."""
    layout = Layout(replace_missing_glyphs)
    first = joint.explanations[0]
    layout.add_line(f"{format_label(first)}{format_probability(first)}", TITLE_SIZE)
    _add_note(layout, format_source(first))
    for explanation, scale in zip(list_members(joint), share_scale(joint), strict=True):
        _lay_out_member(layout, explanation, scale)
    _add_note(layout, describe_score(joint))
    _add_note(layout, describe_shares(joint))
    return layout.boxes, layout.y + MARGIN


def _lay_out_member(layout: Layout, explanation: Explanation, scale: Scale) -> None:
    layout.y += GAP
    if is_image(explanation):
        _add_note(layout, f"Picture: full colour {scale.format(scale.full)} or more per patch.")
    else:
        for segment in split_segments(explanation):
            layout.add_text(segment, scale)
        layout.y += GAP
        layout.add_legend(explanation.label, scale)
    layout.add_check(explanation)


def _add_note(layout: Layout, text: str) -> None:
    layout.add_line(text, SMALL_SIZE, LIGHT.faint)


def join_pictures(joint: JointExplanation, words: Image.Image) -> Image.Image:
    """Return an image of the words with the pictures to the left of it."""
    pictures = []
    for explanation, scale in zip(list_members(joint), share_scale(joint), strict=True):
        if is_image(explanation):
            pictures.append(_fit(heatmap.overlay(explanation, full=scale.full)))
    # Words are laid out in CSS pixels, pictures in those of the image.
    margin = MARGIN * SCALE
    width = sum(picture.width + margin for picture in pictures)
    height = max([words.height, *(picture.height + 2 * margin for picture in pictures)])
    canvas = Image.new("RGB", (width + words.width, height), LIGHT.paper)
    left = 0
    for picture in pictures:
        canvas.paste(picture, (left + margin, margin))
        left += picture.width + margin
    canvas.paste(words, (left, 0))
    return canvas


def _fit(picture: Image.Image) -> Image.Image:
    # All of one height, so that they stand in a row.
    width = round(picture.width * PICTURE_HEIGHT / picture.height)
    return picture.resize((width, PICTURE_HEIGHT), Image.Resampling.LANCZOS)
