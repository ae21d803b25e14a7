"""Fixtures of the tests in this folder."""

import pytest
from helpers import linear_models


@pytest.fixture(scope="module")
def bert():
    return linear_models.bert()


@pytest.fixture(scope="module")
def vit():
    return linear_models.vit()


@pytest.fixture(scope="module")
def linear():
    return linear_models.linear_text()
