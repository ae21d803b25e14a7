"""Occlusion, LIME and Shapley values of answers, against passes of the model made by hand."""

import numpy as np
import pytest
import torch
from helpers.explanations import total_effect

import clearhead
from clearhead.errors import BadOption
from clearhead.perturbation import run
from tests.helpers.language_models import DECODERS, make_decoder, make_tokenizer

PROMPT = "the capital of france is"
ANSWER = "paris and long"
HIDING = ("occlusion", "lime", "shapley-sampling")


@pytest.fixture(scope="module", params=DECODERS)
def model(request):
    return clearhead.load(make_decoder(request.param), make_tokenizer())


@pytest.fixture(scope="module")
def llama():
    return clearhead.load(make_decoder("llama"), make_tokenizer())


def log_probabilities(model, ids, positions, tokens, mask=None):
    """Return log p of tokens, each predicted at a position of one sequence."""
    mask = torch.ones(len(ids)) if mask is None else mask
    with torch.no_grad():
        logits = model.network.language_model(input_ids=torch.tensor([ids]), attention_mask=mask[None].long()).logits
    return [
        float(logits[0, position].log_softmax(-1)[token]) for position, token in zip(positions, tokens, strict=True)
    ]


def without_token(model, prompt, answer, removed):
    """Return log p of an answer's tokens when one token of prompt or answer is not read."""
    sequence = [*prompt, *answer[:-1]]
    ids = [token for index, token in enumerate(sequence) if index != removed]
    positions = []
    for step in range(len(answer)):
        read = len(prompt) + step
        positions.append(read - 1 - (removed < read))
    return log_probabilities(model, ids, positions, answer)


def encode(model, text):
    return model.processor(text)["input_ids"]


def test_occlusion_is_the_drop_without_the_token(model):
    explanation = clearhead.explain(model, PROMPT, "occlusion", answer=ANSWER, matrix=True)
    prompt = encode(model, PROMPT)
    answer = encode(model, f"{PROMPT} {ANSWER}")[len(prompt) :]
    unchanged = np.array(without_token(model, prompt, answer, 99))
    for index in range(len(prompt) + len(answer) - 1):
        drops = unchanged - without_token(model, prompt, answer, index)
        np.testing.assert_allclose(explanation.matrix[:, index], drops, rtol=1e-9, atol=1e-12)
        assert explanation.relevance[index] == pytest.approx(drops.sum(), rel=1e-9, abs=1e-12)


def test_occlusion_from_attention_predicts_from_the_last_token_that_is_left(llama):
    explanation = clearhead.explain(llama, PROMPT, "occlusion", answer="paris", replacement="attention")
    ids = encode(llama, PROMPT)
    (paris,) = encode(llama, " paris")
    (unchanged,) = log_probabilities(llama, ids, [len(ids) - 1], [paris])
    for index in range(len(ids)):
        mask = torch.ones(len(ids))
        mask[index] = 0
        last = max(position for position in range(len(ids)) if position != index)
        (score,) = log_probabilities(llama, ids, [last], [paris], mask)
        assert explanation.relevance[index] == pytest.approx(unchanged - score, rel=1e-9, abs=1e-12)


def test_padding_stands_in_the_place_of_a_token(llama):
    explanation = clearhead.explain(llama, PROMPT, "occlusion", answer="paris", replacement="pad")
    ids = encode(llama, PROMPT)
    (paris,) = encode(llama, " paris")
    (unchanged,) = log_probabilities(llama, ids, [len(ids) - 1], [paris])
    changed = [*ids[:2], llama.processor.pad_token_id, *ids[3:]]
    (score,) = log_probabilities(llama, changed, [len(ids) - 1], [paris])
    assert explanation.relevance[2] == pytest.approx(unchanged - score, rel=1e-9)


def test_without_a_prompt_an_answer_follows_the_start_token(llama):
    explanation = clearhead.explain(llama, "the", "occlusion", answer="paris")
    ids = encode(llama, "the")
    (paris,) = encode(llama, " paris")
    (with_prompt,) = log_probabilities(llama, ids, [0], [paris])
    (alone,) = log_probabilities(llama, [llama.processor.bos_token_id], [0], [paris])
    assert explanation.relevance[0] == pytest.approx(with_prompt - alone, rel=1e-9)


@pytest.mark.parametrize("output", ["log-prob", "logit", "probability", "log-odds"])
def test_shapley_values_sum_to_the_effect(llama, output):
    explanation = clearhead.explain(
        llama, PROMPT, "shapley-sampling", answer=ANSWER, samples=3, output=output, matrix=True
    )
    assert explanation.relevance.sum() == pytest.approx(total_effect(explanation), rel=1e-9)
    if output in ("log-prob", "logit"):
        np.testing.assert_allclose(explanation.matrix.sum(0), explanation.relevance, rtol=1e-9, atol=1e-12)


def test_scores_of_an_answer_belong_to_its_probability(llama):
    effects = {}
    for output in ("log-prob", "probability", "log-odds"):
        options = {"samples": 1, "unit": "source", "output": output, "prefix": False}
        explanation = clearhead.explain(llama, PROMPT, "shapley-sampling", answer=ANSWER, **options)
        effects[output] = total_effect(explanation)
    after = explanation.probability
    before = after / np.exp(effects["log-prob"])
    assert effects["probability"] == pytest.approx(after - before, rel=1e-9)
    odds = np.log(after / (1 - after)) - np.log(before / (1 - before))
    assert effects["log-odds"] == pytest.approx(odds, rel=1e-9)


