"""Pictures and words explained together: the record, and its way to disk and back."""

import json

import numpy as np
import pytest
from helpers.explanations import explained, pictured

import clearhead
from clearhead.errors import BadFile, BadInput, BadOption
from clearhead.joint_explanation import JointExplanation

ARRAYS = ("relevance", "special")


def joined(**changes):
    texts = [explained(text, label="a cat", method="trans-att") for text in ("a cat on grass", "a dog")]
    fields = {"explanations": (pictured(label="a cat"), *texts), "score": 21.5, "diagnostics": {"gap": 1e-9}}
    return JointExplanation(**{**fields, **changes})


def test_pictures_and_texts_are_found_by_what_they_are():
    joint = joined(chosen=1)
    assert joint.image is joint.explanations[0]
    assert [text.text for text in joint.texts] == ["a cat on grass", "a dog"]
    assert joint.text.text == "a dog"
    assert (joint.label, joint.method, joint.target) == ("a cat", "trans-att", 0)


def test_inputs_that_are_missing_are_said_to_be_missing():
    with pytest.raises(BadOption, match="no picture"):
        _ = joined(explanations=(explained("a"), explained("b"))).image
    with pytest.raises(BadOption, match="no text"):
        _ = joined(explanations=(pictured(),)).text
    with pytest.raises(BadInput, match="at least one"):
        joined(explanations=())


def test_all_inputs_share_one_scale():
    joint = joined()
    assert joint.strongest == 1.0
    assert sum(joint.shares) == pytest.approx(1)
    assert joint.top(1) == [("patch 1,2", 1.0)]
    assert [relevance for _, relevance in joint.top(30)] == sorted((r for _, r in joint.top(30)), reverse=True)
    assert "patch 1,2 +1" in repr(joint)


@pytest.mark.parametrize("ending", ["json", "safetensors"])
@pytest.mark.parametrize("pairs", [None, np.arange(6.0).reshape(2, 3)])
def test_saved_and_read_back(tmp_path, ending, pairs):
    joint = joined(pairs=pairs, chosen=1, probability=0.75)
    back = clearhead.read(joint.save(tmp_path / f"joint.{ending}"))
    assert isinstance(back, JointExplanation)
    assert (back.score, back.probability, back.chosen) == (21.5, 0.75, 1)
    assert dict(back.diagnostics) == {"gap": 1e-9}
    np.testing.assert_array_equal(back.pairs, joint.pairs)
    for member, original in zip(back.explanations, joint.explanations, strict=True):
        assert (member.tokens, member.text, member.offsets) == (original.tokens, original.text, original.offsets)
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(member, name), getattr(original, name))
    assert back.image.image.tobytes() == joint.image.image.tobytes()


def test_a_changed_file_is_noticed(tmp_path):
    path = joined().save(tmp_path / "joint.json")
    body = json.loads(path.read_text())
    body["explanation"]["explanations"][1]["relevance"][1] = 7.0
    path.write_text(json.dumps(body))
    with pytest.raises(BadFile, match="checksum"):
        clearhead.read(path)
    path = joined().save(tmp_path / "joint.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(BadFile, match="checksum"):
        clearhead.read(path)


def test_a_notebook_shows_every_input():
    shown = joined()._repr_html_()
    assert "grass" in shown and "<img" in shown
