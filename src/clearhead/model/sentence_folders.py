"""Folders of sentence-transformers: which network, which pooling, and whether embeddings are normalised."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.errors import BadFile, UnsupportedModel

MODULES = "modules.json"
TRANSFORMER, POOLING, NORMALIZE = "Transformer", "Pooling", "Normalize"
# Keys of a pooling module's file to the name used here.
POOLING_KEYS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


class SentenceFolder(NamedTuple):
    """Where the network lies, how its hidden states become an embedding, and how embeddings are compared."""

    network: str
    pooling: str
    score: str


def read_sentence_folder(source: str) -> SentenceFolder | None:
    """Return what a folder of sentence-transformers says; None if it is no such folder."""
    root = Path(source)
    if not (root / MODULES).is_file():
        return None
    modules = _read_json(root / MODULES)
    # Types are dotted names, which differ between versions in all but their end.
    by_type = {str(module["type"]).rsplit(".", 1)[-1]: root / module["path"] for module in modules}
    _require_modules(source, by_type)
    return SentenceFolder(str(by_type[TRANSFORMER]), _read_pooling(by_type[POOLING]), _read_score(root))


def _require_modules(source: str, by_type: dict[str, Path]) -> None:
    unknown = by_type.keys() - {TRANSFORMER, POOLING, NORMALIZE}
    missing = {TRANSFORMER, POOLING} - by_type.keys()
    if unknown or missing:
        listed = ", ".join(by_type)
        raise UnsupportedModel(
            f"'{source}' has the modules {listed}: Transformer, Pooling and Normalize are covered. Load its network "
            "with AutoModel, and give it to clearhead.similarity."
        )


def _read_pooling(folder: Path) -> str:
    options = _read_json(folder / "config.json")
    # Several modes would be joined side by side, which no single embedding shows.
    chosen = [key for key, value in options.items() if key.startswith("pooling_mode_") and value is True]
    if not _is_known_pooling(chosen):
        raise UnsupportedModel(
            f"'{folder}' pools by {', '.join(chosen) or 'nothing'}: {' or '.join(POOLING_KEYS)} is covered."
        )
    return POOLING_KEYS[chosen[0]]


def _is_known_pooling(chosen: list[str]) -> bool:
    return len(chosen) == 1 and chosen[0] in POOLING_KEYS


def _read_score(root: Path) -> str:
    """Return how the folder says that embeddings are compared; by their cosine if it does not."""
    if _read_settings(root).get("similarity_fn_name") == "dot":
        return "dot"
    return "cosine"


def _read_settings(root: Path) -> Any:
    settings = root / "config_sentence_transformers.json"
    # Folders of early versions have none.
    if not settings.is_file():
        return {}
    return _read_json(settings)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> BadFile:
    return BadFile(f"'{path}' cannot be read: {error}")
