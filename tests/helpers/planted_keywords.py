"""Tiny models trained on texts and pictures in which one planted keyword or patch alone decides the answer."""

import random
from dataclasses import dataclass
from functools import cache

import torch
import transformers as hf
from helpers.tiny_tokenizers import SPECIAL, word_piece_tokenizer
from torch.nn.functional import cross_entropy

import clearhead
from clearhead.model.model import Model

KEYWORDS = ("red", "green", "blue")
SHORT_WORDS = ["a", "the", "film", "is", "not", "very", "on", "its", "heart", "in", "of", "to", "we", "see"]
SPLIT_WORDS = ["raining", "rainings", "planter", "planters", "walking", "walkings"]
"""Fillers of two and three sub-word tokens."""
PIECES = ["rain", "plant", "walk", "##ing", "##er", "##s"]
WORDS = [*SPECIAL.values(), *KEYWORDS, *SHORT_WORDS, *PIECES]
COLOURS = torch.tensor([[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
NOTHING = len(KEYWORDS)
"""The class of texts and pictures without a keyword or patch.

If all had one, the models would attend to nothing else, and the gradient of a saturated map has an arbitrary sign.
"""

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "num_labels": 4}
DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TEXT = {**SIZES, "vocab_size": 40, "max_position_embeddings": 64, "pad_token_id": 0}
ENDS = {"bos_token_id": 2, "eos_token_id": 3}
MODERN = {**TEXT, **ENDS, "classifier_pooling": "mean", "cls_token_id": 2, "sep_token_id": 3, "local_attention": 32}
GPT2 = {
    "vocab_size": 40,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "num_labels": 4,
    "pad_token_id": 0,
}
GPT2 |= {**ENDS, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
LLAMA = {**TEXT, **ENDS, "num_key_value_heads": 2, "head_dim": 8}
BEIT = {**SIZES, **DROPOUT, "image_size": 32, "patch_size": 8, "use_relative_position_bias": True}
BEIT |= {"drop_path_rate": 0.0, "layer_scale_init_value": 1.0}

NETWORKS = {
    "bert": (hf.BertConfig, {**TEXT, **DROPOUT}, hf.BertForSequenceClassification),
    "modernbert-mean": (hf.ModernBertConfig, MODERN, hf.ModernBertForSequenceClassification),
    "gpt2": (hf.GPT2Config, GPT2, hf.GPT2ForSequenceClassification),
    "llama": (hf.LlamaConfig, LLAMA, hf.LlamaForSequenceClassification),
    "beit-mean": (hf.BeitConfig, BEIT, hf.BeitForImageClassification),
    "bert-answers": (hf.BertConfig, {**TEXT, **DROPOUT, "num_labels": 2}, hf.BertForQuestionAnswering),
}
DECODERS = ("gpt2", "llama")
STEPS = 300
LEARNING_RATE = {"bert": 1e-3, "modernbert-mean": 1e-3}
BATCH = 64
HELD_OUT = 100
READ_PATCHES = 0.1
"""Share of the patches that the head of the picture model reads in training.

Otherwise each patch would be judged by itself, without attention.
"""


@dataclass(frozen=True)
class Planted:
    """A trained model with inputs that it has not seen, the class of each, and the tokens that decide it."""

    family: str
    model: Model
    inputs: list[str] | dict[str, torch.Tensor]
    labels: list[int]
    places: list[set[int]]

    @property
    def targets(self):
        """The class of each input; for a model of answers the predicted span."""
        return None if self.family == "bert-answers" else self.labels


def make_sentence(numbers, label):
    """Return fillers with the keyword of a class anywhere but at the end."""
    words = numbers.choices([*SHORT_WORDS, *SPLIT_WORDS], k=numbers.randint(5, 10))
    if label != NOTHING:
        words.insert(numbers.randrange(len(words)), KEYWORDS[label])
    return " ".join(words)


def make_passage(numbers, label):
    """Return fillers of one token each with a keyword, which the two words of the answer follow."""
    words = numbers.choices(SHORT_WORDS, k=numbers.randint(6, 10))
    if label != NOTHING:
        words.insert(numbers.randrange(len(words) - 2), KEYWORDS[label])
    return " ".join(words)


def make_picture(numbers, label):
    """Return noise of 4 × 4 patches, one of which has the colour of a class, and the index of that patch."""
    generator = torch.Generator().manual_seed(numbers.randrange(2**31))
    picture = 0.5 * torch.randn(3, 4, 8, 4, 8, generator=generator)
    row, column = numbers.randrange(4), numbers.randrange(4)
    if label != NOTHING:
        picture[:, row, :, column] += COLOURS[label][:, None, None]
    return picture.reshape(3, 32, 32), 4 * row + column


def draw_labels(numbers, count, *, with_nothing):
    """Return classes; half of those for training are of nothing."""
    labels = [*range(len(KEYWORDS))]
    if with_nothing:
        labels += [NOTHING] * len(KEYWORDS)
    return numbers.choices(labels, k=count)


@cache
def make_tokenizer(family):
    tokenizer = word_piece_tokenizer(WORDS, model_input_names=["input_ids", "attention_mask"])
    if family in DECODERS:
        # As many tokenizers of decoders: the head reads the last word, not a special token.
        tokenizer.backend_tokenizer.post_processor = None
    return tokenizer


def find_keyword(ids):
    """Return the index of the keyword in each row, -1 where there is none."""
    first = WORDS.index(KEYWORDS[0])
    is_keyword = (ids >= first) & (ids < first + len(KEYWORDS))
    return torch.where(is_keyword.any(1), is_keyword.int().argmax(1), -1)


def make_batch(family, numbers):
    """Return a batch for training, with labels."""
    labels = draw_labels(numbers, BATCH, with_nothing=True)
    if family == "beit-mean":
        pictures = [make_picture(numbers, label)[0] for label in labels]
        return {"pixel_values": torch.stack(pictures), "labels": torch.tensor(labels)}
    make_text = make_passage if family == "bert-answers" else make_sentence
    texts = [make_text(numbers, label) for label in labels]
    batch = make_tokenizer(family)(texts, padding=True, return_tensors="pt")
    if family != "bert-answers":
        return {**batch, "labels": torch.tensor(labels)}
    place = find_keyword(batch["input_ids"])
    # Without a keyword the answer is the class token.
    start, end = torch.where(place < 0, 0, place + 1), torch.where(place < 0, 0, place + 2)
    return {**batch, "start_positions": start, "end_positions": end}


def drop_patches(module, args):
    """Set most patches to zero on their way to the pooling head, others the next time."""
    hidden = args[0]
    return (hidden * (torch.rand(hidden.shape[:2]) < READ_PATCHES)[..., None] / READ_PATCHES,)


def train(family, seed=0):
    """Return a model trained for a few seconds, and held-out inputs that all have a keyword or patch."""
    torch.manual_seed(seed)
    config_class, options, network_class = NETWORKS[family]
    network = network_class(config_class(**options))
    optimise(network, family, random.Random(seed))
    return hold_out(family, network.eval(), random.Random(seed + 1000))


def optimise(network, family, numbers):
    if family == "beit-mean":
        hook = network.beit.pooler.register_forward_pre_hook(drop_patches)
    optimiser = torch.optim.AdamW(network.parameters(), LEARNING_RATE.get(family, 2e-3))
    for _ in range(STEPS):
        optimiser.zero_grad()
        measure_loss(network.train(), make_batch(family, numbers)).backward()
        optimiser.step()
    if family == "beit-mean":
        hook.remove()


def measure_loss(network, batch):
    if "labels" not in batch:
        return network(**batch).loss
    labels = batch.pop("labels")
    # Smoothed, so that the models do not go on to saturate once all is right.
    return cross_entropy(network(**batch).logits, labels, label_smoothing=0.1)


def hold_out(family, network, numbers):
    labels = draw_labels(numbers, HELD_OUT, with_nothing=False)
    if family == "beit-mean":
        pictures, patches = zip(*[make_picture(numbers, label) for label in labels], strict=True)
        inputs = {"pixel_values": torch.stack(pictures)}
        return Planted(family, clearhead.load(network), inputs, labels, [{patch} for patch in patches])
    tokenizer = make_tokenizer(family)
    make_text = make_passage if family == "bert-answers" else make_sentence
    texts = [make_text(numbers, label) for label in labels]
    ids = tokenizer(texts, padding=True, return_tensors="pt", add_special_tokens=False)["input_ids"]
    # An answer is decided by the keyword and by the two words themselves.
    length = 3 if family == "bert-answers" else 1
    places = [set(range(first, first + length)) for first in find_keyword(ids).tolist()]
    return Planted(family, clearhead.load(network, tokenizer), texts, labels, places)


def make_texts(count, seed=0):
    """Return sentences without a keyword, and two with the first one: the model predicts two classes."""
    numbers = random.Random(seed)
    plain = [make_sentence(numbers, NOTHING) for _ in range(count - 2)]
    return [*plain, make_sentence(numbers, 0), make_sentence(numbers, 0)]
