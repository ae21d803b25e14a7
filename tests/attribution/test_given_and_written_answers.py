"""Answers as token ids, and answers that the model writes: how long they may be, and options that it refuses."""

import numpy as np
import pytest
import transformers

import clearhead
from clearhead.errors import BadInput, BadOption
from clearhead.views import json_record
from tests.helpers.language_models import make_decoder, make_encoder_decoder, make_tokenizer
from tests.helpers.pictures import picture

CHAT = [{"role": "user", "content": "the capital of france is"}]


@pytest.fixture(scope="module")
def llama():
    return clearhead.load(make_decoder("llama"), make_tokenizer())


@pytest.fixture(scope="module")
def short():
    """Return a decoder of 16 positions, which never ends an answer."""
    tokenizer = make_tokenizer()
    settings = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "eos_token_id": None}
    config = transformers.GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, **settings)
    return clearhead.load(transformers.GPT2LMHeadModel(config).eval(), tokenizer)


@pytest.mark.parametrize("prompt", ["the capital of france is", CHAT])
def test_an_answer_may_be_token_ids(llama, prompt):
    by_text = clearhead.explain(llama, prompt, "gradient-x-input", answer="paris is long", check=False)
    ids = list(by_text.target.tokens)
    by_ids = clearhead.explain(llama, prompt, "gradient-x-input", answer=ids, check=False)
    assert by_ids.answer == by_text.answer
    np.testing.assert_array_equal(by_ids.relevance, by_text.relevance)


def test_token_ids_answer_a_single_prompt(llama):
    with pytest.raises(BadInput, match="one text for all prompts"):
        clearhead.explain(llama, ["the", "it"], "gradient-x-input", answer=[7, 8])
    with pytest.raises(BadInput, match="has the token 99999"):
        clearhead.explain(llama, "the", "gradient-x-input", answer=[99999])


def test_a_model_writes_no_more_than_it_has_positions_for(short):
    explanation = clearhead.explain(short, "the capital of france is", "gradient-x-input", check=False)
    # The last token is written, but never read.
    assert len(explanation.tokens) == 16 and len(explanation.steps) == 16 - explanation.prompt_length + 1


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        ({"max_new_tokens": 40}, "max_new_tokens=40 is too large: after the .* can write at most 1"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 must be a whole number, at least 1"),
        ({"foo": 3}, "refuses the options in generation: .*foo"),
    ],
)
def test_options_of_writing_that_are_refused(short, generation, message):
    with pytest.raises(BadOption, match=message) as caught:
        clearhead.explain(short, "the capital of france is", "gradient-x-input", generation=generation)
    assert "\n" not in str(caught.value)


def test_a_picture_for_a_model_of_texts(llama):
    with pytest.raises(BadInput, match=r"^LlamaForCausalLM reads no pictures: give the prompt as a text"):
        clearhead.explain(llama, (picture(), "the capital is"), "gradient-x-input")


def test_the_record_names_the_foil(llama):
    arguments = {"answer": "paris", "versus": "london", "check": False}
    explanation = clearhead.explain(llama, "the capital is", "gradient-x-input", **arguments)
    assert json_record.record(explanation)["target"]["versus"] == "london"


@pytest.mark.parametrize(
    ("answer", "foils"),
    [
        ("so: paris", ["Ġlondon"]),
        ("so:\nparis", ["lon", "don"]),
        ("\nparis", ["lon", "don"]),
        ("(paris", ["lon", "don"]),
    ],
)
def test_a_foil_begins_as_the_words_that_it_replaces(llama, answer, foils):
    """After a blank, in a line of its own, or right after a bracket."""
    explanation = clearhead.explain(llama, "it is", "gradient-x-input", answer=answer, focus="paris", versus="london")
    assert [explanation.steps[step].versus for step in explanation.explained] == foils


@pytest.mark.parametrize(("prompt", "blank"), [("首都是", False), ("the capital is", True)])
def test_chinese_goes_on_without_a_blank(llama, prompt, blank):
    explanation = clearhead.explain(llama, prompt, "gradient-x-input", answer="北京")
    assert (explanation.steps[0].token == "Ġ") is blank


def test_an_empty_foil_is_told_what_leaving_it_out_means(llama):
    with pytest.raises(BadInput, match=r"The foil is empty: .* explain the answer by itself"):
        clearhead.explain(llama, "it is", "gradient-x-input", answer="paris", versus=" ")


@pytest.mark.parametrize("make", [lambda: make_decoder("llama"), lambda: make_encoder_decoder("bart")])
def test_generation_may_return_more_than_tokens(make):
    model = clearhead.load(make(), make_tokenizer())
    plain, more = (
        clearhead.explain(model, "it is", "gradient-x-input", generation={"max_new_tokens": 3, **options})
        for options in ({}, {"return_dict_in_generate": True, "output_scores": True})
    )
    assert more.answer == plain.answer


@pytest.mark.parametrize("message", [{"content": "it is"}, {"role": "user", "content": "it is"}])
def test_a_message_without_role_or_list_is_told_what_a_chat_is(llama, message):
    prompt = message if "role" in message else [message]
    with pytest.raises(BadInput, match="each with a role and a content"):
        clearhead.explain(llama, prompt, "gradient-x-input", answer="long")


def test_several_answers_are_refused(llama):
    generation = {"num_return_sequences": 2, "num_beams": 2}
    with pytest.raises(BadOption, match="asks for several answers, but one is explained"):
        clearhead.explain(llama, "it is", "gradient-x-input", generation=generation)


@pytest.mark.parametrize(("template", "advice"), [(None, "or another prompt"), ("{{ messages }}", "--chat")])
def test_a_model_that_writes_nothing_says_what_else_to_try(template, advice):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    network = make_decoder("llama")
    model = clearhead.load(network, tokenizer)
    prompt = tokenizer("it is", return_tensors="pt")["input_ids"]
    first = int(network.generate(prompt, max_new_tokens=1, do_sample=False)[0, -1])
    network.generation_config.eos_token_id = first
    with pytest.raises(BadInput, match=f"writes nothing after this prompt: .*{advice}"):
        clearhead.explain(model, "it is", "gradient-x-input")
