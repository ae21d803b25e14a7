"""Registries: their order, and what they import."""

import sys
from types import ModuleType

import pytest
from helpers.commands import child

from clearhead.registry import Registry


@pytest.fixture
def registry(monkeypatch):
    """A registry of two modules that are imported already, the second one first."""
    for module in ("first_module", "second_module"):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    registry = Registry("number", modules=("first_module", "second_module"))
    registry.add("three", 3, "second_module")
    registry.add("four", 4, "second_module")
    registry.add("one", 1, "first_module")
    return registry


def test_objects_are_in_the_order_of_their_modules_whichever_was_imported_first(registry):
    assert list(registry) == ["one", "three", "four"]


def test_objects_of_other_modules_come_last(registry):
    registry.add("early", 5, "elsewhere")
    assert list(registry) == ["one", "three", "four", "early"]
    registry.add("late", 6)
    assert list(registry) == ["one", "three", "four", "early", "late"]
    assert registry["late"] == 6


def test_a_reader_imported_on_its_own_does_not_change_which_reader_is_tried_first():
    """oxford-pets reads some Parquet files, and parquet all others: it must be asked first."""
    listing = "import clearhead; print(list(clearhead.tasks()))"
    readers = child("-c", listing)
    after_tables = child("-c", f"import clearhead.data.readers.tables; {listing}")
    assert "oxford-pets" in readers.stdout
    assert after_tables.stdout == readers.stdout
