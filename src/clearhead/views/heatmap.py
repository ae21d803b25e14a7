"""Heat maps over an image: smooth or exact per patch, with an outline of the most relevant area."""

import base64
import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.validation import require_number
from clearhead.views import html_parts
from clearhead.views.captions import format_relevance
from clearhead.views.color import Rgb

ColorRamp = tuple[Rgb, Rgb]

WARM: ColorRamp = ((255, 205, 70), (226, 84, 0))
COLD: ColorRamp = ((150, 205, 255), (16, 84, 200))
DEFAULT_OPACITY = 0.75
OPACITY_CHOICES = (0, 25, 50, 75, 100)
OUTLINED_PERCENT = 20.0
DESATURATION = 0.9
# Opacity grows as relevance ** 0.8, so that weak relevance is still visible.
OPACITY_EXPONENT = 0.8
FULL_COLOR_PERCENTILE = 98
MAX_PAGE_SIDE = 640
PALETTE_TONES = 64
JPEG_QUALITY = 85
VERTICAL = ("top", "middle", "bottom")
HORIZONTAL = ("left", "centre", "right")
# CSS class of the two layers that a page can switch between, and whether the layer is smooth.
LAYERS = {"ch-smooth": True, "ch-exact": False}


def full_scale(explanation: Explanation) -> float:
    """Return the absolute relevance of the full colour: the 98th percentile over patches or pixels.

    Image maps have a few outliers; scaled to the largest value everything else would look empty.
    """
    source = explanation.pixels
    if source is None:
        source = explanation.relevance[~explanation.special]
    sizes = np.abs(source[np.isfinite(source)])
    if not sizes.size:
        return 0.0
    # The percentile is 0 if fewer than two in a hundred patches have any relevance; then the largest value is used.
    return float(np.percentile(sizes, FULL_COLOR_PERCENTILE) or sizes.max())


def scale_relevance(explanation: Explanation, *, smooth: bool = True, full: float | None = None) -> Array:
    """Return relevance over the original image scaled to −1 … 1; NaN where the model did not see the image."""
    if full is not None:
        require_number("full", full, 0)
    divisor = full or full_scale(explanation) or 1.0
    return np.clip(_map_relevance(explanation, smooth) / divisor, -1, 1)


def _map_relevance(explanation: Explanation, smooth: bool) -> Array:
    return explanation.heatmap() if smooth else _map_patches(explanation)


def _map_patches(explanation: Explanation) -> Array:
    """Give every pixel the relevance of the patch it lies in."""
    smooth = explanation.heatmap()
    height, width = smooth.shape
    left, top, right, bottom = explanation.box or (0, 0, width, height)
    grid = _patch_grid(explanation)
    rows = _patch_indices(height, top, bottom, grid.shape[0])
    columns = _patch_indices(width, left, right, grid.shape[1])
    return np.where(np.isnan(smooth), np.nan, grid[rows][:, columns].astype(float))


def _patch_grid(explanation: Explanation) -> Array:
    return explanation.relevance[~explanation.special].reshape(explanation.grid or (1, 1))


def _patch_indices(pixels: int, start: float, end: float, patches: int) -> Array:
    """Return the patch of each pixel along one axis; pixels outside the box get the nearest patch."""
    # The centre of a pixel decides which patch it belongs to.
    shares = (np.arange(pixels) + 0.5 - start) / (end - start)
    indices: Array = np.clip(shares * patches, 0, patches - 1).astype(int)
    return indices


def render_colors(explanation: Explanation, *, smooth: bool = True, full: float | None = None) -> Image.Image:
    """Return the heat map without the image; opacity grows with relevance."""
    scaled = scale_relevance(explanation, smooth=smooth, full=full)
    # NaN, where the model did not see the image, becomes fully transparent.
    size = np.nan_to_num(np.clip(np.abs(scaled), 0, 1))
    is_positive = np.nan_to_num(scaled)[..., None] >= 0
    colors = np.where(is_positive, _interpolate(WARM, size), _interpolate(COLD, size))
    opacity = 255 * size[..., None] ** OPACITY_EXPONENT
    return Image.fromarray(np.concatenate([colors, opacity], -1).round().astype(np.uint8), "RGBA")


