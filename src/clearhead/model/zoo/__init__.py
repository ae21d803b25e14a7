"""The embedded models: small, trained for this project, read from this folder only.

`names()` lists them, `describe(name)` returns what a model is, `open_model(name)` builds it. Each has a card beside
its weights. The two text models share one file (embeddings, the two lowest blocks and the masked-LM head).
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import CorruptModel
from clearhead.registry import unknown_name

if TYPE_CHECKING:
    from torch import Tensor

HERE = Path(__file__).parent
# The folder of what the text models share.
SHARED = "minilm"
REINSTALL = "Reinstall Clearhead (pip install --force-reinstall clearhead)."
SPECIAL_TOKENS = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
}


def names() -> list[str]:
    """Return the names of the embedded models, the default first.

    >>> names()
    ['clearhead/sst2-minilm', 'clearhead/agnews-minilm', 'clearhead/pets-vit']
    """
    return list(_read_index(HERE))


def describe(name: str) -> dict[str, Any]:
    """Return a model's `task`, `summary` (one line), `labels`, `accuracy` and what it was `measured` on.

    >>> describe("clearhead/sst2-minilm")["labels"]
    ['negative', 'positive']
    """
    index = _read_index(HERE)
    if name not in index:
        raise unknown_name("embedded model", name, index)
    return dict(index[name])


def open_model(name: str) -> tuple[Any, Any, Any | None]:
    """Return a Hugging Face model in float32 and eval mode, its processor, and its masked-LM model.

    The masked-LM model (None for images) is the classifier's own encoder under the pre-trained head: both are
    views of the same tensors, so casting or moving one of the two moves what they share.
    Every file is compared with its checksum first.

    >>> model, tokenizer, language_model = open_model("clearhead/sst2-minilm")
    >>> model.config.id2label[model(**tokenizer("a joy", return_tensors="pt")).logits.argmax().item()]
    'positive'
    """
    folder = name.partition("/")[2]
    if describe(name)["task"] == "image-classification":
        return _build_image_model(folder), _build_image_processor(folder), None
    return _build_text_model(folder)


# Keyed by folder, because tests replace HERE.
@lru_cache(maxsize=2)
def _read_index(folder: Path) -> dict[str, dict[str, Any]]:
    return dict(json.loads((folder / "models.json").read_text(encoding="utf-8")))


def _build_text_model(folder: str) -> tuple[Any, Any, Any]:
    body, head = _split_shared_weights(_read_weights(f"{SHARED}/shared.safetensors"))
    model = _build_classifier(folder, body)
    tokenizer = _build_tokenizer(model.config.max_position_embeddings)
    return model, tokenizer, _build_language_model(model, head)


def _build_classifier(folder: str, body: "dict[str, Tensor]") -> Any:
    """Return the text classifier of a folder over the shared weights of the encoder."""
    from transformers import BertConfig, BertForSequenceClassification

    config = _read_config(BertConfig, folder)
    model = _build_on_meta(BertForSequenceClassification, config)
    # The embeddings hold buffers (position ids) that are not in the file: on "meta" they would stay without values.
    model.bert.embeddings = _build_with_buffers(type(model.bert.embeddings), config)
    model.load_state_dict(body | _read_weights(f"{folder}/model.safetensors"), assign=True)
    return model.eval()


def _split_shared_weights(shared: "dict[str, Tensor]") -> "tuple[dict[str, Tensor], dict[str, Tensor]]":
    """Return the weights of the encoder and those of the masked-LM head, which is loaded on its own."""
    body = {}
    head = {}
    for name, weight in shared.items():
        if name.startswith("cls."):
            head[name.removeprefix("cls.")] = weight
        else:
            body[name] = weight
    return body, head


def _build_language_model(model: Any, head: "dict[str, Tensor]") -> Any:
    """Return the masked-LM head over the classifier's own encoder and word embeddings."""
    from transformers import BertForMaskedLM

    language_model = _build_on_meta(BertForMaskedLM, model.config)
    language_model.bert.embeddings = model.bert.embeddings
    language_model.bert.encoder = model.bert.encoder
    # Not strict: the decoder's weight and bias are tied below instead of loaded.
    language_model.cls.load_state_dict(head, strict=False, assign=True)
    _tie_decoder(language_model)
    return language_model.eval()


