"""The backward passes of an answer's steps over one forward pass."""

import pytest
import torch

import clearhead
from clearhead.attribution.answers import list_steps
from clearhead.engine import step_gradients
from clearhead.engine.backward import ATTN_LRP, BALANCED, GRADIENT
from clearhead.engine.memory import LOGITS_IN_BACKWARD, estimate_memory
from clearhead.engine.step_gradients import StepSeeds, carry_rows, carry_rows_at_once, make_step_directions
from clearhead.engine.trace import capture
from clearhead.model.answer_inputs import answer_prompt, encode_prompt
from clearhead.model.inputs import collate
from tests.helpers.language_models import make_decoder, make_encoder_decoder, make_tokenizer


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def trace(request):
    model = clearhead.load(make_decoder(request.param), make_tokenizer())
    prompt = encode_prompt(model, "the capital of france is")
    answered = answer_prompt(model, prompt, "paris and long", {})
    return capture(model, collate(model, [answered]))


@pytest.fixture
def seeds(trace):
    steps = list_steps(trace)
    indices = [target.steps[0] for target in steps]
    positions = trace.inputs.tensors["answer_positions"][0, indices].tolist()
    return StepSeeds(make_step_directions(steps, trace.logits), indices, positions)


def test_directions_are_those_of_each_step_alone(trace, seeds):
    rows = seeds.at_output(trace.forward.output)
    for row, target in zip(rows, list_steps(trace), strict=True):
        assert torch.equal(row, trace.with_target([target])._seeds.direction[0])


@pytest.mark.parametrize("backward", [GRADIENT, ATTN_LRP, BALANCED])
def test_one_pass_through_the_head_serves_all_steps(trace, seeds, backward, monkeypatch):
    forward = trace.forward
    assert forward.has_cut_head
    with forward.tape.switch.use(backward):
        (expected,) = carry_rows(forward.output, seeds.at_output(forward.output), [forward.hidden_states[-1]])
        monkeypatch.setattr(step_gradients, "carry_rows", lambda *_: pytest.fail("one pass for each step"))
        torch.testing.assert_close(step_gradients.carry_through_head(forward, seeds), expected, rtol=1e-12, atol=1e-14)


def test_heads_that_mix_positions_get_a_pass_for_each_step(trace, seeds, monkeypatch):
    forward = trace.forward
    (expected,) = carry_rows(forward.output, seeds.at_output(forward.output), [forward.hidden_states[-1]])
    # As if the tokens that steps are predicted from were others.
    moved = StepSeeds(seeds.directions, seeds.steps, [position - 1 for position in seeds.positions])
    torch.testing.assert_close(step_gradients.carry_through_head(forward, moved), expected)


@pytest.mark.parametrize("backward", [GRADIENT, ATTN_LRP, BALANCED])
def test_passes_at_once_give_what_single_passes_give(trace, seeds, backward):
    """The path of GPUs."""
    forward = trace.forward
    tensors = [*forward.attentions, *forward.hidden_states[:-1], forward.leaf]
    with forward.tape.switch.use(backward):
        start = step_gradients.start_passes(forward, seeds)
        singly = carry_rows(start.tensor, start.rows, tensors)
        at_once = carry_rows_at_once(start.tensor, start.rows, tensors)
    for first, second in zip(singly, at_once, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-14)


def test_memory_grows_with_the_answer_and_the_vocabulary(trace):
    model, inputs = trace.model, trace.inputs
    shorter = {**inputs.tensors, "answer_positions": inputs.tensors["answer_positions"][:, :1]}
    less = estimate_memory(model, type(inputs)(shorter, inputs.items))
    more = estimate_memory(model, inputs)
    steps = inputs.tensors["answer_positions"].shape[1] - 1
    expected = LOGITS_IN_BACKWARD * steps * model.config.vocab_size * 8
    assert more.whole - less.whole == more.blockwise - less.blockwise == expected


@pytest.mark.parametrize("family", ["t5", "marian"])
def test_one_pass_through_the_head_of_an_encoder_decoder_serves_all_steps(family, monkeypatch):
    model = clearhead.load(make_encoder_decoder(family), make_tokenizer())
    options = {"answer": "the river is long", "scale": "logit"}
    expected = clearhead.explain(model, "the capital of france", "gradient-x-input", focus=2, **options)
    monkeypatch.setattr(StepSeeds, "at_output", lambda *_: pytest.fail("one pass for each step"))
    explanation = clearhead.explain(model, "the capital of france", "gradient-x-input", matrix=True, **options)
    assert explanation.matrix[2] == pytest.approx(expected.relevance, rel=1e-9, abs=1e-12)
