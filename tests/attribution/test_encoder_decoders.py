"""Explanations of the answers of encoder–decoders, whose source and answer are two sequences."""

import numpy as np
import pytest
import torch
import transformers as hf
from helpers.explanations import total_effect

import clearhead
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from tests.helpers.balanced_reference import Transcription, wrap_activations
from tests.helpers.language_models import ENCODER_DECODERS, SHAPES, STACKS, make_encoder_decoder, make_tokenizer
from tests.helpers.sequence_reference import Reference, attention_products, generic_attention

SOURCE = "the capital of france is"
ANSWER = "paris and long"
# Weights for which no sum that lrp divides by is nearly zero.
SEED = 1
METHODS = (
    "gradient",
    "gradient-x-input",
    "cat",
    "att-cat",
    "layer-gradcam:layer=1",
    "attn-lrp",
    "cp-lrp",
    "balanced-cat",
    "lrp",
    "partial-lrp",
    "trans-att",
    "gae",
    "rollout",
    "raw-attention",
    "grads",
    "att-grads",
    "attention-gradcam",
    "attention-flow",
)


def load(family, **settings):
    return clearhead.load(make_encoder_decoder(family, **settings), make_tokenizer())


@pytest.fixture(scope="module")
def models():
    return {family: load(family, seed=SEED) for family in ENCODER_DECODERS}


@pytest.fixture(scope="module")
def bart(models):
    return models["bart"]


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_a_step_is_explained_like_the_last_of_an_answer_that_ends_there(models, family):
    full_answer = clearhead.compare(models[family], SOURCE, METHODS, answer=ANSWER, matrix=True)
    for step, position in enumerate(full_answer["gae"].steps):
        alone = clearhead.compare(models[family], SOURCE, METHODS, answer=ANSWER[: position.end], focus=-1)
        for name, explanation in alone.items():
            row = full_answer[name].matrix[step]
            width = len(explanation.relevance)
            np.testing.assert_allclose(row[:width], explanation.relevance, rtol=1e-10, atol=1e-11, err_msg=name)
            np.testing.assert_array_equal(row[width:], 0)


# The norms of T5 compute in float32.
@pytest.mark.parametrize("family", ["bart", "marian"])
@pytest.mark.parametrize("name", ["gradient-x-input", "cat", "attn-lrp", "lrp"])
def test_rows_of_linear_methods_add_up_to_the_whole_answer(models, family, name):
    explanation = clearhead.explain(models[family], SOURCE, name, answer=ANSWER, matrix=True)
    np.testing.assert_allclose(explanation.matrix.sum(0), explanation.relevance, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_a_batch_of_different_lengths_gives_what_each_gives_alone(models, family):
    sources = [SOURCE, "the river in london is long and grey", "paris"]
    answers = ["long", "paris is grey and", "the river is"]
    batch = clearhead.compare(models[family], sources, METHODS, answer=answers)
    for index, source in enumerate(sources):
        alone = clearhead.compare(models[family], source, METHODS, answer=answers[index])
        for name, expected in alone.items():
            explanation = batch[name][index]
            np.testing.assert_allclose(explanation.relevance, expected.relevance, rtol=1e-9, atol=1e-11, err_msg=name)
            assert explanation.tokens == expected.tokens


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_gradients_are_those_of_autograd(models, family):
    explanation = clearhead.explain(models[family], SOURCE, "gradient-x-input", answer=ANSWER)
    reference = Reference.of(models[family], explanation)
    leaves = reference.embed()
    score = reference.log_probabilities(reference.run(leaves)).sum()
    gradients = torch.autograd.grad(score, leaves)
    products = [(gradient * leaf).sum(-1)[0] for gradient, leaf in zip(gradients, leaves, strict=True)]
    np.testing.assert_allclose(explanation.relevance, torch.cat(products).detach(), rtol=1e-9, atol=1e-11)
    assert explanation.diagnostics["score"] == pytest.approx(float(score), rel=1e-12)


def test_sequences_may_have_tables_of_their_own():
    settings = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "decoder_vocab_size": 320}
    model = load("marian", **settings)
    explanation = clearhead.explain(model, SOURCE, "gradient-x-input", answer=ANSWER)
    reference = Reference.of(model, explanation)
    leaves = reference.embed()
    gradients = torch.autograd.grad(reference.log_probabilities(reference.run(leaves)).sum(), leaves)
    products = [(gradient * leaf).sum(-1)[0] for gradient, leaf in zip(gradients, leaves, strict=True)]
    np.testing.assert_allclose(explanation.relevance, torch.cat(products).detach(), rtol=1e-9, atol=1e-11)


