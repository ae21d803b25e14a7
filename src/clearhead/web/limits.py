"""Limits on single requests and on the server as a whole."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, characters and pixels; times in seconds.

    The cache keeps up to `cached_answers` explanations for each of the last `cached_inputs` inputs. Traces are large,
    so only those of the last `cached_traces` inputs stay, as long as together they have at most `cached_token_pairs`
    token pairs (the size of an attention map).
    """

    max_body_bytes: int = 12_000_000
    max_characters: int = 100_000
    max_pixels: int = 25_000_000
    max_image_side: int = 1600
    max_option: float = 1e6
    max_samples: int = 256
    max_queued_jobs: int = 64
    max_batch: int = 16
    answer_timeout: float = 60.0
    body_timeout: float = 20.0
    cached_inputs: int = 32
    cached_answers: int = 64
    cached_traces: int = 4
    cached_token_pairs: int = 600_000


LIMITS = Limits()
