"""Products in balanced backward passes: however they are written, and whatever their factors are."""

import pytest
import torch
import transformers as hf
from helpers.balanced_reference import transcribe
from helpers.tiny_models import EXPERTS, ROTARY, TEXT, network, randomised, tensors
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput

import clearhead
from clearhead.attribution.method import parse_method
from clearhead.engine.backward import ATTN_LRP, BALANCED
from clearhead.engine.blockwise import capture_blockwise
from clearhead.errors import UnsupportedOperation

RULES = [ATTN_LRP, BALANCED]
LATENT = {**ROTARY, "num_key_value_heads": 4, "head_dim": 4, "kv_lora_rank": 8, "q_lora_rank": 8, "v_head_dim": 8}
LATENT |= {"qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2}
LATENT |= {"moe_intermediate_size": 24, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
ROUTED = {
    # The weights of the chosen experts are gathered from a softmax, from sigmoids, or converted after the choice.
    "phimoe": (hf.PhimoeForSequenceClassification, {**EXPERTS, "num_local_experts": 4}),
    "deepseek-v3": (hf.DeepseekV3ForSequenceClassification, LATENT),
    "jetmoe": (hf.JetMoeForSequenceClassification, {**EXPERTS, "num_local_experts": 4, "kv_channels": 8}),
}


def routed(family):
    network_class, options = ROUTED[family]
    config = network_class.config_class(**options)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return randomised(network_class(config).double().eval())


@pytest.mark.parametrize("method", ["balanced-cat", "cat"])
def test_keys_that_were_written_in_parts_hide_no_block(method):
    """DeepSeek writes the parts of its keys into an empty tensor; the blocks still follow each other."""
    explained = clearhead.load(routed("deepseek-v3"))
    batch = tensors("llama")
    whole = parse_method(method)(clearhead.capture(explained, batch, 0)).relevance_BT
    blocks = parse_method(method)(capture_blockwise(explained, batch, 0)).relevance_BT
    torch.testing.assert_close(blocks, whole, rtol=0, atol=1e-5 * float(whole.abs().max()))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("family", ROUTED)
def test_the_routing_to_experts_is_held(family, rule):
    batch = tensors("llama")
    trace = clearhead.capture(clearhead.load(routed(family)), batch, 0)
    _, expected = transcribe(routed(family), batch, rule).leaf
    scale = float(expected.abs().max())
    torch.testing.assert_close(trace.coefficients(rule).leaf, expected, rtol=0, atol=1e-10 * scale)


@pytest.mark.parametrize("family", ROUTED)
def test_experts_without_biases_add_up_to_the_logit(family):
    plain = routed(family)
    for name, parameter in plain.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    for explanation in clearhead.explain(clearhead.load(plain), tensors("llama"), "cp-lrp", target=1):
        # Norms and routers compute in float32 even in a float64 network.
        assert explanation.relevance.sum() == pytest.approx(explanation.diagnostics["score"], abs=1e-6)


class Pooled(hf.BertForSequenceClassification):
    """BERT whose head reads what `pool` makes of the last hidden state and of a score per token."""

    def __init__(self, config, pool):
        super().__init__(config)
        self.pool = pool
        self.attention = nn.Linear(config.hidden_size, 1)

    def forward(self, input_ids, attention_mask=None, **options):
        hidden = self.bert(input_ids, attention_mask, **options).last_hidden_state
        return SequenceClassifierOutput(logits=self.classifier(self.pool(hidden, self.attention(hidden))))


def pooled(pool, *, biases=True):
    config = hf.BertConfig(**TEXT)
    plain = randomised(Pooled(config, pool).double().eval())
    for name, parameter in plain.named_parameters():
        if not biases and name.endswith("bias"):
            nn.init.zeros_(parameter)
    return clearhead.load(plain)


def capture(pool, rule):
    return clearhead.capture(pooled(pool), tensors("bert", rows=1), 0).coefficients(rule).leaf


WEIGHTED = {
    "weights first": lambda hidden, scores: (scores.softmax(1) * hidden).sum(1),
    "weights last": lambda hidden, scores: (hidden * scores.softmax(1)).sum(1),
    "two axes": lambda hidden, scores: (hidden * scores.squeeze(-1).softmax(-1).unsqueeze(-1)).sum(1),
    "matrix": lambda hidden, scores: (hidden.mT @ scores.softmax(1)).squeeze(-1),
    "equation": lambda hidden, scores: torch.einsum("btd,bt->bd", [hidden, scores.squeeze(-1).softmax(-1)]),
    "new axis": lambda hidden, scores: (hidden * scores.squeeze(-1).softmax(-1)[:, :, None]).sum(1),
    "masked": lambda hidden, scores: (hidden * (scores.softmax(1) * torch.ones(9, 1).double())).sum(1),
    "normalised": lambda hidden, scores: (hidden * _normalise(scores.softmax(1))).sum(1),
    "two heads": lambda hidden, scores: (hidden * torch.stack([scores, scores]).softmax(2).mean(0)).sum(1),
}


def _normalise(weights):
    return weights / weights.sum(1, keepdim=True)


@pytest.mark.parametrize("pool", WEIGHTED.values(), ids=WEIGHTED)
def test_the_weights_of_a_pooling_head_are_held(pool):
    (explanation,) = clearhead.explain(pooled(pool, biases=False), tensors("bert", rows=1), "cp-lrp", target=1)
    assert abs(explanation.diagnostics["score"]) > 0.01
    assert explanation.relevance.sum() == pytest.approx(explanation.diagnostics["score"], abs=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pool", list(WEIGHTED.values())[1:], ids=list(WEIGHTED)[1:])
def test_a_pooling_head_is_explained_alike_however_it_is_written(pool, rule):
    torch.testing.assert_close(capture(pool, rule), capture(WEIGHTED["weights first"], rule))


WRITTEN = {
    "keyword": lambda hidden, scores: torch.mul(hidden, other=scores).sum(1),
    "quotient": lambda hidden, scores: (torch.div(hidden * scores, other=hidden.norm()) * hidden.norm()).sum(1),
    "batched": lambda hidden, scores: torch.bmm(hidden.mT, mat2=scores)[..., 0],
    "added": lambda hidden, scores: torch.zeros(()).double().baddbmm(batch1=hidden.mT, batch2=scores)[..., 0],
    "layer": lambda hidden, scores: nn.functional.linear(hidden.mT, scores.flatten()[None])[..., 0],
    "concatenate": lambda hidden, scores: (torch.concatenate([hidden[:, :2], hidden[:, 2:]], 1) * scores).sum(1),
    "fold": lambda hidden, scores: (nn.functional.fold(hidden.mT, (9, 1), 1).squeeze(-1) * scores.mT).sum(-1),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pool", WRITTEN.values(), ids=WRITTEN)
def test_a_product_is_explained_alike_however_it_is_written(pool, rule):
    torch.testing.assert_close(capture(pool, rule), capture(lambda hidden, scores: (hidden * scores).sum(1), rule))


def test_values_that_were_written_into_a_constant_are_no_constant():
    def pool(hidden, scores):
        copy = torch.zeros_like(hidden)
        copy[:, :, :] = hidden
        return (copy.clone() * scores).sum(1)

    expected = capture(lambda hidden, scores: (hidden * scores).sum(1), ATTN_LRP)
    torch.testing.assert_close(capture(pool, ATTN_LRP), expected)


def test_a_unit_vector_is_divided_by_a_constant():
    def pool(hidden, scores):
        return nn.functional.normalize(hidden[:, 0], dim=-1)

    expected = capture(lambda hidden, scores: hidden[:, 0] / hidden[:, 0].norm(dim=-1, keepdim=True), ATTN_LRP)
    torch.testing.assert_close(capture(pool, ATTN_LRP), expected)


def test_a_product_with_values_of_unknown_origin_is_no_weight():
    """A second view of what was written into is not on the tape, but still depends on the input."""

    def pool(hidden, scores):
        copy = torch.zeros_like(hidden)
        view = copy.view(copy.shape)
        copy[:, :, :] = hidden
        return (view * scores.softmax(1) * scores).sum(1)

    expected = capture(lambda hidden, scores: (hidden * scores.softmax(1) * scores).sum(1), BALANCED)
    torch.testing.assert_close(capture(pool, BALANCED), expected)


@pytest.mark.parametrize(
    "gate",
    [
        lambda x: x.sigmoid().mT.mT,
        lambda x: x.sigmoid().expand(-1, -1, 32),
        lambda x: x.sigmoid()[:, :, :],
        lambda x: torch.cat([x, x], 2).sigmoid().chunk(2, 2)[0],
        lambda x: 2 * x.sigmoid() / 2,
    ],
)
def test_a_gate_that_was_moved_or_scaled_is_still_held(gate):
    expected = capture(lambda hidden, scores: (hidden * scores.sigmoid()).sum(1), BALANCED)
    torch.testing.assert_close(capture(lambda hidden, scores: (hidden * gate(scores)).sum(1), BALANCED), expected)


@pytest.mark.parametrize(
    "gate",
    [lambda x: x * (1.7 * x).sigmoid(), lambda x: nn.functional.leaky_relu(x), lambda x: nn.functional.softplus(x)],
)
def test_an_activation_function_is_a_gate_however_it_is_written(gate):
    """GPT-OSS multiplies by x · sigmoid(αx), Laguna by softplus(x)."""
    expected = capture(lambda hidden, scores: (hidden * gate(scores).detach()).sum(1), BALANCED)
    torch.testing.assert_close(capture(lambda hidden, scores: (hidden * gate(scores)).sum(1), BALANCED), expected)


def test_a_product_of_three_activations_is_refused():
    with pytest.raises(UnsupportedOperation, match="'einsum'"):
        capture(lambda hidden, scores: torch.einsum("btd,btd,btd->bd", hidden, hidden.tanh(), hidden), ATTN_LRP)


class Square(torch.autograd.Function):
    """An operation of which a torch function mode sees nothing."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


def _cube(x):
    return x * x * x


@pytest.mark.parametrize(("function", "name"), [(Square.apply, "Square"), (torch.jit.script(_cube), ".*")])
def test_code_that_makes_no_torch_calls_is_refused(function, name):
    """Its gradient would be taken for its rule."""
    with pytest.raises(UnsupportedOperation, match=rf"for the operation '{name}' as used in 'classifier'"):
        capture(lambda hidden, scores: function(hidden[:, 0]), ATTN_LRP)
    capture(lambda hidden, scores: function(hidden[:, 0]), "gradient")


def bloom():
    config = hf.BloomConfig(vocab_size=60, hidden_size=32, n_layer=2, n_head=4, num_labels=3, pad_token_id=0)
    return randomised(hf.BloomForSequenceClassification(config).double().eval())


@pytest.mark.parametrize("rule", RULES)
def test_an_activation_module_that_makes_no_torch_calls_is_one_function(rule):
    """BLOOM has an autograd function of its own for the approximation of GELU, with eight digits of its constant."""
    plain = bloom()
    for block in plain.transformer.h:
        block.mlp.gelu_impl = nn.GELU(approximate="tanh")
    batch = tensors("gpt2")
    expected = clearhead.capture(clearhead.load(plain), batch, 0).coefficients(rule).leaf
    coefficients = clearhead.capture(clearhead.load(bloom()), batch, 0).coefficients(rule).leaf
    torch.testing.assert_close(coefficients, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))


class GroupNorm(nn.GroupNorm):
    def forward(self, x):
        return super().forward(x.mT).mT


def test_a_norm_without_a_rule_is_refused():
    strange = network("bert")
    strange.bert.encoder.layer[1].output.LayerNorm = GroupNorm(4, 32).double()
    trace = clearhead.capture(clearhead.load(strange), tensors("bert"), 0)
    with pytest.raises(UnsupportedOperation, match=r"'group_norm' as used in 'bert\.encoder\.layer\.1"):
        trace.coefficients(ATTN_LRP)
