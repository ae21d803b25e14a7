"""The authors' code and direct transcriptions of the papers' equations, value by value."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForMaskedLM, BertForSequenceClassification, ViTForImageClassification

import clearhead
from clearhead.attribution.method import parse_method

clearhead.methods()
GOLDEN = Path(__file__).parents[1] / "golden"

BERT_SAMPLES = (0, 1, 2, 3, 6)
PAPER, AUTHORS_BERT, AUTHORS_VIT, EXACT = 1e-9, 2e-5, 5e-5, 1e-10


@pytest.fixture(scope="module")
def bert():
    network = BertForSequenceClassification.from_pretrained(GOLDEN / "bert", dtype=torch.float64).eval()
    lm = BertForMaskedLM(network.config).double().eval()
    lm.load_state_dict(load_file(GOLDEN / "bert" / "mlm_head.safetensors"), strict=False)
    return clearhead.load(network, lm_head=lm)


@pytest.fixture(scope="module")
def golden_bert():
    return load_file(GOLDEN / "bert" / "golden.safetensors")


@pytest.fixture(scope="module")
def decoded():
    return load_file(GOLDEN / "bert" / "golden_decoded.safetensors")


@pytest.fixture(scope="module", params=["sdpa", "eager"])
def vit(request):
    options = {"dtype": torch.float64, "attn_implementation": request.param}
    return clearhead.load(ViTForImageClassification.from_pretrained(GOLDEN / "vit", **options).eval())


@pytest.fixture(scope="module")
def golden_vit():
    return load_file(GOLDEN / "vit" / "golden.safetensors")


def assert_close(values, expected, tolerance):
    values, expected = torch.as_tensor(values).double(), expected.double()
    assert values.shape == expected.shape
    assert float((values - expected).abs().max()) <= tolerance * float(expected.abs().max())


def text_traces(model, golden, sample):
    batch = {name: golden[f"s{sample}.{name}"].reshape(1, -1) for name in ("input_ids", "attention_mask")}
    trace = clearhead.capture(model, batch)
    for target in golden[f"s{sample}.targets"].tolist():
        yield trace.with_target(target), f"s{sample}.c{target}.", int(batch["attention_mask"].sum())


def image_traces(model, golden, sample):
    trace = clearhead.capture(model, {"pixel_values": golden[f"s{sample}.pixel_values"].reshape(1, 3, 32, 32)})
    for target in golden[f"s{sample}.targets"].tolist():
        yield trace.with_target(target), f"s{sample}.c{target}."


def scores(trace, name):
    return parse_method(name)(trace).relevance_BT[0]


@pytest.mark.parametrize("sample", BERT_SAMPLES)
def test_bert_forward_gradients_and_relevance(bert, golden_bert, sample):
    for trace, key, _ in text_traces(bert, golden_bert, sample):
        assert_close(trace.logits[0], golden_bert[f"s{sample}.logits"].flatten(), EXACT)
        assert_close(torch.stack(trace.attentions)[:, 0], golden_bert[f"s{sample}.attn"], EXACT)
        assert_close(torch.stack(trace.hidden_states)[:, 0], golden_bert[f"s{sample}.hidden_states"], EXACT)
        assert_close(torch.stack(trace.attention_gradients)[:, 0], golden_bert[key + "grad_attn"], EXACT)
        assert_close(torch.stack(trace.attention_relevances)[:, 0], golden_bert[key + "paper.R_attn"], PAPER)
        assert_close(torch.stack(trace.attention_relevances)[:, 0], golden_bert[key + "R_attn"], AUTHORS_BERT)


@pytest.mark.parametrize("sample", BERT_SAMPLES)
def test_bert_methods(bert, golden_bert, sample):
    for trace, key, real in text_traces(bert, golden_bert, sample):
        assert_close(scores(trace, "trans-att"), golden_bert[key + "paper.transatt"].flatten(), PAPER)
        assert_close(scores(trace, "lrp"), golden_bert[key + "paper.lrpeq4h_full"].flatten(), PAPER)
        assert_close(scores(trace, "partial-lrp"), golden_bert[key + "paper.lrpeq4h_partial"].flatten(), PAPER)
        assert_close(scores(trace, "rollout"), golden_bert[f"s{sample}.paper.rollout"].flatten(), EXACT)
        assert_close(scores(trace, "cat"), golden_bert[key + "paper.cat_out"].flatten(), EXACT)
        per_block = parse_method("cat", hidden="input")(trace).layers_BLT[0]
        assert_close(per_block, golden_bert[key + "cat_layers_in"], EXACT)
        if real == trace.mask_BT.shape[1]:
            assert_close(scores(trace, "att-cat"), golden_bert[key + "paper.attcat_out_col"].flatten(), EXACT)
            assert_close(scores(trace, "att-cat:hidden=input"), golden_bert[key + "attcat"].flatten(), EXACT)
            assert_close(scores(trace, "raw-attention")[1:], golden_bert[f"s{sample}.raw_attn"].flatten()[1:], EXACT)


@pytest.mark.parametrize("sample", BERT_SAMPLES)
def test_bert_authors_variants(bert, golden_bert, sample):
    """The authors normalise rows and overwrite the classification token's own score."""
    for trace, key, _ in text_traces(bert, golden_bert, sample):
        everything = scores(trace, "trans-att:normalise_rows=true")
        last = scores(trace, "trans-att:normalise_rows=true,first_block=2")
        assert_close(everything[1:], golden_bert[key + "transatt"].flatten()[1:], AUTHORS_BERT)
        assert_close(last[1:], golden_bert[key + "transatt_last"].flatten()[1:], AUTHORS_BERT)


