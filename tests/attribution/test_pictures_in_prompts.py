"""Pictures among the words of a prompt: scores, places, batches and refusals, on tiny models of every family."""

from functools import cache

import numpy as np
import pytest
import torch
import transformers
from helpers.picture_models import (
    FAMILIES,
    make_picture,
    make_picture_model,
    paint_cell,
    plant_bright_part,
    process_prompt,
    separate_patches,
)

import clearhead
from clearhead.errors import BadInput, UnsupportedModel
from clearhead.model.answer_inputs import answer_prompt, encode_prompt

PROMPT = "<image> the river"
ANSWER = "paris and london"
METHODS = ["attn-lrp", "cp-lrp", "balanced-cat", "gradient-x-input", "trans-att", "gae", "rollout", "raw-attention"]
LLAMAS = ["llava", "llava-next", "idefics3", "smolvlm"]


@cache
def load_family(family):
    return clearhead.load(*make_picture_model(family))


def make_prompt(model, *, width=40, height=24, count=1, text=PROMPT):
    pictures = [make_picture(width, height, seed=number) for number in range(count)]
    return process_prompt(model, pictures, text)


def own_scores(model, prompt, ids):
    """The log-probability of each token of an answer, from the stock network on the processor's own tensors."""
    tensors = dict(encode_prompt(model, prompt).processed)
    length = tensors["input_ids"].shape[1]
    for name, new in {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids)).long()}.items():
        tensors[name] = torch.cat([tensors[name], new], 1)
    # Of the answer; in Gemma 3 a type of 1 stands for pictures.
    answer_type = 0 if "Gemma3" in model.name else 1
    for name, new_type in {"mm_token_type_ids": 0, "token_type_ids": answer_type}.items():
        if name in tensors:
            tensors[name] = torch.nn.functional.pad(tensors[name], (0, len(ids)), value=new_type)
    with torch.no_grad():
        logits = model.network.language_model(**tensors).logits[0, length - 1 : -1]
    return logits.log_softmax(-1)[range(len(ids)), ids]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_score_is_that_of_the_stock_model(family):
    model = load_family(family)
    prompt = make_prompt(
        model, count=1 if family == "paligemma" else 2, text=PROMPT * (1 if family == "paligemma" else 2)
    )
    explanation = clearhead.explain(model, prompt, "gradient-x-input", answer=ANSWER, check=False)
    ids = list(answer_prompt(model, encode_prompt(model, prompt), ANSWER, {}).item.answer.ids)
    expected = own_scores(model, prompt, ids)
    assert len(ids) > 1
    assert explanation.diagnostics["score"] == pytest.approx(float(expected.sum()), abs=1e-9)
    assert [step.probability for step in explanation.steps] == pytest.approx(expected.exp().tolist(), rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_image_tokens_are_put_back_in_place(family):
    network, processor = make_picture_model(family)
    separate_patches(network)
    model = clearhead.load(network, processor)
    for width, height, cell in ((32, 32, (0, 1)), (48, 24, (2, 2)), (24, 48, (3, 1))):
        grey = make_picture(width, height, colour=128)
        (span,) = encode_prompt(model, process_prompt(model, [grey], PROMPT)).item.pictures
        rows, columns = span.grid
        row, column = cell[0] % rows, cell[1] % columns
        painted = paint_cell(grey, span.box, span.grid, (row, column))
        changes = []
        for picture in (grey, painted):
            row_values = answer_prompt(
                model, encode_prompt(model, process_prompt(model, [picture], PROMPT)), ANSWER, {}
            )
            changes.append(row_values.values["inputs_embeds"])
        change_T = (changes[0] - changes[1]).norm(dim=-1).numpy()
        heat = span.place(change_T).reshape(span.grid)
        assert np.unravel_index(heat.argmax(), heat.shape) == (row, column), (width, height)
        assert heat.sum() == pytest.approx(change_T[list(span.tokens)].sum())


@pytest.mark.parametrize("family", LLAMAS)
@pytest.mark.parametrize("method", ["attn-lrp", "cp-lrp", "balanced-cat", "integrated-gradients", "occlusion"])
def test_the_part_that_decides_is_the_hottest(family, method):
    network, processor = make_picture_model(family)
    separate_patches(network)
    model = clearhead.load(network, processor)
    grey = make_picture(32, 32, colour=128)
    (span,) = encode_prompt(model, process_prompt(model, [grey], PROMPT)).item.pictures
    painted = paint_cell(grey, span.box, span.grid, (1, 2))
    prompt = process_prompt(model, [painted], PROMPT)
    plant_bright_part(model, prompt, "paris")
    explanation = clearhead.explain(model, prompt, method, answer="paris", scale="logit", check=False)
    (picture,) = explanation.pictures
    heat = picture.relevance.reshape(picture.grid)
    assert np.unravel_index(heat.argmax(), heat.shape) == (1, 2)
    assert explanation.shares["pictures"] > explanation.shares["prompt"]


@pytest.mark.parametrize("family", FAMILIES)
def test_batched_prompts_equal_single_ones(family):
    model = load_family(family)
    prompts = [make_prompt(model), make_prompt(model, width=16, height=32, text="<image> the capital of france is")]
    batched = clearhead.compare(model, prompts, METHODS, answer=ANSWER, check=False)
    for number, prompt in enumerate(prompts):
        single = clearhead.compare(model, prompt, METHODS, answer=ANSWER, check=False)
        for method in METHODS:
            explanation = batched[method][number]
            np.testing.assert_allclose(explanation.relevance, single[method].relevance, atol=1e-9, err_msg=method)
            assert explanation.pictures[0].grid == single[method].pictures[0].grid


@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_adds_up_to_the_score(family):
    model = load_family(family)
    prompt = make_prompt(model)
    # Without biases CP-LRP gives away the whole logit.
    balanced = clearhead.explain(model, prompt, "cp-lrp", answer="paris", scale="logit", check=False)
    assert balanced.relevance.sum() == pytest.approx(balanced.diagnostics["score"], rel=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_path_of_gradients_is_complete(family):
    network, processor = make_picture_model(family)
    # Norms of nothing jump at zero, where the path begins; with a larger ε they do not.
    for module in network.modules():
        for name in {"variance_epsilon", "eps"} & module.__dict__.keys():
            setattr(module, name, 1.0)
    model = clearhead.load(network, processor)
    path = clearhead.explain(
        model, make_prompt(model), "integrated-gradients", answer="paris", scale="logit", steps=100, check=False
    )
    assert path.diagnostics["completeness_gap"] < 1e-3 * np.abs(path.relevance).sum()


def test_gradients_are_those_of_the_embeddings_that_enter_the_decoder():
    model = load_family("qwen2-vl")
    prompt = make_prompt(model)
    row = answer_prompt(model, encode_prompt(model, prompt), "paris", {})
    leaf = row.values["inputs_embeds"][None].clone().requires_grad_()
    positions = row.values["position_ids"].T[:, None]
    logits = model.network.language_model(inputs_embeds=leaf, position_ids=positions).logits[0, -1]
    logits[row.item.answer.ids[0]].backward()
    explanation = clearhead.explain(model, prompt, "gradient-x-input", answer="paris", scale="logit", check=False)
    expected = (leaf.grad * leaf).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(explanation.relevance, expected, atol=1e-10)


@pytest.mark.parametrize("family", ["llava", "qwen2-vl", "idefics3", "paligemma"])
def test_the_model_stays_as_it_was(family):
    network, processor = make_picture_model(family)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    model = clearhead.load(network, processor)
    prompt = make_prompt(model)
    clearhead.explain(model, prompt, "attn-lrp", generation={"max_new_tokens": 3}, check=False)
    clearhead.explain(model, prompt, "occlusion", answer="paris", check=False)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(not module._forward_pre_hooks for module in network.modules())
    assert getattr(network.model, "rope_deltas", None) is None
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_generation_and_the_matrix_of_steps(family):
    model = load_family(family)
    prompt = make_prompt(model)
    explanation = clearhead.explain(
        model, prompt, "gradient-x-input", matrix=True, generation={"max_new_tokens": 4}, check=False
    )
    tensors = encode_prompt(model, prompt).processed
    with torch.no_grad():
        written = model.network.language_model.generate(**tensors, max_new_tokens=4, do_sample=False)
    tokens = model.processor.convert_ids_to_tokens(written[0, tensors["input_ids"].shape[1] :].tolist())
    assert [step.token for step in explanation.steps] == tokens[: len(explanation.steps)]
    # These decoders compute norms in float32.
    np.testing.assert_allclose(explanation.matrix.sum(0), explanation.relevance, atol=1e-5)
    parts = [explanation.span(step).pictures[0].relevance for step in range(len(explanation.steps))]
    np.testing.assert_allclose(sum(parts), explanation.pictures[0].relevance, atol=1e-5)


def test_several_pictures_chats_and_plain_prompts():
    model = load_family("llava")
    first, second = make_picture(40, 24), make_picture(24, 40, seed=1)
    parts = [{"type": "image", "image": first}, {"type": "text", "text": "the river"}, {"type": "image"}]
    chat = [{"role": "user", "content": [*parts, {"type": "text", "text": "is it"}]}]
    explanation = clearhead.explain(model, ([second], chat), "attn-lrp", answer="paris", check=False)
    assert [picture.image.size for picture in explanation.pictures] == [(40, 24), (24, 40)]
    assert explanation.prompt == "<|user|>\n[picture 1]the river[picture 2]is it<|assistant|>\n"
    assert [word.text for word in explanation.prompt_words()] == ["the", "river", "is", "it"]
    assert explanation.special[explanation.is_picture_token].all()
    # A prompt that does not say where its pictures stand goes through the chat template.
    plain = clearhead.explain(model, ([first, second], "is it"), "attn-lrp", answer="paris", check=False)
    assert plain.prompt == "<|user|>\n[picture 1][picture 2]is it<|assistant|>\n"
    batch = clearhead.explain(model, [(first, "is it"), "the river"], "attn-lrp", answer="paris", check=False)
    alone = clearhead.explain(model, "the river", "attn-lrp", answer="paris", check=False)
    np.testing.assert_allclose(batch[1].relevance, alone.relevance, atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_step_of_an_answer_sees_the_next(family):
    model = load_family(family)
    # PaliGemma reads a prompt in both directions, with pictures or without.
    for prompt in (make_prompt(model), "the capital of france is paris. the capital of"):
        words = clearhead.explain(model, prompt, "gradient", answer=[7, 8, 9], check=False)
        word = clearhead.explain(model, prompt, "gradient", answer=[7], check=False)
        assert words.steps[0].probability == pytest.approx(word.steps[0].probability, rel=1e-6)


def test_a_picture_that_is_hidden_is_out_of_attention():
    model = load_family("llava")
    prompt = make_prompt(model)
    explanation = clearhead.explain(model, prompt, "occlusion", answer="paris", check=False)
    assert explanation.diagnostics["absent"] == "attention"
    row = answer_prompt(model, encode_prompt(model, prompt), "paris", {})
    hidden = explanation.picture_spans[0].tokens[5]
    mask = torch.ones(1, row.length, dtype=torch.long)
    scores = []
    for value in (1, 0):
        mask[0, hidden] = value
        with torch.no_grad():
            logits = model.network.language_model(
                inputs_embeds=row.values["inputs_embeds"][None], attention_mask=mask
            ).logits[0, -1]
        scores.append(logits.log_softmax(-1)[row.item.answer.ids[0]].item())
    assert explanation.relevance[hidden] == pytest.approx(scores[0] - scores[1], abs=1e-9)
    with pytest.raises(UnsupportedModel, match="replacement='attention'"):
        clearhead.explain(model, prompt, "occlusion", answer="paris", replacement="delete", check=False)


def test_explanations_are_checked_by_hiding_words_and_parts():
    explanation = clearhead.explain(load_family("llava"), (make_picture(), "the river in paris is"), answer="long")
    assert explanation.check is not None, explanation.diagnostics
    assert explanation.check.units > 16
    assert explanation.check.kind == "word or patch"


def test_explanations_with_pictures_are_saved_and_read(tmp_path):
    model = load_family("llava")
    explanation = clearhead.explain(model, make_prompt(model), "attn-lrp", answer=ANSWER, matrix=True, check=False)
    for name in ("one.json", "one.safetensors"):
        explanation.save(tmp_path / name)
        again = clearhead.read(tmp_path / name)
        np.testing.assert_array_equal(again.pictures[0].relevance, explanation.pictures[0].relevance)
        assert again.pictures[0].image.tobytes() == explanation.pictures[0].image.tobytes()
        assert again.pictures[0].box == explanation.pictures[0].box
        np.testing.assert_allclose(
            again.span("london").pictures[0].relevance.sum(),
            again.span("london").relevance[again.is_picture_token].sum(),
        )


def test_what_cannot_be_read_is_refused_with_the_reason():
    network, processor = make_picture_model("llava")
    picture = make_picture()
    with pytest.raises(BadInput, match="AutoProcessor"):
        clearhead.explain(clearhead.load(network, processor.tokenizer), (picture, "is it"), answer="paris")
    model = load_family("llava")
    with pytest.raises(BadInput, match="refuses this prompt"):
        clearhead.explain(model, (picture, "<image><image> is it"), answer="paris")
    with pytest.raises(BadInput, match="has no picture"):
        clearhead.explain(model, [{"role": "user", "content": [{"type": "image"}]}], answer="paris")
    with pytest.raises(BadInput, match="input_ids of shape"):
        clearhead.explain(model, {"pixel_values": torch.zeros(1, 3, 16, 16)}, answer="paris")
    with pytest.raises(BadInput, match="There is no image at"):
        clearhead.explain(model, ("missing.png", "is it"), answer="paris")


def test_families_whose_image_tokens_have_no_place_are_refused():
    config = transformers.Blip2Config(
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 16,
            "patch_size": 8,
        },
        qformer_config={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "encoder_hidden_size": 16,
        },
        text_config=transformers.OPTConfig(
            vocab_size=20,
            hidden_size=16,
            ffn_dim=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            word_embed_proj_dim=16,
        ),
    )
    with pytest.raises(UnsupportedModel, match="query tokens"):
        clearhead.load(transformers.Blip2ForConditionalGeneration(config))


@pytest.mark.parametrize("head", ["MaskedLM", "TokenClassification", "ImagesAndTextClassification"])
def test_other_heads_of_models_that_mix_a_picture_and_a_text_are_refused(head):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "vocab_size": 20}
    config = transformers.ViltConfig(**sizes, num_hidden_layers=1, image_size=16, patch_size=8, num_images=2)
    with pytest.raises(UnsupportedModel, match=r"head is not covered.*ViltForQuestionAnswering"):
        clearhead.load(getattr(transformers, f"ViltFor{head}")(config))
