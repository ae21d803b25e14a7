"""ContextCite: sources with planted effects, a model that copies, and its Lasso."""

import numpy as np
import pytest
import torch
import transformers

import clearhead
from clearhead.attribution.lasso import fit_lasso
from clearhead.attribution.perturbed_features import Perturbation
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from tests.helpers.language_models import make_decoder, make_tokenizer
from tests.helpers.pictures import picture
from tests.helpers.tiny_models import vit

DOCUMENTS = ["the river in london is grey.", "the capital of france is paris.", "the river is long."]


@pytest.fixture(scope="module")
def llama():
    return clearhead.load(make_decoder("llama"), make_tokenizer())


@pytest.fixture(scope="module")
def copier():
    """Return a decoder whose next token is the likelier, the more often it has occurred before."""
    tokenizer = make_tokenizer()
    size = len(tokenizer)
    settings = {"hidden_size": size, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.LlamaConfig(vocab_size=size, bos_token_id=0, eos_token_id=1, pad_token_id=1, **settings)
    network = transformers.LlamaForCausalLM(config).double().eval()
    block = network.model.layers[0]
    identity = torch.eye(size, dtype=torch.double)
    weights = {block.self_attn.q_proj: 0, block.self_attn.k_proj: 0, block.mlp.down_proj: 0}
    with torch.no_grad():
        for module, value in weights.items():
            module.weight.fill_(value)
        for module in (network.model.embed_tokens, block.self_attn.v_proj, block.self_attn.o_proj, network.lm_head):
            module.weight.copy_(identity)
    return clearhead.load(network, tokenizer)


def test_the_source_that_was_copied_ranks_first(copier):
    explanation = clearhead.explain(copier, "the capital is", "context-cite", answer="paris", sources=DOCUMENTS)
    weights = [source.relevance for source in explanation.sources]
    assert np.argmax(weights) == 1 and weights[1] > 0.5
    assert [source.text for source in explanation.sources] == DOCUMENTS
    assert explanation.text[0].startswith("the river in london is grey.\n\nthe capital")


@pytest.mark.parametrize("name", ["occlusion", "lime", "shapley-sampling"])
def test_other_methods_hide_sources_too(copier, name):
    options = {"sources": DOCUMENTS, "unit": "source"}
    explanation = clearhead.explain(copier, "the capital is", name, answer="paris", **options)
    assert np.argmax([source.relevance for source in explanation.sources]) == 1
    assert explanation.diagnostics["units"] == 3


def test_planted_effects_are_recovered(llama, monkeypatch):
    effects = torch.tensor([2.0, 0, -1, 0, 0, 0.5], dtype=torch.double)
    monkeypatch.setattr(Perturbation, "score", lambda _, masks: [(masks[0].double() @ effects - 3)[None]])
    prompt = "a. b. c. d. e. f."
    explanation = clearhead.explain(llama, prompt, "context-cite", answer="paris")
    # The penalty shrinks a weight by at most α / deviation = 0.01 / 0.5, and a little more where masks correlate.
    np.testing.assert_allclose([source.relevance for source in explanation.sources], effects, atol=0.03)
    exact = clearhead.explain(llama, prompt, "context-cite", answer="paris", penalty=0.0)
    np.testing.assert_allclose([source.relevance for source in exact.sources], effects, atol=1e-8)


def test_seeds_reproduce_and_batches_do_not_matter(llama):
    prompts = ["the river is grey. the capital is paris. it is", "is it long? it is grey. it is"]
    batch = clearhead.explain(llama, prompts, "context-cite", answer="long", samples=8, penalty=0.0)
    for prompt, explanation in zip(prompts, batch, strict=True):
        alone = clearhead.explain(llama, prompt, "context-cite", answer="long", samples=8, penalty=0.0)
        np.testing.assert_allclose(explanation.relevance, alone.relevance, rtol=1e-8, atol=1e-11)
    reseeded = clearhead.explain(llama, prompts[0], "context-cite", answer="long", samples=8, penalty=0.0, seed=1)
    assert not np.allclose(reseeded.relevance, batch[0].relevance)


def test_rows_of_the_matrix_are_the_steps(llama):
    arguments = {"answer": "paris is long", "sources": DOCUMENTS, "samples": 16, "penalty": 0.001}
    explanation = clearhead.explain(llama, "the capital is", "context-cite", matrix=True, **arguments)
    for step in range(3):
        alone = clearhead.explain(llama, "the capital is", "context-cite", focus=step, **arguments)
        np.testing.assert_allclose(explanation.matrix[step], alone.relevance, rtol=1e-8, atol=1e-11)
        pairs = zip(explanation.span(step).sources, alone.sources, strict=True)
        assert all(ours.relevance == pytest.approx(theirs.relevance, abs=1e-11) for ours, theirs in pairs)


def test_sentences_of_a_classified_text(llama):
    explanation = clearhead.explain(clearhead.load(), "A joyless, tedious film. It is on tuesday.", "context-cite")
    assert explanation.diagnostics["unit"] == "sentence" and explanation.diagnostics["output"] == "log-odds"
    assert abs(explanation.relevance[1]) > abs(explanation.relevance[-2])


def test_a_single_sentence_of_a_classified_text_has_its_effect():
    explanation = clearhead.explain(clearhead.load(), "A joyless, tedious film", "context-cite", target="negative")
    effect = clearhead.explain(
        clearhead.load(), "A joyless, tedious film", "occlusion", target="negative", unit="sentence", output="log-odds"
    )
    np.testing.assert_allclose(explanation.relevance, effect.relevance, rtol=0.05)


def test_lasso_weights_fulfil_the_optimality_conditions():
    generator = np.random.default_rng(0)
    design = generator.random((40, 60)) < 0.5
    response = design[:, 0] * 2.0 - design[:, 1] + generator.normal(size=40)
    penalty = 0.1
    weights = fit_lasso(design.astype(float), response, penalty)
    deviation = design.std(0)
    scaled = (design - design.mean(0)) / deviation
    residual = response - response.mean() - scaled @ (weights * deviation)
    correlation = scaled.T @ residual / len(response)
    active = weights != 0
    assert 0 < active.sum() < 60
    np.testing.assert_allclose(correlation[active], penalty * np.sign(weights[active]), atol=1e-8)
    assert np.abs(correlation).max() <= penalty + 1e-8


def test_lasso_of_an_orthogonal_design_shrinks_each_weight():
    design = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=float)
    response = design @ np.array([3.0, 0.02, 7.0])
    # In standardised columns the weights are 1.5 and 0.01, in the design's own twice as much; the last is constant.
    np.testing.assert_allclose(fit_lasso(design, response, 0.1), [2.8, 0, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sources": ["the capital", "the moon"]}, BadInput, "'2' .'the moon'. does not occur in the prompt"),
        ({"sources": []}, BadInput, "'sources' is empty"),
        ({"sources": ["the", " "]}, BadInput, "Source 2 of 2 is empty"),
        ({"sources": ["only one"]}, BadInput, "a single source"),
        ({}, BadInput, "a single source"),
        ({"sources": [(0, 6), (4, 9)]}, BadInput, "overlap"),
        ({"sources": [(0, 3), (4, 99)]}, BadInput, "not in the prompt, which has 14 characters"),
        ({"sources": [(0, 3), "is"]}, BadInput, "mixes texts and positions"),
        ({"sources": [3, 4]}, BadInput, "Invalid source 3"),
        ({"sources": "pages"}, BadOption, "Invalid sources='pages'"),
        ({"sources": "turns"}, BadInput, "list of chat messages"),
        ({"sources": [["a"], ["b"]]}, BadInput, "lists for 2 prompts"),
        ({"penalty": -1.0}, BadOption, "Invalid penalty"),
        ({"samples": 0}, BadOption, "samples"),
    ],
)
def test_bad_input_gets_one_clear_line(llama, arguments, error, message):
    with pytest.raises(error, match=message) as caught:
        clearhead.explain(llama, "the capital is", "context-cite", answer="paris", **arguments)
    assert "\n" not in str(caught.value)


def test_images_are_refused():
    with pytest.raises(UnsupportedModel, match="parts of a text"):
        clearhead.explain(vit(), picture(), "context-cite")
