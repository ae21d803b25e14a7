"""Explanations of the answers of language models."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import clearhead
from clearhead.attribution import answers, batch
from clearhead.attribution.answers import list_steps
from clearhead.engine import blockwise, memory, step_trace
from clearhead.engine.step_trace import StepTrace
from clearhead.errors import BadInput, BadOption
from clearhead.model.answer_inputs import add_answer, encode_prompt, tokenise_answer
from clearhead.model.inputs import collate
from clearhead.model.target import AnswerTarget
from clearhead.views.answers import format_sink, list_shares
from tests.helpers.language_models import DECODERS, make_decoder, make_tokenizer

PROMPT = "the capital of france is"
ANSWER = "paris and long"
METHODS = (
    "gradient-x-input",
    "att-cat",
    "cat",
    "attn-lrp",
    "lrp",
    "trans-att",
    "rollout",
    "grads",
    "attention-gradcam",
    "balanced-cat",
    "trans-att:backward=attn-lrp",
    "grads:backward=balanced",
)


@pytest.fixture(scope="module")
def llama():
    return clearhead.load(make_decoder("llama"), make_tokenizer())


@pytest.fixture(scope="module")
def gpt2():
    # Other than Llama's, its norms compute in float64.
    return clearhead.load(make_decoder("gpt2"), make_tokenizer())


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("name", METHODS)
def test_a_step_is_explained_like_a_one_token_answer_to_the_same_prefix(family, name):
    model = clearhead.load(make_decoder(family), make_tokenizer())
    matrix = clearhead.explain(model, PROMPT, name, answer=ANSWER, matrix=True).matrix
    for step, (prefix, token) in enumerate(
        [(PROMPT, "paris"), (f"{PROMPT} paris", "and"), (f"{PROMPT} paris and", "long")]
    ):
        alone = clearhead.explain(model, prefix, name, answer=token).relevance
        np.testing.assert_allclose(matrix[step, : len(alone)], alone, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(matrix[step, len(alone) :], 0)


@pytest.mark.parametrize("name", ["gradient-x-input", "cat", "attn-lrp", "lrp"])
def test_rows_of_linear_methods_add_up_to_the_whole_answer(gpt2, name):
    explanation = clearhead.explain(gpt2, PROMPT, name, answer=ANSWER, matrix=True)
    np.testing.assert_allclose(explanation.matrix.sum(0), explanation.relevance, rtol=1e-9, atol=1e-12)


def test_every_byte_of_a_character_counts_for_its_word(gpt2):
    explanation = clearhead.explain(gpt2, PROMPT, "attn-lrp", answer="é 北 long", matrix=True)
    assert explanation.span("é").explained == (1, 2)
    assert explanation.span("北").explained == (4, 5, 6)
    accented, character = explanation.answer_words()[:2]
    of_answer = explanation.relevance[explanation.prompt_length :]
    assert accented.relevance == pytest.approx(of_answer[1:3].sum())
    assert character.relevance == pytest.approx(of_answer[4:7].sum())


def test_the_first_token_is_named_by_its_characters(gpt2):
    explanation = clearhead.explain(gpt2, "é is", "attn-lrp", answer="long")
    assert list_shares(explanation)[0].name == "first token “é”"
    sink = replace(explanation, relevance=np.arange(len(explanation.tokens), 0, -1.0))
    assert format_sink(sink).startswith("First token, ranked apart: é ")


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_of_prompts_of_different_lengths_gives_what_each_gives_alone(llama, name):
    prompts = [PROMPT, "the river in london is", "the river"]
    answers = ["paris and long", "grey", "is long"]
    batch = clearhead.explain(llama, prompts, name, answer=answers)
    for prompt, answer, explanation in zip(prompts, answers, batch, strict=True):
        alone = clearhead.explain(llama, prompt, name, answer=answer)
        np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["attn-lrp", "cp-lrp", "cat", "trans-att"])
@pytest.mark.parametrize("repeats", [1, 6])
def test_a_prompt_that_does_not_fit_goes_block_by_block(gpt2, name, repeats, monkeypatch):
    """The longer prompt is longer than the probe that finds the blocks."""
    prompt = " ".join([PROMPT] * repeats)
    at_once = clearhead.explain(gpt2, prompt, name, answer=ANSWER)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    monkeypatch.setattr(batch, "capture", lambda *_, **__: pytest.fail("traced as a whole"))
    blocks = clearhead.explain(gpt2, prompt, name, answer=ANSWER)
    np.testing.assert_allclose(blocks.relevance, at_once.relevance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["gradient-x-input", "attn-lrp", "cp-lrp", "cat", "trans-att"])
def test_the_steps_of_a_prompt_that_does_not_fit_go_block_by_block(llama, name, monkeypatch):
    prompt = " ".join([PROMPT] * 6)
    at_once = clearhead.explain(llama, prompt, name, answer=ANSWER, matrix=True)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    monkeypatch.setattr(step_trace, "free_bytes", lambda device: 1)
    monkeypatch.setattr(batch, "capture", lambda *_, **__: pytest.fail("traced as a whole"))
    blocks = clearhead.explain(llama, prompt, name, answer=ANSWER, matrix=True)
    np.testing.assert_allclose(blocks.matrix, at_once.matrix, rtol=1e-9, atol=1e-12)


def test_blocks_are_repeated_once_for_all_steps(llama, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    repeated = []
    repeat = blockwise.repeat_recorded
    monkeypatch.setattr(
        blockwise, "repeat_recorded", lambda *args, **options: repeated.append(1) or repeat(*args, **options)
    )
    explanation = clearhead.explain(llama, PROMPT, "attn-lrp", answer=ANSWER, matrix=True)
    blocks = llama.config.num_hidden_layers
    # Once for the whole answer, and once for its steps.
    assert len(explanation.matrix) > 2 and len(repeated) == 2 * blocks


@pytest.mark.parametrize("name", ["gradient-x-input", "att-cat", "attn-lrp", "trans-att", "lrp", "partial-lrp"])
def test_few_steps_at_a_time_give_what_all_give(gpt2, name, monkeypatch):
    at_once = clearhead.explain(gpt2, PROMPT, name, answer=ANSWER, matrix=True)
    sizes = []
    split = answers.split_targets

    def note(*args, **options):
        for chunk in split(*args, **options):
            sizes.append(len(chunk.targets))
            yield chunk

    monkeypatch.setattr(answers, "split_targets", note)
    monkeypatch.setattr(step_trace, "_targets_per_batch", lambda *_, **__: 2)
    in_parts = clearhead.explain(gpt2, PROMPT, name, answer=ANSWER, matrix=True)
    assert len(sizes) > 1 and set(sizes[:-1]) == {2}
    np.testing.assert_allclose(in_parts.matrix, at_once.matrix, rtol=1e-9, atol=1e-12)


def test_steps_without_a_foil_are_explained_as_without_any(gpt2):
    """Steps outside the focus have no foil; each is explained as it would be alone."""
    contrast = clearhead.explain(
        gpt2, PROMPT, "gradient-x-input", answer=ANSWER, focus=0, versus="london", matrix=True
    ).matrix
    plain = clearhead.explain(gpt2, PROMPT, "gradient-x-input", answer=ANSWER, matrix=True).matrix
    np.testing.assert_allclose(contrast[1:], plain[1:], rtol=1e-9, atol=1e-12)
    assert np.abs(contrast[0] - plain[0]).max() > 1e-6


def test_probabilities_are_those_of_the_model(llama):
    explanation = clearhead.explain(llama, PROMPT, "attn-lrp", answer=ANSWER)
    tokenizer = llama.processor
    ids = tokenizer(f"{PROMPT} {ANSWER}", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        log_probabilities = llama.network.language_model(ids).logits.log_softmax(-1)[0]
    start = explanation.prompt_length
    for index, step in enumerate(explanation.steps):
        expected = log_probabilities[start + index - 1, ids[0, start + index]].exp()
        assert step.probability == pytest.approx(float(expected), rel=1e-12)
    assert explanation.diagnostics["score"] == pytest.approx(np.log(explanation.probability))


def test_what_is_generated_is_what_generate_gives(llama):
    options = {"max_new_tokens": 6}
    explanation = clearhead.explain(llama, PROMPT, "attn-lrp", generation=options)
    inputs = llama.processor(PROMPT, return_tensors="pt")
    written = llama.network.language_model.generate(input_ids=inputs["input_ids"], do_sample=False, **options)
    answer = written[0, explanation.prompt_length :].tolist()
    assert list(explanation.target.tokens) == [token for token in answer if token != llama.processor.eos_token_id]


def test_a_foil_explains_the_difference_of_logits(gpt2):
    explanation = clearhead.explain(gpt2, PROMPT, "gradient-x-input", answer="paris", versus="london")
    paris = clearhead.explain(gpt2, PROMPT, "gradient-x-input", answer="paris", scale="logit")
    london = clearhead.explain(gpt2, PROMPT, "gradient-x-input", answer="london", scale="logit")
    np.testing.assert_allclose(explanation.relevance, paris.relevance - london.relevance, rtol=1e-9, atol=1e-12)
    assert explanation.label == "paris rather than london"
    assert explanation.steps[0].versus == "Ġlondon"


def test_a_focus_explains_some_words_of_the_answer(llama):
    unfocused = clearhead.explain(llama, PROMPT, "attn-lrp", answer=ANSWER, matrix=True)
    focused = clearhead.explain(llama, PROMPT, "attn-lrp", answer=ANSWER, focus="and")
    assert focused.label == "and"
    np.testing.assert_allclose(unfocused.span("and").relevance, focused.relevance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(unfocused.span(1).relevance, focused.relevance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(unfocused.span((6, 9)).relevance, focused.relevance, rtol=1e-9, atol=1e-12)


def test_heads_belong_to_the_whole_answer(gpt2):
    explanation = clearhead.explain(gpt2, PROMPT, "attn-lrp:heads=true", answer=ANSWER, matrix=True)
    assert explanation.heads.ndim == 2
    assert np.abs(explanation.heads).max() > 0
    assert explanation.span("paris").heads is None


def test_the_relevance_of_units_step_by_step(gpt2):
    trace, steps, name = trace_steps(gpt2)
    together = steps.module_relevance(name)
    assert len(together) == 3
    for row, target in enumerate(steps.targets):
        alone = trace.with_target([target]).module_relevance(name)
        torch.testing.assert_close(together[row : row + 1], alone)


def test_steps_refuse_an_unknown_backward(gpt2):
    _, steps, _ = trace_steps(gpt2)
    with pytest.raises(BadOption, match="Invalid backward='lrp'"):
        steps.coefficients("lrp")


def trace_steps(model):
    """The trace of an answer with a kept module, and that of its steps."""
    (name,) = [name for name, _ in model.network.named_modules() if name.endswith("h.0.mlp.act")]
    encoded = encode_prompt(model, PROMPT)
    row = add_answer(model, encoded, tokenise_answer(model, encoded, ANSWER))
    ids = tuple(row.item.answer.ids)
    trace = clearhead.capture(model, collate(model, [row]), AnswerTarget(steps=(0, 1, 2), tokens=ids), modules=name)
    return trace, StepTrace(trace, list_steps(trace)), name


def test_words_stand_on_both_sides(llama):
    explanation = clearhead.explain(llama, PROMPT, "attn-lrp", answer=ANSWER)
    assert [word.text for word in explanation.prompt_words()] == PROMPT.split()
    # The last word is predicted, and has no influence on anything.
    assert [word.text for word in explanation.answer_words()] == ["paris", "and"]
    assert sum(explanation.shares.values()) == pytest.approx(1)


def test_the_template_of_a_chat_is_special(llama):
    chat = [{"role": "user", "content": "the capital of france"}]
    explanation = clearhead.explain(llama, chat, "attn-lrp", answer="paris")
    tokens = zip(explanation.tokens[: explanation.prompt_length], explanation.special, strict=False)
    words = [token for token, special in tokens if not special]
    assert "".join(words) == "theĠcapitalĠofĠfrance"
    assert explanation.text[0].startswith("<|user|>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": " "}, "empty"),
        ({"answer": " "}, "answer is empty"),
        ({"answer": 3}, "one text for all"),
        ({"answer": "paris", "versus": "london is"}, "has 2 tokens, but the answer 'paris' has 1"),
        ({"answer": ANSWER, "versus": "london is", "focus": 0}, "in whose place it stands, has 1: .* same length.$"),
        ({"answer": "paris", "versus": "paris"}, "answer itself"),
        ({"answer": "paris", "focus": "london"}, "does not occur"),
        ({"answer": "paris", "focus": 4}, "steps 0 … 0"),
        ({"answer": "paris", "focus": (2, 99)}, "not in the answer"),
        ({"answer": ["paris", "london"]}, "one for each"),
        ({"inputs": "paris is " * 3000, "answer": "long"}, "takes at most .* Shorten the prompt.$"),
    ],
)
def test_bad_input_gets_one_clear_line(llama, arguments, message):
    with pytest.raises(BadInput, match=message):
        clearhead.explain(llama, **{"inputs": PROMPT, "method": "attn-lrp", **arguments})


def test_options_of_language_models_need_one(llama):
    with pytest.raises(BadOption, match="no language model"):
        clearhead.explain(clearhead.load(), "a fine film", answer="good")
    with pytest.raises(BadOption, match="no classes"):
        clearhead.explain(llama, PROMPT, "attn-lrp", 1)
    with pytest.raises(BadOption, match="Invalid scale"):
        clearhead.explain(llama, PROMPT, "attn-lrp", answer="paris", scale="odds")
