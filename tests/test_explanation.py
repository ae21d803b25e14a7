"""An explanation's words and top tokens, and its way to disk and back."""

import json

import numpy as np
import pytest
from helpers.tiny_models import image_model, text_model
from PIL import Image

import clearhead
from clearhead import serialization
from clearhead.errors import BadFile, BadInput, BadOption, UnknownName
from clearhead.explanation import Explanation
from clearhead.model.target import Target


def made(**changes):
    values = {
        "tokens": ("[CLS]", "joy", "##less", "film", "[SEP]"),
        "relevance": np.array([9.0, 0.5, -2.0, 1.0, 8.0]),
        "special": np.array([True, False, False, False, True]),
        "target": Target(1),
        "label": "positive",
        "method": "att-cat",
        "text": "Joyless  film",
        "offsets": ((0, 0), (0, 3), (3, 7), (9, 13), (0, 0)),
    }
    return Explanation(**{**values, **changes})


@pytest.mark.parametrize(
    ("reduction", "value"), [("sum", -1.5), ("mean", -0.75), ("max", 0.5), ("strongest", -2.0), ("first", 0.5)]
)
def test_words_of_the_original_text(reduction, value):
    first, second = made().words(reduction)
    assert (first.text, first.start, first.end) == ("Joyless", 0, 7)
    assert first.relevance == value
    assert (second.text, second.relevance) == ("film", 1.0)


def test_words_need_a_text_and_a_known_reduction():
    with pytest.raises(BadOption, match="sum, mean"):
        made().words("median")
    with pytest.raises(BadOption, match="no original text"):
        made(text=None, offsets=None).words()


def test_top_leaves_special_tokens_out_and_breaks_ties_by_position():
    assert made().top(2) == [("film", 1.0), ("Joyless", -1.5)]
    assert made().top(2, unit="token") == [("film", 1.0), ("joy", 0.5)]
    tied = made(relevance=np.ones(5))
    assert [token for token, _ in tied.top(9, unit="token")] == ["joy", "##less", "film"]
    assert made(text=None, offsets=None).top(1) == [("film", 1.0)]


def test_top_of_a_text_without_blanks_gives_tokens():
    tokens = ("好", "电", "影", "很", "棒")
    offsets = tuple((index, index + 1) for index in range(5))
    changes = {"tokens": tokens, "special": np.zeros(5, bool), "text": "好电影很棒", "offsets": offsets}
    assert made(**changes).top(1) == [("好", 9.0)]


def test_top_takes_a_known_unit():
    with pytest.raises(BadOption, match="word, token"):
        made().top(1, unit="patch")


@pytest.mark.parametrize("k", [-1, True, 2.5, "3", None])
def test_top_takes_a_whole_number(k):
    with pytest.raises(BadOption, match="k="):
        made().top(k)


def test_what_is_no_name_is_refused_as_one_that_is_unknown():
    with pytest.raises(BadOption, match="sum, mean"):
        made().words([])
    with pytest.raises(UnknownName, match="method"):
        clearhead.methods()[[]]


def test_only_images_have_heat_maps():
    with pytest.raises(BadOption, match="image"):
        made().heatmap()


def test_a_heat_map_interpolates_between_patch_centres():
    values = np.array([0.0, 1.0, 2.0, 3.0])
    one = made(relevance=values, special=np.zeros(4, bool), grid=(2, 2), box=(0, 0, 4, 4), text=None, offsets=None)
    heat = one.heatmap()
    assert heat[0].tolist() == [0, 0.25, 0.75, 1]
    assert heat[:, 0].tolist() == [0, 0.5, 1.5, 2]


@pytest.fixture(scope="module")
def explanations():
    texts = clearhead.compare(text_model(), "a joyless film", ["trans-att", "att-cat:heads=true"])
    pair = clearhead.explain(text_model(), ("a film", "not bad"), "rollout")
    picture = clearhead.explain(image_model(), Image.new("RGB", (50, 40), (9, 80, 200)), "lrp")
    return [*texts.values(), pair, picture]


