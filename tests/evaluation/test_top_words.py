"""Top tokens and top words of classes, and what classes share."""

import gc
import logging
import math
import weakref

import numpy as np
import pytest
from helpers import tiny_models, tiny_tokenizers
from helpers.explained_examples import cases_of, noise, signed_weights, values
from helpers.explanations import explained, review
from PIL import Image

from clearhead.errors import BadInput, BadOption
from clearhead.evaluation.metric import parse_metric
from clearhead.evaluation.top_words import (
    ClassWord,
    Overlap,
    default_support,
    overlap,
    overlap_rows,
    top_words,
    word_frequencies,
    word_lists,
    word_records,
)


def overlap_record(label, **relevance):
    return {"class": label, "tokens": list(relevance), "relevance": list(relevance.values())}


def test_token_overlap_by_hand():
    records = [
        overlap_record("negative", bad=3.0, film=2.0, a=0.5),
        overlap_record("negative", bad=1.0, plot=2.5),
        overlap_record("positive", good=3.0, film=1.0, plot=0.2),
        overlap_record("neutral", film=1.0, plot=0.5, it=0.1),
    ]
    assert parse_metric("token-overlap:k=1").summarise(records) == {"token-overlap": 0, "count": 0}
    # top 2: negative bad plot, positive good film, neutral film plot: one pair shares film, one shares plot
    assert parse_metric("token-overlap:k=2").summarise(records) == {"token-overlap": pytest.approx(2 / 6), "count": 2}
    assert word_lists(records, 2)["negative"] == [("bad", 4.0), ("plot", 2.5)]
    xs, ys = parse_metric("token-overlap").curve(records)
    assert len(xs) == len(ys) and xs[0] == 5


def test_overlap_of_an_oracle_is_below_that_of_noise(linear):
    words = tiny_tokenizers.PLOT_WORDS[5:18]
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(words, size=8)) for _ in range(40)]

    def oracle(explanation, _):
        return signed_weights(linear, explanation, explanation.target.number)

    overlaps = [values("token-overlap:k=4", linear, cases_of(linear, texts, way)) for way in (oracle, noise)]
    assert overlaps[0]["token-overlap"] == 0 < overlaps[1]["token-overlap"]


def test_rare_words_weigh_more(bert, tmp_path):
    path = tmp_path / "reference.txt"
    path.write_text("a film\na plot\na good film\n")
    case = cases_of(bert, ["a good film"], lambda own, _: np.ones(len(own.tokens)))[0]
    record = parse_metric(("token-overlap", {"reference": str(path)})).measure(bert, [case])[0]
    assert record["tokens"] == ["a", "good", "film"]
    assert record["relevance"] == pytest.approx([math.log(4 / 4), math.log(4 / 2), math.log(4 / 3)])


def test_a_reference_that_changed_is_read_again_and_holds_no_model(tmp_path):
    path, model = tmp_path / "reference.txt", tiny_models.bert()
    case = cases_of(model, ["a good film"], lambda own, _: np.ones(len(own.tokens)))[0]
    metric = parse_metric(("token-overlap", {"reference": str(path)}))
    path.write_text("a film\na plot\n")
    assert metric.measure(model, [case])[0]["relevance"] == pytest.approx([0, math.log(3), math.log(3 / 2)])
    path.write_text("a good film\na good plot\n")
    assert metric.measure(model, [case])[0]["relevance"] == pytest.approx([0, 0, math.log(3 / 2)])
    gone = weakref.ref(model)
    del model, case
    gc.collect()
    assert gone() is None


def test_a_long_document_of_a_reference_is_counted_without_a_warning(tmp_path, caplog):
    model = tiny_models.bert()
    model.processor.model_max_length = 8
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    (tmp_path / "reference.txt").write_text("a film " * 20)
    metric = parse_metric(("token-overlap", {"reference": str(tmp_path / "reference.txt")}))
    try:
        metric.measure(model, cases_of(model, ["a good film"]))
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records


def test_references_without_texts_are_refused(bert, tmp_path):
    case = cases_of(bert, ["a good film"])[0]
    Image.new("RGB", (9, 9)).save(tmp_path / "1.png")
    for reference, says in ((str(tmp_path), "holds pictures"), ("", "names no task")):
        with pytest.raises(BadInput, match=says):
            parse_metric(("token-overlap", {"reference": reference})).measure(bert, [case])


def test_one_class_alone_overlaps_with_none():
    summary = parse_metric("token-overlap:k=1").summarise([overlap_record("negative", bad=3.0)])
    assert math.isnan(summary["token-overlap"])


