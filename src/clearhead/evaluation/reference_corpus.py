"""In how many documents of a reference corpus each token occurs: rare terms weigh more."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from clearhead.data.read import read_task
from clearhead.data.task import Example
from clearhead.errors import BadInput
from clearhead.model.model import Model
from clearhead.perturbation.features import as_segments

TEXTS_PER_CALL = 1000


@dataclass(frozen=True)
class InverseDocumentFrequency:
    """log((1 + documents) / (1 + documents with the term)); a term in none of them weighs most."""

    documents: int
    counts: Mapping[str, int]

    def __call__(self, term: str) -> float:
        # Smoothed by 1, so that a term in no document has a finite weight and one in all of them 0.
        return float(np.log((1 + self.documents) / (1 + self.counts.get(term, 0))))


def token_frequencies(
    model: Model, reference: str, text_column: str | None, documents: int
) -> InverseDocumentFrequency:
    """Count in how many documents of a reference corpus each token occurs, again only when the corpus changes."""
    # The cache holds a weak reference, so that it keeps no model alive. The files' states are part of its key.
    return _count_tokens(ref(model), reference, text_column, documents, _file_states(str(reference)))


def _file_states(reference: str) -> tuple[tuple[int, ...], ...]:
    """Return what changes when a file, or one in a folder, does; empty for what is neither."""
    # An empty path would be the current folder.
    if not reference.strip():
        return ()
    paths = _list_files(Path(reference.removeprefix("hf:")))
    return tuple(_file_state(path) for path in paths if path.exists())


def _list_files(root: Path) -> list[Path]:
    # Sorted: the order of a folder's files differs from one file system to the next.
    return [root, *sorted(root.rglob("*"))]


def _file_state(path: Path) -> tuple[int, ...]:
    stat = path.stat()
    # Inode and both times: a file may be replaced by one of equal size within a clock tick.
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


@lru_cache(maxsize=4)
def _count_tokens(
    model_reference: ReferenceType[Model], reference: str, text_column: str | None, documents: int, _: Any
) -> InverseDocumentFrequency:
    model = model_reference()
    assert model is not None
    # Read here, inside the cached function: a hit does not open the corpus at all.
    task = read_task(reference, text_column=text_column, limit=documents)
    texts = [_document_text(example, reference) for example in task.examples]
    counts = _count_documents(model, texts)
    # Tokens get their names once each, not once per occurrence.
    names = model.processor.convert_ids_to_tokens(list(counts))
    return InverseDocumentFrequency(len(texts), dict(zip(names, counts.values(), strict=True)))


def _count_documents(model: Model, texts: Sequence[str]) -> Counter[int]:
    """Count in how many texts each token id occurs."""
    counts: Counter[int] = Counter()
    for start in range(0, len(texts), TEXTS_PER_CALL):
        # In chunks: the ids of a whole corpus as Python lists would fill the memory.
        for ids in _token_ids(model, texts[start : start + TEXTS_PER_CALL]):
            counts.update(set(ids))
    return counts


def _token_ids(model: Model, texts: Sequence[str]) -> list[list[int]]:
    # Not truncated: a token counts wherever it stands in the document. No warning, since the network never reads it.
    encoded = model.processor(texts, add_special_tokens=False, truncation=False, verbose=False)
    ids: list[list[int]] = encoded["input_ids"]
    return ids


def _document_text(example: Example, reference: str) -> str:
    texts = as_segments(example.input)
    if not all(map(_is_text, texts)):
        raise _holds_pictures(reference)
    return " ".join(texts)


def _holds_pictures(reference: str) -> BadInput:
    return BadInput(f"reference='{reference}' holds pictures: give a text file or a table of texts.")


def _is_text(source: Any) -> bool:
    return isinstance(source, str)
