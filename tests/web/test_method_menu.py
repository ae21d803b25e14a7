"""The menu of methods names each of them once."""

from clearhead.attribution.names import METHOD_NAMES
from clearhead.web.method_menu import MENU, find_group, list_choices, list_inputs


def test_every_method_is_in_one_group_of_the_menu():
    listed = [name for titles in MENU.values() for name in titles]
    assert sorted(listed) == sorted(METHOD_NAMES)


def test_methods_of_others_come_last():
    assert find_group("mine") == ("Other", "")
    assert list_inputs("mine") == ["text", "image", "prompt"]


def test_choices_are_those_that_the_options_take():
    choices = list_choices()
    assert "word" in choices["text"]["unit"]
    assert "patch" in choices["image"]["unit"]
