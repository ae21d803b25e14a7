"""Fixtures of the tests in this folder."""

import json

import pytest
from helpers.saved_models import save_image_model, save_text_model

import clearhead

TEXTS = ("a good film", "a bad , tedious film", "never bad", "heart and film")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return save_text_model(tmp_path_factory.mktemp("text-model"))


@pytest.fixture(scope="session")
def model(folder):
    return clearhead.load(str(folder))


@pytest.fixture(scope="session")
def image_model(tmp_path_factory):
    return clearhead.load(str(save_image_model(tmp_path_factory.mktemp("image-model"))))


@pytest.fixture
def make_rows():
    """Rows with ids, texts, labels and another column."""

    def make(count):
        rows = []
        for number in range(count):
            label = ("negative", "positive")[number % 2]
            text = f"{TEXTS[number % 4]} {number}"
            rows.append({"id": f"r{number}", "text": text, "label": label, "stars": number % 5})
        return rows

    return make


@pytest.fixture
def write_rows(tmp_path, make_rows):
    """Writes rows as a JSON lines file and gives its path."""

    def write(count, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in make_rows(count)))
        return path

    return write
