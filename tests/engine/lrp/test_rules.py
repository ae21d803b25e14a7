"""Properties of the relevance rules: conservation, agreement with the papers' formulas, 0/0."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from helpers.tiny_models import model, tensors
from hypothesis import given, settings
from hypothesis import strategies as st

import clearhead
from clearhead.engine.attention import attention_weights
from clearhead.engine.lrp import linear, rules, shape_ops
from clearhead.engine.lrp.context import LinearCall, RelevanceContext
from clearhead.engine.lrp.linear import MIN_WIDE, POSITIVE, READING, Z_PLUS, positive
from clearhead.engine.lrp.saved import SavedTensors
from clearhead.errors import UnsupportedOperation

SEEDS = st.integers(0, 10_000)


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_context(rule_set=POSITIVE, batch=2):
    return RelevanceContext(rule_set, batch, [torch.zeros(batch, 1, dtype=torch.float64)])


def activation(tensor):
    return tensor.clone().requires_grad_()


def propagate(rule, call, relevance, context, *args, **kwargs):
    """Return the shares that a rule gives to the activations of a call."""
    out = call(*args, **kwargs)
    _, backward = rule(SavedTensors(), out, *args, **kwargs)
    with torch.no_grad():
        return backward(relevance, context)


def naive_linear(x, weight, relevance, keep):
    """Eq. 4 or 5 written out: contributions that `keep` allows, each by its share of the unit's sum."""
    contributions = x[..., None, :] * weight
    contributions = torch.where(keep(x[..., None, :], weight), contributions, 0)
    return (contributions / contributions.sum(-1, keepdim=True) * relevance[..., None]).nan_to_num(0).sum(-2)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.booleans())
def test_positive_is_equation_5(seed, with_bias):
    x, weight, relevance = activation(draw(seed, 2, 3, 7)), draw(seed + 1, 5, 7), draw(seed + 2, 2, 3, 5)
    bias = draw(seed + 3, 5) if with_bias else None
    (share,) = propagate(rules.linear, F.linear, relevance, make_context(), x, weight, bias)
    torch.testing.assert_close(share, naive_linear(x.detach(), weight, relevance, lambda a, b: a * b >= 0))


@pytest.mark.parametrize("rule_set", [POSITIVE, Z_PLUS])
@pytest.mark.parametrize("options", [{"groups": 4, "padding": 1}, {"stride": 2}, {"groups": 2, "dilation": (2, 1)}])
def test_a_convolution_inside_a_network_is_a_linear_layer(rule_set, options):
    x, weight = activation(draw(0, 2, 4, 6, 5)), draw(1, 8, 4 // options.get("groups", 1), 3, 3)
    relevance = draw(2, *F.conv2d(x, weight, **options).shape)
    (share,) = propagate(rules.convolution, F.conv2d, relevance, make_context(rule_set), x, weight, **options)
    # The layer's matrix, one column for each input: what a single one at that input gives.
    units = torch.eye(x[0].numel(), dtype=x.dtype).view(-1, *x.shape[1:])
    matrix = F.conv2d(units, weight, **options).flatten(1).T
    keep = {POSITIVE: lambda a, b: a * b >= 0, Z_PLUS: lambda a, b: (a >= 0) & (b >= 0)}[rule_set]
    expected = naive_linear(x.detach().flatten(1), matrix, relevance.flatten(1), keep)
    torch.testing.assert_close(share.flatten(1), expected)


def test_only_the_convolution_of_the_pixels_is_bounded(monkeypatch):
    bounded = []
    monkeypatch.setattr(rules, "_propagate_bounded", lambda *args: bounded.append(args) or torch.zeros_like(args[1]))
    sizes = {"hidden_sizes": [8] * 4, "depths": [1] * 4, "num_attention_heads": [1] * 4, "num_labels": 3}
    network = hf.SegformerForImageClassification(hf.SegformerConfig(**sizes)).double().eval()
    trace = clearhead.capture(network, {"pixel_values": draw(0, 1, 3, 32, 32)}, 0)
    trace.embedding_relevance(Z_PLUS)
    assert not bounded
    trace.pixel_relevance()
    assert len(bounded) == 1


@pytest.mark.parametrize("rule_set", [POSITIVE, Z_PLUS])
@pytest.mark.parametrize("bias_shape", [None, (MIN_WIDE,), (1,)])
@pytest.mark.parametrize("explained", [[], [17], [3, 1000, MIN_WIDE - 1]])
def test_units_without_relevance_are_left_out(rule_set, bias_shape, explained, monkeypatch):
    x, weight = draw(0, 2, 3, 7), draw(1, MIN_WIDE, 7)
    bias = None if bias_shape is None else draw(2, *bias_shape)
    relevance = torch.zeros(2, 3, MIN_WIDE, dtype=torch.float64)
    relevance[:, -1, explained] = draw(3, 2, len(explained))
    arguments = (activation(x), weight, bias)
    (share,) = propagate(rules.linear, F.linear, relevance, make_context(rule_set), *arguments)
    monkeypatch.setattr(linear, "MIN_WIDE", MIN_WIDE + 1)
    (whole,) = propagate(rules.linear, F.linear, relevance, make_context(rule_set), *arguments)
    torch.testing.assert_close(share, whole, rtol=1e-12, atol=1e-14)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_z_plus_is_equation_4(seed):
    x, weight, relevance = activation(draw(seed, 2, 3, 7)), draw(seed + 1, 5, 7), draw(seed + 2, 2, 3, 5)
    (share,) = propagate(rules.linear, F.linear, relevance, make_context(Z_PLUS), x, weight)
    torch.testing.assert_close(share, naive_linear(x.detach(), weight, relevance, lambda a, b: (a > 0) & (b > 0)))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(-5, 5))
