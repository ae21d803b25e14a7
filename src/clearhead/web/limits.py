"""How much one request, and all of them together, may take."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, characters and pixels; times in seconds."""

    body: int = 12_000_000
    characters: int = 100_000
    pixels: int = 25_000_000
    side: int = 1600
    option: float = 1e6
    samples: int = 256
    queue: int = 64
    batch: int = 16
    wait: float = 60.0
    upload: float = 20.0
    inputs: int = 32
    traces: int = 4


LIMITS = Limits()
