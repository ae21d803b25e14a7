"""What works with which family, found by running tiny random models: the table of docs/models.md."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import helpers.picture_models as writers
import helpers.tiny_heads as heads
import helpers.tiny_models as classes
import helpers.word_layouts as layouts
from helpers.joined_models import JOINED, joined_network, joined_tensors
from helpers.language_models import DECODERS, ENCODER_DECODERS, make_decoder, make_encoder_decoder, make_tokenizer
from helpers.picture_models import make_picture, make_picture_model, process_prompt
from helpers.pictures import picture
from helpers.tiny_pictures import PICTURES, picture_network, picture_tensors
from helpers.two_towers import FAMILIES as TOWERS
from helpers.two_towers import TEXTS, sentence_model, tower_model
from helpers.word_layouts import layout_network, layout_tensors

import clearhead

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
COLUMNS = ("gae", "trans-att", "lrp", "att-cat", "balanced-cat", "attn-lrp", "gradient-x-input", "occlusion")
Case = tuple[Any, Any, dict[str, Any]]
"""A model, its inputs, and the options of `compare`."""


def _classifier(family: str) -> Case:
    return _with_mask(classes.model(family)), classes.tensors(family), {"target": 1}


def _with_mask(model: Any) -> Any:
    # As tokenizers have it: hidden words become masks, not gaps in the attention of a small window.
    model.config.mask_token_id = heads.MASK_ID
    return model


def _labeller(family: str) -> Case:
    model = clearhead.load(heads.head_network("words", family))
    return _with_mask(model), heads.head_tensors("words", family), {"target": 1, "focus": 3}


def _filler(family: str) -> Case:
    return clearhead.load(heads.head_network("masks", family)), heads.head_tensors("masks", family), {"target": 1}


def _chooser(family: str) -> Case:
    model = clearhead.load(classes.network(family, network_class=heads.CHOICES[family]))
    return _with_mask(model), classes.tensors(family), {}


def _picture(family: str) -> Case:
    model = clearhead.load(picture_network(family))
    focus = 2 if model.finds_objects else (0, 0, 16, 32)
    return model, picture_tensors(family), {"target": 1, "focus": focus}


def _decoder(family: str) -> Case:
    return clearhead.load(make_decoder(family), make_tokenizer()), ["the river in"], {"answer": "paris"}


def _moved(family: str) -> Case:
    return clearhead.load(layout_network(family)), layout_tensors(family), {"target": 1}


def _towers(family: str) -> Case:
    return tower_model(family), [(picture(), list(TEXTS))], {}


def _similarity(pooling: str) -> Case:
    return sentence_model(pooling=pooling), [TEXTS[:2]], {}


def _picture_writer(family: str) -> Case:
    model = clearhead.load(*make_picture_model(family))
    return model, [process_prompt(model, [make_picture()], "<image> the river")], {"answer": "paris"}


def _pair(family: str) -> Case:
    return clearhead.load(make_encoder_decoder(family), make_tokenizer()), ["the river in"], {"answer": "paris"}


def _joined(family: str) -> Case:
    return clearhead.load(joined_network(family)), joined_tensors(family), {"target": 0}


ROWS: dict[str, tuple[Callable[[str], Case], list[str]]] = {
    "class": (_classifier, [*classes.FAMILIES, *classes.BALANCED_FAMILIES]),
    "class, tokens moved": (_moved, list(layouts.FAMILIES)),
    "picture and text": (_towers, list(TOWERS)),
    "two texts": (_similarity, ["mean", "cls"]),
    "label of a word": (_labeller, list(heads.WORD_LABELS)),
    "masked word": (_filler, list(heads.MASKED_WORDS)),
    "choice": (_chooser, list(heads.CHOICES)),
    "box or pixels": (_picture, list(PICTURES)),
    "picture and text read together": (_joined, list(JOINED)),
    "answer": (_decoder, list(DECODERS)),
    "answer to a source": (_pair, list(ENCODER_DECODERS)),
    "answer about a picture": (_picture_writer, list(writers.FAMILIES)),
}
"""What is explained: how a model of a family is made, and the families."""


def works(case: Case, method: str) -> bool:
    """Return whether a method explains a model; a refusal says why it does not."""
    model, inputs, options = case
    try:
        clearhead.explain(model, inputs, method, check=False, **options)
    except (clearhead.UnsupportedModel, clearhead.UnsupportedOperation):
        return False
    return True


def list_rows() -> Iterator[str]:
    for name, (make, families) in ROWS.items():
        for family in families:
            yield format_row(name, family, make(family))


def format_row(name: str, family: str, case: Case) -> str:
    marks = ["✓" if works(case, method) else "–" for method in COLUMNS]
    return f"| {name} | {family} | {' | '.join(marks)} |"


def format_head() -> list[str]:
    return [f"| explained | family | {' | '.join(COLUMNS)} |", "|---|---|" + "---|" * len(COLUMNS)]


if __name__ == "__main__":
    text = PAGE.read_text("utf-8")
    intro = text[: text.index("| explained |")]
    PAGE.write_text(intro + "\n".join([*format_head(), *list_rows()]) + "\n", "utf-8")
