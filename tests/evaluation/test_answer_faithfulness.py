"""Faithfulness of explained answers, on a language model whose right answers are known."""

import numpy as np
import pytest
from helpers.explained_answers import PROMPT, WEIGHTS, explained_answer, linear_language_model, record, true_relevance
from helpers.language_models import make_decoder, make_tokenizer

import clearhead
from clearhead.data.task import Example, Task, Writing
from clearhead.errors import BadInput, BadOption
from clearhead.evaluation.metric import parse_metric

VOCABULARY = len(make_tokenizer())
TOTAL = sum(WEIGHTS.values()) + WEIGHTS["Ġthe"]


@pytest.fixture(scope="module")
def linear():
    return linear_language_model()


@pytest.fixture(scope="module")
def llama():
    return clearhead.load(make_decoder("llama"), make_tokenizer())


def log_prob(score):
    return score - np.log(np.exp(score) + VOCABULARY - 1)


def noise(seed):
    return lambda explanation: np.random.default_rng(seed).normal(size=len(explanation.tokens))


def reversed_relevance(explanation):
    return -true_relevance(explanation)


def random_values(name, model, value, count=20, **options):
    return [
        record(name, model, explained_answer(model, relevance=noise(seed), **options))[value] for seed in range(count)
    ]


def test_the_drop_is_what_the_top_words_added(linear):
    drops = record("log-prob-drop", linear, explained_answer(linear))
    # capital; capital, france, river; and both "the".
    assert drops["drop-1"] == pytest.approx(log_prob(TOTAL) - log_prob(TOTAL - 3))
    assert drops["drop-3"] == pytest.approx(log_prob(TOTAL) - log_prob(TOTAL - 6))
    assert drops["drop-5"] == pytest.approx(log_prob(TOTAL) - log_prob(TOTAL - 7))


@pytest.mark.parametrize("replacement", ["delete", "attention"])
def test_true_relevance_drops_most_and_its_reverse_least(linear, replacement):
    name = f"log-prob-drop:replacement={replacement}"
    best = record(name, linear, explained_answer(linear))["drop-3"]
    worst = record(name, linear, explained_answer(linear, relevance=reversed_relevance))["drop-3"]
    random = random_values(name, linear, "drop-3")
    assert worst <= min(random) and max(random) <= best
    assert worst < np.mean(random) < best


def test_words_are_removed_whole_and_tokens_alone(linear):
    case = explained_answer(linear, "in two capitals", relevance=lambda e: [token == "s" for token in e.tokens])
    assert record("log-prob-drop", linear, case)["drop-1"] == pytest.approx(log_prob(3) - log_prob(0))
    assert record("log-prob-drop:unit=token", linear, case)["drop-1"] == pytest.approx(0)


def test_a_prompt_of_one_token_has_nothing_to_remove(linear):
    case = explained_answer(linear, "in")
    assert set(record("log-prob-drop", linear, case).values()) == {None}
    assert record("lds", linear, case) == {"lds": None}


def test_lds_is_1_for_the_true_weights_and_minus_1_for_their_reverse(linear):
    assert record("lds", linear, explained_answer(linear))["lds"] == pytest.approx(1)
    assert record("lds", linear, explained_answer(linear, relevance=reversed_relevance))["lds"] == pytest.approx(-1)
    random = random_values("lds", linear, "lds")
    assert -0.5 < np.mean(random) < 0.5


def test_lds_is_seeded_and_shares_its_ablations_among_methods(linear):
    cases = [explained_answer(linear, relevance=noise(seed)) for seed in range(3)]
    spec = parse_metric("lds:ablations=16")
    network = linear.network.language_model
    network.rows = 0
    first = spec.measure(linear, cases)
    assert network.rows <= 16
    assert spec.measure(linear, cases) == first
    assert parse_metric("lds:ablations=16,seed=1").measure(linear, cases) != first


def test_sources_are_units(linear):
    sources = ("the capital of france", "the river london")
    case = explained_answer(linear, "in the capital of france, the river london is", sources=sources)
    drop = record("log-prob-drop:unit=source", linear, case)["drop-1"]
    assert drop == pytest.approx(log_prob(TOTAL) - log_prob(TOTAL - 5.25))
    with pytest.raises(BadInput, match="sources"):
        record("lds:unit=source", linear, explained_answer(linear))


def test_hiding_falls_and_revealing_rises_fastest_for_the_true_weights(linear):
    for name, sign in (("log-prob-hiding", 1), ("log-prob-revealing", -1)):
        best = sign * record(name, linear, explained_answer(linear))[name]
        worst = sign * record(name, linear, explained_answer(linear, relevance=reversed_relevance))[name]
        random = sign * np.array(random_values(name, linear, name))
        assert best <= random.min() and random.max() <= worst
        assert best < random.mean() < worst


