"""Limits on single requests and on the server as a whole."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, characters and pixels; times in seconds.

    The cache keeps up to `cached_answers` explanations for each of the last `cached_inputs` inputs. Traces are large,
    so only those of the last `cached_traces` inputs stay, as long as together they have at most `cached_token_pairs`
    token pairs (the size of an attention map).
    """

    # Base64 makes the 8 MB that the page allows a photo a third larger.
    max_body_bytes: int = 12_000_000
    max_characters: int = 100_000
    # Of language models: the prompt, and the answer that is written or given.
    max_prompt_tokens: int = 2048
    max_answer_tokens: int = 256
    # Of two-tower models: the texts that a picture or a text is compared with; a saved page explains each of them.
    max_compared_texts: int = 16
    # Checked before decoding: a small file can claim a huge size.
    max_pixels: int = 25_000_000
    # Larger images are scaled down: models see far fewer pixels.
    max_image_side: int = 1600
    max_option: float = 1e6
    # Of options that multiply the cost of a method, so that one request cannot occupy the worker for minutes.
    max_samples: int = 256
    # Bytes that one forward and backward pass of a request may take by estimate, besides the model.
    max_pass_bytes: int = 2_000_000_000
    # Outputs of all classes that one request may ask for.
    max_class_outputs: int = 200_000
    # Of the check: each group is hidden and shown once.
    max_check_groups: int = 20
    # Of the test: lists of hidden tokens in one request, and the tokens that all random controls of one may have.
    max_controlled_lists: int = 20
    max_control_tokens: int = 20_000
    max_queued_jobs: int = 64
    max_batch: int = 16
    # Seconds until a request is answered with 503, and until its body must have arrived.
    answer_timeout: float = 180.0
    body_timeout: float = 20.0
    cached_inputs: int = 32
    cached_answers: int = 64
    cached_traces: int = 4
    cached_token_pairs: int = 600_000


LIMITS = Limits()