# T5's norms, which do not centre, jump at embeddings of zero.
@pytest.mark.parametrize("family", ["bart", "marian"])
def test_integrated_gradients_add_up_to_the_difference_of_log_probabilities(models, family):
    explanation = clearhead.explain(models[family], SOURCE, "integrated-gradients:steps=200", answer=ANSWER)
    reference = Reference.of(models[family], explanation)
    scores = []
    for share in (1, 0):
        leaves = tuple(leaf * share for leaf in reference.embed())
        scores.append(float(reference.log_probabilities(reference.run(leaves)).sum()))
    effect = scores[0] - scores[1]
    assert total_effect(explanation) == pytest.approx(effect, rel=1e-9)
    assert explanation.relevance.sum() == pytest.approx(effect, abs=0.05 * abs(effect))


@pytest.mark.parametrize("rule", ["attn-lrp", "balanced"])
@pytest.mark.parametrize("family", ["t5", "flan-t5"])
def test_balanced_relevance_is_that_of_the_transcription(models, family, rule):
    method = {"attn-lrp": "attn-lrp", "balanced": "cp-lrp"}[rule]
    explanation = clearhead.explain(models[family], SOURCE, method, answer=ANSWER, scale="logit")
    network = make_encoder_decoder(family, seed=SEED)
    reference = Reference.of(models[family], explanation).with_eager_copy(network)
    leaves = reference.embed()
    mode = Transcription(rule)
    wrap_activations(network, mode)
    with mode:
        logits = reference.run(leaves).logits[0, reference.first :]
    score = logits.gather(1, reference.answer.T).sum()
    coefficients = torch.autograd.grad(score, leaves)
    products = [(leaf * coefficient).sum(-1)[0] for leaf, coefficient in zip(leaves, coefficients, strict=True)]
    np.testing.assert_allclose(explanation.relevance, torch.cat(products).detach(), rtol=1e-6, atol=1e-8)


def test_cp_lrp_adds_up_without_biases(models):
    explanation = clearhead.explain(models["flan-t5"], SOURCE, "cp-lrp", answer=ANSWER, scale="logit")
    assert explanation.relevance.sum() == pytest.approx(explanation.diagnostics["score"], rel=1e-6)


