"""Explanations written by hand, for the tests of views."""

import re
from typing import Any

import numpy as np
from PIL import Image

from clearhead.explanation import Explanation
from clearhead.model.target import Target

RELEVANCE = {"joyless": 0.42, ",": 0.02, "tedious": 0.61, "film": 0.04, "never": 0.22, "finds": -0.09, "heart": -0.18}
HOSTILE = "<script>alert('x')</script> \"quoted\" & a\u202eb\u2066c\u200bd \x1b[31m\x00 &lt;i&gt; \ud800 \u200fend"


def explained(text: str | tuple[str, str], *, label: str = "negative", **changes: Any) -> Explanation:
    """Return an explanation of made-up tokens of at most five letters, relevant by the table above or by position."""
    segments = text if isinstance(text, tuple) else (text,)
    tokens = [("[CLS]", (0, 0, 0), 0.2)]
    for number, segment in enumerate(segments):
        for word in re.finditer(r"\S+", segment):
            tokens += _split_word(word, number)
        tokens.append(("[SEP]", (number, 0, 0), 0.05))
    names, offsets, relevance = zip(*tokens, strict=True)
    # Offsets of a single text have no segment number.
    if isinstance(text, str):
        offsets = tuple(offset[1:] for offset in offsets)
    fields = {
        "tokens": names,
        "relevance": np.array(relevance),
        "special": np.array([name in ("[CLS]", "[SEP]") for name in names]),
        "target": Target(0),
        "label": label,
        "method": "att-cat",
        "text": text,
        "offsets": offsets,
        "probability": 0.982,
        "options": {"hidden": "output"},
        "changed_options": {},
        "model": "clearhead/sst2-minilm",
        "diagnostics": {"score": 3.1, "conservation_gap": 3e-7},
    }
    return Explanation(**{**fields, **changes})


def _split_word(word: re.Match[str], segment: int) -> list[tuple[str, tuple[int, int, int], float]]:
    """Return the tokens of a word with their offsets and their shares of its relevance."""
    tokens = []
    for index, piece in enumerate(re.finditer(r"\w{1,5}|[^\w\s]", word.group())):
        score = RELEVANCE.get(word.group().casefold(), ((word.start() * 7 + index) % 5 - 2) / 20)
        offset = (segment, word.start() + piece.start(), word.start() + piece.end())
        share = score * len(piece.group()) / len(word.group())
        tokens.append((piece.group().casefold(), offset, share))
    return tokens


def review(**changes: Any) -> Explanation:
    """Return an explanation of a sentence with capitals and double blanks."""
    return explained("A joyless ,  tedious film that Never finds its heart", **changes)


def pictured(*, size: tuple[int, int] = (60, 40), label: str = "cat", **changes: Any) -> Explanation:
    """Explain four by four patches in the centre square of a grey picture; one speaks for the class, one against."""
    grid = np.zeros((4, 4))
    grid[1, 2] = 1.0
    grid[3, 0] = -0.5
    width, height = size
    fields = {
        "tokens": ("[CLS]", *(f"patch {row},{column}" for row in range(4) for column in range(4))),
        "relevance": np.concatenate([[0.3], grid.ravel()]),
        "special": np.arange(17) < 1,
        "target": Target(0),
        "label": label,
        "method": "trans-att",
        "grid": (4, 4),
        "image": Image.new("RGB", size, (90, 120, 150)),
        "box": ((width - height) / 2, 0, (width + height) / 2, height),
        "probability": 0.9,
        "model": "clearhead/pets-vit",
        "diagnostics": {"conservation_gap": 1e-6},
    }
    return Explanation(**{**fields, **changes})


def total_effect(explanation: Explanation) -> float:
    """Return by how much the whole input changes the score that an explanation of effects starts from."""
    effect = explanation.diagnostics["effect"]
    return effect["prediction"] - effect["base"]
