"""Top words per class, drawn."""

import pytest

from clearhead.errors import BadInput
from clearhead.evaluation.top_words import ClassWord, Overlap, overlap
from clearhead.views import class_words

TOPS = {
    "negative": [ClassWord("tedious", 0.12, 7, 0.1, 0.14), ClassWord("film", 0.06, 3, -0.01, 0.13)],
    "positive": [ClassWord("<heart>", 0.2, 1, None, None)],
}


def test_a_summary_shows_the_words_of_each_class_and_what_classes_share():
    page = class_words.summary(TOPS, [Overlap(3, 1, 1 / 3)])
    assert page.index("negative") < page.index("tedious") < page.index("positive") < page.index("&lt;heart&gt;")
    assert '<th scope="row" dir="auto">3</th><td class="ch-n">1</td><td class="ch-n">33.3 %</td>' in page
    assert "10.0 % … 14.0 %" in page and '<td class="ch-n">7</td>' in page
    assert "−1.0 % … 13.0 %" in page and '<td class="ch-n">–</td>' in page
    assert "Overlap" not in class_words.summary(TOPS)
    assert "film" not in class_words.summary(TOPS, count=1)


def test_the_sentence_is_about_ten_words_or_as_many_as_there_are():
    rows = [Overlap(5, 1, 0.2), Overlap(10, 4, 0.4), Overlap(20, 9, 0.45)]
    assert class_words.overlap_line(rows) == "Of the top 10, two classes share 4 (40.0 %)."
    assert class_words.overlap_line([Overlap(3, 1, 1 / 3)]) == "Of the top 3, two classes share 1 (33.3 %)."


def test_the_words_that_two_of_several_classes_share_are_no_sum_over_pairs():
    row = overlap([["a", "b"], ["a", "b"], ["a", "c"]], 2)
    assert row.count == 4
    assert class_words.overlap_line([row]) == "Of the top 2, two classes share 1.33 on average (66.7 %)."
    page = class_words.summary({}, [row])
    assert '<td class="ch-n">1.33</td>' in page


def test_word_clouds_repeat():
    wordcloud = pytest.importorskip("clearhead.views.wordcloud")
    pytest.importorskip("wordcloud", reason="the clouds extra is not installed")
    words = [("tedious", 2.0), ("joyless", 1.0)]
    assert wordcloud.cloud(words).tobytes() == wordcloud.cloud(words).tobytes()
    with pytest.raises(BadInput, match="positive weight"):
        wordcloud.cloud([("x", -1.0)])
