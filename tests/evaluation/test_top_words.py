"""Top tokens and top words of classes, and what classes share."""

import gc
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
    Overlap,
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


def test_references_without_texts_are_refused(bert, tmp_path):
    case = cases_of(bert, ["a good film"])[0]
    Image.new("RGB", (9, 9)).save(tmp_path / "1.png")
    for reference, says in ((str(tmp_path), "holds pictures"), ("", "names no task")):
        with pytest.raises(BadInput, match=says):
            parse_metric(("token-overlap", {"reference": reference})).measure(bert, [case])


def test_one_class_alone_overlaps_with_none():
    summary = parse_metric("token-overlap:k=1").summarise([overlap_record("negative", bad=3.0)])
    assert math.isnan(summary["token-overlap"])


def test_words_are_summed_per_class_without_case_and_punctuation():
    many = [review(), review(), explained("Heart, heart. –", label="positive", relevance=np.full(7, 0.5))]
    tops = top_words(word_records(many))
    assert tops["negative"][0] == ("tedious", pytest.approx(1.22))
    assert tops["positive"] == [("heart", pytest.approx(2.0))]
    assert all(weight > 0 for words in tops.values() for _, weight in words)
    assert len(top_words(word_records(many), count=2)["negative"]) == 2


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
