"""The fonts of this machine: which can write a character, how wide it is, and what stands where none can."""

import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, features

from clearhead.errors import BadOption
from clearhead.views.color import LIGHT, Rgb
from clearhead.views.text_spans import JOINERS, visible

SCALE = 2
SIZE = 32
NAMES = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "LiberationSans-Regular.ttf",
    "Arial.ttf",
    "Arial Unicode.ttf",
    "segoeui.ttf",
)
EMOJI = ("NotoColorEmoji.ttf", "Apple Color Emoji.ttc", "seguiemj.ttf")
FIRST_EMOJI = 0x1F000
# The sizes that fonts made of coloured bitmaps have.
BITMAPS = (109, 160, 136, 128, 96)
FOLDERS = {
    "linux": ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts"),
    "darwin": ("/System/Library/Fonts", "/Library/Fonts", "~/Library/Fonts"),
    "win32": ("C:/Windows/Fonts", "~/AppData/Local/Microsoft/Windows/Fonts"),
}
SLANTED = ("bold", "italic", "oblique", "mono", "light", "thin", "black", "condensed", "serif")
NOBODY = "\U0010fffd"
ROOM = 200
SILENT = (*JOINERS, *map(chr, range(0xFE00, 0xFE10)))
RIGHT = ("R", "AL")


@dataclass(frozen=True)
class Face:
    """A font, how much it is scaled to have the wanted size, and whether its characters have colours."""

    font: ImageFont.FreeTypeFont | ImageFont.ImageFont
    scale: float = 1.0
    colored: bool = False

    def length(self, text: str) -> float:
        return float(self.font.getlength(text)) * self.scale


# --- which font ------------------------------------------------------------------------------------------------


@cache
def faces(size: int) -> tuple[Face, ...]:
    """Those that are tried first, then Pillow's own."""
    found = (_opened(name, size) for name in NAMES)
    return (*(face for face in found if face), Face(ImageFont.load_default(size)))


@cache
def _emoji(size: int) -> tuple[Face, ...]:
    return tuple(face for name in EMOJI if (face := _colored(name, size)))


@cache
def _others(size: int) -> tuple[Face, ...]:
    """Whatever else is installed, upright and of plain weight."""
    folders = (Path(folder).expanduser() for folder in FOLDERS.get(sys.platform, FOLDERS["linux"]))
    files = sorted(file for folder in folders for file in folder.rglob("*") if file.suffix in (".ttf", ".otf", ".ttc"))
    plain = [file for file in files if not any(word in file.name.casefold() for word in SLANTED)]
    return tuple(face for file in plain if (face := _opened(str(file), size)))


def _opened(name: str, size: int) -> Face | None:
    try:
        return Face(ImageFont.truetype(name, size))
    except OSError:
        return None


def _colored(name: str, size: int) -> Face | None:
    for own in (size, *BITMAPS):
        if face := _opened(name, own):
            return Face(face.font, size / own, colored=True)
    return None


@cache
def _face_for(character: str, size: int) -> Face | None:
    """The first font that has the character; None where none has."""
    first = (_emoji, faces) if ord(character) >= FIRST_EMOJI else (faces, _emoji)
    return next((face for several in (*first, _others) for face in several(size) if _has(face, character)), None)


@cache
def _has(face: Face, character: str) -> bool:
    return character.isspace() or _drawn(face, character) != _drawn(face, NOBODY)


def _drawn(face: Face, character: str) -> bytes:
    """What the font has for a character, without the shaping that would join several."""
    font = face.font
    if isinstance(font, ImageFont.FreeTypeFont):
        font = font.font_variant(layout_engine=ImageFont.Layout.BASIC)
    image = Image.new("RGBA" if face.colored else "L", (ROOM, ROOM))
    ImageDraw.Draw(image).text((ROOM // 3, 0), character, fill="white", font=font, embedded_color=face.colored)
    return image.tobytes()


# --- text ------------------------------------------------------------------------------------------------------


def spelled(text: str) -> str:
    """The text with a name, such as ⟨woman⟩ or ⟨U+8FD9⟩, for each character that no font here can write."""
    if any(unicodedata.bidirectional(one) in RIGHT for one in text) and not features.check("raqm"):
        raise BadOption("This text reads from right to left, which Pillow cannot set here. Use .html instead.")
    return "".join(one if face else _name(one) for one, face in _placed(visible(text), SIZE))


def is_whole(text: str) -> bool:
    """Whether fonts here can write all of it."""
    return all(face for _, face in _placed(visible(text), SIZE))


def _placed(text: str, size: int) -> Iterator[tuple[str, Face | None]]:
    """Each character with its font; marks, joiners and variants have that of the character before them."""
    face: Face | None = faces(size)[0]
    for character in text:
        if character in SILENT or character == " ":
            yield character, face or faces(size)[0]
        elif unicodedata.category(character).startswith("M"):
            yield character, face if face and _has(face, character) else None
        else:
            face = _face_for(character, size)
            yield character, face


def _name(character: str) -> str:
    symbol = unicodedata.category(character).startswith("S")
    name = unicodedata.name(character, "") if symbol else ""
    return f"⟨{name.casefold() or f'U+{ord(character):04X}'}⟩"


def _stretches(text: str, size: int) -> list[tuple[str, Face]]:
    """The text in stretches of one font, from left to right."""
    found: list[tuple[str, Face]] = []
    for character, own in _placed(text, size):
        face = own or faces(size)[0]
        if found and found[-1][1] is face:
            found[-1] = (found[-1][0] + character, face)
        else:
            found.append((character, face))
    return found[::-1] if any(unicodedata.bidirectional(one) in RIGHT for one in text) else found


def measure(text: str, size: int) -> float:
    return sum(face.length(part) for part, face in _stretches(text, size * SCALE)) / SCALE


def write(image: Image.Image, place: tuple[float, float], text: str, size: int, ink: Rgb = LIGHT.ink) -> None:
    """Sets the text on a picture that is `SCALE` times as large, from a place on its line."""
    x, y = place[0] * SCALE, place[1] * SCALE
    for part, face in _stretches(text, size * SCALE):
        if face.colored:
            _paste(image, (x, y), part, face)
        else:
            ImageDraw.Draw(image).text((x, y), part, fill=ink, font=face.font, anchor="ls")
        x += face.length(part)


def _paste(image: Image.Image, place: tuple[float, float], text: str, face: Face) -> None:
    """Coloured bitmaps have one size, so they are drawn apart and scaled."""
    left, top, right, bottom = (round(edge) for edge in face.font.getbbox(text, anchor="ls"))
    canvas = Image.new("RGBA", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(canvas).text((-left, -top), text, font=face.font, anchor="ls", embedded_color=True)
    size = (max(1, round(canvas.width * face.scale)), max(1, round(canvas.height * face.scale)))
    small = canvas.resize(size, Image.Resampling.LANCZOS)
    image.paste(small, (round(place[0] + left * face.scale), round(place[1] + top * face.scale)), small)