def test_heads_of_each_kind_of_attention_have_relevance_of_their_own(bart):
    explanation = clearhead.explain(bart, SOURCE, "cp-lrp:heads=True", answer=ANSWER)
    trace = capture(bart)
    coefficients = trace.forward.separate_maps(trace.coefficients("balanced").attentions)
    # Two blocks of the encoder; self- and cross-attention of two blocks of the decoder.
    assert explanation.heads.shape == (6, 4)
    for row, attention in enumerate(trace.forward.attentions):
        assert attention.shape == coefficients[row].shape
        expected = (attention.detach() * coefficients[row]).sum((0, 2, 3))
        np.testing.assert_allclose(explanation.heads[row], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", ["flan-t5", "bart", "marian"])
def test_gae_follows_the_rules_for_two_sequences(models, family):
    explanation = clearhead.explain(models[family], SOURCE, "gae", answer=ANSWER, matrix=True)
    reference = Reference.of(models[family], explanation).with_eager_copy(make_encoder_decoder(family, seed=SEED))
    for step in range(len(explanation.steps)):
        expected = generic_attention(*attention_products(reference, step), reference.first + step)
        np.testing.assert_allclose(explanation.matrix[step], expected, rtol=1e-6, atol=1e-10)


def test_trans_att_follows_them_with_relevance_in_place_of_attention(bart):
    explanation = clearhead.explain(bart, SOURCE, "trans-att", answer=ANSWER, focus=-1)
    trace = capture(bart, focus=-1)
    source = trace.source_tokens
    layers = []
    for gradient, relevance in zip(trace.attention_gradients, trace.attention_relevances, strict=True):
        layers.append((gradient * relevance).clamp(min=0).mean(1)[0])
    encoder = [layer[:source, :source] for layer in layers]
    decoder = [layer[source:, source:] for layer in layers]
    cross = [layer[source:, :source] for layer in layers]
    expected = generic_attention(encoder, decoder, cross, len(decoder[0]) - 1)
    np.testing.assert_allclose(explanation.relevance, expected, rtol=1e-9, atol=1e-12)


def capture(model, **options):
    """A trace of the whole answer, or of a part of it."""
    from clearhead.model.answer_inputs import answer_prompt, encode_prompt
    from clearhead.model.inputs import collate
    from clearhead.model.target import AnswerTarget

    encoded = answer_prompt(model, encode_prompt(model, SOURCE), ANSWER, {})
    ids = encoded.item.answer.ids
    steps = tuple(range(len(ids)))[options["focus"] :] if options else tuple(range(len(ids)))
    target = AnswerTarget(steps=steps, tokens=tuple(ids[step] for step in steps))
    return clearhead.capture(model, collate(model, [encoded]), [target])


def test_raw_attention_and_rollout_are_rows_of_the_maps(bart):
    names = ["raw-attention", "rollout"]
    raw, rollout = clearhead.compare(bart, SOURCE, names, answer=ANSWER, focus=-1).values()
    explanation = clearhead.explain(bart, SOURCE, "raw-attention", answer=ANSWER)
    reference = Reference.of(bart, explanation).with_eager_copy(make_encoder_decoder("bart", seed=SEED))
    with torch.no_grad():
        output = reference.run(reference.embed(), output_attentions=True)
    encoder = [attention[0].mean(0) for attention in output.encoder_attentions]
    decoder = [attention[0].mean(0) for attention in output.decoder_attentions]
    cross = [attention[0].mean(0) for attention in output.cross_attentions]
    np.testing.assert_allclose(raw.relevance, torch.cat([cross[-1][-1], decoder[-1][-1]]), rtol=1e-9)
    relevance_ii = torch.eye(len(encoder[0]), dtype=torch.float64)
    for weights in encoder:
        relevance_ii = relevance_ii + weights @ relevance_ii
    relevance_qq = torch.eye(len(decoder[0]), dtype=torch.float64)
    relevance_qi = torch.zeros_like(cross[0])
    for own, cross_weights in zip(decoder, cross, strict=True):
        relevance_qi = relevance_qi + own @ relevance_qi
        relevance_qq = relevance_qq + own @ relevance_qq
        relevance_qi = relevance_qi + cross_weights @ relevance_ii
    own_row = relevance_qq[-1] - torch.eye(len(relevance_qq), dtype=torch.float64)[-1]
    np.testing.assert_allclose(rollout.relevance, torch.cat([relevance_qi[-1], own_row]), rtol=1e-9)


def test_att_cat_weighs_by_the_attention_that_both_sequences_give(bart):
    explanation = clearhead.explain(bart, SOURCE, "att-cat", answer=ANSWER)
    trace = capture(bart)
    source = trace.source_tokens
    expected = np.zeros(len(explanation.relevance))
    for block, attention in enumerate(trace.attentions):
        mean = attention[0].mean(0)
        received = torch.cat([mean[:source].mean(0)[:source], mean[source:].mean(0)[source:]])
        received[:source] += mean[source:].mean(0)[:source]
        impact = (trace.hidden_gradients[block + 1] * trace.hidden_states[block + 1])[0].sum(-1)
        expected += (received * impact).numpy()
    np.testing.assert_allclose(explanation.relevance, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_probabilities_are_those_of_the_model(models, family):
    model = models[family]
    explanation = clearhead.explain(model, SOURCE, "raw-attention", answer=ANSWER)
    reference = Reference.of(model, explanation)
    with torch.no_grad():
        output = reference.network(input_ids=reference.source, decoder_input_ids=reference.decoder)
    expected = reference.log_probabilities(output).exp().tolist()
    assert [step.probability for step in explanation.steps] == pytest.approx(expected, rel=1e-10)
    assert explanation.probability == pytest.approx(np.prod(expected))


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_what_is_generated_is_what_generate_gives(models, family):
    model = models[family]
    options = {"max_new_tokens": 5, "min_new_tokens": 3}
    explanation = clearhead.explain(model, SOURCE, "raw-attention", generation=options)
    inputs = model.processor(SOURCE, return_tensors="pt")
    written = model.network.language_model.generate(input_ids=inputs["input_ids"], do_sample=False, **options)
    ids = written[0, 1:].tolist()
    assert list(explanation.target.tokens) == ids[: len(explanation.target.tokens)]
    assert all(token_id in (1, 2) for token_id in ids[len(explanation.target.tokens) :])


def test_tokens_that_must_come_first_are_read_but_not_explained():
    network = make_encoder_decoder("bart")
    network.generation_config.forced_bos_token_id = 7
    model = clearhead.load(network, make_tokenizer())
    answered = clearhead.explain(model, SOURCE, "raw-attention", answer=ANSWER)
    written = clearhead.explain(model, SOURCE, "raw-attention", generation={"max_new_tokens": 4})
    first_tokens = tuple(model.processor.convert_ids_to_tokens([1, 7]))
    for explanation in (answered, written):
        start = explanation.prompt_length
        assert explanation.tokens[start : start + 2] == first_tokens
    assert answered.special[answered.prompt_length : answered.prompt_length + 3].tolist() == [True, True, False]
    assert [step.token for step in answered.steps] == ["par", "is", "Ġand", "Ġlong"]


def test_a_foil_and_a_focus_explain_a_part_of_the_answer(bart):
    unfocused = clearhead.explain(bart, SOURCE, "gradient-x-input", answer=ANSWER, matrix=True, versus=None)
    focused = clearhead.explain(bart, SOURCE, "gradient-x-input", answer=ANSWER, focus="and")
    np.testing.assert_allclose(unfocused.span("and").relevance, focused.relevance, rtol=1e-9, atol=1e-12)
    options = {"answer": ANSWER, "focus": "long"}
    contrast = clearhead.explain(bart, SOURCE, "gradient-x-input", versus="grey", **options)
    assert contrast.label == "long rather than grey"
    grey = clearhead.explain(bart, SOURCE, "gradient-x-input", answer="paris and grey", focus="grey", scale="logit")
    long = clearhead.explain(bart, SOURCE, "gradient-x-input", scale="logit", **options)
    np.testing.assert_allclose(contrast.relevance, long.relevance - grey.relevance, rtol=1e-9, atol=1e-12)


def test_words_stand_on_both_sides(bart):
    explanation = clearhead.explain(bart, SOURCE, "attn-lrp", answer=ANSWER)
    assert explanation.text == (SOURCE, ANSWER)
    assert [word.text for word in explanation.prompt_words()] == SOURCE.split()
    # The last word is predicted, and has no influence on anything.
    assert [word.text for word in explanation.answer_words()] == ["paris", "and"]
    assert sum(explanation.shares.values()) == pytest.approx(1)
    assert explanation.special.tolist() == [token == "</s>" for token in explanation.tokens]


def test_stacks_of_different_depth_keep_their_own_layers():
    model = load("bart", encoder_layers=3, decoder_layers=1)
    explanation = clearhead.explain(model, SOURCE, "cat", answer=ANSWER)
    source = explanation.prompt_length
    assert explanation.layers.shape[0] == 3
    assert np.all(explanation.layers[1:, source:] == 0) and np.any(explanation.layers[2, :source] != 0)
    with pytest.raises(BadOption, match=r"layers 0 \(embeddings\) … 1"):
        clearhead.explain(model, SOURCE, "layer-gradcam:layer=2", answer=ANSWER)


def test_a_decoder_of_one_block_is_found_with_as_many_tokens_as_the_source():
    model = load("bart", encoder_layers=1, decoder_layers=1)
    explanation = clearhead.explain(model, "paris and long", "raw-attention", answer=ANSWER)
    assert 2 * explanation.prompt_length == len(explanation.tokens)
    # A row of cross-attention and a row of self-attention.
    np.testing.assert_allclose(explanation.relevance.sum(), 2, rtol=1e-9)


def test_stacks_of_different_heads_have_no_common_maps():
    model = load("bart", decoder_attention_heads=2)
    clearhead.explain(model, SOURCE, "gradient-x-input", answer=ANSWER, matrix=True)
    with pytest.raises(UnsupportedModel, match="as many heads"):
        clearhead.explain(model, SOURCE, "gae", answer=ANSWER)


def test_options_for_one_sequence_are_refused(bart):
    with pytest.raises(BadOption, match="one sequence"):
        clearhead.explain(bart, SOURCE, "trans-att:normalise_rows=True", answer=ANSWER)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": " "}, "empty"),
        ({"answer": " "}, "answer is empty"),
        ({"answer": "paris", "versus": "london is"}, "has 3 tokens"),
        ({"inputs": "paris is " * 40, "answer": "long"}, "takes at most"),
        ({"answer": "paris is " * 40}, "Shorten the answer"),
    ],
)
def test_bad_input_gets_one_clear_line(bart, arguments, message):
    with pytest.raises(BadInput, match=message):
        clearhead.explain(bart, **{"inputs": SOURCE, "method": "attn-lrp", **arguments})


