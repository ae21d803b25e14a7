"""A picture, or regions of one, and a text that a model reads as one sequence."""

import copy

import numpy as np
import pytest
import torch
import transformers
from helpers.joined_models import JOINED, REGIONS, WIDTH, joined_model, joined_network, joined_tensors
from helpers.pictures import photo

import clearhead
from clearhead.errors import BadInput, TooLong
from clearhead.views import html, json_record, markdown, terminal

TEXT = "a fine film"
FAMILIES = ("vilt", "visual-bert", "lxmert", "flava", "bridge-tower", "blip")
AT_EMBEDDINGS = ("gradient-x-input", "attn-lrp", "cp-lrp", "lrp", "integrated-gradients", "occlusion")
AT_BLOCKS = ("balanced-cat", "trans-att", "gae", "rollout")
CASES = [(family, method) for family in FAMILIES for method in AT_EMBEDDINGS]
CASES += [(family, method) for family in FAMILIES for method in AT_BLOCKS if family != "bridge-tower"]


def explain(family, inputs, method="gradient-x-input", target=0, **options):
    return clearhead.explain(joined_model(family), inputs, method, target, check=False, **options)


def all_relevance(joint):
    return np.concatenate([explanation.relevance for explanation in joint.explanations])


def select_row(tensors, row, words):
    """Return one input, its text without padding."""
    selected = {name: tensor[[row]] for name, tensor in tensors.items()}
    for name in selected.keys() & {"input_ids", "attention_mask", "token_type_ids"}:
        selected[name] = selected[name][:, :words]
    return selected


def own_logits(network, tensors):
    # Logits are called otherwise in each of these families.
    output = network(**tensors)
    return output.itm_logits if hasattr(output, "itm_logits") else output[0]


def pair(family):
    if joined_model(family).network.takes_images:
        return photo(), TEXT
    generator = torch.Generator().manual_seed(0)
    regions = {joined_model(family).network.features: torch.randn(REGIONS, WIDTH, generator=generator)}
    if family == "lxmert":
        regions["visual_pos"] = torch.rand(REGIONS, 4, generator=generator)
    return regions, TEXT


@pytest.mark.parametrize("family", JOINED)
def test_scores_are_the_models_own_also_of_padded_texts(family):
    tensors = joined_tensors(family)
    expected = own_logits(joined_model(family).network.network, tensors)[:, 0].tolist()
    assert [joint.score for joint in explain(family, tensors)] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("family", "method"), CASES)
def test_a_batch_equals_single_inputs(family, method):
    tensors = joined_tensors(family)
    batched = explain(family, tensors, method)
    for row, words in enumerate((5, 7)):
        (single,) = explain(family, select_row(tensors, row, words), method)
        np.testing.assert_allclose(all_relevance(batched[row]), all_relevance(single), atol=1e-10)


def embedding_modules(network):
    """Return the modules whose outputs enter the first blocks, in the order of their tokens."""
    if hasattr(network, "vilt"):
        return [network.vilt.embeddings]
    if hasattr(network, "visual_bert"):
        return [network.visual_bert.embeddings]
    if hasattr(network, "lxmert"):
        return [network.lxmert.encoder.visn_fc, network.lxmert.embeddings]
    if hasattr(network, "flava"):
        return [network.flava.image_model.embeddings, network.flava.text_model.embeddings]
    if hasattr(network, "bridgetower"):
        return [network.bridgetower.vision_model.visual.ln_pre, network.bridgetower.text_model.embeddings]
    return [network.vision_model.embeddings, network.text_encoder.embeddings]


