"""Models of local folders and of the Hugging Face hub, by the classes of Transformers."""

from typing import Any

from clearhead.model.load_errors import load_error
from clearhead.model.source_names import source_exists

HUB_TIMEOUT = 5.0
"""Seconds within which the hub has to answer anything at all."""


def load_pretrained(loader: Any, source: str, **options: Any) -> Any:
    """Call `from_pretrained` of a class of Transformers for a folder or hub id, without code from the repository."""
    return loader.from_pretrained(_locate(source), trust_remote_code=False, **options)


def _locate(source: str) -> str:
    """Return a folder or hub id as it is; if the hub cannot be reached, the folder of its files in the cache."""
    # Transformers would ask again for every file, half a minute each, also for those in the cache.
    if source_exists(source) or can_reach_hub():
        return source
    return _find_cached(source)


def can_reach_hub() -> bool:
    """Return whether the hub, or the mirror that HF_ENDPOINT names, answers at all."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT)
    # Which errors there are depends on the HTTP library that the installed version uses.
    except Exception:
        return False
    return True


def _find_cached(source: str) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return str(snapshot_download(source, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise load_error(
            source, "there is no such folder, it is not in the cache, and the hub cannot be reached."
        ) from error