TOKENS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 0}
STACKED = {**TOKENS, **SHAPES, **STACKS}


def led():
    """Its encoder pads the source to whole windows, and looks up the padding in the table of words."""
    places = {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}
    config = hf.LEDConfig(vocab_size=len(make_tokenizer()), attention_window=[4, 4], **STACKED, **places)
    return hf.LEDForConditionalGeneration(config).eval()


def fsmt():
    """Its stacks are plain modules, whose states have tokens before samples."""
    words = len(make_tokenizer())
    config = hf.FSMTConfig(langs=["en", "de"], src_vocab_size=words, tgt_vocab_size=words, **STACKED)
    return hf.FSMTForConditionalGeneration(config).eval()


def first_step_gradient(network, source_ids, decoder_ids, answer):
    """Gradient × input of the first token's logit at the words of both sequences, by plain autograd."""
    network.requires_grad_(False)
    looked_up = []
    for module in network.modules():
        if isinstance(module, torch.nn.Embedding) and module.weight.shape[0] == len(make_tokenizer()):
            module.register_forward_hook(lambda module, args, out: looked_up.append(out.requires_grad_()))
    mask = torch.ones_like(source_ids)
    logits = network(source_ids, mask, decoder_input_ids=decoder_ids, use_cache=False).logits
    leaves = [looked_up[0], looked_up[-1]]
    gradients = torch.autograd.grad(logits[0, 0, answer], leaves)
    return [(leaf * gradient)[0].sum(-1).detach() for leaf, gradient in zip(leaves, gradients, strict=True)]


