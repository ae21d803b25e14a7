"""Options as written on the command line and as functions take them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import clearhead
from clearhead.attribution.method import Attribution, parse_method
from clearhead.errors import BadOption
from clearhead.spec import parse_spec, parse_value, validate_options


@pytest.mark.parametrize(
    ("word", "value"), [("no", False), ("Off", False), ("yes", True), ("on", True), ("None", None)]
)
def test_words_that_stand_for_values(word, value):
    assert parse_value(word) is value


def test_options_without_a_kind_are_taken_as_they_are():
    def own(trace, *, anything=None, several: list[int] = (), call: Callable[[int], float] | None = None):
        return Attribution(torch.ones(3, 9))

    given = {"anything": "x", "several": [1, 2], "call": abs}
    assert validate_options("own", own, given) == given

    def later(trace, *, kind: "NotYetDefined" = None):  # noqa: F821
        return Attribution(torch.ones(3, 9))

    assert validate_options("later", later, {"kind": 5}) == {"kind": 5}


def test_what_is_written_is_taken_as_the_option_takes_it():
    _, _, given = parse_spec("own:name=on,flag=on,number=2024,text=2024,nothing=none")

    def own(*, name: str = "", flag: bool = False, number: int = 0, text: str | None = "", nothing: str | None = ""):
        return None

    wanted = {"name": "on", "flag": True, "number": 2024, "text": "2024", "nothing": None}
    assert validate_options("own", own, given) == wanted


def test_numbers_of_numpy_are_numbers(text):
    options = parse_method("lime", samples=np.int64(3), width=np.float32(0.5)).options
    assert [type(value) for value in options.values()] == [int, float]
    assert clearhead.explain(text, "a film", "rollout", normalise_rows=np.True_).options["normalise_rows"] is True


def hide(trace, *, replacement: str | None = None, window: int = 1):
    return Attribution(torch.ones(3, 9))


ALIASES = {"absent": "replacement"}


def test_an_older_option_name_stands_for_the_current_one():
    _, _, options = parse_spec("hide:absent=none,window=2")
    assert validate_options("hide", hide, options, ALIASES) == {"replacement": None, "window": 2}


@pytest.mark.parametrize("spec", ["hide:absent=pad,replacement=mask", "hide:replacement=mask,absent=pad"])
def test_an_option_cannot_be_given_by_both_names(spec):
    _, _, options = parse_spec(spec)
    with pytest.raises(BadOption, match="'absent' is an older name of the option 'replacement' of 'hide'"):
        validate_options("hide", hide, options, ALIASES)


def test_errors_of_an_alias_name_the_current_option():
    with pytest.raises(BadOption, match="Invalid replacement=5 for 'hide': it must be a word or none"):
        validate_options("hide", hide, {"absent": 5}, ALIASES)


def test_an_alias_that_is_not_declared_is_unknown():
    with pytest.raises(BadOption, match="No option of 'hide' is called 'absent'"):
        validate_options("hide", hide, {"absent": "pad"})
