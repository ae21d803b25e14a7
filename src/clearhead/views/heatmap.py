"""Heat maps over a photo: patch-exact or smooth, with an outline of the strongest part."""

import base64
import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from PIL import Image

from clearhead.arrays import Array
from clearhead.explanation import Explanation
from clearhead.validation import require_number
from clearhead.views import html_parts as markup
from clearhead.views.captions import number
from clearhead.views.color import Rgb

WARM: tuple[Rgb, Rgb] = ((255, 205, 70), (226, 84, 0))
COLD: tuple[Rgb, Rgb] = ((150, 205, 255), (16, 84, 200))
OPACITY = 0.75
OUTLINE = 20.0
GREY = 0.9
FADE = 0.8
STRONG = 98
SHOWN = 640
TONES = 64
LOOKS = {"ch-smooth": True, "ch-exact": False}


def full_of(explanation: Explanation) -> float:
    """What the full colour stands for: the size that only two in a hundred patches or pixels exceed.

    Maps of images have a few outliers; on a scale up to the largest all others would look empty.
    """
    source = explanation.relevance[~explanation.special] if explanation.pixels is None else explanation.pixels
    sizes = np.abs(source[np.isfinite(source)])
    return float(np.percentile(sizes, STRONG) or sizes.max()) if sizes.size else 0.0


def shares(explanation: Explanation, *, smooth: bool = True, full: float | None = None) -> Array:
    """Relevance over the original picture on the scale −1 … 1; NaN where the model did not look."""
    if full is not None:
        require_number("full", full, 0)
    return np.clip(_placed(explanation, smooth) / (full or full_of(explanation) or 1.0), -1, 1)


def _placed(explanation: Explanation, smooth: bool) -> Array:
    """Relevance over the original picture; NaN where the model did not look."""
    return explanation.heatmap() if smooth else _patches(explanation)


def _patches(explanation: Explanation) -> Array:
    """Every pixel has the relevance of the patch it lies in."""
    smooth = explanation.heatmap()
    rows, columns = explanation.grid or (1, 1)
    left, top, right, bottom = explanation.box or (0, 0, *smooth.shape[::-1])
    grid = explanation.relevance[~explanation.special].reshape(rows, columns)
    down = np.clip((np.arange(smooth.shape[0]) + 0.5 - top) / (bottom - top) * rows, 0, rows - 1).astype(int)
    across = np.clip((np.arange(smooth.shape[1]) + 0.5 - left) / (right - left) * columns, 0, columns - 1).astype(int)
    return np.where(np.isnan(smooth), np.nan, grid[down][:, across].astype(float))


def veil(explanation: Explanation, *, smooth: bool = True, full: float | None = None) -> Image.Image:
    """The colours alone, the more opaque the more relevant."""
    return _colored(shares(explanation, smooth=smooth, full=full))


def _colored(share: Array) -> Image.Image:
    size = np.nan_to_num(np.clip(np.abs(share), 0, 1))
    warm, cold = (_ramp(size, ends) for ends in (WARM, COLD))
    colors = np.where(np.nan_to_num(share)[..., None] >= 0, warm, cold)
    return Image.fromarray(np.concatenate([colors, 255 * size[..., None] ** FADE], -1).round().astype(np.uint8), "RGBA")


def _ramp(size: Array, ends: tuple[Rgb, Rgb]) -> Array:
    mixed: Array = (1 - size[..., None]) * np.array(ends[0]) + size[..., None] * np.array(ends[1])
    return mixed


def _indexed(colors: Image.Image) -> Image.Image:
    """A veil in 64 tones of each sign, which its opacity tells apart: a tenth of the bytes."""
    pixels = np.asarray(colors)
    tones = np.linspace(0, 1, TONES)
    places = (pixels[..., 3] / 255 * (TONES - 1)).round() + TONES * (pixels[..., 2] > pixels[..., 0])
    image = Image.fromarray(places.astype(np.uint8), "P")
    palette = np.concatenate([_ramp(tones ** (1 / FADE), ends) for ends in (WARM, COLD)])
    image.putpalette(palette.round().astype(np.uint8).tobytes())
    image.info["transparency"] = bytes(2 * [round(255 * tone) for tone in tones])
    return image


def outline(explanation: Explanation, *, top: float = OUTLINE, smooth: bool = True) -> Image.Image:
    """A line, white in black, around the `top` per cent most relevant of what the model saw.

    Not smooth, it goes around whole patches.
    """
    require_number("top", top, 0, 100)
    placed = _placed(explanation, smooth)
    seen = placed[~np.isnan(placed)]
    return edge_of(np.nan_to_num(placed, nan=-np.inf) >= np.percentile(seen, 100 - top))


def edge_of(inside: Array) -> Image.Image:
    """A white line in a black one along the border of a region."""
    thick = max(1, round(max(inside.shape) / 400))
    white, black = _edge(inside, thick), _edge(inside, 2 * thick)
    canvas = np.zeros((*inside.shape, 4), dtype=np.uint8)
    canvas[black] = (0, 0, 0, 255)
    canvas[white] = (255, 255, 255, 255)
    return Image.fromarray(canvas, "RGBA")


def _edge(inside: Array, thick: int) -> Array:
    """Pixels within `thick` of the border between inside and outside."""
    return _grown(inside, thick) & ~_shrunk(inside, thick)