def _interpolate(ramp: ColorRamp, share: Array) -> Array:
    start = np.array(ramp[0])
    end = np.array(ramp[1])
    mixed: Array = (1 - share[..., None]) * start + share[..., None] * end
    return mixed


def _to_palette(colors: Image.Image) -> Image.Image:
    """Reduce a heat map to 64 tones per sign, which makes the PNG ten times smaller.

    The opacity determines the tone. The colour tells the sign: only negative relevance has more blue than red.
    """
    red, _, blue, alpha = np.moveaxis(np.asarray(colors), -1, 0)
    tone = (alpha / 255 * (PALETTE_TONES - 1)).round()
    indices = tone + PALETTE_TONES * (blue > red)
    opacity = np.linspace(0, 1, PALETTE_TONES)
    image = Image.fromarray(indices.astype(np.uint8), "P")
    image.putpalette(_build_palette(opacity))
    image.info["transparency"] = bytes(2 * [round(255 * value) for value in opacity])
    return image


def _build_palette(opacity: Array) -> bytes:
    """Return the colours of both signs at each opacity."""
    relevance = opacity ** (1 / OPACITY_EXPONENT)
    palette = np.concatenate([_interpolate(WARM, relevance), _interpolate(COLD, relevance)])
    return palette.round().astype(np.uint8).tobytes()


def draw_outline(explanation: Explanation, *, top: float = OUTLINED_PERCENT, smooth: bool = True) -> Image.Image:
    """Draw a white line in a black one around the `top` per cent most relevant of what the model saw.

    If not smooth, the line follows the borders of whole patches.
    """
    require_number("top", top, 0, 100)
    relevance = _map_relevance(explanation, smooth)
    # Pixels that the model did not see count neither for the percentile nor as inside.
    threshold = np.percentile(relevance[~np.isnan(relevance)], 100 - top)
    return draw_border(np.nan_to_num(relevance, nan=-np.inf) >= threshold)


def draw_border(inside: Array) -> Image.Image:
    """Draw a white line in a black one along the border of a region, transparent elsewhere."""
    # The line is about a quarter of a per cent of the image, so that it shows in large photos too.
    thickness = max(1, round(max(inside.shape) / 400))
    canvas = np.zeros((*inside.shape, 4), dtype=np.uint8)
    canvas[_border_mask(inside, 2 * thickness)] = (0, 0, 0, 255)
    canvas[_border_mask(inside, thickness)] = (255, 255, 255, 255)
    return Image.fromarray(canvas, "RGBA")


def _border_mask(inside: Array, distance: int) -> Array:
    """Return the pixels within `distance` of the border of a region, on either side."""
    grown = _dilate(inside, distance)
    shrunk = ~_dilate(~inside, distance)
    return grown & ~shrunk


def _dilate(inside: Array, distance: int) -> Array:
    """Grow a region by `distance` pixels in rows, then in columns."""
    return _dilate_rows(_dilate_rows(inside, distance).T, distance).T


def _dilate_rows(inside: Array, distance: int) -> Array:
    padded = np.pad(inside, [(distance, distance), (0, 0)])
    rows = len(inside)
    shifted = [padded[shift : shift + rows] for shift in range(2 * distance + 1)]
    grown: Array = np.logical_or.reduce(shifted)
    return grown


def original_image(explanation: Explanation) -> Image.Image:
    """Return the image, or a grey one of its size if the input was a tensor."""
    if explanation.image is not None:
        return explanation.image.convert("RGB")
    height, width = explanation.heatmap().shape
    return Image.new("RGB", (width, height), (128, 128, 128))


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
    # Without a heat map there is no colour that the photo's own could be mistaken for.
    image = desaturate(explanation) if opacity else original_image(explanation)
    canvas = image.convert("RGBA")
    colors = render_colors(explanation, smooth=smooth, full=full)
    colors.putalpha(colors.getchannel("A").point(lambda value: round(value * opacity)))
    canvas.alpha_composite(colors)
    if top is not None:
        canvas.alpha_composite(draw_outline(explanation, top=top, smooth=smooth))
    return canvas.convert("RGB")


