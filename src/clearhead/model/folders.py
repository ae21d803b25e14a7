"""Models from folders and hub ids in the layout of Transformers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clearhead.model.adapters import Adapter, count_adapter_classes, is_adapter, put_on, read_adapter
from clearhead.model.hub import load_pretrained
from clearhead.model.joined_families import WRAPPERS
from clearhead.model.language import encoder_decoder_architectures, picture_architectures
from clearhead.model.load_errors import load_error, refuse_missing_weights, translate_load_errors
from clearhead.model.model import Model
from clearhead.model.model_checks import unsupported_head
from clearhead.model.objects import unwrap_network
from clearhead.model.picture_processor import load_picture_processor
from clearhead.model.sentence_folders import SentenceFolder, read_sentence_folder
from clearhead.model.source_names import is_path, source_exists, validate_source
from clearhead.model.tower_families import WITH_HEADS, dual_encoder_architectures
from clearhead.model.tower_processor import load_tower_processor
from clearhead.model.two_towers import make_text_pair_encoder

# Ending of an architecture's name to the class of Transformers that loads it.
AUTO_CLASSES = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForImageClassification": "AutoModelForImageClassification",
    "ForImageClassificationWithTeacher": "AutoModelForImageClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForMultipleChoice": "AutoModelForMultipleChoice",
    "ForObjectDetection": "AutoModelForObjectDetection",
    "ForSemanticSegmentation": "AutoModelForSemanticSegmentation",
}
PICTURE_CLASS = "AutoModelForImageTextToText"

IMAGE_TASKS = ("ImageClassification", "ObjectDetection", "SemanticSegmentation")


def load_folder(source: str, allow_pickle: bool) -> Model:
    """Load a folder or hub id in the layout of Transformers."""
    validate_source(source)
    if is_adapter(source):
        return _load_adapter(read_adapter(source), allow_pickle)
    sentences = read_sentence_folder(source)
    if sentences is not None:
        return load_sentence_encoder(source, sentences, allow_pickle)
    auto_class = _find_auto_class(_read_architecture(source))
    with translate_load_errors(source), hide_progress_bars():
        network = _load_network(auto_class, source, allow_pickle)
        processor = _load_processor(source, auto_class)
    return Model(network, processor, None, source)


def load_sentence_encoder(source: str, folder: SentenceFolder, allow_pickle: bool) -> Model:
    """Load the network of a folder as an encoder of two texts."""
    validate_source(folder.network)
    with translate_load_errors(source), hide_progress_bars():
        network = _load_network("AutoModel", folder.network, allow_pickle)
        tokenizer = _load_processor(folder.network, "AutoTokenizer")
    return Model(make_text_pair_encoder(network, folder.pooling, folder.score), tokenizer, None, source)


def _load_adapter(adapter: Adapter, allow_pickle: bool) -> Model:
    """Load the base model of an adapter, and put the adapter on it."""
    if is_path(adapter.base) and not source_exists(adapter.base):
        raise load_error(adapter.folder, f"it is an adapter of '{adapter.base}', and there is no such folder.")
    auto_class = adapter.auto_class or _find_auto_class(_read_architecture(adapter.base))
    with translate_load_errors(adapter.folder), hide_progress_bars():
        options = {}
        classes = count_adapter_classes(adapter.folder)
        if classes is not None:
            options["num_labels"] = classes
        # The head may be the adapter's: what the base model lacks comes with it.
        network = _load_network(auto_class, adapter.base, allow_pickle, may_lack=True, **options)
        network = put_on(network, adapter, allow_pickle=allow_pickle)
        processor = _load_processor(adapter.folder if adapter.has_tokenizer else adapter.base, auto_class)
    return Model(unwrap_network(network), processor, None, adapter.folder)


def load_masked_lm(source: str, allow_pickle: bool) -> Any:
    """Load the masked-language model of a folder."""
    validate_source(source)
    with translate_load_errors(source), hide_progress_bars():
        return _load_network("AutoModelForMaskedLM", source, allow_pickle)


def _read_architecture(source: str) -> str:
    config = _read_config(source)
    architectures = getattr(config, "architectures", None)
    if isinstance(architectures, list) and architectures:
        return str(architectures[0])
    # Converted weights often do not name it, but an encoder–decoder has one head that writes.
    return encoder_decoder_architectures().get(config.model_type, "?")


def _read_config(source: str) -> Any:
    import transformers

    with translate_load_errors(source):
        return load_pretrained(transformers.AutoConfig, source)


def _find_auto_class(architecture: str) -> str:
    # First: their names end like those of networks that read texts alone. A class loads itself.
    if architecture in WRAPPERS or architecture in WITH_HEADS:
        return architecture
    for ending, auto_class in AUTO_CLASSES.items():
        if architecture.endswith(ending):
            return auto_class
    if architecture in encoder_decoder_architectures().values():
        return "AutoModelForSeq2SeqLM"
    # Those that are not covered are refused with their reason, once they are loaded.
    if architecture in picture_architectures():
        return PICTURE_CLASS
    if architecture in dual_encoder_architectures():
        return "AutoModel"
    raise unsupported_head(architecture)


def _load_network(auto_class: str, source: str, allow_pickle: bool, *, may_lack: bool = False, **options: Any) -> Any:
    import transformers

    # None lets Transformers fall back to pickled weights; True allows safetensors only.
    use_safetensors = None if allow_pickle else True
    loader = getattr(transformers, auto_class)
    network, report = load_pretrained(
        loader, source, use_safetensors=use_safetensors, output_loading_info=True, **options
    )
    if not may_lack:
        refuse_missing_weights(source, report["missing_keys"], dict(network.named_parameters()))
    return network.eval()


def _load_processor(source: str, auto_class: str) -> Any:
    import transformers

    if auto_class == PICTURE_CLASS:
        return load_picture_processor(source)
    if auto_class == "AutoModel" or _takes_pictures(auto_class):
        return load_tower_processor(source)
    if auto_class.endswith(IMAGE_TASKS):
        return load_pretrained(transformers.AutoImageProcessor, source)
    tokenizer = load_pretrained(transformers.AutoTokenizer, source)
    _require_vocabulary(source, tokenizer)
    return tokenizer


def _require_vocabulary(source: str, tokenizer: Any) -> None:
    # Without its files some versions of Transformers make a tokenizer that knows special tokens only.
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise load_error(source, "it has no vocabulary (tokenizer.json, vocab.txt …): copy its tokenizer's files.")


def _takes_pictures(architecture: str) -> bool:
    """Return whether a network reads pictures, and not regions, and words."""
    if architecture in WITH_HEADS:
        return True
    return architecture in WRAPPERS and WRAPPERS[architecture].takes_images


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Disable the progress bars that Transformers shows while it reads weights."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
