"""What the tape records: decomposed attention, in-place writes, and refusals that name the operation."""

import pytest
import torch
import torch.nn.functional as F
import transformers
from helpers.tiny_models import network, tensors
from torch import nn

import clearhead
from clearhead import UnsupportedModel, UnsupportedOperation
from clearhead.engine.attention import decompose_attention
from clearhead.engine.lrp import rules
from clearhead.engine.recorder import Recorder
from clearhead.engine.tape import Tape
from clearhead.engine.torch_calls import function_name


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": draw(2, 1, 5, 5)},
        {"attn_mask": draw(2, 1, 5, 5) > 0},
    ],
)
def test_attention_in_steps_is_attention(options):
    query, key, value = draw(3, 2, 4, 5, 8).unbind(0)
    expected = F.scaled_dot_product_attention(query, key, value, **options)
    torch.testing.assert_close(decompose_attention(query, key, value, **options), expected)


def test_grouped_queries():
    query, key, value = draw(2, 4, 5, 8), draw(2, 2, 5, 8), draw(2, 2, 5, 8) + 1
    expected = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    torch.testing.assert_close(decompose_attention(query, key, value, enable_gqa=True), expected)


def test_a_query_that_sees_nothing_gets_nothing():
    query, key, value = draw(3, 1, 1, 2, 4).unbind(0)
    mask = torch.tensor([[True, True], [False, False]])
    assert decompose_attention(query, key, value, attn_mask=mask)[0, 0, 1].abs().max() == 0


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.add, "add"),
        (torch.Tensor.add_, "add"),
        (torch.Tensor.__radd__, "add"),
        (torch.Tensor.__iadd__, "add"),
        (torch.Tensor.__getitem__, "getitem"),
        (torch.Tensor.__truediv__, "truediv"),
        (torch.Tensor.T.__get__, "T"),
        (F.softmax, "softmax"),
    ],
)
def test_plain_names(function, name):
    assert function_name(function) == name


class Wrapped(nn.Module):
    """A dense layer with something done to its result."""

    def __init__(self, dense, change):
        super().__init__()
        self.dense, self.change = dense, change

    def forward(self, hidden):
        return self.change(self.dense(hidden))


def change_dense(change):
    """Return a model whose second block does something to the output of a dense layer."""
    net = network("bert")
    net.bert.encoder.layer[1].output.dense = Wrapped(net.bert.encoder.layer[1].output.dense, change)
    return clearhead.load(net)


def test_an_operation_without_a_rule_is_named_with_its_module():
    model = change_dense(lambda hidden: torch.special.erfc(hidden))
    with pytest.raises(
        UnsupportedOperation, match=r"'special_erfc' as used in 'bert\.encoder\.layer\.1\.output\.dense'"
    ):
        clearhead.explain(model, tensors("bert"), "trans-att")


def assert_conserving_and_equal(explanations, expected, rel=None):
    for explanation, expected_explanation in zip(explanations, expected, strict=True):
        assert explanation.relevance == pytest.approx(expected_explanation.relevance, rel=rel)
        assert explanation.diagnostics["conservation_gap"] < 1e-9


@pytest.mark.parametrize(
    ("odd", "plain"),
    [
        (lambda h: torch.cat(tensors=[h, h], dim=-1)[..., :32], lambda h: torch.cat([h, h], -1)[..., :32]),
        (lambda h: h.where(h == h, 0.0), lambda h: h),
        (lambda h: torch.where(condition=h == h, input=h, other=0.0), lambda h: h),
        (lambda h: torch.permute(input=h, dims=(1, 0, 2)).permute(1, 0, 2), lambda h: h),
        (lambda h: h.clone().masked_fill_(h != h, 0.0), lambda h: h),
        (lambda h: h.chunk(2, -1)[0].repeat(1, 1, 2), lambda h: torch.cat([h[..., :16]] * 2, -1)),
        (lambda h: torch.add(input=h, other=h, alpha=2), lambda h: h + 2 * h),
        (lambda h: h.unsqueeze(1).expand(-1, 2, -1, -1).sum(1), lambda h: 2 * h),
        (lambda h: -(1 - h) + 1, lambda h: h),
    ],
)
def test_other_ways_to_write_the_same(odd, plain):
    """However an operation is called, its relevance is that of its plain form."""
    explanations = clearhead.explain(change_dense(odd), tensors("bert"), "trans-att", 1)
    expected = clearhead.explain(change_dense(plain), tensors("bert"), "trans-att", 1)
    assert_conserving_and_equal(explanations, expected, rel=1e-9)


