"""A model in which a word was planted, and the snapshot of the model it comes from."""

import pytest
from helpers.planted_words import plant_word

import clearhead


@pytest.fixture(scope="session")
def planted():
    return plant_word()


@pytest.fixture(scope="session")
def baseline(planted):
    """The snapshot of the original model, with its noise."""
    return clearhead.snapshot(planted.original, planted.task)