def test_linear_rules_are_linear_in_relevance(seed, factor):
    x, weight = activation(draw(seed, 2, 3, 7)), draw(seed + 1, 5, 7)
    first, second = draw(seed + 2, 2, 3, 5), draw(seed + 3, 2, 3, 5)
    for rule_set in (POSITIVE, Z_PLUS):
        layer = partial(propagate, rules.linear, F.linear)
        (first_share,) = layer(first, make_context(rule_set), x, weight)
        (second_share,) = layer(second, make_context(rule_set), x, weight)
        (together,) = layer(first + factor * second, make_context(rule_set), x, weight)
        torch.testing.assert_close(together, first_share + factor * second_share)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from([POSITIVE, Z_PLUS]), st.sampled_from(["linear", "matmul", "add", "mul", "mean"]))
def test_every_rule_conserves_each_sample(seed, rule_set, name):
    u, v = activation(draw(seed, 2, 4, 4)), activation(draw(seed + 1, 2, 4, 4))
    arguments = {"linear": (u, draw(seed + 2, 4, 4)), "mean": (u, 1)}.get(name, (u, v))
    call = getattr(torch, name, F.linear)
    relevance = draw(seed + 3, *call(*arguments).shape)
    context = make_context(rule_set)
    shares = propagate(rules.RULES[name], call, relevance, context, *arguments)
    total = sum(share.flatten(1).sum(1) for share in shares)
    torch.testing.assert_close(total + context.dropped_B, relevance.flatten(1).sum(1), rtol=1e-8, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_add_is_normalised_by_the_formula_after_equation_9(seed):
    u, v, relevance = activation(draw(seed, 2, 5)), activation(draw(seed + 1, 2, 5)), draw(seed + 2, 2, 5)
    shares = propagate(rules.add, torch.add, relevance, make_context(), u, v)
    plain = [term.detach() / (u + v).detach() * relevance for term in (u, v)]
    sums = [plain_share.sum(1, keepdim=True) for plain_share in plain]
    total = relevance.sum(1, keepdim=True)
    weight = sums[0].abs() + sums[1].abs()
    for share, plain_share, plain_sum in zip(shares, plain, sums, strict=True):
        torch.testing.assert_close(share, plain_share * plain_sum.abs() / weight * total / plain_sum)


@pytest.mark.parametrize("strided", [True, False])
def test_a_bias_of_any_shape(strided):
    x, weight = draw(1, 2, 5), draw(2, 4, 5)
    bias = draw(3, 8)[::2] if strided else draw(3, 2, 4)
    relevance = draw(4, 2, 4).abs()
    share = positive(LinearCall(x, weight, bias, x @ weight.T + bias), relevance, make_context())
    plain = positive(LinearCall(x, weight, None, x @ weight.T), relevance, make_context())
    torch.testing.assert_close(share, plain)


def test_add_leaves_each_sample_to_itself():
    u, v, relevance = activation(draw(1, 2, 5)), activation(draw(2, 2, 5)), draw(3, 2, 5)
    together = propagate(rules.add, torch.add, relevance, make_context(), u, v)
    for row in range(2):
        alone = propagate(
            rules.add,
            torch.add,
            relevance[row : row + 1],
            make_context(batch=1),
            activation(u[row : row + 1].detach()),
            activation(v[row : row + 1].detach()),
        )
        for share, share_alone in zip(together, alone, strict=True):
            torch.testing.assert_close(share[row : row + 1], share_alone)


def test_matmul_halves_equation_2():
    u, v, relevance = activation(draw(1, 2, 3, 4)), activation(draw(2, 2, 4, 5)), draw(3, 2, 3, 5)
    to_u, to_v = propagate(rules.matmul, torch.matmul, relevance, make_context(), u, v)
    shares = u.detach()[..., None] * v.detach()[:, None] / (u @ v).detach()[:, :, None] * relevance[:, :, None] / 2
    torch.testing.assert_close(to_u, shares.sum(-1))
    torch.testing.assert_close(to_v, shares.sum(1))


def test_a_constant_stays_one_when_its_parameter_is_trained_again():
    """Parameters are frozen during the forward pass alone."""
    mixing, x, relevance = draw(1, 3, 3), activation(draw(2, 2, 3, 3)), draw(3, 2, 3, 3)
    (expected,) = propagate(rules.matmul, torch.matmul, relevance, make_context(), mixing, x)
    _, backward = rules.matmul(SavedTensors(), mixing @ x, mixing, x)
    mixing.requires_grad_()
    with torch.no_grad():
        torch.testing.assert_close(backward(relevance, make_context())[0], expected)


@pytest.mark.parametrize("constant", ["", "query", "key"])
@pytest.mark.parametrize("rule_set", [POSITIVE, Z_PLUS, READING])
def test_an_attention_map_passes_relevance_like_its_steps(rule_set, constant):
    query, key = draw(1, 2, 2, 3, 4, 5).unbind(0)
    query.requires_grad_(constant != "query")
    key.requires_grad_(constant != "key")
    relevance, saved = draw(2, 2, 3, 4, 4).abs(), SavedTensors()
    attention = attention_weights(query, key, 0.3, None)
    product = query @ key.mT
    _, backward = rules.attention_weights(saved, attention, query, key, 0.3, None)
    _, product_backward = rules.matmul(saved, product, query, key.mT)
    _, scale_backward = rules.mul(saved, attention, activation(product), 0.3)
    with torch.no_grad():
        shares = backward(relevance, make_context(rule_set))
        (scores,) = scale_backward(relevance, make_context(rule_set))
        expected = list(product_backward(scores, make_context(rule_set)))
    if constant != "key":
        expected[-1] = expected[-1].mT
    for share, expected_share in zip(shares, expected, strict=True):
        torch.testing.assert_close(share, expected_share)


def test_constants_get_nothing():
    x, constant, relevance = activation(draw(1, 2, 3)), draw(2, 2, 3), draw(3, 2, 3)
    for rule, call in ((rules.add, torch.add), (rules.mul, torch.mul), (rules.sub, torch.sub)):
        shares = propagate(rule, call, relevance, make_context(), x, constant)
        assert len(shares) == 1
        torch.testing.assert_close(shares[0], relevance)


@pytest.mark.parametrize("rule_set", [POSITIVE, Z_PLUS])
def test_nothing_by_nothing_is_nothing_and_counted(rule_set):
    x = activation(torch.tensor([[1.0, 2.0], [1.0, 2.0]], dtype=torch.float64))
    weight = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    context = make_context(rule_set)
    relevance = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    (share,) = propagate(rules.linear, F.linear, relevance, context, x, weight)
    assert torch.isfinite(share).all()
    torch.testing.assert_close(context.dropped_B, torch.tensor([0.25, 0.5], dtype=torch.float64))
    torch.testing.assert_close(share.sum(1) + context.dropped_B, relevance.sum(1))


def test_rounding_is_not_taken_for_a_positive_contribution():
    """All contributions negative, yet out + |x||w| is rounding noise rather than zero: still nothing."""
    x = activation(torch.rand(1, 300, generator=torch.Generator().manual_seed(0)))
    weight = -torch.rand(4, 300, generator=torch.Generator().manual_seed(1))
    context = RelevanceContext(POSITIVE, 1, [torch.zeros(1, 1)])
    (share,) = propagate(rules.linear, F.linear, torch.ones(1, 4), context, x, weight)
    assert share.abs().max() == 0
    assert context.dropped_B.item() == pytest.approx(4, abs=1e-6)


def test_reading_is_even_over_what_the_head_reads():
    hidden = activation(draw(1, 2, 6, 4))
    picked = hidden[:, 2]
    rule = rules.rule_for("getitem", torch.Tensor.__getitem__, None)
    _, backward = rule(SavedTensors(), picked, hidden, (slice(None), 2))
    (weights,) = backward(torch.ones(2, 4, dtype=torch.float64), make_context(READING))
    assert weights.sum(-1)[:, 2].tolist() == [4, 4]
    assert weights.sum() == 8


@pytest.mark.parametrize(
    "index",
    [
        0,
        slice(1, None, 2),
        (slice(None), 2),
        (..., -1),
        (slice(None), None, 1, slice(0, 4, 3)),
        (slice(None), [0, 0, 3]),
        (slice(None), torch.tensor([5, 5])),
        True,
    ],
)
def test_relevance_goes_back_to_the_elements_that_were_picked(index):
    hidden = activation(draw(1, 2, 6, 4))
    picked = hidden[index]
    relevance = draw(2, *picked.shape)
    _, backward = rules.RULES["getitem"](SavedTensors(), picked, hidden, index)
    (expected,) = torch.autograd.grad(picked, hidden, relevance)
    torch.testing.assert_close(backward(relevance, make_context())[0], expected)


def test_samples_that_cannot_be_told_apart_are_refused():
    with pytest.raises(UnsupportedOperation, match="does not keep the 2 samples apart"):
        make_context(batch=2).sum_per_sample(torch.ones(3, 4))


@pytest.mark.parametrize("name", sorted(shape_ops.SHAPE_OPS))
def test_every_shape_operation_exists(name):
    function = shape_ops.SHAPE_OPS[name]
    assert callable(function)
    assert rules.rule_for(name, function, None) is not None


def test_unknown_functions_have_no_rule():
    assert rules.rule_for("einsum", torch.einsum, None) is None


def test_what_three_layers_need_of_one_activation_is_made_once():
    context, x, other = make_context(), draw(0, 2, 3), draw(1, 2, 3)
    first = context.compute_once(torch.abs, x)
    assert context.compute_once(torch.abs, x) is first
    assert torch.equal(context.compute_once(torch.relu, x), x.clamp(min=0))
    assert torch.equal(context.compute_once(torch.abs, other), other.abs())
    calls = []
    trace = clearhead.capture(model("bert"), tensors("bert"), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "abs", lambda x: calls.append(x.shape) or x.abs())
        trace.conservation()
    # Per block: queries, keys and values together, the output of attention, and two wide layers; pooler and classifier.
    assert len(calls) == 3 * 4 + 2