def test_an_activation_where_a_rule_expects_a_constant_is_refused():
    model = change_dense(lambda hidden: torch.clamp(hidden, min=hidden * 0.5))
    with pytest.raises(UnsupportedOperation, match="'clamp'"):
        clearhead.explain(model, tensors("bert"), "trans-att")


def test_arguments_that_a_rule_does_not_take_are_refused():
    model = change_dense(lambda hidden: torch.addmm(hidden[0], hidden[0], torch.ones(32, 32).double(), alpha=2)[None])
    with pytest.raises(UnsupportedOperation, match="'addmm'"):
        clearhead.explain(model, {"input_ids": tensors("bert")["input_ids"][:1]}, "trans-att")


def test_a_type_error_inside_a_rule_is_not_taken_for_a_missing_rule(monkeypatch):
    def broken(saved, out, input, *args, **kwargs):
        return len(3)

    monkeypatch.setitem(rules.RULES, "tanh", broken)
    with pytest.raises(TypeError, match="has no len"):
        clearhead.capture(change_dense(torch.tanh), tensors("bert"))


def test_keywords_alone_name_the_operands_of_attention():
    net = network("bert")
    recorder = Recorder(Tape(), net)
    x = recorder.begin(draw(1, 2, 3, 4))
    with recorder:
        attention = F.softmax(input=torch.matmul(input=x, other=x.mT), dim=-1)
        torch.matmul(input=attention, other=x)
    assert [recorded.map is attention for recorded in recorder.tape.maps] == [True]


def test_an_activation_of_another_pass_is_refused():
    """A network that keeps an activation between passes gives one that this tape does not know."""
    cache = []

    def add_cached(hidden):
        cache.append(hidden)
        return hidden + cache[0]

    model = change_dense(add_cached)
    clearhead.capture(model, tensors("bert"))
    with pytest.raises(UnsupportedOperation, match="cannot be recorded"):
        clearhead.explain(model, tensors("bert"), "trans-att")


def test_methods_without_relevance_do_not_need_rules():
    model = change_dense(lambda hidden: torch.special.erfc(hidden))
    assert len(clearhead.explain(model, tensors("bert"), "att-cat")) == 3


def double(hidden):
    hidden *= 2
    return hidden


@pytest.mark.parametrize(
    ("write", "pure"),
    [
        (double, lambda hidden: hidden * 2),
        (lambda hidden: hidden.add_(1), lambda hidden: hidden + 1),
        (lambda hidden: hidden.add_(hidden.tanh()), lambda hidden: hidden + hidden.tanh()),
        (lambda hidden: torch.relu_(input=hidden), lambda hidden: torch.relu(hidden)),
        (lambda hidden: torch.dropout_(p=0.5, train=False, input=hidden), lambda hidden: hidden),
    ],
)
def test_writes_in_place_are_followed(write, pure):
    explanations = clearhead.explain(change_dense(write), tensors("bert"), "trans-att")
    expected = clearhead.explain(change_dense(pure), tensors("bert"), "trans-att")
    assert_conserving_and_equal(explanations, expected)


def test_a_write_that_destroys_what_a_rule_needs_is_refused():
    class Spoiling(nn.Module):
        def __init__(self, dense):
            super().__init__()
            self.dense = dense

        def forward(self, hidden):
            out = self.dense(hidden)
            hidden.mul_(2)
            return out

    net = network("bert")
    net.bert.encoder.layer[1].output.dense = Spoiling(net.bert.encoder.layer[1].output.dense)
    with pytest.raises(UnsupportedOperation, match="overwrote an activation in place"):
        clearhead.explain(net, tensors("bert"), "lrp")


class PreNorm(nn.Module):
    """A norm and the layer behind it."""

    def __init__(self, layer):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(layer.in_features).double(), layer

    def forward(self, hidden):
        return self.layer(self.norm(hidden))