def test_a_curve_begins_with_the_whole_prompt_and_ends_without_it(linear):
    scores = record("log-prob-hiding:steps=4", linear, explained_answer(linear))["scores"]
    assert len(scores) == 5
    assert scores[0] == pytest.approx(log_prob(TOTAL))
    assert scores[-1] == pytest.approx(log_prob(0))
    shown = record("log-prob-revealing:steps=4", linear, explained_answer(linear))["scores"]
    assert (shown[0], shown[-1]) == (pytest.approx(scores[-1]), pytest.approx(scores[0]))


def test_aopc_per_step_is_the_mean_drop_of_each_tokens_probability(linear):
    case = explained_answer(linear, "in capital", needs=("steps",), answer="paris paris")
    # Step 0: "capital" is deleted at 100 %; step 1: "paris", of weight 0, goes at 50 % only if it ranks first.
    changes = np.exp(log_prob(3)) - np.exp(log_prob(0))
    expected = {0.0: 0.0, 0.5: changes, 1.0: changes}
    measured = record("aopc-per-step:steps=2", linear, case)
    np.testing.assert_allclose(measured["changes"], list(expected.values()), atol=1e-12)
    assert measured["aopc-per-step"] == pytest.approx(np.mean(list(expected.values())))


def test_aopc_per_step_orders_explanations(linear):
    best, worst = (
        record("aopc-per-step", linear, explained_answer(linear, needs=("steps",), relevance=relevance))[
            "aopc-per-step"
        ]
        for relevance in (true_relevance, reversed_relevance)
    )
    random = random_values("aopc-per-step", linear, "aopc-per-step", 8, needs=("steps",))
    assert worst < np.mean(random) < best


def test_soft_metrics_order_explanations_of_a_model_that_reads_words(linear):
    values = {}
    for name in ("soft-sufficiency", "soft-comprehensiveness"):
        best = record(f"{name}:samples=50", linear, explained_answer(linear))[name]
        worst = record(f"{name}:samples=50", linear, explained_answer(linear, relevance=reversed_relevance))[name]
        values[name] = (worst, best)
        assert worst < best
    assert all(0 <= value <= 1.5 for pair in values.values() for value in pair)


def test_soft_sufficiency_by_hand(linear):
    # Two ranked words of relevance 1 and 0: the first is kept, the second is not.
    case = explained_answer(linear, "in capital london", relevance=lambda e: [t == "Ġcapital" for t in e.tokens])

    def distance(first, second):
        p, q = np.exp(log_prob(first)), np.exp(log_prob(second))
        rest = np.sqrt((1 - p) / (VOCABULARY - 1)) - np.sqrt((1 - q) / (VOCABULARY - 1))
        return np.sqrt(((np.sqrt(p) - np.sqrt(q)) ** 2 + (VOCABULARY - 1) * rest**2) / 2)

    sufficiency = max(0, 1 - distance(2, 3) / distance(2, 0))
    assert record("soft-sufficiency", linear, case)["soft-sufficiency"] == pytest.approx(sufficiency)
    comprehensiveness = distance(2, -1) / distance(2, 0)
    assert record("soft-comprehensiveness", linear, case)["soft-comprehensiveness"] == pytest.approx(comprehensiveness)


def test_intervals_and_tests_come_with_the_values(llama):
    prompts = ["the capital of france is", "the river in london is", "the capital of england is", "the river is"]
    writing = Writing("paris and long")
    task = Task("prompts", [Example(prompt, prompt, writing=writing) for prompt in prompts])
    metrics = ["log-prob-drop", "lds:ablations=8", "aopc-per-step:steps=2", "log-prob-hiding:steps=2"]
    table = clearhead.evaluate(llama, task, ["attn-lrp", "raw-attention"], metrics, samples=50)
    assert {row["part"] for row in table.rows} >= {"drop-1", "drop-3", "drop-5", "lds", "aopc-per-step"}
    assert all(row["low"] <= row["value"] <= row["high"] and row["n"] == 4 for row in table.rows)
    assert {row["part"] for row in table.differences()} >= {"drop-1", "lds"}


def test_bad_options_say_what_is_allowed(linear):
    case = explained_answer(linear, PROMPT)
    for name in ("lds:unit=page", "lds:ablations=1", "log-prob-drop:replacement=blur", "log-prob-hiding:steps=0"):
        with pytest.raises(BadOption):
            record(name, linear, case)
