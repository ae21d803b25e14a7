"""Heat maps over an image: smooth or exact per patch, with an outline of the most relevant area."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.validation import require_number
from clearhead.views import html_parts
from clearhead.views.color import Rgb
from clearhead.views.outline import draw_border
from clearhead.views.scale import Scale, make_scale, scale_pixels
from clearhead.views.text_spans import content_relevance

ColorRamp = tuple[Rgb, Rgb]
# Left, top, right and bottom in pixels.
Edges = tuple[float, float, float, float]

WARM: ColorRamp = ((255, 205, 70), (226, 84, 0))
COLD: ColorRamp = ((150, 205, 255), (16, 84, 200))
DEFAULT_OPACITY = 0.75
OPACITY_CHOICES = (0, 25, 50, 75, 100)
OUTLINED_PERCENT = 20.0
DESATURATION = 0.9
# Opacity grows as relevance ** 0.8, so that weak relevance is still visible.
OPACITY_EXPONENT = 0.8
MAX_PAGE_SIDE = 640
PALETTE_TONES = 64
SAVE_OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {"quality": 85}, "PNG": {"optimize": True}}
GREY = (128, 128, 128)
VERTICAL = ("top", "middle", "bottom")
HORIZONTAL = ("left", "centre", "right")
# CSS class of the two layers that a page can switch between, and whether the layer is smooth.
LAYERS = {"ch-smooth": True, "ch-exact": False}


def scale_relevance(explanation: Explanation, *, smooth: bool = True, full: float | None = None) -> Array:
    """Return relevance over the original image scaled to −1 … 1; NaN where the model did not see the image."""
    if full is not None:
        require_number("full", full, 0)
    # Relevance that is zero everywhere stays zero, whatever the divisor.
    divisor = full or _find_full(explanation, make_scale(explanation), smooth) or 1.0
    return np.clip(_map_relevance(explanation, smooth) / divisor, -1, 1)


def _find_full(explanation: Explanation, scale: Scale, smooth: bool) -> float:
    """Return the relevance of the full colour of pixels, which a smooth map shows, or of patches."""
    if smooth:
        return scale_pixels(explanation, scale).full
    return scale.full


def _map_relevance(explanation: Explanation, smooth: bool) -> Array:
    if smooth:
        return explanation.heatmap()
    return _map_patches(explanation)


def _map_patches(explanation: Explanation) -> Array:
    """Give every pixel the relevance of the patch it lies in."""
    smooth = explanation.heatmap()
    rows, columns = _patch_indices(explanation, *smooth.shape)
    grid = _patch_grid(explanation)
    # The smooth map knows which pixels the model saw.
    return np.where(np.isnan(smooth), np.nan, grid[rows][:, columns].astype(float))


def _patch_indices(explanation: Explanation, height: int, width: int) -> tuple[Array, Array]:
    """Return the row of patches of each row of pixels, and likewise for columns."""
    left, top, right, bottom = explanation.box or (0, 0, width, height)
    rows, columns = _grid_shape(explanation)
    return _axis_indices(height, top, bottom, rows), _axis_indices(width, left, right, columns)


def _grid_shape(explanation: Explanation) -> tuple[int, int]:
    return explanation.grid or (1, 1)


def _patch_grid(explanation: Explanation) -> Array:
    return content_relevance(explanation).reshape(_grid_shape(explanation))


def _axis_indices(pixels: int, start: float, end: float, patches: int) -> Array:
    """Return the patch of each pixel along one axis; pixels outside the box get the nearest patch."""
    # The centre of a pixel decides which patch it belongs to.
    centres = np.arange(pixels) + 0.5
    shares = (centres - start) / (end - start)
    indices: Array = np.clip(shares * patches, 0, patches - 1).astype(int)
    return indices


def render_colors(explanation: Explanation, *, smooth: bool = True, full: float | None = None) -> Image.Image:
    """Return the heat map without the image; opacity grows with relevance."""
    scaled = scale_relevance(explanation, smooth=smooth, full=full)
    # NaN, where the model did not see the image, becomes fully transparent.
    relevance = np.nan_to_num(scaled)
    opacity = 255 * np.abs(relevance)[..., None] ** OPACITY_EXPONENT
    layers = np.concatenate([_color_pixels(relevance), opacity], -1)
    return Image.fromarray(_to_bytes(layers), "RGBA")


def _color_pixels(relevance: Array) -> Array:
    """Return red, green and blue of each pixel, warm for the class and cold against it."""
    size = np.abs(relevance)
    is_positive = relevance[..., None] >= 0
    return np.where(is_positive, _interpolate(WARM, size), _interpolate(COLD, size))


def _to_bytes(channels: Array) -> Array:
    return channels.round().astype(np.uint8)


def _interpolate(ramp: ColorRamp, share: Array) -> Array:
    start, end = map(np.array, ramp)
    # A last axis for the three channels.
    weight = share[..., None]
    mixed: Array = (1 - weight) * start + weight * end
    return mixed


def _to_palette(colors: Image.Image) -> Image.Image:
    """Reduce a heat map to 64 tones per sign, which makes the PNG ten times smaller.

    The opacity determines the tone. The colour tells the sign: only negative relevance has more blue than red.
    """
    image = Image.fromarray(_to_bytes(_palette_indices(colors)), "P")
    opacity = np.linspace(0, 1, PALETTE_TONES)
    image.putpalette(_build_palette(opacity))
    # The PNG writer takes one opacity per colour from here; both signs have the same ones.
    image.info["transparency"] = 2 * _to_alpha(opacity)
    return image


def _to_alpha(opacity: Array) -> bytes:
    return bytes(round(255 * value) for value in opacity)


def _palette_indices(colors: Image.Image) -> Array:
    red, _, blue, alpha = np.moveaxis(np.asarray(colors), -1, 0)
    tone = (alpha / 255 * (PALETTE_TONES - 1)).round()
    indices: Array = tone + PALETTE_TONES * (blue > red)
    return indices


def _build_palette(opacity: Array) -> bytes:
    """Return the colours of both signs at each opacity."""
    # The inverse of how `render_colors` computes the opacity.
    relevance = opacity ** (1 / OPACITY_EXPONENT)
    palette = np.concatenate([_interpolate(WARM, relevance), _interpolate(COLD, relevance)])
    return _to_bytes(palette).tobytes()


def draw_outline(explanation: Explanation, *, top: float = OUTLINED_PERCENT, smooth: bool = True) -> Image.Image:
    """Draw a white line in a black one around the `top` per cent most relevant of what the model saw.

    If not smooth, the line follows the borders of whole patches.
    """
    require_number("top", top, 0, 100)
    relevance = _map_relevance(explanation, smooth)
    # Pixels that the model did not see count neither for the percentile nor as inside.
    inside = np.nan_to_num(relevance, nan=-np.inf) >= _threshold(relevance, top)
    return draw_border(inside)


def _threshold(relevance: Array, top: float) -> float:
    return float(np.percentile(relevance[~np.isnan(relevance)], 100 - top))


def original_image(explanation: Explanation) -> Image.Image:
    """Return the image, or a grey one of its size if the input was a tensor."""
    if explanation.image is not None:
        return explanation.image.convert("RGB")
    height, width = explanation.heatmap().shape
    return Image.new("RGB", (width, height), GREY)


def desaturate(explanation: Explanation) -> Image.Image:
    """Return the image almost without colour, so that colour means relevance."""
    image = original_image(explanation)
    return Image.blend(image, image.convert("L").convert("RGB"), DESATURATION)


def overlay(
    explanation: Explanation,
    *,
    opacity: float = DEFAULT_OPACITY,
    smooth: bool = True,
    top: float | None = None,
    full: float | None = None,
) -> Image.Image:
    """Draw the heat map over the image at its original size.

    `smooth=False` shows exact patches, `top` outlines that per cent of the image, `full` is the relevance of the full
    colour.
    """
    require_number("opacity", opacity, 0, 1)
    canvas = _background_image(explanation, opacity).convert("RGBA")
    colors = render_colors(explanation, smooth=smooth, full=full)
    canvas.alpha_composite(_scale_opacity(colors, opacity))
    if top is not None:
        canvas.alpha_composite(draw_outline(explanation, top=top, smooth=smooth))
    return canvas.convert("RGB")


def _background_image(explanation: Explanation, opacity: float) -> Image.Image:
    # Without a heat map there is no colour that the photo's own could be mistaken for.
    if opacity == 0:
        return original_image(explanation)
    return desaturate(explanation)


def _scale_opacity(colors: Image.Image, opacity: float) -> Image.Image:
    alpha = colors.getchannel("A").point(lambda value: round(value * opacity))
    colors.putalpha(alpha)
    return colors


def render_figure(explanation: Explanation, scale: Scale) -> str:
    """Render image, heat maps and outlines as stacked layers, switched by form controls without a script."""
    # Shrinking before drawing is much faster for large photos. The second shrink covers inputs without an image.
    explanation = shrink(explanation, MAX_PAGE_SIDE)
    image = shrink_image(original_image(explanation))
    photo = _render_photo(explanation, image, scale)
    layers = _render_layers(_encode_layers(explanation, scale), image.size)
    return f'<div class="ch-figure"><div class="ch-stack">{photo}{layers}</div>{_render_controls()}</div>'


def _render_layers(urls: Mapping[str, str], size: tuple[int, int]) -> str:
    # The photo has the description for all of them.
    return "".join(html_parts.render_image(url, size, "", css) for css, url in urls.items())


def _render_photo(explanation: Explanation, image: Image.Image, scale: Scale) -> str:
    url = encode_data_url(image, "JPEG")
    return html_parts.render_image(url, image.size, describe(explanation, scale), "ch-photo")


def _encode_layers(explanation: Explanation, scale: Scale) -> dict[str, str]:
    """Return the URLs of heat maps and outlines by their CSS classes, from bottom to top."""
    urls = {}
    for css, smooth in LAYERS.items():
        urls[f"ch-heat {css}"] = _encode_colors(explanation, smooth, _find_full(explanation, scale, smooth))
    for css, smooth in LAYERS.items():
        urls[f"ch-outline {css}"] = _encode_outline(explanation, smooth)
    return urls


def encode_heat(explanation: Explanation, full: float | None) -> str:
    """Return the URL of a smooth heat map without the image; `full` is the relevance of the full colour."""
    return _encode_colors(explanation, True, full)


def _encode_colors(explanation: Explanation, smooth: bool, full: float | None) -> str:
    colors = shrink_image(render_colors(explanation, smooth=smooth, full=full))
    return encode_data_url(_to_palette(colors), "PNG")


def _encode_outline(explanation: Explanation, smooth: bool) -> str:
    outline = shrink_image(draw_outline(explanation, smooth=smooth))
    # Black, white, transparent and a few blends between them.
    return encode_data_url(outline.quantize(16, Image.Quantize.FASTOCTREE), "PNG")


def describe(explanation: Explanation, scale: Scale | None = None) -> str:
    """Return the text alternative of a heat map; its number is on the scale of the explanation, or on another."""
    _, _, relevance = _strongest_patch(explanation)
    return (
        f"Photo with a heat map for {explanation.label}. The strongest patch, "
        f"{(scale or make_scale(explanation)).format(relevance)}, is at the {describe_strongest(explanation)}."
    )


def describe_strongest(explanation: Explanation) -> str:
    """Return where the strongest patch is, in words and numbers."""
    row, column, _ = _strongest_patch(explanation)
    return _describe_position(row, column, *_grid_shape(explanation))


def _describe_position(row: int, column: int, rows: int, columns: int) -> str:
    # Words for those who imagine the photo, numbers for those who compare explanations.
    position = f"{_name_third(VERTICAL, row, rows)} {_name_third(HORIZONTAL, column, columns)}"
    return f"{position}: row {row + 1} of {rows}, column {column + 1} of {columns}"


def _strongest_patch(explanation: Explanation) -> tuple[int, int, float]:
    """Return row, column and relevance of the patch with the largest absolute relevance."""
    grid = _patch_grid(explanation)
    row, column = divmod(int(np.abs(grid).argmax()), grid.shape[1])
    return row, column, float(grid[row, column])


def _name_third(names: Sequence[str], index: int, count: int) -> str:
    return names[3 * index // count]


def _render_controls() -> str:
    options = "".join(map(_render_opacity_option, OPACITY_CHOICES))
    return (
        f'<label>Opacity <select class="ch-opacity" autocomplete="off">{options}</select></label>'
        '<label><input type="checkbox" class="ch-patches"> Exact patches</label>'
        f'<label><input type="checkbox" class="ch-contour"> Outline the top {OUTLINED_PERCENT:g} %</label>'
    )


def _render_opacity_option(percent: int) -> str:
    selected = " selected" if percent == 100 * DEFAULT_OPACITY else ""
    return f'<option value="{percent}"{selected}>{percent} %</option>'


def render_legend(explanation: Explanation, scale: Scale) -> str:
    """Render what the colours over an image, and its numbers, mean."""
    finest = scale_pixels(explanation, scale)
    negative = ""
    if finest.signed:
        negative = f'<span>against {finest.format(-finest.full)} or more</span><i class="ch-cold"></i>'
    # "or more", because the full colour stands for everything above it, too.
    label = html_parts.escape(explanation.label)
    positive = f'<i class="ch-warm"></i><span>{finest.format(finest.full)} or more for {label}</span>'
    caption = html_parts.render_faint(finest.caption)
    return f'<p class="ch-legend">{negative}<span>0</span>{positive}</p>{caption}'


def shrink(explanation: Explanation, max_side: int) -> Explanation:
    """Return the explanation over an image of at most `max_side` pixels a side, which is faster to draw."""
    image = explanation.image
    if image is None or explanation.box is None or max(image.size) <= max_side:
        return explanation
    small = shrink_image(original_image(explanation), max_side)
    # Width and height are rounded to whole pixels, so their scales may differ.
    box = _scale_box(explanation.box, small.width / image.width, small.height / image.height)
    return replace(explanation, image=small, box=box)


def _scale_box(box: Edges, horizontal: float, vertical: float) -> Edges:
    left, top, right, bottom = box
    return left * horizontal, top * vertical, right * horizontal, bottom * vertical


def shrink_image(image: Image.Image, max_side: int = MAX_PAGE_SIDE) -> Image.Image:
    """Return the image with at most `max_side` pixels a side."""
    scale = min(1.0, max_side / max(image.size))
    if scale == 1:
        return image
    size = (_scale_side(image.width, scale), _scale_side(image.height, scale))
    return image.resize(size, Image.Resampling.BILINEAR)


def _scale_side(side: int, scale: float) -> int:
    # A very long and narrow image would otherwise lose its short side.
    return max(1, round(side * scale))


def encode_data_url(image: Image.Image, image_format: str) -> str:
    """Encode an image as JPEG or PNG inside a URL, so that the page loads nothing."""
    content = base64.b64encode(encode(image, image_format)).decode()
    return f"data:image/{image_format.casefold()};base64,{content}"


def encode(image: Image.Image, image_format: str) -> bytes:
    """Encode an image as JPEG or PNG."""
    buffer = io.BytesIO()
    image.save(buffer, image_format, **SAVE_OPTIONS[image_format])
    return buffer.getvalue()
