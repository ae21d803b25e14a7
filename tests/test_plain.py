"""Values that JSON cannot hold, and the text of those that it can."""

import json
from datetime import date

import numpy as np
import pytest

from clearhead.plain import encode_json, finite

ODD = {
    "nan": float("nan"),
    "infinite": [1.0, float("inf")],
    "scalar": np.float32(0.5),
    "count": np.int64(3),
    "day": date(2026, 1, 2),
    "bytes": b"abc",
    "pair": (1, 2.5),
    1: True,
    None: None,
}
KEPT = {
    "nan": None,
    "infinite": [1.0, None],
    "scalar": 0.5,
    "count": 3,
    "day": "2026-01-02",
    "bytes": "3 bytes",
    "pair": [1, 2.5],
    "1": True,
    "null": None,
}


def test_odd_values_become_what_json_can_hold():
    assert finite(ODD) == KEPT
    assert json.loads(encode_json(ODD)) == KEPT


@pytest.mark.parametrize("value", [{"text": "é", "relevance": [0.1, -2.0], "special": (True, None)}, {True: 1, 2: "b"}])
def test_plain_values_are_written_as_if_converted(value):
    assert encode_json(value) == encode_json(finite(value)) == json.dumps(value, ensure_ascii=False)


def test_a_key_is_named_as_json_names_it_whether_its_neighbours_are_plain_or_not():
    plain = {True: 1, 2.5: 2, None: 3}
    assert json.loads(encode_json(plain | {"odd": float("nan")})) == json.loads(encode_json(plain)) | {"odd": None}
