"""Relevance on what people marked: evidence of answers, and words of translations."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.explained_answers import explained_answer, linear_language_model, record
from helpers.language_models import make_decoder, make_tokenizer

import clearhead
from clearhead.data.task import Alignment, Example, Task, Writing
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.evaluation.alignment import align_words
from clearhead.evaluation.answer_tokens import evidence_tokens
from clearhead.evaluation.metric import parse_metric

PROMPT = "in the capital of france"
CAPITAL = ((0, 7, 14),)


@pytest.fixture(scope="module")
def linear():
    return linear_language_model()


@pytest.fixture(scope="module")
def llama():
    return clearhead.load(make_decoder("llama"), make_tokenizer())


def explained(model, relevance, gold=CAPITAL, prompt=PROMPT, needs=("answer", "contrast")):
    return explained_answer(model, prompt, relevance=lambda _: relevance, gold=gold, needs=needs, foil="london")


@pytest.mark.parametrize(
    ("relevance", "rank", "mass"),
    [
        ([9.0, 0.0, 3.0, 1.0, 0.0], 1, 3 / 4),
        ([0.0, 1.0, 1.0, 2.0, -4.0], 3, 1 / 4),
        ([0.0, 1.0, -1.0, 2.0, 0.0], 4, 0),
        ([0.0, 0.0, 0.0, 0.0, 0.0], 2, 0),
    ],
)
def test_rank_and_mass_of_evidence(linear, relevance, rank, mass):
    values = record("evidence-rank", linear, explained(linear, relevance))
    assert values == {"evidence-mrr": pytest.approx(1 / rank), "evidence-mass": pytest.approx(mass)}


def test_the_first_token_is_ranked_apart(linear):
    case = explained(linear, [9.0, 0.0, 3.0, 1.0, 0.0], gold=((0, 0, 2),))
    assert record("evidence-rank", linear, case) == {"evidence-mrr": None, "evidence-mass": None}
    assert record("evidence-rank:first=true", linear, case)["evidence-mrr"] == 1
    assert record("first-token-share", linear, case)["first-token-share"] == pytest.approx(9 / 13)


def test_examples_without_evidence_are_ignored(linear):
    cases = [explained(linear, [0.0, 0.0, 3.0, 1.0, 0.0]), explained(linear, [0.0, 1.0, 0.0, 0.0, 0.0], gold=None)]
    spec = parse_metric("evidence-rank")
    assert spec.summarise(spec.measure(linear, cases))["evidence-mrr"] == 1


@pytest.mark.parametrize(("percent", "recovered"), [(25, 0.5), (10, 0.5), (50, 0.5), (75, 1)])
def test_recovery_is_the_share_of_evidence_at_the_top(linear, percent, recovered):
    case = explained(linear, [9.0, 0.0, 3.0, 1.0, 0.5], gold=((0, 7, 14), (0, 18, 24)))
    assert record(f"recovery:percent={percent}", linear, case)["recovery"] == recovered


def test_percent_is_a_percentage(linear):
    with pytest.raises(BadOption, match="percent"):
        record("recovery:percent=0", linear, explained(linear, np.zeros(5)))


def test_a_contrast_is_explained_where_answer_and_foil_part(llama):
    writing = Writing("paris and long", "paris in london")
    task = Task("pairs", [Example("1", PROMPT, gold=CAPITAL, writing=writing)])
    table = clearhead.evaluate(llama, task, ["attn-lrp"], ["evidence-rank"], samples=10)
    expected = clearhead.explain(llama, PROMPT, "attn-lrp", answer="paris and long", versus="in", focus=1)
    is_evidence = np.array(expected.tokens) == "Ġcapital"
    rank = (expected.relevance[1 : expected.prompt_length] > expected.relevance[is_evidence]).sum()
    assert table.rows[0]["value"] == pytest.approx(1 / (1 + rank))


@pytest.mark.parametrize("foil", ["paris", "paris and long", None])
def test_a_foil_that_is_no_other_answer_skips_the_example(llama, foil):
    rows = [Writing("paris", "london"), Writing("paris and", foil)]
    task = Task("pairs", [Example(str(n), PROMPT, gold=CAPITAL, writing=writing) for n, writing in enumerate(rows)])
    table = clearhead.evaluate(llama, task, ["random:seed=0"], ["evidence-rank"], samples=10)
    assert [row["n"] for row in table.rows] == [1, 1]
    assert "foil" in table.skipped[0]


def test_answers_can_be_generated(llama):
    task = Task("prompts", [Example("1", PROMPT, gold=CAPITAL)])
    table = clearhead.evaluate(llama, task, ["random:seed=0"], ["recovery"], samples=10)
    assert table.rows[0]["n"] == 1


def test_evidence_in_a_chat_is_found_in_the_rendered_prompt(llama):
    chat = [{"role": "system", "content": "the river"}, {"role": "user", "content": "the river in paris"}]
    case = explained_answer(llama, chat, relevance=lambda e: np.zeros(len(e.tokens)), gold=((1, 4, 9),))
    explanation = case.explanations["answer"]
    (index,) = np.flatnonzero(evidence_tokens(case, explanation))
    assert explanation.tokens[index] == "Ġriver"
    assert index > list(explanation.tokens).index("Ġriver")


def test_metrics_of_classes_refuse_answers_and_the_other_way_round(llama, bert):
    task = Task("prompts", [Example("1", PROMPT, writing=Writing("paris"))])
    table = clearhead.evaluate(llama, task, ["random:seed=0"], ["aopc", "lds"], samples=10)
    assert [row["metric"] for row in table.rows] == ["lds"]
    assert "writes text" in table.refused[0]["reason"]
    with pytest.raises(UnsupportedModel, match="does not write"):
        clearhead.evaluate(bert, Task("texts", [Example("1", "a fine film", 0)]), ["random:seed=0"], ["lds"])


SOURCE = "in capital france river"
TRANSLATION = "the london is"
GOLD = Alignment(frozenset({(1, 0), (2, 1)}), frozenset({(1, 0), (2, 1), (3, 2)}))


def aligned(model, matrix):
    writing = {"answer": TRANSLATION, "alignment": GOLD}
    case = explained_answer(
        model, SOURCE, needs=("step-logits",), relevance=lambda e: np.zeros(len(e.tokens)), **writing
    )
    explanation = replace(case.explanations["step-logits"], matrix=np.asarray(matrix, dtype=float))
    return replace(case, explanations={"step-logits": explanation})


# Rows: the words of the translation; columns: the four words of the source, then "the", "london".
PERFECT = [[0, 1, 0, 0, 9, 9], [0, 0, 1, 0, 9, 9], [0, 0, 0, 1, 9, 9]]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        # A has three links: two of them sure, all of them possible.
        ([1, 2, 3], 1 - (2 + 3) / (3 + 2)),
        ([1, 2, 1], 1 - (2 + 2) / (3 + 2)),
        ([3, 3, 3], 1 - (0 + 1) / (3 + 2)),
        ([2, 1, 1], 1.0),
    ],
)
def test_alignment_error_rate(linear, columns, error):
    matrix = np.zeros((3, 6))
    matrix[range(3), columns] = 1
    assert record("alignment-error-rate", linear, aligned(linear, matrix))["alignment-error-rate"] == pytest.approx(
        error
    )


def test_the_error_rate_of_a_corpus_counts_links_not_sentences(linear):
    wrong = np.roll(PERFECT, 1, axis=0)
    spec = parse_metric("alignment-error-rate")
    records = spec.measure(linear, [aligned(linear, PERFECT), aligned(linear, wrong)])
    assert [entry["hits"] for entry in records] == [5, 0]
    assert spec.summarise(records)["alignment-error-rate"] == pytest.approx(1 - 5 / 10)


def test_words_of_several_tokens_add_up(linear):
    case = explained_answer(
        linear, "in capitals france", needs=("step-logits",), relevance=lambda e: [0, 0.6, 0.6, 1], answer="paris"
    )
    assert align_words(linear, case.explanations["step-logits"], case.example) == {(1, 0)}


def test_without_offsets_words_begin_at_the_marks_of_sentencepiece(linear):
    case = aligned(linear, PERFECT)
    tokens = ("▁in", "▁capital", "▁france", "▁river", "the", "london")
    explanation = replace(case.explanations["step-logits"], offsets=None, tokens=tokens)
    assert align_words(linear, explanation, case.example) == {(1, 0), (2, 1), (3, 2)}


def test_an_example_without_alignment_or_with_other_words_is_an_error(linear):
    case = explained_answer(linear, SOURCE, needs=("step-logits",))
    with pytest.raises(BadInput, match="no alignment"):
        record("alignment-error-rate", linear, case)
    mismatched = replace(aligned(linear, PERFECT), example=Example("x", "in", writing=Writing("the", alignment=GOLD)))
    with pytest.raises(BadInput, match="words that were aligned"):
        record("alignment-error-rate", linear, mismatched)
