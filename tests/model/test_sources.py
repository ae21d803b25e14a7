"""Sources of prompts: documents that are inserted, segments that are found, sentences and turns."""

import pytest

import clearhead
from tests.helpers.language_models import make_decoder, make_tokenizer

DOCUMENTS = ["the river is grey.", "the capital is paris."]


@pytest.fixture(scope="module")
def llama():
    return clearhead.load(make_decoder("llama"), make_tokenizer())


def find_sources(model, prompt, sources=None):
    explanation = clearhead.explain(model, prompt, "gradient-x-input", answer="paris", sources=sources)
    return explanation.prompt, explanation.sources


def test_documents_stand_before_the_prompt(llama):
    prompt, sources = find_sources(llama, "it is", DOCUMENTS)
    assert prompt == "the river is grey.\n\nthe capital is paris.\n\nit is"
    assert [(source.name, source.text) for source in sources] == [("1", DOCUMENTS[0]), ("2", DOCUMENTS[1])]


def test_documents_stand_where_the_prompt_says(llama):
    prompt, sources = find_sources(llama, "read: {sources} now it is", {"a.txt": DOCUMENTS[0], "b.txt": DOCUMENTS[1]})
    assert prompt == "read: the river is grey.\n\nthe capital is paris. now it is"
    assert [source.name for source in sources] == ["a.txt", "b.txt"]
    assert all(prompt[source.start : source.end] == source.text for source in sources)


def test_segments_of_the_prompt_are_found_in_any_order(llama):
    prompt, sources = find_sources(llama, "the river is the river", ["is", "the river", "the river"])
    assert prompt == "the river is the river"
    assert [(source.start, source.end) for source in sources] == [(10, 12), (13, 22), (0, 9)]


def test_pairs_are_characters(llama):
    _, sources = find_sources(llama, "the river is", [(0, 9), (10, 12)])
    assert [source.text for source in sources] == ["the river", "is"]


def test_a_sources_relevance_is_the_sum_over_its_tokens(llama):
    explanation = clearhead.explain(llama, "the river is grey. it is", "gradient-x-input", answer="long")
    assert [source.text for source in explanation.sources] == ["the river is grey.", "it is"]
    total = sum(source.relevance for source in explanation.sources)
    assert total == pytest.approx(explanation.relevance[: explanation.prompt_length].sum())


def test_prompts_of_a_batch_have_sources_of_their_own(llama):
    prompts = ["it is", "is it"]
    first, second = clearhead.explain(
        llama, prompts, "gradient-x-input", answer="long", sources=[DOCUMENTS, ["a river."]]
    )
    assert len(first.sources) == 2
    assert [source.text for source in second.sources] == ["a river."]


CHAT = [{"role": "user", "content": "the river is grey. is it?"}, {"role": "user", "content": "it is"}]


def test_turns_of_a_chat(llama):
    _, sources = find_sources(llama, CHAT, "turns")
    assert [(source.name, source.text) for source in sources] == [
        ("user", "the river is grey. is it?"),
        ("user", "it is"),
    ]


def test_sentences_of_a_chat_have_no_markup(llama):
    _, sources = find_sources(llama, CHAT)
    assert [source.text for source in sources] == ["the river is grey.", "is it?", "it is"]


def test_documents_join_the_last_message(llama):
    prompt, sources = find_sources(llama, CHAT, ["paris is long."])
    assert "paris is long.\n\nit is" in prompt
    assert prompt[sources[0].start : sources[0].end] == "paris is long."