def test_a_layer_inside_a_norm_is_seen():
    named, plain = network("bert"), network("bert")
    dense = plain.bert.encoder.layer[1].output.dense
    plain.bert.encoder.layer[1].output.dense = nn.Sequential(nn.LayerNorm(48).double(), dense)
    named.bert.encoder.layer[1].output.dense = PreNorm(named.bert.encoder.layer[1].output.dense)
    explanations = clearhead.explain(named, tensors("bert"), "lrp", 0)
    expected = clearhead.explain(plain, tensors("bert"), "lrp", 0)
    for explanation, expected_explanation in zip(explanations, expected, strict=True):
        assert explanation.relevance == pytest.approx(expected_explanation.relevance)


def test_a_gate_that_halves_its_input_is_refused():
    net = network("bert")
    net.bert.encoder.layer[1].output.dense = nn.Sequential(nn.Linear(48, 64).double(), nn.GLU())
    with pytest.raises(UnsupportedOperation, match="'glu'"):
        clearhead.explain(net, tensors("bert"), "lrp", 0)


class TwiceIfLong(nn.Module):
    """Attends a second time to long inputs."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, hidden, *args, **kwargs):
        first = self.attention(hidden, *args, **kwargs)
        return self.attention(first[0], *args, **kwargs) if hidden.shape[1] > 9 else first


def test_an_explanation_does_not_depend_on_what_was_explained_before():
    fresh, used = network("bert"), network("bert")
    for net in (fresh, used):
        net.bert.encoder.layer[0].attention = TwiceIfLong(net.bert.encoder.layer[0].attention)
    clearhead.explain(used, tensors("bert", length=12), "att-cat", 0)
    explanations = clearhead.explain(used, tensors("bert"), "att-cat", 0)
    expected = clearhead.explain(fresh, tensors("bert"), "att-cat", 0)
    for explanation, expected_explanation in zip(explanations, expected, strict=True):
        assert explanation.relevance == pytest.approx(expected_explanation.relevance)


@pytest.mark.parametrize("large", [0, 2**26])
@pytest.mark.parametrize("asked", ["attention_relevances", "weighted_relevances"])
def test_what_was_refused_is_refused_again(asked, large, monkeypatch):
    monkeypatch.setattr("clearhead.engine.weighted_relevance.FREE_MAPS_FROM_BYTES", large)
    trace = clearhead.capture(change_dense(torch.special.erfc), tensors("bert"))
    for _ in range(2):
        with pytest.raises(UnsupportedOperation):
            getattr(trace, asked)


def test_quantised_linear_layers_are_refused_for_relevance():
    class Quantised(torch.Tensor):
        pass

    net = network("bert")
    dense = net.bert.encoder.layer[0].output.dense
    weight = dense.weight.detach().as_subclass(Quantised)
    del dense.weight
    dense.weight = weight
    with pytest.raises(UnsupportedOperation, match="quantised"):
        clearhead.explain(net, tensors("bert"), "trans-att")


def test_a_network_that_is_no_transformer_is_refused():
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], num_labels=3)
    net = transformers.ResNetForImageClassification(config).double().eval()
    with pytest.raises(UnsupportedModel, match="not a Transformer"):
        clearhead.explain(net, tensors("vit"), "trans-att")


def test_a_write_through_a_view_changes_what_it_is_a_view_of():
    recorder = Recorder(Tape(), nn.Identity())
    start = recorder.begin(draw(2, 3))
    with recorder:
        doubled = start * 2
        part = doubled[:, 0]
        part.mul_(3)
        doubled.sum()
    assert recorder.tape.are_cuts([doubled])
    # The other columns do not pass through it.
    assert not recorder.tape.are_cuts([part])


def test_parts_that_are_written_into_an_empty_tensor_are_its_parents():
    recorder = Recorder(Tape(), nn.Identity())
    start = recorder.begin(draw(2, 3))
    with recorder:
        joined = torch.empty(2, 3, dtype=torch.float64)
        joined[:, :2] = start[:, :2]
        joined[:, 2:].copy_(start[:, 2:])
        joined.sum()
    assert recorder.tape.are_cuts([joined])