@pytest.mark.parametrize("name", HIDING)
def test_a_matrix_costs_no_further_passes(llama, name, monkeypatch):
    rows = []
    compute = run.PerturbedPass.compute

    def count(self, chosen, width):
        rows.append(len(chosen))
        return compute(self, chosen, width)

    monkeypatch.setattr(run.PerturbedPass, "compute", count)
    alone = clearhead.explain(llama, PROMPT, name, answer=ANSWER)
    passes = sum(rows)
    rows.clear()
    together = clearhead.explain(llama, PROMPT, name, answer=ANSWER, matrix=True)
    assert sum(rows) == passes
    np.testing.assert_allclose(together.relevance, alone.relevance, rtol=1e-12)
    assert together.diagnostics == alone.diagnostics


def test_a_row_of_the_matrix_is_the_explanation_of_its_step(llama):
    matrix = clearhead.explain(llama, PROMPT, "occlusion", answer=ANSWER, matrix=True).matrix
    for step in range(3):
        alone = clearhead.explain(llama, PROMPT, "occlusion", answer=ANSWER, focus=step)
        np.testing.assert_allclose(matrix[step], alone.relevance, rtol=1e-9, atol=1e-12)
    after = clearhead.explain(llama, f"{PROMPT} paris", "occlusion", answer="and").relevance
    np.testing.assert_allclose(matrix[1, : len(after)], after, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("replacement", ["delete", "attention"])
@pytest.mark.parametrize("name", HIDING)
def test_a_batch_gives_what_each_prompt_gives_alone(model, name, replacement):
    if replacement == "attention" and model.config.model_type == "gemma2":
        pytest.skip("Gemma 2's softmax is float32: the mask of a float64 network is −inf there, and gives NaN")
    prompts = [PROMPT, "the river in london is", "the river", "the river"]
    answers = ["paris and long", "grey", "is long", "is grey"]
    batch = clearhead.explain(model, prompts, name, answer=answers, replacement=replacement)
    for prompt, answer, explanation in zip(prompts, answers, batch, strict=True):
        alone = clearhead.explain(model, prompt, name, answer=answer, replacement=replacement)
        np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=1e-8, atol=1e-11)


def test_a_foil_explains_the_difference_of_logits(llama):
    against = clearhead.explain(llama, PROMPT, "occlusion", answer="paris", versus="london")
    paris = clearhead.explain(llama, PROMPT, "occlusion", answer="paris", scale="logit")
    london = clearhead.explain(llama, PROMPT, "occlusion", answer="london", scale="logit")
    np.testing.assert_allclose(against.relevance, paris.relevance - london.relevance, rtol=1e-9, atol=1e-12)
    assert against.diagnostics["output"] == "logit"


def test_the_prefix_can_stay(llama):
    explanation = clearhead.explain(llama, PROMPT, "occlusion", answer=ANSWER, prefix=False)
    assert explanation.diagnostics["units"] == explanation.prompt_length
    np.testing.assert_array_equal(explanation.relevance[explanation.prompt_length :], 0)


def test_words_are_hidden_as_wholes(llama):
    explanation = clearhead.explain(llama, "grey rivers is", "occlusion", answer="long", unit="word")
    rivers = [index for index, offset in enumerate(explanation.offsets) if 5 <= offset[1] < 11]
    assert len(rivers) > 1
    assert len(set(explanation.relevance[rivers])) == 1
    assert explanation.diagnostics["units"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replacement": "mask"}, "Use replacement='attention' or 'delete'"),
        ({"output": "odds"}, "Available: log-prob, logit, probability, log-odds"),
        ({"unit": "chapter"}, "sub-word, word, sentence, source"),
    ],
)
def test_invalid_options_are_named(llama, options, message):
    with pytest.raises(BadOption, match=message):
        clearhead.explain(llama, PROMPT, "occlusion", answer="paris", **options)


def test_a_classifier_has_no_sources():
    with pytest.raises(BadOption, match="unit='sentence'"):
        clearhead.explain(clearhead.load(), "a fine film", "occlusion", unit="source")


@pytest.mark.parametrize("matrix", [False, True])
def test_every_method_explains_answers(model, matrix):
    prompt = "the river is grey. the capital is"
    names = set(clearhead.methods())
    if matrix:
        names.remove("auto")
        with pytest.raises(BadOption, match="name a method"):
            clearhead.explain(model, prompt, "auto", answer="paris and long", matrix=True)
    for name in sorted(names):
        explanation = clearhead.explain(model, prompt, name, answer="paris and long", matrix=matrix)
        assert np.isfinite(explanation.relevance).all(), name
        if matrix:
            np.testing.assert_array_equal(explanation.matrix[0, explanation.prompt_length :], 0, err_msg=name)


def test_decoded_gradcam_reads_the_head_of_the_language_model(llama):
    language_model = llama.network.language_model
    explanation = clearhead.explain(llama, PROMPT, "decoded-gradcam", answer="paris", layer=1)
    alpha = torch.from_numpy(clearhead.explain(llama, PROMPT, "layer-gradcam", answer="paris", layer=1).relevance)
    ids = torch.tensor([encode(llama, PROMPT)])
    with torch.no_grad():
        hidden = language_model(ids, output_hidden_states=True).hidden_states[1]
        shares = language_model.lm_head(language_model.model.norm(hidden)).softmax(-1)[0]
    np.testing.assert_allclose(explanation.relevance, (alpha @ shares)[ids[0]].numpy(), rtol=1e-5)