def _tie_decoder(language_model: Any) -> None:
    # One tensor under two names, as in training: the file stores the vocabulary matrix once.
    predictions = language_model.cls.predictions
    predictions.decoder.weight = language_model.bert.embeddings.word_embeddings.weight
    predictions.decoder.bias = predictions.bias


def _build_image_model(folder: str) -> Any:
    import transformers

    config = _read_config(transformers.ViTConfig, folder)
    model = _build_on_meta(transformers.ViTForImageClassification, config)
    model.load_state_dict(_read_weights(f"{folder}/model.safetensors"), assign=True)
    return model.eval()


def _read_config(config_class: Any, folder: str) -> Any:
    # From a dict, not from_pretrained: only bytes with a verified checksum are used.
    return config_class.from_dict(_read_json(f"{folder}/config.json"))


def _build_image_processor(folder: str) -> Any:
    import transformers

    # Newer versions of Transformers keep the processor without torchvision under another name.
    processor_class = getattr(transformers, "ViTImageProcessorPil", None) or transformers.ViTImageProcessor
    return processor_class(**_read_json(f"{folder}/preprocessor_config.json"))


def _build_tokenizer(max_length: int) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=_read_tokenizer(),
        model_max_length=max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **SPECIAL_TOKENS,
    )


def _read_tokenizer() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(_read_verified(f"{SHARED}/tokenizer.json").decode("utf-8"))


def _build_on_meta(network_class: Any, config: Any) -> Any:
    """Build a network without storage: its weights are assigned later, and initialising them takes seconds."""
    import torch

    with torch.device("meta"):
        return network_class(config)


def _build_with_buffers(module_class: Any, config: Any) -> Any:
    """Build a module on the CPU without advancing the caller's random generator."""
    import torch

    with torch.random.fork_rng(devices=[]):
        return module_class(config)


def _read_weights(file: str) -> "dict[str, Tensor]":
    """Return the weights of a file in float32; int8 matrices are multiplied by the scale of each row."""
    from safetensors.torch import load

    stored = load(_read_verified(file))
    names = [name for name in stored if not name.endswith(".scale")]
    return {name: _dequantise(stored[name], stored.get(f"{name}.scale")) for name in names}


def _dequantise(weight: "Tensor", scale: "Tensor | None") -> "Tensor":
    weight = weight.float()
    if scale is None:
        return weight
    return weight * scale[:, None]


def _read_json(file: str) -> Any:
    return json.loads(_read_verified(file))


def _read_verified(file: str) -> bytes:
    """Return the content of a file; raise CorruptModel unless its checksum is the shipped one."""
    content = _read_bytes(file)
    _verify_checksum(file, hashlib.sha256(content).hexdigest())
    return content


def _verify_checksum(file: str, actual: str) -> None:
    expected = _read_checksums().get(file)
    if actual != expected:
        raise _checksum_error(file, actual, expected)


def _read_bytes(file: str) -> bytes:
    try:
        return (HERE / file).read_bytes()
    except OSError as error:
        raise _unreadable_file(file, error.strerror) from None


def _unreadable_file(file: str, reason: str | None) -> CorruptModel:
    return CorruptModel(f"The embedded model file zoo/{file} cannot be read: {reason}. {REINSTALL}")


def _read_checksums() -> dict[str, str]:
    return dict(json.loads((HERE / "checksums.json").read_text(encoding="utf-8")))


def _checksum_error(file: str, actual: str, expected: str | None) -> CorruptModel:
    reason = _describe_expected(expected)
    return CorruptModel(f"The embedded model file zoo/{file} is damaged: sha256 {actual[:12]}…, {reason}. {REINSTALL}")


def _describe_expected(checksum: str | None) -> str:
    if not checksum:
        return "no checksum is known for it"
    # Twelve digits are enough to compare by eye.
    return f"{checksum[:12]}… was expected"
