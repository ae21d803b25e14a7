"""The JSON record of an explanation."""

import numpy as np
import pytest
from helpers.explanations import pictured, review

from clearhead.views.json_record import line, record


def test_record_is_plain_and_whole():
    import json

    plain = json.loads(line(review(diagnostics={"gap": float("nan"), "samples": np.int64(3)}), "att-cat:hidden=output"))
    assert plain["diagnostics"] == {"gap": None, "samples": 3}
    assert plain["name"] == "att-cat:hidden=output"
    assert len(plain["tokens"]) == 14
    assert plain["tokens"][1] == {
        "token": "a",
        "relevance": pytest.approx(-0.1),
        "special": False,
        "segment": 0,
        "start": 0,
        "end": 1,
    }
    assert [word["word"] for word in plain["words"]][:3] == ["A", "joyless", ","]
    assert record(pictured())["grid"] == [4, 4]
    assert plain["heads"] is None


def test_heads_that_a_block_lacks_are_null():
    import json

    plain = json.loads(line(review(heads=np.array([[0.5, np.nan], [-1.0, 2.0]]))))
    assert plain["heads"] == [[0.5, None], [-1.0, 2.0]]


def test_numbers_of_files_have_the_types_of_explanations():
    # JSON has no types of arrays: whole numbers are read as integers.
    whole = np.arange(3)
    length = len(review().tokens)
    read = review(relevance=np.resize(whole, length), special=np.resize([1, 0], length))
    tokens = record(read)["tokens"]
    assert {type(token["relevance"]) for token in tokens} == {float}
    assert [token["special"] for token in tokens[:2]] == [True, False]
    assert tokens[0] is not tokens[1]
