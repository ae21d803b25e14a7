"""Fonts of this machine: which one has a character, how wide text is, and what replaces characters of no font."""

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby, starmap
from operator import itemgetter
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, features

from clearhead.errors import BadOption
from clearhead.views.color import LIGHT, Rgb
from clearhead.views.text_spans import JOINERS, escape_hidden

# Images are drawn at twice the layout's size, so that text is sharp on dense screens.
SCALE = 2
COVERAGE_SIZE = 32
PREFERRED_FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "LiberationSans-Regular.ttf",
    "Arial.ttf",
    "Arial Unicode.ttf",
    "segoeui.ttf",
)
EMOJI_FONTS = ("NotoColorEmoji.ttf", "Apple Color Emoji.ttc", "seguiemj.ttf")
FIRST_EMOJI = 0x1F000
# Fonts of coloured bitmaps open only at the sizes they contain.
BITMAP_SIZES = (109, 160, 136, 128, 96)
FONT_SUFFIXES = (".ttf", ".otf", ".ttc")
FONT_FOLDERS = {
    "linux": ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts"),
    "darwin": ("/System/Library/Fonts", "/Library/Fonts", "~/Library/Fonts"),
    "win32": ("C:/Windows/Fonts", "~/AppData/Local/Microsoft/Windows/Fonts"),
}
STYLED_FONT_WORDS = ("bold", "italic", "oblique", "mono", "light", "thin", "black", "condensed", "serif")
# Not assigned in Unicode, so every font draws its glyph for missing characters.
UNASSIGNED = "\U0010fffd"
GLYPH_CANVAS = 200
# Joiners and variation selectors change the character before them and have no glyph of their own.
WITHOUT_GLYPH = (*JOINERS, *map(chr, range(0xFE00, 0xFE10)))
RIGHT_TO_LEFT = ("R", "AL")
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class Face:
    """A font, the factor that scales it to the requested size, and whether its glyphs are coloured."""

    font: Font
    scale: float = 1.0
    colored: bool = False

    def length(self, text: str) -> float:
        """Return the width of the text in pixels."""
        return float(self.font.getlength(text)) * self.scale


FaceLoader = Callable[[int], tuple[Face, ...]]


@cache
def load_preferred_faces(size: int) -> tuple[Face, ...]:
    """Open the fonts that are tried first; Pillow's own is the last of them, so there is always one."""
    # Pillow searches the font folders of the system for a file of this name.
    faces = _open_faces(PREFERRED_FONTS, size)
    return (*faces, Face(ImageFont.load_default(size)))


@cache
def _load_emoji_faces(size: int) -> tuple[Face, ...]:
    return tuple(_open_faces(EMOJI_FONTS, size, _open_color_face))


@cache
def _load_installed_faces(size: int) -> tuple[Face, ...]:
    """Open every other installed font that is upright and of regular weight."""
    # Sorted, so that the same machine always picks the same font.
    files = sorted(filter(_is_regular, _find_font_files()))
    return tuple(_open_faces(map(str, files), size))


def _find_font_files() -> Iterator[Path]:
    for folder in FONT_FOLDERS.get(sys.platform, FONT_FOLDERS["linux"]):
        for file in Path(folder).expanduser().rglob("*"):
            if file.suffix in FONT_SUFFIXES:
                yield file


def _is_regular(file: Path) -> bool:
    name = file.name.casefold()
    return not any(word in name for word in STYLED_FONT_WORDS)


def _open_face(name: str, size: int) -> Face | None:
    """Open a font by file name; None if it is not installed or has no such size."""
    try:
        return Face(ImageFont.truetype(name, size))
    except OSError:
        return None


def _open_color_face(name: str, size: int) -> Face | None:
    for bitmap_size in (size, *BITMAP_SIZES):
        face = _open_face(name, bitmap_size)
        if face is not None:
            return Face(face.font, size / bitmap_size, colored=True)
    return None


def _open_faces(
    names: Iterable[str], size: int, open_face: Callable[[str, int], Face | None] = _open_face
) -> Iterator[Face]:
    """Open those of the fonts that are installed."""
    for name in names:
        face = open_face(name, size)
        if face is not None:
            yield face


@cache
def _find_face(character: str, size: int) -> Face | None:
    """Return the first font that has the character; None if no font has it."""
    # Installed fonts are opened only if no other font has the character: there may be hundreds.
    for load_faces in _order_loaders(character):
        for face in load_faces(size):
            if _has_glyph(face, character):
                return face
    return None


def _order_loaders(character: str) -> tuple[FaceLoader, ...]:
    # Text fonts have some emoji too, but without colour.
    if ord(character) >= FIRST_EMOJI:
        return _load_emoji_faces, load_preferred_faces, _load_installed_faces
    return load_preferred_faces, _load_emoji_faces, _load_installed_faces


@cache
def _has_glyph(face: Face, character: str) -> bool:
    # Pillow does not expose a font's character table, so the drawing is compared with that of a missing character.
    return character.isspace() or _draw_glyph(face, character) != _draw_glyph(face, UNASSIGNED)