def _grown(inside: Array, by: int) -> Array:
    for axis in (0, 1):
        padded = np.pad(inside, [(by, by) if one == axis else (0, 0) for one in (0, 1)])
        windows = [np.take(padded, range(shift, shift + inside.shape[axis]), axis) for shift in range(2 * by + 1)]
        inside = np.logical_or.reduce(windows)
    return inside


def _shrunk(inside: Array, by: int) -> Array:
    return ~_grown(~inside, by)


def photograph(explanation: Explanation) -> Image.Image:
    """The picture itself, or a grey one of its size where only tensors were given."""
    if explanation.image is not None:
        return explanation.image.convert("RGB")
    height, width = explanation.heatmap().shape
    return Image.new("RGB", (width, height), (128, 128, 128))


def greyed(explanation: Explanation) -> Image.Image:
    """The photo with little colour of its own, so that colour means relevance."""
    picture = photograph(explanation)
    return Image.blend(picture, picture.convert("L").convert("RGB"), GREY)


def overlay(
    explanation: Explanation,
    *,
    opacity: float = OPACITY,
    smooth: bool = True,
    top: float | None = None,
    full: float | None = None,
) -> Image.Image:
    """The photo at its original size under the heat map; `top` outlines that per cent of it."""
    require_number("opacity", opacity, 0, 1)
    canvas = (greyed(explanation) if opacity else photograph(explanation)).convert("RGBA")
    colors = veil(explanation, smooth=smooth, full=full)
    colors.putalpha(colors.getchannel("A").point(lambda value: round(value * opacity)))
    canvas.alpha_composite(colors)
    if top is not None:
        canvas.alpha_composite(outline(explanation, top=top, smooth=smooth))
    return canvas.convert("RGB")


# --- inside a page ---------------------------------------------------------------------------------------------


def figure(explanation: Explanation, *, full: float | None = None) -> str:
    """Photo and heat map as layers, with opacity, patches and outline to choose; no script."""
    explanation = fitted(explanation, SHOWN)
    shown = small(photograph(explanation))
    layers = {"ch-photo": data_url(shown, "JPEG")}
    layers |= {f"ch-heat {css}": _heat_url(explanation, smooth, full) for css, smooth in LOOKS.items()}
    layers |= {f"ch-outline {css}": _outline_url(explanation, smooth) for css, smooth in LOOKS.items()}
    said = {"ch-photo": description(explanation)}
    images = "".join(markup.image(url, shown.size, said.get(css, ""), css) for css, url in layers.items())
    return f'<div class="ch-figure"><div class="ch-stack">{images}</div>{_controls()}</div>'


def _heat_url(explanation: Explanation, smooth: bool, full: float | None) -> str:
    return data_url(_indexed(small(veil(explanation, smooth=smooth, full=full))), "PNG")


def _outline_url(explanation: Explanation, smooth: bool) -> str:
    drawn = small(outline(explanation, smooth=smooth))
    return data_url(drawn.quantize(16, Image.Quantize.FASTOCTREE), "PNG")


def description(explanation: Explanation) -> str:
    """The picture for those who cannot see it."""
    rows, columns = explanation.grid or (1, 1)
    grid = explanation.relevance[~explanation.special].reshape(rows, columns)
    row, column = divmod(int(np.abs(grid).argmax()), columns)
    height, width = ("top", "middle", "bottom")[3 * row // rows], ("left", "centre", "right")[3 * column // columns]
    return (
        f"Photo with a heat map for {explanation.label}. The strongest patch, {number(float(grid[row, column]))}, "
        f"is at the {height} {width}: row {row + 1} of {rows}, column {column + 1} of {columns}."
    )


def _controls() -> str:
    choices = "".join(
        f'<option value="{value}"{" selected" if value == 75 else ""}>{value} %</option>'
        for value in (0, 25, 50, 75, 100)
    )
    return (
        f'<label>Opacity <select class="ch-opacity" autocomplete="off">{choices}</select></label>'
        '<label><input type="checkbox" class="ch-patches"> Exact patches</label>'
        f'<label><input type="checkbox" class="ch-contour"> Outline the top {OUTLINE:g} %</label>'
    )


def legend(full: float, label: str, signed: bool) -> str:
    """What the colours over a photo mean."""
    below = f'<span>against {number(-full)} or more</span><i class="ch-cold"></i>' if signed else ""
    above = f'<i class="ch-warm"></i><span>{number(full)} or more for {markup.escape(label)}</span>'
    return f'<p class="ch-legend">{below}<span>0</span>{above}</p>'


def fitted(explanation: Explanation, largest: int) -> Explanation:
    """The same over a photo of at most so many pixels a side, which is quick to draw."""
    if explanation.image is None or explanation.box is None or max(explanation.image.size) <= largest:
        return explanation
    shown = small(photograph(explanation), largest)
    across, down = (new / old for new, old in zip(shown.size, explanation.image.size, strict=True))
    left, top, right, bottom = explanation.box
    return replace(explanation, image=shown, box=(left * across, top * down, right * across, bottom * down))


def small(image: Image.Image, largest: int = SHOWN) -> Image.Image:
    """No larger than a page needs."""
    scale = min(1.0, largest / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image if scale == 1 else image.resize(size, Image.Resampling.BILINEAR)


def data_url(image: Image.Image, kind: str) -> str:
    """The picture inside the page, so that nothing is fetched."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **({"quality": 85} if kind == "JPEG" else {"optimize": True}))
    return f"data:image/{kind.casefold()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def is_signed(explanations: Sequence[Explanation]) -> bool:
    return any(bool((one.relevance[~one.special] < 0).any()) for one in explanations)
