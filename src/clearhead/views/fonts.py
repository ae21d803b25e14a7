"""Fonts of this machine: which one has a character, how wide text is, and what replaces characters of no font."""

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
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


@dataclass(frozen=True)
class Face:
    """A font, the factor that scales it to the requested size, and whether its glyphs are coloured."""

    font: ImageFont.FreeTypeFont | ImageFont.ImageFont
    scale: float = 1.0
    colored: bool = False

    def length(self, text: str) -> float:
        """Return the width of the text in pixels."""
        return float(self.font.getlength(text)) * self.scale


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
    files = [str(file) for file in sorted(_find_font_files()) if _is_regular(file)]
    return tuple(_open_faces(files, size))


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
    loaders = [load_preferred_faces, _load_emoji_faces, _load_installed_faces]
    if ord(character) >= FIRST_EMOJI:
        # Text fonts have some emoji too, but without colour.
        loaders = [_load_emoji_faces, load_preferred_faces, _load_installed_faces]
    # Installed fonts are opened only if no other font has the character: there may be hundreds.
    for load_faces in loaders:
        for face in load_faces(size):
            if _has_glyph(face, character):
                return face
    return None


@cache
def _has_glyph(face: Face, character: str) -> bool:
    # Pillow does not expose a font's character table, so the drawing is compared with that of a missing character.
    return character.isspace() or _draw_glyph(face, character) != _draw_glyph(face, UNASSIGNED)


def _draw_glyph(face: Face, character: str) -> bytes:
    font = face.font
    # Raqm's shaping may combine or replace characters; the basic layout draws exactly one glyph.
    if isinstance(font, ImageFont.FreeTypeFont):
        font = font.font_variant(layout_engine=ImageFont.Layout.BASIC)
    mode = "RGBA" if face.colored else "L"
    image = Image.new(mode, (GLYPH_CANVAS, GLYPH_CANVAS))
    draw = ImageDraw.Draw(image)
    # Away from the left edge, because some glyphs extend to the left of their position.
    draw.text((GLYPH_CANVAS // 3, 0), character, fill="white", font=font, embedded_color=face.colored)
    return image.tobytes()


def replace_missing_glyphs(text: str) -> str:
    """Return the text with a name, such as ⟨woman⟩ or ⟨U+8FD9⟩, for each character that no font here has."""
    if _is_right_to_left(text) and not features.check("raqm"):
        raise BadOption("This text reads from right to left, which Pillow cannot set here. Use .html instead.")
    characters = []
    for character, face in _assign_faces(escape_hidden(text), COVERAGE_SIZE):
        if face is None:
            character = _format_missing_glyph(character)
        characters.append(character)
    return "".join(characters)


def has_all_glyphs(text: str) -> bool:
    """Return whether the fonts here have every character of the text."""
    return all(face for _, face in _assign_faces(escape_hidden(text), COVERAGE_SIZE))


def _is_right_to_left(text: str) -> bool:
    return any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text)


def _assign_faces(text: str, size: int) -> Iterator[tuple[str, Face | None]]:
    """Iterate over each character and its font; marks, joiners and variants use that of the character before them."""
    default = load_preferred_faces(size)[0]
    face: Face | None = default
    for character in text:
        if character in WITHOUT_GLYPH or character == " ":
            yield character, face or default
        elif unicodedata.category(character).startswith("M"):
            is_drawable = face is not None and _has_glyph(face, character)
            yield character, face if is_drawable else None
        else:
            face = _find_face(character, size)
            yield character, face


def _format_missing_glyph(character: str) -> str:
    name = ""
    # Names of symbols say what they show; those of letters are long and say no more than the code point.
    if unicodedata.category(character).startswith("S"):
        name = unicodedata.name(character, "").casefold()
    return f"⟨{name or f'U+{ord(character):04X}'}⟩"


def _split_by_face(text: str, size: int) -> list[tuple[str, Face]]:
    """Split the text into stretches of one font, from left to right."""
    stretches: list[tuple[str, Face]] = []
    default = load_preferred_faces(size)[0]
    for character, own_face in _assign_faces(text, size):
        face = own_face or default
        if stretches and stretches[-1][1] is face:
            stretches[-1] = (stretches[-1][0] + character, face)
        else:
            stretches.append((character, face))
    # Raqm orders the characters inside a stretch; the stretches themselves are ordered here.
    if _is_right_to_left(text):
        stretches.reverse()
    return stretches


def measure_text(text: str, size: int) -> float:
    """Return the width of the text in the units of the layout."""
    widths = [face.length(stretch) for stretch, face in _split_by_face(text, size * SCALE)]
    return sum(widths) / SCALE


def draw_text(image: Image.Image, position: tuple[float, float], text: str, size: int, ink: Rgb = LIGHT.ink) -> None:
    """Draw text on an image that is `SCALE` times as large as the layout, from a position on its baseline."""
    x = position[0] * SCALE
    y = position[1] * SCALE
    for stretch, face in _split_by_face(text, size * SCALE):
        if face.colored:
            _paste_color_glyphs(image, (x, y), stretch, face)
        else:
            ImageDraw.Draw(image).text((x, y), stretch, fill=ink, font=face.font, anchor="ls")
        x += face.length(stretch)


def _paste_color_glyphs(image: Image.Image, position: tuple[float, float], text: str, face: Face) -> None:
    """Draw coloured bitmaps at the size they have, then scale and paste them."""
    glyphs, left, top = _draw_color_glyphs(text, face)
    width = max(1, round(glyphs.width * face.scale))
    height = max(1, round(glyphs.height * face.scale))
    small = glyphs.resize((width, height), Image.Resampling.LANCZOS)
    x = round(position[0] + left * face.scale)
    y = round(position[1] + top * face.scale)
    image.paste(small, (x, y), small)


def _draw_color_glyphs(text: str, face: Face) -> tuple[Image.Image, int, int]:
    """Return the unscaled glyphs and the position of their left top corner relative to the baseline's start."""
    left, top, right, bottom = (round(edge) for edge in face.font.getbbox(text, anchor="ls"))
    canvas = Image.new("RGBA", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(canvas).text((-left, -top), text, font=face.font, anchor="ls", embedded_color=True)
    return canvas, left, top
