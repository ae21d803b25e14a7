"""Properties of the relevance rules: conservation, agreement with the papers' formulas, 0/0."""

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_models import model, tensors
from hypothesis import given, settings
from hypothesis import strategies as st

import clearhead
from clearhead.engine.attention import weigh
from clearhead.engine.lrp import rules
from clearhead.engine.lrp import shape_ops as moving
from clearhead.engine.lrp.context import LinearCall, RelevanceContext
from clearhead.engine.lrp.linear import POSITIVE, READING, Z_PLUS, positive
from clearhead.errors import UnsupportedOperation

SEEDS = st.integers(0, 10_000)


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def flow(rule_set=POSITIVE, batch=2):
    return RelevanceContext(rule_set, batch, [torch.zeros(batch, 1, dtype=torch.float64)])


def activation(tensor):
    return tensor.clone().requires_grad_()


def back(rule, call, relevance, current, *args, **kwargs):
    out = call(*args, **kwargs)
    with torch.no_grad():
        return rule(out, *args, **kwargs)[1](relevance, current)


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
    (found,) = back(rules.linear, F.linear, relevance, flow(), x, weight, bias)
    torch.testing.assert_close(found, naive_linear(x.detach(), weight, relevance, lambda a, b: a * b >= 0))


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_z_plus_is_equation_4(seed):
    x, weight, relevance = activation(draw(seed, 2, 3, 7)), draw(seed + 1, 5, 7), draw(seed + 2, 2, 3, 5)
    (found,) = back(rules.linear, F.linear, relevance, flow(Z_PLUS), x, weight)
    torch.testing.assert_close(found, naive_linear(x.detach(), weight, relevance, lambda a, b: (a > 0) & (b > 0)))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(-5, 5))