def embedding_products(network, tensors):
    """Return embedding × gradient of the first logit, by autograd through the stock network."""
    kept = {}
    handles = []
    for module in embedding_modules(network):
        hook = lambda module, args, out: kept.update({module: out[0] if isinstance(out, tuple) else out})  # noqa: E731
        handles.append(module.register_forward_hook(hook))
    logit = own_logits(network, tensors)[0, 0]
    for handle in handles:
        handle.remove()
    embeddings = [kept[module] for module in embedding_modules(network)]
    if hasattr(network, "flava"):
        # The token that FLAVA's third stack adds is the first of the sequence.
        embeddings.insert(0, network.flava.multimodal_model.cls_token)
    gradients = torch.autograd.grad(logit, embeddings)
    products = [(pair[0] * pair[1]).sum(-1)[0] for pair in zip(embeddings, gradients, strict=True)]
    return torch.cat(products).detach().numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_autograd(family):
    tensors = select_row(joined_tensors(family), 1, 7)
    expected = embedding_products(joined_network(family), tensors)
    (joint,) = explain(family, tensors)
    words = expected[:7] if family in ("vilt", "visual-bert") else expected[-7:]
    np.testing.assert_allclose(joint.text.relevance, words, atol=1e-12)
    # Sorted: ViLT draws patches in an order of its own.
    np.testing.assert_allclose(np.sort(all_relevance(joint)), np.sort(expected), atol=1e-12)


def weigh_maps(network, tensors, attention_class="LxmertAttention"):
    """Return E_h (∇A ⊙ A)⁺ of all attention maps in the order of computation."""
    maps = []
    handles = []
    for module in network.modules():
        if type(module).__name__ == attention_class:
            # In evaluation mode dropout returns the map as it is.
            handles.append(module.dropout.register_forward_hook(lambda module, args, out: maps.append(out)))
    logit = own_logits(network, tensors)[0, 0]
    for handle in handles:
        handle.remove()
    gradients = torch.autograd.grad(logit, maps, allow_unused=True)
    weighted = []
    for attention, gradient in zip(maps, gradients, strict=True):
        gradient = torch.zeros_like(attention) if gradient is None else gradient
        weighted.append((attention * gradient).clamp(min=0).mean(1)[0].detach())
    return weighted


def normalised(related):
    extra = related - torch.eye(len(related))
    total = extra.sum(1, keepdim=True)
    return extra / total.masked_fill(total == 0, 1) + torch.eye(len(related))


def relate_by_hand(maps, words, regions):
    """Return the class token's rows by the published rules, for three, two and two blocks."""
    tt, vv = torch.eye(words).double(), torch.eye(regions).double()
    tv, vt = torch.zeros(words, regions).double(), torch.zeros(regions, words).double()
    for attention in maps[:3]:
        tt = tt + attention @ tt
    for attention in maps[3:5]:
        vv = vv + attention @ vv
    for start in (5, 9):
        to_regions, to_words, own_words, own_regions = maps[start : start + 4]
        new_tv = tv + normalised(tt).T @ to_regions @ normalised(vv)
        new_vt = vt + normalised(vv).T @ to_words @ normalised(tt)
        tt, vv, tv, vt = tt + to_regions @ vt, vv + to_words @ tv, new_tv, new_vt
        tt, tv = tt + own_words @ tt, tv + own_words @ tv
        vv, vt = vv + own_regions @ vv, vt + own_regions @ vt
    return tv[0], tt[0] - torch.eye(words)[0]


def test_gae_of_co_attention_follows_the_published_rules():
    tensors = select_row(joined_tensors("lxmert"), 1, 7)
    regions, words = relate_by_hand(weigh_maps(joined_network("lxmert"), tensors), 7, REGIONS)
    (joint,) = explain("lxmert", tensors, "gae")
    np.testing.assert_allclose(joint.explanations[0].relevance, regions, atol=1e-12)
    np.testing.assert_allclose(joint.text.relevance, words, atol=1e-12)


def test_gae_of_a_third_stack_goes_on_from_both():
    tensors = select_row(joined_tensors("flava"), 1, 7)
    maps = weigh_maps(joined_network("flava"), tensors, "FlavaSelfAttention")
    # FLAVA runs both stacks twice, and its matching head reads the second run: three, two and three blocks.
    related = torch.eye(25).double()
    for attention in maps[5:8]:
        related[1:18] += attention @ related[1:18]
    for attention in maps[8:10]:
        related[18:] += attention @ related[18:]
    for attention in maps[10:]:
        related += attention @ related
    (joint,) = explain("flava", tensors, "gae")
    np.testing.assert_allclose(all_relevance(joint)[1:], related[0, 1:], atol=1e-12)


