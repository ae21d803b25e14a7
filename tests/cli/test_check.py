"""--check and --no-check of explain, compare and ask."""

import pytest
from helpers.commands import TEXT, records

LONGER = "the film is not good , never very good"


def test_explanations_are_checked_unless_unwanted(run, model):
    flags = ["--model", model, "--method", "att-cat", "--json"]
    (checked,) = records(run("explain", LONGER, *flags)[1])
    assert checked["check"]["passes"] >= 10
    (finer,) = records(run("explain", LONGER, *flags, "--check", "9")[1])
    assert finer["check"]["passes"] == 18
    (unchecked,) = records(run("explain", LONGER, *flags, "--no-check")[1])
    assert unchecked["check"] is None


def test_several_inputs_say_how_many_hold(run, model):
    _, output, _ = run("explain", TEXT, LONGER, "--model", model, "--method", "att-cat")
    assert "of 2 explanations hold" in output
    _, output, _ = run("explain", TEXT, LONGER, "--model", model, "--method", "att-cat", "--no-check")
    assert "hold" not in output


@pytest.mark.parametrize("command", ["explain", "compare", "ask"])
@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--check", "4"], "at least 5"), (["--check", "9", "--no-check"], "contradict each other")],
)
def test_invalid_checks_are_refused_before_a_model_is_loaded(run, command, flags, message):
    code, _, errors = run(command, TEXT, "--model", "missing-folder", *flags)
    assert code != 0
    assert message in errors
