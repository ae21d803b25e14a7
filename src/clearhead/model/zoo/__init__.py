"""The embedded models: small, trained for this project, read from this folder and from nowhere else.

`names()` lists them, `describe(name)` says what one is, `open_model(name)` makes it. Each has a card beside
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
SHARED = "minilm"


def names() -> list[str]:
    """The embedded models, the default first.

    >>> names()
    ['clearhead/sst2-minilm', 'clearhead/agnews-minilm', 'clearhead/pets-vit']
    """
    return list(_index(HERE))


def describe(name: str) -> dict[str, Any]:
    """What a model is for: `task`, `summary` (one line), `labels`, `accuracy` and what it was `measured` on.

    >>> describe("clearhead/sst2-minilm")["labels"]
    ['negative', 'positive']
    """
    index = _index(HERE)
    if name not in index:
        raise unknown_name("embedded model", name, index)
    return dict(index[name])


def open_model(name: str) -> tuple[Any, Any, Any | None]:
    """An ordinary Hugging Face model in float32 and eval mode, its processor, and its masked-LM model.

    The masked-LM model (None for images) is the classifier's own encoder under the pre-trained head: both are
    views of the same tensors, so casting or moving one of the two moves what they share.
    Every file is compared with its checksum first.

    >>> model, tokenizer, language_model = open_model("clearhead/sst2-minilm")
    >>> model.config.id2label[model(**tokenizer("a joy", return_tensors="pt")).logits.argmax().item()]
    'positive'
    """
    folder = name.partition("/")[2]
    if describe(name)["task"] == "image-classification":
        return (*_image_model(folder), None)
    return _text_model(folder)


@lru_cache(maxsize=2)
def _index(here: Path) -> dict[str, dict[str, Any]]:
    return dict(json.loads((here / "models.json").read_text(encoding="utf-8")))


def _content(file: str) -> bytes:
    """The bytes of a file, once they are known to be the ones that were shipped."""
    again = "Reinstall Clearhead (pip install --force-reinstall clearhead)."
    try:
        content = (HERE / file).read_bytes()
    except OSError as problem:
        raise CorruptModel(f"The embedded model file zoo/{file} cannot be read: {problem.strerror}. {again}") from None
    expected = json.loads((HERE / "checksums.json").read_text(encoding="utf-8")).get(file)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        expectation = f"{expected[:12]}… was expected" if expected else "no checksum is known for it"
        raise CorruptModel(
            f"The embedded model file zoo/{file} is damaged: sha256 {found[:12]}…, {expectation}. {again}"
        )
    return content


def _weights(file: str) -> "dict[str, Tensor]":
    """Weights in float32; an int8 matrix is its rows times the scales stored beside it."""
    from safetensors.torch import load

    stored = load(_content(file))
    return {
        name: value.float() * stored[f"{name}.scale"][:, None] if f"{name}.scale" in stored else value.float()
        for name, value in stored.items()
        if not name.endswith(".scale")
    }


def _text_model(folder: str) -> tuple[Any, Any, Any]:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig.from_dict(json.loads(_content(f"{folder}/config.json")))
    weights = _weights(f"{SHARED}/shared.safetensors")
    head = {key.removeprefix("cls."): weights.pop(key) for key in list(weights) if key.startswith("cls.")}
    model = _hollow(BertForSequenceClassification, config)
    model.bert.embeddings = _with_buffers(type(model.bert.embeddings), config)
    model.load_state_dict(weights | _weights(f"{folder}/model.safetensors"), assign=True)
    return model.eval(), _tokenizer(config.max_position_embeddings), _language_model(model, head)


def _language_model(model: Any, head: "dict[str, Tensor]") -> Any:
    """The masked-LM head over the classifier's own encoder and word embeddings."""
    from transformers import BertForMaskedLM

    language_model = _hollow(BertForMaskedLM, model.config)
    language_model.bert.embeddings, language_model.bert.encoder = model.bert.embeddings, model.bert.encoder
    predictions = language_model.cls.predictions
    language_model.cls.load_state_dict(head, strict=False, assign=True)
    predictions.decoder.weight = model.bert.embeddings.word_embeddings.weight
    predictions.decoder.bias = predictions.bias
    return language_model.eval()


def _image_model(folder: str) -> tuple[Any, Any]:
    import transformers

    config = transformers.ViTConfig.from_dict(json.loads(_content(f"{folder}/config.json")))
    model = _hollow(transformers.ViTForImageClassification, config)
    model.load_state_dict(_weights(f"{folder}/model.safetensors"), assign=True)
    kind = getattr(transformers, "ViTImageProcessorPil", None) or transformers.ViTImageProcessor
    return model.eval(), kind(**json.loads(_content(f"{folder}/preprocessor_config.json")))


def _hollow(kind: Any, config: Any) -> Any:
    """A model without memory behind its weights, which the caller assigns; drawing them takes seconds."""
    import torch

    with torch.device("meta"):
        return kind(config)


def _with_buffers(kind: Any, config: Any) -> Any:
    """A module that keeps tensors outside its weights; the caller's random numbers stay as they were."""
    import torch

    with torch.random.fork_rng(devices=[]):
        return kind(config)


def _tokenizer(longest: int) -> Any:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_content(f"{SHARED}/tokenizer.json").decode("utf-8")),
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=longest,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