@pytest.mark.parametrize("make", [led, fsmt])
def test_both_sequences_are_read_where_their_words_are_looked_up(make):
    """LED's padding is as long as what the decoder reads. Both networks mask with the least number of float32."""
    torch.manual_seed(SEED)
    network = make()
    explanation = clearhead.explain(
        clearhead.load(network, make_tokenizer()),
        SOURCE,
        "gradient-x-input",
        answer="paris",
        scale="logit",
        matrix=True,
    )
    ids = make_tokenizer().convert_tokens_to_ids(list(explanation.tokens))
    source_ids, decoder_ids = torch.tensor([ids[:5]]), torch.tensor([ids[5:]])
    expected = first_step_gradient(network, source_ids, decoder_ids, explanation.target.tokens[0])
    np.testing.assert_allclose(explanation.matrix[0], torch.cat(expected).numpy(), rtol=1e-4, atol=1e-5)
    assert abs(explanation.matrix[0][5]) > 1e-3


def test_samples_and_tokens_of_one_number_are_told_apart():
    """As many samples as tokens of either sequence: the shapes of FSMT's states are those of others, transposed."""
    torch.manual_seed(SEED)
    model = clearhead.load(fsmt(), make_tokenizer())
    source, answer = "the capital of", "paris is"
    alone = clearhead.explain(model, source, "attn-lrp", answer=answer)
    assert len(alone.tokens) == 2 * alone.prompt_length
    count = alone.prompt_length
    together = clearhead.explain(model, [source] * count, "attn-lrp", answer=[answer] * count)
    np.testing.assert_allclose(together[1].relevance, alone.relevance, rtol=1e-4, atol=1e-5)