def _draw_glyph(face: Face, character: str) -> bytes:
    image = _new_glyph_canvas(face)
    # Away from the left edge, because some glyphs extend to the left of their position.
    position = (GLYPH_CANVAS // 3, 0)
    font = _without_shaping(face.font)
    ImageDraw.Draw(image).text(position, character, fill="white", font=font, embedded_color=face.colored)
    return image.tobytes()


def _new_glyph_canvas(face: Face) -> Image.Image:
    mode = "RGBA" if face.colored else "L"
    return Image.new(mode, (GLYPH_CANVAS, GLYPH_CANVAS))


def _without_shaping(font: Font) -> Font:
    # Raqm's shaping may combine or replace characters; the basic layout draws exactly one glyph.
    if isinstance(font, ImageFont.FreeTypeFont):
        return font.font_variant(layout_engine=ImageFont.Layout.BASIC)
    return font


def replace_missing_glyphs(text: str) -> str:
    """Return the text with a name, such as ⟨woman⟩ or ⟨U+8FD9⟩, for each character that no font here has."""
    _check_direction(text)
    return "".join(starmap(_spell, _assign_faces(escape_hidden(text), COVERAGE_SIZE)))


def _check_direction(text: str) -> None:
    if _is_right_to_left(text) and not features.check("raqm"):
        raise BadOption("This text reads from right to left, which Pillow cannot set here. Use .html instead.")


def _spell(character: str, face: Face | None) -> str:
    if face is None:
        return _format_missing_glyph(character)
    return character


def has_all_glyphs(text: str) -> bool:
    """Return whether the fonts here have every character of the text."""
    return all(face for _, face in _assign_faces(escape_hidden(text), COVERAGE_SIZE))


def _is_right_to_left(text: str) -> bool:
    return any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text)


def _assign_faces(text: str, size: int) -> Iterator[tuple[str, Face | None]]:
    """Iterate over each character and its font; marks, joiners and variants use that of the character before them."""
    default = _default_face(size)
    face: Face | None = default
    for character in text:
        if _needs_no_glyph(character):
            yield character, face or default
        elif _is_mark(character):
            # A mark is drawn onto the character before it, so it needs the same font.
            yield character, _if_drawable(face, character)
        else:
            face = _find_face(character, size)
            yield character, face


def _needs_no_glyph(character: str) -> bool:
    return character == " " or character in WITHOUT_GLYPH


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _is_symbol(character: str) -> bool:
    return unicodedata.category(character).startswith("S")


def _default_face(size: int) -> Face:
    return load_preferred_faces(size)[0]


def _if_drawable(face: Face | None, character: str) -> Face | None:
    if face is not None and _has_glyph(face, character):
        return face
    return None


def _format_missing_glyph(character: str) -> str:
    return f"⟨{_name_symbol(character) or f'U+{ord(character):04X}'}⟩"


def _name_symbol(character: str) -> str:
    # Names of symbols say what they show; those of letters are long and say no more than the code point.
    if not _is_symbol(character):
        return ""
    return unicodedata.name(character, "").casefold()


def _split_by_face(text: str, size: int) -> list[tuple[str, Face]]:
    """Split the text into stretches of one font, from left to right."""
    default = _default_face(size)
    # Characters of no font are drawn with the default one, as part of the text around them.
    characters = ((character, face or default) for character, face in _assign_faces(text, size))
    stretches = _merge_by_face(characters)
    # Raqm orders the characters inside a stretch; the stretches themselves are ordered here.
    if _is_right_to_left(text):
        stretches.reverse()
    return stretches


def _merge_by_face(characters: Iterable[tuple[str, Face]]) -> list[tuple[str, Face]]:
    return [(_join_characters(group), face) for face, group in groupby(characters, key=itemgetter(1))]


def _join_characters(characters: Iterable[tuple[str, Face]]) -> str:
    return "".join(character for character, _ in characters)


def measure_text(text: str, size: int) -> float:
    """Return the width of the text in the units of the layout."""
    widths = [face.length(stretch) for stretch, face in _split_by_face(text, size * SCALE)]
    return sum(widths) / SCALE


def draw_text(image: Image.Image, position: tuple[float, float], text: str, size: int, ink: Rgb = LIGHT.ink) -> None:
    """Draw text on an image that is `SCALE` times as large as the layout, from a position on its baseline."""
    x, y = position[0] * SCALE, position[1] * SCALE
    for stretch, face in _split_by_face(text, size * SCALE):
        _draw_stretch(image, (x, y), stretch, face, ink)
        x += face.length(stretch)


def _draw_stretch(image: Image.Image, position: tuple[float, float], text: str, face: Face, ink: Rgb) -> None:
    if face.colored:
        _paste_color_glyphs(image, position, text, face)
    else:
        # The anchor "ls" is the left end of the baseline.
        ImageDraw.Draw(image).text(position, text, fill=ink, font=face.font, anchor="ls")


def _paste_color_glyphs(image: Image.Image, position: tuple[float, float], text: str, face: Face) -> None:
    """Draw coloured bitmaps at the size they have, then scale and paste them."""
    glyphs, left, top = _draw_color_glyphs(text, face)
    small = _scale_glyphs(glyphs, face.scale)
    x = round(position[0] + left * face.scale)
    y = round(position[1] + top * face.scale)
    # The glyphs are their own mask, so that their transparent pixels leave the image as it is.
    image.paste(small, (x, y), small)


def _scale_glyphs(glyphs: Image.Image, scale: float) -> Image.Image:
    # Pillow does not resize to nothing.
    width = max(1, round(glyphs.width * scale))
    height = max(1, round(glyphs.height * scale))
    return glyphs.resize((width, height), Image.Resampling.LANCZOS)


def _draw_color_glyphs(text: str, face: Face) -> tuple[Image.Image, int, int]:
    """Return the unscaled glyphs and the position of their left top corner relative to the baseline's start."""
    left, top, right, bottom = map(round, face.font.getbbox(text, anchor="ls"))
    canvas = _new_canvas(right - left, bottom - top)
    ImageDraw.Draw(canvas).text((-left, -top), text, font=face.font, anchor="ls", embedded_color=True)
    return canvas, left, top


def _new_canvas(width: int, height: int) -> Image.Image:
    # Spaces and joiners have no extent, but an image needs one.
    return Image.new("RGBA", (max(1, width), max(1, height)))