def test_linear_rules_are_linear_in_relevance(seed, factor):
    x, weight = activation(draw(seed, 2, 3, 7)), draw(seed + 1, 5, 7)
    first, second = draw(seed + 2, 2, 3, 5), draw(seed + 3, 2, 3, 5)
    for rule_set in (POSITIVE, Z_PLUS):
        parts = [back(rules.linear, F.linear, r, flow(rule_set), x, weight)[0] for r in (first, second)]
        (together,) = back(rules.linear, F.linear, first + factor * second, flow(rule_set), x, weight)
        torch.testing.assert_close(together, parts[0] + factor * parts[1])


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from([POSITIVE, Z_PLUS]), st.sampled_from(["linear", "matmul", "add", "mul", "mean"]))
def test_every_rule_conserves_each_sample(seed, rule_set, name):
    u, v = activation(draw(seed, 2, 4, 4)), activation(draw(seed + 1, 2, 4, 4))
    arguments = {"linear": (u, draw(seed + 2, 4, 4)), "mean": (u, 1)}.get(name, (u, v))
    call = getattr(torch, name, F.linear)
    relevance = draw(seed + 3, *call(*arguments).shape)
    current = flow(rule_set)
    shares = back(rules.RULES[name], call, relevance, current, *arguments)
    total = sum(share.flatten(1).sum(1) for share in shares)
    torch.testing.assert_close(total + current.dropped_B, relevance.flatten(1).sum(1), rtol=1e-8, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_add_is_normalised_by_the_formula_after_equation_9(seed):
    u, v, relevance = activation(draw(seed, 2, 5)), activation(draw(seed + 1, 2, 5)), draw(seed + 2, 2, 5)
    found = back(rules.add, torch.add, relevance, flow(), u, v)
    plain = [part.detach() / (u + v).detach() * relevance for part in (u, v)]
    sums, whole = [part.sum(1, keepdim=True) for part in plain], relevance.sum(1, keepdim=True)
    weight = sums[0].abs() + sums[1].abs()
    for share, part, total in zip(found, plain, sums, strict=True):
        torch.testing.assert_close(share, part * total.abs() / weight * whole / total)


@pytest.mark.parametrize("strided", [True, False])
def test_a_bias_of_any_shape(strided):
    x, weight = draw(1, 2, 5), draw(2, 4, 5)
    bias = draw(3, 8)[::2] if strided else draw(3, 2, 4)
    relevance = draw(4, 2, 4).abs()
    found = positive(LinearCall(x, weight, bias, x @ weight.T + bias), relevance, flow())
    plain = positive(LinearCall(x, weight, None, x @ weight.T), relevance, flow())
    torch.testing.assert_close(found, plain)


def test_add_leaves_each_sample_to_itself():
    u, v, relevance = activation(draw(1, 2, 5)), activation(draw(2, 2, 5)), draw(3, 2, 5)
    together = back(rules.add, torch.add, relevance, flow(), u, v)
    for row in range(2):
        one = back(
            rules.add,
            torch.add,
            relevance[row : row + 1],
            flow(batch=1),
            activation(u[row : row + 1].detach()),
            activation(v[row : row + 1].detach()),
        )
        for whole, part in zip(together, one, strict=True):
            torch.testing.assert_close(whole[row : row + 1], part)


def test_matmul_halves_equation_2():
    u, v, relevance = activation(draw(1, 2, 3, 4)), activation(draw(2, 2, 4, 5)), draw(3, 2, 3, 5)
    to_u, to_v = back(rules.matmul, torch.matmul, relevance, flow(), u, v)
    shares = u.detach()[..., None] * v.detach()[:, None] / (u @ v).detach()[:, :, None] * relevance[:, :, None] / 2
    torch.testing.assert_close(to_u, shares.sum(-1))
    torch.testing.assert_close(to_v, shares.sum(1))


def test_a_constant_stays_one_when_its_parameter_is_trained_again():
    """Parameters are frozen during the forward pass alone."""
    mixing, x, relevance = draw(1, 3, 3), activation(draw(2, 2, 3, 3)), draw(3, 2, 3, 3)
    wanted = back(rules.matmul, torch.matmul, relevance, flow(), mixing, x)[0]
    through = rules.matmul(mixing @ x, mixing, x)[1]
    mixing.requires_grad_()
    with torch.no_grad():
        torch.testing.assert_close(through(relevance, flow())[0], wanted)


@pytest.mark.parametrize("constant", ["", "query", "key"])
@pytest.mark.parametrize("rule_set", [POSITIVE, Z_PLUS, READING])
def test_an_attention_map_passes_relevance_like_its_steps(rule_set, constant):
    query, key = draw(1, 2, 2, 3, 4, 5).unbind(0)
    for name, one in (("query", query), ("key", key)):
        one.requires_grad_(name != constant)
    relevance, made = draw(2, 2, 3, 4, 4).abs(), weigh(query, key, 0.3, None)
    product = query @ key.mT
    through, (_, whole) = rules.matmul(product, query, key.mT)[1], rules.weigh(made, query, key, 0.3, None)
    with torch.no_grad():
        (scores,) = rules.mul(made, activation(product), 0.3)[1](relevance, flow(rule_set))
        found, steps = whole(relevance, flow(rule_set)), list(through(scores, flow(rule_set)))
        steps[-1] = steps[-1] if constant == "key" else steps[-1].mT
    for one, other in zip(found, steps, strict=True):
        torch.testing.assert_close(one, other)


def test_constants_get_nothing():
    x, constant, relevance = activation(draw(1, 2, 3)), draw(2, 2, 3), draw(3, 2, 3)
    for rule, call in ((rules.add, torch.add), (rules.mul, torch.mul), (rules.sub, torch.sub)):
        shares = back(rule, call, relevance, flow(), x, constant)
        assert len(shares) == 1
        torch.testing.assert_close(shares[0], relevance)


@pytest.mark.parametrize("rule_set", [POSITIVE, Z_PLUS])
def test_nothing_by_nothing_is_nothing_and_counted(rule_set):
    x = activation(torch.tensor([[1.0, 2.0], [1.0, 2.0]], dtype=torch.float64))
    weight = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    current = flow(rule_set)
    relevance = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    (found,) = back(rules.linear, F.linear, relevance, current, x, weight)
    assert torch.isfinite(found).all()
    torch.testing.assert_close(current.dropped_B, torch.tensor([0.25, 0.5], dtype=torch.float64))
    torch.testing.assert_close(found.sum(1) + current.dropped_B, relevance.sum(1))


def test_rounding_is_not_taken_for_a_positive_contribution():
    """All contributions negative, yet out + |x||w| is rounding noise rather than zero: still nothing."""
    x = activation(torch.rand(1, 300, generator=torch.Generator().manual_seed(0)))
    weight = -torch.rand(4, 300, generator=torch.Generator().manual_seed(1))
    current = RelevanceContext(POSITIVE, 1, [torch.zeros(1, 1)])
    (found,) = back(rules.linear, F.linear, torch.ones(1, 4), current, x, weight)
    assert found.abs().max() == 0
    assert current.dropped_B.item() == pytest.approx(4, abs=1e-6)


def test_reading_is_even_over_what_the_head_reads():
    hidden = activation(draw(1, 2, 6, 4))
    picked = hidden[:, 2]
    rule = rules.rule_for("getitem", torch.Tensor.__getitem__, None)
    _, way_back = rule(picked, hidden, (slice(None), 2))
    (weights,) = way_back(torch.ones(2, 4, dtype=torch.float64), flow(READING))
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
    _, way_back = rules.RULES["getitem"](picked, hidden, index)
    (expected,) = torch.autograd.grad(picked, hidden, relevance)
    torch.testing.assert_close(way_back(relevance, flow())[0], expected)


def test_samples_that_cannot_be_told_apart_are_refused():
    with pytest.raises(UnsupportedOperation, match="does not keep the 2 samples apart"):
        flow(batch=2).per_sample(torch.ones(3, 4))


@pytest.mark.parametrize("name", sorted(moving.MOVING))
def test_every_moving_function_exists(name):
    assert callable(moving.MOVING[name])
    assert rules.rule_for(name, moving.MOVING[name], None) is not None


def test_unknown_functions_have_no_rule():
    assert rules.rule_for("einsum", torch.einsum, None) is None


def test_what_three_layers_need_of_one_activation_is_made_once():
    current, x, other = flow(), draw(0, 2, 3), draw(1, 2, 3)
    first = current.once(torch.abs, x)
    assert current.once(torch.abs, x) is first
    assert torch.equal(current.once(torch.relu, x), x.clamp(min=0))
    assert torch.equal(current.once(torch.abs, other), other.abs())
    made = []
    trace = clearhead.capture(model("bert"), tensors("bert"), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "abs", lambda x: made.append(x.shape) or x.abs())
        trace.conservation()
    # Per block: queries, keys and values together, the output of attention, and two wide layers; pooler and classifier.
    assert len(made) == 3 * 4 + 2
