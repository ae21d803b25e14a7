"""Explanations as Matplotlib figures and PDF files; the only module that imports Matplotlib."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from PIL import Image

from clearhead.errors import BadOption
from clearhead.explanation import Explanation
from clearhead.joint_explanation import JointExplanation
from clearhead.views import joint_image
from clearhead.views.captions import format_headline
from clearhead.views.color import LIGHT, Rgb, background_color, format_hex, underline_color
from clearhead.views.fonts import SCALE, measure_text, replace_missing_glyphs
from clearhead.views.photo_image import has_models, split_rows
from clearhead.views.scale import make_scale
from clearhead.views.static_image import draw, draws_photos, lay_out
from clearhead.views.text_layout import MARGIN, WIDTH, Box
from clearhead.views.text_spans import escape_hidden

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIRST_FAMILY = "DejaVu Sans"
FURTHER_FAMILIES = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Devanagari")
# Pixels around photos and for the captions above them.
GAP = 14
HEAD = 56
CAPTION_SIZE = 13
# Pixels of the layout per inch, as in CSS.
DOTS_PER_INCH = 96
POINTS_PER_PIXEL = 72 / DOTS_PER_INCH
# Type 42 keeps letters as text that can be searched and edited; no date, so that the same figure is the same file.
PDF_SETTINGS = {"pdf.fonttype": 42}
PDF_METADATA = {"CreationDate": None, "Creator": "clearhead"}
Panel = tuple[Image.Image, tuple[str, ...]]
"""An image and the captions above it."""


def make_figure(explanations: Sequence[Any]) -> "Figure":
    """Return one explanation, or several of the same input, as a figure: the layout of the PNG and SVG files."""
    joint = joint_image.find_joint(explanations)
    if joint is not None:
        return _draw_joint(joint)
    if draws_photos(explanations):
        return _draw_photos(explanations)
    boxes, height = lay_out(explanations, replace_missing_glyphs)
    figure, axes = _make_canvas(WIDTH, height)
    for box in boxes:
        _draw_box(axes, box)
    return figure


def encode_pdf(*figures: "Figure") -> bytes:
    """Encode figures as PDF, a page each."""
    matplotlib = import_matplotlib()
    content = BytesIO()
    pages = matplotlib.backends.backend_pdf.PdfPages(content, metadata=PDF_METADATA)
    with matplotlib.rc_context(PDF_SETTINGS), pages:
        for figure in figures:
            pages.savefig(figure)
    return content.getvalue()


def import_matplotlib() -> Any:
    """Import Matplotlib, or raise BadOption with the command that installs it."""
    try:
        import matplotlib.backends.backend_pdf
        import matplotlib.figure
        import matplotlib.font_manager
        import matplotlib.patches
    except ImportError as error:
        raise BadOption("Figures and PDF files need Matplotlib: pip install 'clearhead[plots]'.") from error
    return matplotlib


def _make_canvas(width: float, height: float) -> tuple["Figure", "Axes"]:
    """Return a figure of this many pixels with axes over all of it, whose origin is at the top left."""
    # Not through pyplot, which would keep the figure alive and choose a window system.
    size = (width / DOTS_PER_INCH, height / DOTS_PER_INCH)
    figure = import_matplotlib().figure.Figure(figsize=size, dpi=DOTS_PER_INCH * SCALE)
    axes = figure.add_axes((0, 0, 1, 1))
    _set_limits(axes, width, height)
    axes.axis("off")
    return figure, axes


def _draw_joint(joint: JointExplanation) -> "Figure":
    """Draw the pictures, and the words to the right of them."""
    boxes, height = joint_image.lay_out(joint)
    pictures = list(joint_image.draw_pictures(joint))
    # Pictures have the resolution of images, words that of the layout.
    left = sum(picture.width / SCALE + MARGIN for picture in pictures)
    tallest = max((picture.height / SCALE + 2 * MARGIN for picture in pictures), default=0)
    size = (left + WIDTH, max(height, tallest))
    figure, axes = _make_canvas(*size)
    x: float = MARGIN
    for picture in pictures:
        _draw_picture(axes, picture, x)
        x += picture.width / SCALE + MARGIN
    for box in boxes:
        _draw_box(axes, replace(box, x=box.x + left))
    _set_limits(axes, *size)
    return figure


def _draw_picture(axes: "Axes", picture: Image.Image, x: float) -> None:
    extent = (x, x + picture.width / SCALE, MARGIN + picture.height / SCALE, MARGIN)
    axes.imshow(picture, extent=extent, aspect="auto")


def _draw_photos(explanations: Sequence[Explanation]) -> "Figure":
    """Draw the photo, and beside it each map over it, with captions above; several models have a row per method."""
    rows = [list(_list_panels(row)) for row in split_rows(explanations)]
    sizes = list(map(_measure_row, rows))
    width, height = max(width for width, _ in sizes), sum(height for _, height in sizes)
    figure, axes = _make_canvas(width, height)
    y = 0
    for row, (_, row_height) in zip(rows, sizes, strict=True):
        _draw_row(axes, y, row)
        y += row_height
    # Images set limits of their own.
    _set_limits(axes, width, height)
    return figure


def _draw_row(axes: "Axes", y: int, panels: Sequence[Panel]) -> None:
    x = GAP
    for image, captions in panels:
        _draw_photo(axes, (x, y), image)
        _draw_captions(axes, (x, y), captions)
        x += image.width + GAP


def _list_panels(explanations: Sequence[Explanation]) -> Iterator[Panel]:
    photo = explanations[0].image
    if photo is not None:
        yield photo, ("photo",)
    name_models = has_models(explanations)
    for explanation in explanations:
        captions = _write_captions(explanation)
        if name_models:
            # In the place of what the colours mean, which the lines below a photo say.
            captions = (captions[0], escape_hidden(explanation.model))
        yield draw([explanation]), captions


def _measure_row(panels: Sequence[Panel]) -> tuple[int, int]:
    """Return the width and height of images beside each other, with captions above."""
    images = [image for image, _ in panels]
    width = sum(image.width + GAP for image in images) + GAP
    return width, max(image.height for image in images) + HEAD + GAP


def _draw_photo(axes: "Axes", corner: tuple[int, int], image: Image.Image) -> None:
    x, y = corner
    # The origin is at the top, so that the lower edge comes first.
    axes.imshow(image, extent=(x, x + image.width, y + HEAD + image.height, y + HEAD), aspect="auto")


def _set_limits(axes: "Axes", width: float, height: float) -> None:
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)


def _write_captions(explanation: Explanation) -> tuple[str, ...]:
    scale = make_scale(explanation)
    return format_headline(explanation), scale.caption


def _draw_captions(axes: "Axes", corner: tuple[int, int], captions: Sequence[str]) -> None:
    x, y = corner
    for line, caption in enumerate(captions):
        width = measure_text(caption, CAPTION_SIZE)
        _draw_text(axes, Box(caption, x, y + GAP + line * CAPTION_SIZE * 1.5, width, CAPTION_SIZE))


def _draw_box(axes: "Axes", box: Box) -> None:
    if box.fill is not None:
        _draw_rectangle(axes, box, box.fill)
    # A step of 0 has no colour.
    if box.step:
        _draw_rectangle(axes, box, background_color(box.step, LIGHT))
        _draw_underline(axes, box)
    if box.text.strip():
        _draw_text(axes, box)


def _draw_rectangle(axes: "Axes", box: Box, fill: Rgb) -> None:
    rectangle = import_matplotlib().patches.Rectangle
    axes.add_patch(rectangle((box.x, box.y), box.width, box.height, facecolor=format_hex(fill), linewidth=0))


def _draw_underline(axes: "Axes", box: Box) -> None:
    # Dashes show the sign to those who do not see the colours.
    style = "solid" if box.step > 0 else (0, (2, 1))
    axes.plot(
        [box.x, box.right],
        [box.bottom, box.bottom],
        color=format_hex(underline_color(box.step, LIGHT)),
        linestyle=style,
        linewidth=2 * POINTS_PER_PIXEL,
        solid_capstyle="butt",
    )


@cache
def _list_families() -> list[str]:
    """Return the fonts to write with that this machine has; Matplotlib complains about each that is missing."""
    installed = import_matplotlib().font_manager.get_font_names()
    # Matplotlib brings the first one along, in which the layout is measured where it can be.
    return [FIRST_FAMILY, *(family for family in FURTHER_FAMILIES if family in installed)]


def _draw_text(axes: "Axes", box: Box) -> None:
    x, y, rotation = box.x, box.baseline, 0
    if box.is_rotated:
        x, y, rotation = box.x + box.size, box.y + box.width, 90
    axes.text(
        x,
        y,
        box.text,
        color=format_hex(box.ink),
        fontsize=box.size * POINTS_PER_PIXEL,
        family=_list_families(),
        verticalalignment="baseline",
        rotation=rotation,
        # A dollar sign of the text is not the beginning of a formula.
        parse_math=False,
    )
