"""Top words per class."""

import numpy as np
import pytest
from helpers.samples import explained, review

from clearhead.errors import BadInput
from clearhead.views import (
    class_words as corpus,
)


def test_corpus_sums_words_and_weighs_them():
    many = [review(), review(), explained("Heart, heart.", label="positive", relevance=np.full(6, 0.5))]
    tops = corpus.top_words(many)
    assert tops["negative"][0] == ("tedious", pytest.approx(1.22))
    assert tops["positive"] == [("heart", pytest.approx(2.0))]
    weights = corpus.inverse_document_frequency(["tedious", "tedious", "joyless"])
    assert weights["joyless"] == pytest.approx(np.log(3))
    assert corpus.top_words(many, weights=weights)["negative"][0][0] == "joyless"


def test_overlap_counts_all_pairs():
    tops = {"a": [("x", 1.0), ("y", 0.5)], "b": [("x", 1.0), ("z", 1.0)], "c": [("q", 1.0), ("z", 1.0)]}
    assert corpus.overlap(tops, 2) == (2, 2 / 6)
    assert "33.3 %" in corpus.summary(tops)
    assert corpus.overlap({"a": tops["a"]}, 2) == (0, 0.0)


def test_overlap_is_a_share_of_the_words_there_are():
    tops = {"a": [("x", 1.0), ("y", 0.5)], "b": [("x", 1.0), ("z", 1.0), ("q", 0.5)], "c": []}
    assert corpus.overlap(tops, 10) == (1, 1 / 2)
    assert corpus.overlap_line(tops) == "Of the top 3, two classes share 1 (50.0 %)."
    assert '<th scope="row" dir="auto">3</th><td class="ch-n">1</td><td class="ch-n">50.0 %</td>' in corpus.summary(
        tops
    )
    many = {name: [(f"{name[0]}{place}", 1.0) for place in range(23)] for name in ("a", "b")}
    assert corpus.steps(many) == [5, 10, 20, 23]
    assert corpus.overlap_line(many).startswith("Of the top 10, ")
    assert "Overlap" not in corpus.summary({"a": [], "b": []})


def test_word_clouds_repeat():
    wordcloud = pytest.importorskip("clearhead.views.wordcloud")
    pytest.importorskip("wordcloud", reason="the clouds extra is not installed")
    words = [("tedious", 2.0), ("joyless", 1.0)]
    assert wordcloud.cloud(words).tobytes() == wordcloud.cloud(words).tobytes()
    with pytest.raises(BadInput, match="positive weight"):
        wordcloud.cloud([("x", -1.0)])