@pytest.mark.parametrize("family", ["visual-bert-reasoning", "lxmert", "flava", "bridge-tower"])
def test_without_biases_relevance_is_complete_in_every_layer(family):
    network = joined_network(family)
    for name, parameter in network.named_parameters():
        # Types are added where the stacks of BridgeTower meet, as biases are.
        if name.endswith("bias") or name == "bridgetower.token_type_embeddings.weight":
            parameter.data.zero_()
    for method in ("cp-lrp", "balanced-cat"):
        if (family, method) == ("bridge-tower", "balanced-cat"):
            continue
        (joint, _) = clearhead.explain(network, joined_tensors(family), method, 0, check=False)
        # The pooler's tanh passes tanh(x)/x, so that nothing is lost there.
        assert joint.diagnostics["completeness_gap"] < 1e-10


@pytest.mark.parametrize("family", JOINED)
def test_relevance_is_conserved_over_picture_and_text(family):
    (joint, _) = explain(family, joined_tensors(family), "lrp")
    gap = joint.diagnostics["conservation_gap"]
    assert gap < 1e-2
    assert all_relevance(joint).sum() == pytest.approx(1, abs=gap + 1e-12)


def test_effects_of_regions_and_words_add_up():
    model = joined_model("visual-bert")
    joint = explain("visual-bert", pair("visual-bert"), "shapley-sampling", output="logit")
    tensors = clearhead.capture(model, pair("visual-bert")).inputs.tensors
    # Of everything that can be hidden only [CLS] and [SEP] are left.
    hidden = {**tensors, "attention_mask": torch.tensor([[1, 0, 0, 0, 1] + [0] * REGIONS])}
    effect = joint.score - model.network(**hidden)[0, 0].item()
    assert all_relevance(joint).sum() == pytest.approx(effect, abs=1e-10)


def test_a_planted_patch_is_in_its_place():
    network = joined_network("vilt", num_hidden_layers=1)
    # Only this patch has pixels, and projections without a bias see nothing in the others.
    for name, parameter in network.named_parameters():
        if name.endswith(("position_embeddings", "cls_token", "projection.bias")) and "text" not in name:
            parameter.data.zero_()
    network.vilt.embeddings.token_type_embeddings.weight.data[1] = 0
    tensors = joined_tensors("vilt", 1)
    tensors["pixel_values"] = torch.zeros_like(tensors["pixel_values"])
    tensors["pixel_values"][0, :, 16:24, 8:16] = 1
    (joint,) = clearhead.explain(network, tensors, "gradient-x-input", 0, check=False)
    assert np.flatnonzero(joint.image.relevance).tolist() == [1 + 2 * 4 + 1]
    assert joint.image.tokens[10] == "patch 2,1"


def test_padded_pictures_have_only_their_own_patches():
    tensors = joined_tensors("vilt")
    mask = torch.ones(2, 32, 32)
    mask[0, 16:] = 0
    mask[0, :, 24:] = 0
    first, second = explain("vilt", {**tensors, "pixel_mask": mask})
    assert first.image.grid == (2, 3) and second.image.grid == (4, 4)
    expected = joined_model("vilt").network.network(**tensors, pixel_mask=mask).logits[:, 0]
    assert [first.score, second.score] == pytest.approx(expected.tolist(), abs=1e-10)


def test_patches_that_were_not_drawn_have_no_relevance():
    network = joined_network("vilt", max_image_length=6)
    (joint,) = clearhead.explain(network, joined_tensors("vilt", 1), "gradient-x-input", 0, check=False)
    assert joint.image.grid == (4, 4)
    assert np.count_nonzero(joint.image.relevance[1:]) == 6


