"""Explanations written by hand, and a tiny random model saved to a folder, for the tests of views and commands."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from clearhead.explanation import Explanation
from clearhead.model.target import Target

RELEVANCE = {"joyless": 0.42, ",": 0.02, "tedious": 0.61, "film": 0.04, "never": 0.22, "finds": -0.09, "heart": -0.18}
HOSTILE = "<script>alert('x')</script> \"quoted\" & a\u202eb\u2066c\u200bd \x1b[31m\x00 &lt;i&gt; \ud800 \u200fend"


def explained(text: str | tuple[str, str], *, label: str = "negative", **changes: Any) -> Explanation:
    """Tokens of at most five letters, relevance by the table above or by position."""
    segments = text if isinstance(text, tuple) else (text,)
    tokens, offsets, relevance = ["[CLS]"], [(0, 0, 0)], [0.2]
    for number, segment in enumerate(segments):
        for word in re.finditer(r"\S+", segment):
            for place, match in enumerate(re.finditer(r"\w{1,5}|[^\w\s]", word.group())):
                score = RELEVANCE.get(word.group().casefold(), ((word.start() * 7 + place) % 5 - 2) / 20)
                tokens.append(match.group().casefold())
                offsets.append((number, word.start() + match.start(), word.start() + match.end()))
                relevance.append(score * len(match.group()) / len(word.group()))
        tokens.append("[SEP]")
        offsets.append((number, 0, 0))
        relevance.append(0.05)
    special = np.array([token in ("[CLS]", "[SEP]") for token in tokens])
    return Explanation(
        **{
            "tokens": tuple(tokens),
            "relevance": np.array(relevance),
            "special": special,
            "target": Target(0),
            "label": label,
            "method": "att-cat",
            "text": text,
            "offsets": tuple(offset if isinstance(text, tuple) else offset[1:] for offset in offsets),
            "probability": 0.982,
            "options": {"hidden": "output"},
            "changed_options": {},
            "model": "clearhead/sst2-minilm",
            "diagnostics": {"score": 3.1, "conservation_gap": 3e-7},
            **changes,
        }
    )


def review(**changes: Any) -> Explanation:
    return explained("A joyless ,  tedious film that Never finds its heart", **changes)


def pictured(*, size: tuple[int, int] = (60, 40), label: str = "cat", **changes: Any) -> Explanation:
    """Four by four patches in the centre square of a grey picture; one patch speaks for the class, one against."""
    grid = np.zeros((4, 4))
    grid[1, 2], grid[3, 0] = 1.0, -0.5
    width, height = size
    return Explanation(
        **{
            "tokens": ("[CLS]", *(f"patch {row},{column}" for row in range(4) for column in range(4))),
            "relevance": np.concatenate([[0.3], grid.ravel()]),
            "special": np.arange(17) < 1,
            "target": Target(0),
            "label": label,
            "method": "trans-att",
            "grid": (4, 4),
            "image": Image.new("RGB", size, (90, 120, 150)),
            "box": ((width - height) / 2, 0, (width + height) / 2, height),
            "probability": 0.9,
            "model": "clearhead/pets-vit",
            "diagnostics": {"conservation_gap": 1e-6},
            **changes,
        }
    )


def save_text_model(folder: Path, kind: str = "BertForSequenceClassification", **changes: Any) -> Path:
    """A BERT of two blocks with a word-piece tokenizer that knows every letter; `changes` are its configuration's."""
    import string

    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = list(string.ascii_lowercase + string.digits + ".,!?'\"<>()&;/=-")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "tedious", "never", "heart", "bad", "good"]
    names = list(dict.fromkeys([*words, *letters, *("##" + letter for letter in letters)]))
    tokenizer = Tokenizer(models.WordPiece({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(names),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        **{"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}, **changes},
    )
    getattr(transformers, kind)(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def save_regression_model(folder: Path) -> Path:
    """A BERT that answers a number."""
    return save_text_model(folder, id2label={0: "stars"}, label2id={"stars": 0}, problem_type="regression")


def save_answer_model(folder: Path) -> Path:
    """A BERT that marks where in the second text the answer stands."""
    return save_text_model(folder, "BertForQuestionAnswering")


def save_image_model(folder: Path) -> Path:
    """A ViT of two blocks that sees 32 × 32 pixels in patches of 8."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        id2label={0: "cat", 1: "dog"},
        label2id={"cat": 0, "dog": 1},
    )
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder
