"""Folders of PEFT adapters: their base model, and the adapter put on it."""

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clearhead.errors import BadFile

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
BASE = "base_model_name_or_path"
# Names of heads in Transformers, whose rows are the classes.
HEAD_ENDINGS = ("classifier.weight", "score.weight", "out_proj.weight", "classification_head.weight")
# Task of PEFT to the class of Transformers that loads the base model.
TASK_CLASSES = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
}


@dataclass(frozen=True)
class Adapter:
    """What the folder of an adapter says: its base model, and the class that loads this."""

    folder: str
    base: str
    auto_class: str | None

    @property
    def has_tokenizer(self) -> bool:
        return (Path(self.folder) / "tokenizer_config.json").is_file()


def is_adapter(source: str) -> bool:
    """Return whether a folder holds an adapter alone, without the model that it changes."""
    folder = Path(source)
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def read_adapter(source: str) -> Adapter:
    """Read the configuration of an adapter."""
    path = Path(source) / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
        base = config[BASE]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise BadFile(f"'{path}' is damaged: it does not name the adapter's base model.") from error
    _require_base(base, path)
    return Adapter(source, _find_base(source, base), TASK_CLASSES.get(config.get("task_type") or ""))


def _require_base(base: Any, path: Path) -> None:
    if not isinstance(base, str) or not base:
        raise BadFile(f"'{path}' names no base model: set {BASE} to its folder.")


def _find_base(source: str, base: str) -> str:
    """Return the base model's folder, which may be relative to the adapter's; a hub id as it is."""
    beside = Path(source) / base
    if not Path(base).exists() and beside.is_dir():
        return str(beside)
    return base


def count_adapter_classes(folder: str) -> int | None:
    """Return how many classes the head has that was saved with the adapter; None without one."""
    from safetensors import safe_open

    path = Path(folder) / WEIGHTS
    if not path.is_file():
        return None
    with safe_open(path, "pt") as weights:
        return _count_rows(weights)


def _count_rows(weights: Any) -> int | None:
    for name in weights.keys():  # noqa: SIM118  no mapping
        if _is_head(name):
            return int(weights.get_slice(name).get_shape()[0])
    return None


def _is_head(name: str) -> bool:
    # The low-rank matrices of a head have other rows.
    return name.endswith(HEAD_ENDINGS) and "lora_" not in name


def put_on(network: Any, adapter: Adapter, *, allow_pickle: bool) -> Any:
    """Return the base network with the adapter on it."""
    _require_peft(adapter)
    if not allow_pickle:
        _require_safetensors(adapter.folder)
    import peft

    return peft.PeftModel.from_pretrained(network, adapter.folder).eval()


def _require_peft(adapter: Adapter) -> None:
    if find_spec("peft") is None:
        raise BadFile(f"'{adapter.folder}' is a PEFT adapter of '{adapter.base}': pip install peft to load it.")


def _require_safetensors(folder: str) -> None:
    # Pickled weights could run code.
    if not (Path(folder) / WEIGHTS).is_file():
        raise BadFile(f"'{folder}' has no {WEIGHTS}: save the adapter as safetensors.")
