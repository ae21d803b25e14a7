"""Say in one line what is wrong with a model folder."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from clearhead.errors import Argument, BadFile, ClearheadError, first_line
from clearhead.model import zoo
from clearhead.model.zoo import language_model

LFS_MARK = b"version https://git-lfs"
# A pointer is some 130 bytes long.
MAX_POINTER_BYTES = 1024
SHOWN_WEIGHTS = 3
NO_WEIGHTS = "no file named model.safetensors"
# What an error of a library contains, to what it means.
KNOWN_REASONS = {
    "SafetensorError": "its safetensors weights are damaged or cut off ({line}): copy them again.",
    "ignore_mismatched_sizes": "its weights have other sizes than its config.json says (hidden size, vocabulary, "
    "number of classes, …): the two files are of different models.",
    "Weights only load failed": "its pickled weights are damaged, or hold more than tensors, which could run code: "
    "save them as safetensors.",
    "the backend tokenizer": "its tokenizer cannot be built: a file such as tokenizer.json or vocab.txt is missing, "
    "or it needs another package (pip install sentencepiece).",
    "KeyError": "its files are damaged or do not fit each other (unknown key {line}).",
}


@contextmanager
def translate_load_errors(source: str) -> Iterator[None]:
    """Re-raise whatever a library raises while it reads a model as BadFile with its first line."""
    try:
        yield
    except ClearheadError:
        raise
    # Damaged files make Transformers, safetensors and tokenizers raise errors of all types.
    except Exception as error:
        raise load_error(source, _find_reason(source, error)) from error


def load_error(source: str, reason: str) -> BadFile:
    """Return the error for a model that cannot be loaded."""
    return BadFile(f"'{source}' cannot be loaded: {reason}", *_list_advice(source, reason))


def _list_advice(source: str, reason: str) -> Iterator[str | Argument]:
    """Yield the pieces of a message that say what to try."""
    if not _has_config(source):
        names = ", ".join(list_names())
        yield f" Give a folder with config.json and safetensors weights, a hub id, or one of {names}."
    if NO_WEIGHTS in reason and _may_be_pickled(Path(source)):
        yield from (" Pickled weights need ", Argument("allow_pickle", True), ".")
    if _lacks_sentencepiece(reason):
        yield " The tokenizers of Marian and some others need SentencePiece: pip install sentencepiece."


def _has_config(source: str) -> bool:
    # Not by Path, which raises for names that are too long.
    return os.path.isfile(os.path.join(source, "config.json"))


def _lacks_sentencepiece(reason: str) -> bool:
    return "AutoTokenizer" in reason and find_spec("sentencepiece") is None


def _may_be_pickled(folder: Path) -> bool:
    """Return whether a folder has pickled weights; True for a hub id, of which this is not known."""
    return not folder.is_dir() or any(folder.glob("*.bin"))


def list_names() -> list[str]:
    """Return the names of the embedded models."""
    return [*zoo.names(), language_model.NAME]


def _find_reason(source: str, error: Exception) -> str:
    pointer = find_pointer(Path(source))
    if pointer is not None:
        return f"{pointer.name} is a Git LFS pointer, not the file itself: run git lfs pull in that folder."
    return _translate(error, _first_words(error))


def _translate(error: Exception, line: str) -> str:
    """Return what an error of a library means, or its own words."""
    for sign, reason in KNOWN_REASONS.items():
        if sign in f"{type(error).__name__}: {line}":
            return reason.format(line=line.rstrip("."))
    return _end_sentence(line)


def _first_words(error: Exception) -> str:
    line = first_line(error)
    # Some libraries say on the next line what they mean.
    if line.endswith(":"):
        return " ".join(str(error).split("\n")[:2])
    return line


def _end_sentence(line: str) -> str:
    return line if line.endswith((".", "!", "?", ":")) else f"{line}."


def find_pointer(folder: Path) -> Path | None:
    """Return a file of a folder that Git LFS has not fetched; None without one."""
    if not folder.is_dir():
        return None
    return next(filter(_is_pointer, sorted(folder.iterdir())), None)


def _is_pointer(path: Path) -> bool:
    if not _is_small_file(path):
        return False
    return path.read_bytes().startswith(LFS_MARK)


def _is_small_file(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= MAX_POINTER_BYTES


def refuse_missing_weights(source: str, missing: Collection[str], all_weights: Collection[str]) -> None:
    """Raise BadFile if weights of a network are not in its files, since they would be random."""
    absent = sorted(set(missing).intersection(all_weights))
    if absent:
        raise BadFile(
            f"'{source}' lacks {len(absent)} of the {len(all_weights)} weights of its architecture "
            f"({_list_some(absent)}), which would be random: give the folder of the trained model, or correct "
            "'architectures' in its config.json."
        )


def _list_some(names: Sequence[str]) -> str:
    # A few are enough to recognise what is missing.
    listed = ", ".join(names[:SHOWN_WEIGHTS])
    if len(names) > SHOWN_WEIGHTS:
        return f"{listed} …"
    return listed
