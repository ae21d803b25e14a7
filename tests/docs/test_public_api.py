"""What docs/stability.md promises: public names and arguments change only with the file that records them."""

from helpers.public_api import RECORD, describe_api

from clearhead import errors


def test_public_names_and_arguments_are_those_on_record():
    recorded = RECORD.read_text("utf-8").splitlines()
    current = describe_api().splitlines()
    gone = [line for line in recorded if line not in current]
    new = [line for line in current if line not in recorded]
    advice = "If the change is meant: make api, and a line in CHANGELOG.md."
    assert not gone and not new, f"gone: {gone}; new: {new}. {advice}"


def test_the_record_has_arguments_defaults_and_attributes():
    record = describe_api()
    assert "clearhead.explain(model, inputs, method=None, target=None, *, batch_size=None" in record
    assert "\nclearhead.Explanation.words(self" in record
    assert "\nclearhead.Explanation.relevance\n" in record
    for name in ("UnsupportedModel", "TooLong", "CorruptModel"):
        assert f"clearhead.errors.{name}({getattr(errors, name).__bases__[0].__name__}" in record