def test_drawing_patches_leaves_the_generator_as_it_was():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    explain("vilt", joined_tensors("vilt"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("family", JOINED)
def test_the_model_stays_as_it_was(family):
    network = joined_network(family)
    network.train()
    weights = copy.deepcopy(network.state_dict())
    config = network.config.to_dict()
    clearhead.explain(network, joined_tensors(family), "gradient-x-input", 0, check=False)
    assert all(module.training for module in network.modules())
    assert all(torch.equal(weights[name], value) for name, value in network.state_dict().items())
    assert network.config.to_dict() == config
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pair_has_words_and_a_check(family):
    joint = clearhead.explain(joined_model(family), pair(family))
    assert [word.text for word in joint.text.words()] == TEXT.split()
    assert joint.check is not None and joint.explanations[0].check is None
    pieces = "patch" if joint.images else "region"
    assert joint.check.kind == f"word or {pieces}"
    record = json_record.record(joint, "x")
    assert record["inputs"][1]["check"]["kind"] == joint.check.kind
    expected = "words and patches" if joint.images else "words and regions"
    for shown in (terminal.capture(terminal.view(joint), width=300), html.card(joint), markdown.document([joint])):
        assert expected in shown
    assert joint.text.text == TEXT
    listed = clearhead.explain(joined_model(family), [pair(family)] * 2, check=False)
    assert [type(item) for item in listed] == [clearhead.JointExplanation] * 2


def test_patches_and_words_are_hidden_from_attention():
    joint = explain("vilt", (photo(), TEXT), "occlusion", unit="word")
    assert joint.image.grid == (4, 4) and len(joint.text.words()) == 3
    assert np.count_nonzero(joint.image.relevance[1:]) == 16
    with pytest.raises(clearhead.UnsupportedModel, match="replacement='attention'"):
        explain("vilt", (photo(), TEXT), "occlusion", replacement="delete")


def test_regions_are_named_and_saved(tmp_path):
    joint = explain("visual-bert", pair("visual-bert"))
    assert joint.explanations[0].tokens == tuple(f"region {number}" for number in range(REGIONS))
    assert joint.image is not None if joint.images else joint.texts[0] is joint.explanations[0]
    read = clearhead.read(joint.save(tmp_path / "joint.json"))
    np.testing.assert_array_equal(all_relevance(read), all_relevance(joint))
    assert read.text.text == TEXT
    assert "the regions" in joint._repr_html_()


@pytest.mark.parametrize(
    ("family", "inputs", "reason"),
    [
        ("vilt", "a text", "reads a picture and a text together"),
        ("vilt", [("a", 3)], "reads a picture and a text together"),
        ("visual-bert", (photo(), TEXT), "visual_embeds"),
        ("vilt", {"input_ids": torch.ones(1, 3, dtype=torch.long)}, "pixel_values"),
    ],
)
def test_other_inputs_are_refused(family, inputs, reason):
    with pytest.raises(BadInput, match=reason):
        clearhead.explain(joined_model(family), inputs)


def test_what_cannot_be_read_is_refused():
    with pytest.raises(BadInput, match="without its processor"):
        clearhead.explain(joined_network("vilt"), (photo(), TEXT))
    tensors = joined_tensors("vilt")
    with pytest.raises(BadInput, match="different numbers"):
        explain("vilt", {**tensors, "pixel_values": tensors["pixel_values"][:1]})
    with pytest.raises(TooLong):
        explain("vilt", (photo(), "film " * 40))
    config = transformers.VisualBertConfig(**JOINED["visual-bert"][1], bypass_transformer=True)
    with pytest.raises(clearhead.UnsupportedModel, match="bypass_transformer"):
        clearhead.load(transformers.VisualBertForQuestionAnswering(config))


def test_blocks_that_are_bridged_are_refused_with_what_works():
    for method in AT_BLOCKS:
        with pytest.raises(clearhead.UnsupportedModel, match="attn-lrp, lrp or gradient-x-input"):
            explain("bridge-tower", joined_tensors("bridge-tower"), method)
    assert clearhead.explain(joined_model("bridge-tower"), pair("bridge-tower"), check=False).method == "attn-lrp"
    sizes = {"vision_config": {"hidden_size": 128}}
    with pytest.raises(clearhead.UnsupportedModel, match="128 features"):
        clearhead.load(joined_network("bridge-tower", **sizes))
