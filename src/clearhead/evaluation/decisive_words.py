"""Words of a model's vocabulary that the model itself takes for evidence of a class.

A gradient names those that may turn a text most (Ebrahimi et al. 2018, HotFlip, Eq. 10; Wallace et al. 2019), and what
they really do, in place of a word of some texts, decides.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.engine.context import eager_execution, frozen
from clearhead.errors import UnsupportedModel
from clearhead.evaluation.planting import list_content, measure_lead, replace_token, run_encoded, run_network
from clearhead.model.batches import Encoded, Item, collate
from clearhead.model.model import Model
from clearhead.perturbation.features import as_segments, as_span

# Of tokens that begin or end a word, in the vocabularies that mark them.
MARKS = ("Ġ", "▁", "</w>")
SHORTLIST = 48
WORDS = 6
TEXTS = 6


def find_words(model: Model, texts: Sequence[Encoded], target: int, generator: np.random.Generator) -> list[int]:
    """Return the tokens of the words that speak most for a class in place of a word of these texts, the best first."""
    texts = texts[:TEXTS]
    shortlist = _list_promising(model, _find_direction(model, texts, target))
    lead_W = _measure_words(model, texts, shortlist, target, generator)
    best = lead_W.argsort(descending=True, stable=True)[:WORDS]
    return [shortlist[index] for index in best.tolist()]


def _list_promising(model: Model, direction_D: Tensor) -> list[int]:
    """Return the words whose embeddings lie furthest in a direction."""
    candidates_W = torch.tensor(list_vocabulary(model), device=model.device)
    weight_WD = find_embedding(model).weight.detach()[candidates_W]
    count = min(SHORTLIST, len(candidates_W))
    promising: list[int] = candidates_W[(weight_WD @ direction_D).topk(count).indices].tolist()
    return promising


def find_embedding(model: Model) -> nn.Embedding:
    """Return the table of the embeddings of tokens."""
    embedding: nn.Embedding = model.network.get_input_embeddings()
    return embedding


def list_vocabulary(model: Model) -> list[int]:
    """Return the tokens that are whole words; raise UnsupportedModel if there are none."""
    names = _name_tokens(model)
    mark = _find_mark(names)
    words = {token for token, name in enumerate(names) if _is_word(name, mark)}
    tokens = sorted(words.difference(model.processor.all_special_ids))
    _require_tokens(model, tokens)
    return tokens


def _name_tokens(model: Model) -> list[str]:
    # Tables may have rows to spare, and tokenizers names that the network does not know.
    size = min(len(model.processor), len(find_embedding(model).weight))
    names: list[str] = model.processor.convert_ids_to_tokens(list(range(size)))
    return names


def _require_tokens(model: Model, tokens: Sequence[int]) -> None:
    if not tokens:
        raise UnsupportedModel(f"No token of {model.name} is a whole word: there is no evidence to plant.")


def _find_mark(names: Sequence[str]) -> str:
    """Return what marks the words of a vocabulary; nothing where sub-words are marked instead."""
    for mark in MARKS:
        if any(mark in name for name in names):
            return mark
    return ""


def _is_word(name: str, mark: str) -> bool:
    return mark in name and name.replace(mark, "").isalpha()


def _find_direction(model: Model, texts: Sequence[Encoded], target: int) -> Tensor:
    """Return in which direction the embedding of a word has to change for a class, on average (D)."""
    with (
        frozen(model.network),
        eager_execution(model.device),
        _record_embeddings(find_embedding(model)) as embeddings,
    ):
        logits_NC = run_network(model, collate(model, texts).tensors)
        (gradient_NTD,) = torch.autograd.grad(measure_lead(logits_NC, target).sum(), embeddings)
    gradients = [gradient_TD[list_words(row.item)] for gradient_TD, row in zip(gradient_NTD, texts, strict=True)]
    # Of equal length, so that no text outweighs the others.
    return torch.nn.functional.normalize(torch.cat(gradients)).mean(0)


@contextmanager
def _record_embeddings(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """Keep what the table returns as tensors that gradients can reach."""
    outputs: list[Tensor] = []

    def record(module: nn.Module, args: tuple[Tensor, ...], output_NTD: Tensor) -> Tensor:
        outputs.append(output_NTD.detach().requires_grad_())
        return outputs[-1]

    hook = embedding.register_forward_hook(record)
    try:
        yield outputs
    finally:
        hook.remove()


def _measure_words(
    model: Model, texts: Sequence[Encoded], words: Sequence[int], target: int, generator: np.random.Generator
) -> Tensor:
    """Return by how much a class leads, on average, with each word in place of one of every text (W)."""
    rows = []
    for row in texts:
        location = int(generator.choice(list_words(row.item)))
        rows += [replace_token(row, location, word) for word in words]
    lead = measure_lead(run_encoded(model, rows), target)
    return lead.reshape(len(texts), len(words)).mean(0)


def list_words(item: Item) -> list[int]:
    """Return the indices of the tokens that are whole words; of all that are not special, if none is."""
    content = list_content(item)
    return [index for index in content if _is_whole_word(item, index)] or content


def _is_whole_word(item: Item, index: int) -> bool:
    if item.text is None or item.offsets is None:
        return False
    segment, start, end = as_span(item.offsets[index])
    return _stands_alone(as_segments(item.text)[segment], start, end)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Return whether characters are letters with none beside them."""
    # The tokens of some tokenizers begin with the blank before the word.
    word = text[start:end].lstrip()
    return word.isalpha() and not _has_neighbours(text, end - len(word), end)


def _has_neighbours(text: str, start: int, end: int) -> bool:
    neighbours = text[:start][-1:] + text[end:][:1]
    return any(map(str.isalnum, neighbours))