@pytest.mark.parametrize("ending", ["json", "safetensors"])
@pytest.mark.parametrize("place", range(4))
def test_saved_and_read_back(explanations, tmp_path, ending, place):
    one = explanations[place]
    back = clearhead.read(one.save(tmp_path / f"one.{ending}"))
    for name in ("tokens", "text", "offsets", "label", "method", "model", "probability", "grid", "box", "target"):
        assert getattr(back, name) == getattr(one, name), name
    assert dict(back.diagnostics) == dict(one.diagnostics)
    assert dict(back.options) == dict(one.options)
    for name in ("relevance", "special", "layers", "pixels", "heads"):
        wanted = getattr(one, name)
        assert (getattr(back, name) is None) == (wanted is None)
        if wanted is not None:
            np.testing.assert_array_equal(getattr(back, name), wanted)
    if one.image is not None:
        np.testing.assert_array_equal(back.heatmap(), one.heatmap())
        assert back.image.tobytes() == one.image.tobytes()
    assert list(tmp_path.iterdir()) == [tmp_path / f"one.{ending}"]


def test_a_changed_file_is_noticed(tmp_path):
    path = made().save(tmp_path / "one.json")
    body = json.loads(path.read_text())
    body["explanation"]["relevance"][1] = 7.0
    path.write_text(json.dumps(body))
    with pytest.raises(BadFile, match="checksum"):
        clearhead.read(path)
    path = made().save(tmp_path / "one.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(BadFile, match="checksum"):
        clearhead.read(path)


@pytest.mark.parametrize(
    ("written", "damaged"), [('"F64"', '"I64"'), ('"special":{', '"specjal":{'), ('"shape":[5]', '"shape":[1,5]')]
)
def test_a_changed_name_type_or_shape_is_noticed(tmp_path, written, damaged):
    path = made().save(tmp_path / "one.safetensors")
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size].replace(written.encode(), damaged.encode(), 1)
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    with pytest.raises(BadFile, match="checksum"):
        clearhead.read(path)


def test_a_file_of_the_first_format_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(serialization, "SAFETENSORS_FORMATS", (1,))
    path = made().save(tmp_path / "one.safetensors")
    monkeypatch.undo()
    assert clearhead.read(path).top() == made().top()


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_missing_heads_are_kept_as_nan(tmp_path, ending):
    heads = np.array([[0.5, np.nan], [-1.0, 2.0]])
    back = clearhead.read(made(heads=heads).save(tmp_path / f"one.{ending}"))
    np.testing.assert_array_equal(back.heads, heads)


def test_a_file_from_before_heads_is_read():
    plain = serialization.to_dict(made())
    del plain["heads"]
    assert serialization.from_dict(plain).heads is None


def test_other_files_are_refused(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "other.safetensors").write_bytes(b"\x80\x04K\x01.")
    for name in ("other.json", "other.safetensors"):
        with pytest.raises(BadFile, match="not a saved explanation"):
            clearhead.read(tmp_path / name)
    with pytest.raises(BadFile, match="it has no 'format'"):
        clearhead.read(tmp_path / "other.json")
    with pytest.raises(BadFile, match="cannot be read"):
        clearhead.read(tmp_path / "missing.json")
    path = made().save(tmp_path / "new.json")
    path.write_text(path.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(BadFile, match="format 99"):
        clearhead.read(path)


def test_saving_where_it_cannot_be_saved(tmp_path):
    with pytest.raises(BadOption, match=r"\.json"):
        made().save(tmp_path / "one.pickle")
    with pytest.raises(BadFile, match="cannot be written"):
        made().save(tmp_path / "missing" / "one.json")


@pytest.mark.parametrize("path", [None, 5, b"one.json", "one\0.json"])
def test_what_names_no_file_is_neither_written_nor_read(path):
    with pytest.raises(BadInput, match="does not name a file"):
        made().save(path)
    with pytest.raises(BadInput, match="does not name a file"):
        clearhead.read(path)


def test_saving_onto_a_folder_leaves_nothing_behind(tmp_path):
    (tmp_path / "one.json").mkdir()
    with pytest.raises(BadFile, match="cannot be written"):
        made().save(tmp_path / "one.json")
    assert [one.name for one in tmp_path.iterdir()] == ["one.json"]


def test_repr_names_the_best_words():
    assert repr(made()) == "<Explanation of 'positive' by att-cat: film +1, Joyless -1.5>"


def test_targets_compare_like_their_index():
    assert Target(1) == 1 == Target(1)
    assert Target(1, versus=0) != 1
    assert len({Target(1), 1, Target(2, versus=1)}) == 2