def test_words_are_shares_of_their_text_without_case_and_punctuation():
    many = [review(), review(), explained("Heart, heart. –", label="positive", relevance=np.full(7, 0.5))]
    tops = top_words(word_records(many))
    relevance = {word.text: word.relevance for word in review().words() if word.text[0].isalnum()}
    share = relevance["tedious"] / sum(map(abs, relevance.values()))
    assert tops["negative"][0] == ClassWord(
        "tedious", pytest.approx(share), 2, pytest.approx(share), pytest.approx(share)
    )
    (heart,) = tops["positive"]
    # A single text does not tell how much texts of its class differ.
    assert heart == ClassWord("heart", pytest.approx(1.0), 1, None, None)
    assert all(word.weight > 0 for words in tops.values() for word in words)
    assert len(top_words(word_records(many), count=2)["negative"]) == 2


def test_one_text_with_large_relevance_does_not_decide():
    loud = explained("fulfill", relevance=np.full(3, 1e6))
    quiet = [explained(f"bad film{number}", relevance=np.full(6, 1e-6)) for number in range(4)]
    words = top_words(word_records([loud, *quiet]), min_texts=1)["negative"]
    assert words[0].word == "bad" and words[0].texts == 4
    assert [word.word for word in top_words(word_records([loud, *quiet]), min_texts=2)["negative"]] == ["bad"]


def test_weights_intervals_and_support_by_a_slow_formula():
    generator = np.random.default_rng(0)
    records = []
    for _ in range(60):
        terms = generator.choice(list("abcdef"), 4).tolist()
        relevance = generator.normal(0.1, 1, 4).tolist()
        records.append({"class": "x", "tokens": terms, "relevance": relevance})
    for word in top_words(records, min_texts=3)["x"]:
        shares = []
        for record in records:
            pairs = zip(record["tokens"], record["relevance"], strict=True)
            shares.append(sum(value for term, value in pairs if term == word.word))
        error = 1.96 * np.std(shares, ddof=1) / np.sqrt(60)
        assert word.texts == sum(word.word in record["tokens"] for record in records)
        assert (word.weight, word.low, word.high) == pytest.approx(
            (np.mean(shares), np.mean(shares) - error, np.mean(shares) + error)
        )
    assert [default_support(count) for count in (3, 99, 100, 250, 10_000)] == [1, 1, 2, 3, 5]


def test_rare_words_of_a_reference_weigh_more_by_the_metrics_formula():
    weight = word_frequencies(["Tedious!", "tedious", "joyless"])
    assert weight("tedious") == pytest.approx(math.log(4 / 3))
    assert weight("joyless") == pytest.approx(math.log(4 / 2))
    assert weight("unheard") == pytest.approx(math.log(4))
    (record,) = word_records([review()], weight=weight)
    plain = word_records([review()])[0]
    index = record["tokens"].index("joyless")
    assert record["relevance"][index] == pytest.approx(plain["relevance"][index] * math.log(2))
    with pytest.raises(BadInput, match="reference corpus is empty"):
        word_frequencies([])


def test_the_overlap_of_words_is_that_of_the_metric():
    records = word_records([review(label=label) for label in ("negative", "positive")])
    for row in overlap_rows(records):
        summary = parse_metric(f"token-overlap:k={row.k}").summarise(records)
        assert (row.share, row.count) == (summary["token-overlap"], summary["count"])


def test_overlap_counts_all_pairs():
    tops = [["x", "y"], ["x", "z"], ["q", "z"]]
    assert overlap(tops, 2) == Overlap(2, 2, pytest.approx(2 / 6))
    assert overlap(tops, 1) == Overlap(1, 1, pytest.approx(1 / 3))
    assert math.isnan(overlap(tops[:1], 2).share)


def test_overlap_rows_end_at_the_words_there_are():
    few = [overlap_record("a", x=1.0, y=0.5), overlap_record("b", x=1.0, z=1.0, q=-0.5)]
    assert overlap_rows(few) == [Overlap(3, 1, pytest.approx(1 / 3))]
    many = [overlap_record(name, **{f"{name}{number}": 1.0 for number in range(23)}) for name in ("a", "b")]
    assert [row.k for row in overlap_rows(many)] == [5, 10, 20, 23]
    assert overlap_rows(many[:1]) == []
    assert overlap_rows([overlap_record("a"), overlap_record("b")]) == []


@pytest.mark.parametrize(
    ("explanations", "says"),
    [
        (lambda: review(), "list of explanations"),
        (list, "nothing to show"),
        (lambda: iter([review()]), "list of explanations"),
    ],
)
def test_words_are_counted_in_explanations(explanations, says):
    with pytest.raises(BadInput, match=says):
        word_records(explanations())


def test_a_count_of_words_is_a_whole_number():
    with pytest.raises(BadOption, match="count=-1"):
        top_words(word_records([review()]), count=-1)
