"""Fixtures of the tests in this folder."""

import pytest
from helpers import linear_models, tiny_models


@pytest.fixture(scope="module")
def bert():
    return tiny_models.bert()


@pytest.fixture(scope="module")
def vit():
    return tiny_models.vit()


@pytest.fixture(scope="module")
def linear():
    return linear_models.linear_text()