def test_padding_rows_do_not_count_in_att_cat(bert, golden_bert):
    """The authors average attention over padding too; here a padded sample gives what it gives alone."""
    for trace, key, real in text_traces(bert, golden_bert, 6):
        ids = golden_bert["s6.input_ids"].reshape(1, -1)[:, :real]
        target = int(key.split(".")[1][1:])
        alone = clearhead.capture(bert, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, target)
        assert_close(scores(trace, "att-cat")[:real], scores(alone, "att-cat"), EXACT)
        published = golden_bert[key + "paper.attcat_out_col"].flatten()
        assert not torch.allclose(scores(trace, "att-cat"), published, rtol=1e-3)


@pytest.mark.parametrize("top", [0, 1, 3])
@pytest.mark.parametrize("sample", BERT_SAMPLES)
def test_decoded_gradcam(bert, golden_bert, decoded, sample, top):
    for trace, key, real in text_traces(bert, golden_bert, sample):
        for layer in range(4):
            prefix = f"{key}l{layer}."
            relevance = parse_method("decoded-gradcam", layer=layer, top=top or None)(trace).relevance_BT[0]
            assert_close(
                parse_method("layer-gradcam", layer=layer)(trace).relevance_BT[0], decoded[prefix + "alpha"], EXACT
            )
            assert_close(relevance[:real], decoded[f"{prefix}tau{top}.positions"][:real], PAPER)


@pytest.mark.parametrize("sample", range(3))
def test_vit(vit, golden_vit, sample):
    for trace, key in image_traces(vit, golden_vit, sample):
        assert_close(trace.logits[0], golden_vit[f"s{sample}.logits"].flatten(), EXACT)
        assert_close(torch.stack(trace.attention_gradients)[:, 0], golden_vit[key + "grad_attn"], EXACT)
        assert_close(torch.stack(trace.attention_relevances)[:, 0], golden_vit[key + "paper.R_attn"], PAPER)
        assert_close(torch.stack(trace.attention_relevances)[:, 0], golden_vit[key + "R_attn"], AUTHORS_VIT)
        assert_close(scores(trace, "trans-att")[1:], golden_vit[key + "paper.transatt"].flatten(), PAPER)
        assert_close(scores(trace, "trans-att")[1:], golden_vit[key + "transatt"].flatten(), AUTHORS_VIT)
        assert_close(
            scores(trace, "trans-att:first_block=1")[1:], golden_vit[key + "transatt_start1"].flatten(), AUTHORS_VIT
        )
        assert_close(scores(trace, "rollout")[1:], golden_vit[f"s{sample}.paper.rollout"].flatten(), EXACT)


@pytest.mark.parametrize("sample", range(3))
def test_vit_ablations(vit, golden_vit, sample):
    for trace, key in image_traces(vit, golden_vit, sample):
        for options, name in (
            ("weight=attention", "paper.ablation_AR"),
            ("only_block=-1", "ablation_last"),
            ("only_block=1", "ablation_second"),
        ):
            tolerance = PAPER if name.startswith("paper") else AUTHORS_VIT
            assert_close(scores(trace, f"trans-att:{options}")[1:], golden_vit[key + name].flatten(), tolerance)


@pytest.mark.parametrize("sample", range(3))
def test_vit_relevance_at_the_pixels(vit, golden_vit, sample):
    for trace, key in image_traces(vit, golden_vit, sample):
        attribution = parse_method("lrp")(trace)
        assert_close(attribution.pixels_BPQ[0].flatten(), golden_vit[key + "paper.lrpeq4h_full"].flatten(), PAPER)
        assert_close(scores(trace, "partial-lrp")[1:], golden_vit[key + "paper.lrpeq4h_partial"].flatten(), PAPER)
        assert_close(attribution.relevance_BT[0].sum(), attribution.pixels_BPQ[0].sum(), PAPER)
