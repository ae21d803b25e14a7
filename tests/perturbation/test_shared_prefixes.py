"""Rows of a decoder that begin alike: the tokens they share are computed once, and nothing changes."""

import pytest
import torch
from helpers.language_models import DECODERS, make_decoder, make_encoder_decoder, make_tokenizer

import clearhead
from clearhead.model.language import make_prefix_cache
from clearhead.perturbation import shared_prefixes
from clearhead.perturbation.shared_prefixes import PrefixRow, build_tree

PROMPT = "the capital of france is paris. the river in paris is long. the river in london is grey. the capital of"
SLIDING = {"mistral", "gemma2", "gemma3"}


@pytest.fixture
def few_tokens(monkeypatch):
    """Let short rows share their tokens too."""
    monkeypatch.setattr(shared_prefixes, "CALL_TOKENS", 0)


def explain(model, method, **options):
    """Return the relevance, and how many tokens the network read."""
    counts = []
    embedding = model.network.get_input_embeddings()
    handle = embedding.register_forward_hook(lambda module, inputs, output: counts.append(inputs[0].numel()))
    explanation = clearhead.explain(model, PROMPT, method, answer="england is london", check=False, **options)
    handle.remove()
    return torch.from_numpy(explanation.relevance), sum(counts)


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize(("method", "options"), [("occlusion", {"prefix": False}), ("context-cite", {"samples": 16})])
def test_shared_tokens_change_nothing(few_tokens, family, method, options):
    model = clearhead.load(make_decoder(family), make_tokenizer())
    shared, few = explain(model, method, **options)
    alone, many = explain(model, method, batch=1, **options)
    torch.testing.assert_close(shared, alone, rtol=0, atol=1e-9)
    if family not in SLIDING:
        assert few < 0.9 * many


def test_answers_of_every_step_share_tokens_too(few_tokens):
    model = clearhead.load(make_decoder("llama"), make_tokenizer())
    options = {"answer": "england is london", "prefix": False, "matrix": True}
    shared = clearhead.explain(model, PROMPT, "occlusion", **options)
    alone = clearhead.explain(model, PROMPT, "occlusion", batch=1, **options)
    torch.testing.assert_close(torch.tensor(shared.matrix), torch.tensor(alone.matrix), rtol=0, atol=1e-9)


def test_a_cache_that_gives_other_logits_is_not_used(few_tokens, monkeypatch):
    model = clearhead.load(make_decoder("llama"), make_tokenizer())
    alone, _ = explain(model, "occlusion", batch=1)
    resume = type(model.network).resume
    monkeypatch.setattr(type(model.network), "resume", lambda *arguments: resume(*arguments) + 1)
    shared, _ = explain(model, "occlusion")
    torch.testing.assert_close(shared, alone, rtol=0, atol=1e-9)


def test_sliding_windows_and_encoders_have_no_cache_to_share():
    for family in SLIDING:
        assert make_prefix_cache(clearhead.load(make_decoder(family), make_tokenizer()).network) is None
    marian = clearhead.load(make_encoder_decoder("marian"), make_tokenizer())
    assert make_prefix_cache(marian.network) is None


@pytest.mark.parametrize("tokens", [1, 10])
def test_without_room_rows_start_anew_and_nothing_changes(few_tokens, monkeypatch, tokens):
    model = clearhead.load(make_decoder("llama"), make_tokenizer())
    roomy, few = explain(model, "context-cite", samples=16)
    monkeypatch.setattr(shared_prefixes, "MAX_KEPT_TOKENS", tokens)
    narrow, more = explain(model, "context-cite", samples=16)
    torch.testing.assert_close(narrow, roomy, rtol=0, atol=1e-9)
    assert more > few


def make_row(*tokens, first):
    return PrefixRow(torch.tensor([tokens]), torch.tensor([[first, len(tokens) - 1]]))


def test_rows_continue_those_that_begin_alike_and_answers_are_always_computed():
    rows = [make_row(1, 2, 3, 4, first=2), make_row(5, 6, first=1), make_row(1, 2, 3, 5, first=2)]
    tree = build_tree(rows)
    assert (tree.parents, tree.shared) == ([None, 0, 0], [0, 0, 2])
    assert tree.first_shared() == 2


def test_rows_with_one_token_less_wait_for_one_row_only():
    whole = list(range(1, 41))
    rows = [make_row(*whole, first=39)]
    for removed in range(39):
        rows.append(make_row(*whole[:removed], *whole[removed + 1 :], first=38))
    assert build_tree(rows).generations <= 3
    assert build_tree(rows).saves_time


def test_answers_of_other_lengths_run_in_other_batches():
    network = make_decoder("llama")
    rows = [[3, 4, 5, 6], [3, 4, 5, 7, 8]]
    positions = [[2], [2, 3]]
    prefix_rows = []
    for row, own in zip(rows, positions, strict=True):
        prefix_rows.append(PrefixRow(torch.tensor([row]), torch.tensor([own])))
    model = clearhead.load(network, make_tokenizer())
    with torch.no_grad():
        logits = dict(shared_prefixes.iterate_logits(model.network, build_tree(prefix_rows), 512))
        for number, row in enumerate(rows):
            expected = network(torch.tensor([row])).logits[:, positions[number]]
            torch.testing.assert_close(logits[number], expected, rtol=0, atol=1e-9)


def test_rows_that_share_little_or_are_few_run_in_batches():
    long = [1] * 600
    assert build_tree([make_row(*long, first=300), make_row(*long, first=300)]).saves_time
    assert not build_tree([make_row(*long, first=300), make_row(*long, first=30)]).saves_time
    assert not build_tree([make_row(1, 1, 1, first=1), make_row(1, 1, 1, first=1)]).saves_time