def render_figure(explanation: Explanation, *, full: float | None = None) -> str:
    """Render image, heat maps and outlines as stacked layers, switched by form controls without a script."""
    # Shrinking before drawing is much faster for large photos. The second shrink covers inputs without an image.
    explanation = shrink(explanation, MAX_PAGE_SIDE)
    image = shrink_image(original_image(explanation))
    photo = html_parts.render_image(encode_data_url(image, "JPEG"), image.size, describe(explanation), "ch-photo")
    stack = [photo]
    for css, url in _encode_layers(explanation, full).items():
        stack.append(html_parts.render_image(url, image.size, "", css))
    return f'<div class="ch-figure"><div class="ch-stack">{"".join(stack)}</div>{_render_controls()}</div>'


def _encode_layers(explanation: Explanation, full: float | None) -> dict[str, str]:
    """Return the URLs of heat maps and outlines by their CSS classes, from bottom to top."""
    urls = {}
    for css, smooth in LAYERS.items():
        urls[f"ch-heat {css}"] = _encode_colors(explanation, smooth, full)
    for css, smooth in LAYERS.items():
        urls[f"ch-outline {css}"] = _encode_outline(explanation, smooth)
    return urls


def _encode_colors(explanation: Explanation, smooth: bool, full: float | None) -> str:
    colors = shrink_image(render_colors(explanation, smooth=smooth, full=full))
    return encode_data_url(_to_palette(colors), "PNG")


def _encode_outline(explanation: Explanation, smooth: bool) -> str:
    outline = shrink_image(draw_outline(explanation, smooth=smooth))
    # Black, white, transparent and a few blends between them.
    return encode_data_url(outline.quantize(16, Image.Quantize.FASTOCTREE), "PNG")


def describe(explanation: Explanation) -> str:
    """Return the text alternative of a heat map."""
    grid = _patch_grid(explanation)
    rows, columns = grid.shape
    row, column = divmod(int(np.abs(grid).argmax()), columns)
    relevance = format_relevance(float(grid[row, column]))
    position = f"{_name_third(VERTICAL, row, rows)} {_name_third(HORIZONTAL, column, columns)}"
    return (
        f"Photo with a heat map for {explanation.label}. The strongest patch, {relevance}, "
        f"is at the {position}: row {row + 1} of {rows}, column {column + 1} of {columns}."
    )


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


def render_legend(explanation: Explanation, full: float) -> str:
    """Render what the colours over an image mean."""
    negative = ""
    if (explanation.relevance[~explanation.special] < 0).any():
        negative = f'<span>against {format_relevance(-full)} or more</span><i class="ch-cold"></i>'
    label = html_parts.escape(explanation.label)
    positive = f'<i class="ch-warm"></i><span>{format_relevance(full)} or more for {label}</span>'
    return f'<p class="ch-legend">{negative}<span>0</span>{positive}</p>'


def shrink(explanation: Explanation, max_side: int) -> Explanation:
    """Return the explanation over an image of at most `max_side` pixels a side, which is faster to draw."""
    image = explanation.image
    if image is None or explanation.box is None or max(image.size) <= max_side:
        return explanation
    small = shrink_image(original_image(explanation), max_side)
    horizontal = small.width / image.width
    vertical = small.height / image.height
    left, top, right, bottom = explanation.box
    box = (left * horizontal, top * vertical, right * horizontal, bottom * vertical)
    return replace(explanation, image=small, box=box)


def shrink_image(image: Image.Image, max_side: int = MAX_PAGE_SIDE) -> Image.Image:
    """Return the image with at most `max_side` pixels a side."""
    scale = min(1.0, max_side / max(image.size))
    if scale == 1:
        return image
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.BILINEAR)


def encode_data_url(image: Image.Image, image_format: str) -> str:
    """Encode an image as JPEG or PNG inside a URL, so that the page loads nothing."""
    buffer = io.BytesIO()
    if image_format == "JPEG":
        image.save(buffer, image_format, quality=JPEG_QUALITY)
    else:
        image.save(buffer, image_format, optimize=True)
    content = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{image_format.casefold()};base64,{content}"
