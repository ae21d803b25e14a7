"""token-overlap: top tokens of classes and what they share."""

import gc
import math
import weakref

import numpy as np
import pytest
from helpers import linear_models
from helpers.explained_examples import cases_of, noise, signed_weights, values
from PIL import Image

from clearhead.errors import BadInput
from clearhead.evaluation import top_words as corpus
from clearhead.evaluation.metric import parse_metric


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
    assert corpus.word_lists(records, 2)["negative"] == [("bad", 4.0), ("plot", 2.5)]
    xs, ys = parse_metric("token-overlap").curve(records)
    assert len(xs) == len(ys) and xs[0] == 5


def test_overlap_of_an_oracle_is_below_that_of_noise(linear):
    words = linear_models.WORDS[5:18]
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(words, size=8)) for _ in range(40)]

    def oracle(explanation, _):
        return signed_weights(linear, explanation, explanation.target.number)

    found = [values("token-overlap:k=4", linear, cases_of(linear, texts, one)) for one in (oracle, noise)]
    assert found[0]["token-overlap"] == 0 < found[1]["token-overlap"]


def test_rare_words_weigh_more(bert, tmp_path):
    path = tmp_path / "reference.txt"
    path.write_text("a film\na plot\na good film\n")
    case = cases_of(bert, ["a good film"], lambda own, _: np.ones(len(own.tokens)))[0]
    record = parse_metric(("token-overlap", {"reference": str(path)})).measure(bert, [case])[0]
    assert record["tokens"] == ["a", "good", "film"]
    assert record["relevance"] == pytest.approx([math.log(4 / 4), math.log(4 / 2), math.log(4 / 3)])


def test_a_reference_that_changed_is_read_again_and_holds_no_model(tmp_path):
    path, model = tmp_path / "reference.txt", linear_models.bert()
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
    found = parse_metric("token-overlap:k=1").summarise([overlap_record("negative", bad=3.0)])
    assert math.isnan(found["token-overlap"])
