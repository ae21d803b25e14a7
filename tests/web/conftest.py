"""Fixtures of the tests in this folder: the application in memory, and its page in a browser."""

from dataclasses import replace

import pytest
from helpers import tiny_models
from helpers.api import HOME
from helpers.browser import launched
from helpers.page import PATIENCE
from helpers.page_server import save_photo_run, save_run, serving
from helpers.samples import save_answer_model, save_image_model, save_regression_model, save_text_model
from starlette.testclient import TestClient

import clearhead
from clearhead.web.app import build


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    folders = [save_text_model(home / "text-one"), save_text_model(home / "text-two"), save_image_model(home / "photo")]
    run = save_run(home, folders[0])
    photos, data = save_photo_run(home, folders[2])
    folders += [save_regression_model(home / "stars"), save_answer_model(home / "answers")]
    models = [part for folder in folders for part in ("--model", str(folder))]
    with serving(*models, "--run", str(run), "--run", str(photos), "--data", str(data)) as (_, found):
        yield found


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture
def visit(browser, address):
    """Opens the page; whatever it complains about, or asks of another host, fails the test."""
    contexts, said = [], []

    def visited(part="", **settings):
        context = browser.new_context(**settings)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
        page.on("request", lambda one: one.url.startswith((address, "data:", "blob:")) or said.append(one.url))
        page.goto(address + part)
        page.wait_for_selector("body[data-ready]")
        return page

    visited.said = said
    yield visited
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture(scope="module")
def models():
    return {
        "text": replace(tiny_models.text_model(), name="text"),
        "image": replace(tiny_models.image_model(), name="image"),
    }


@pytest.fixture(scope="module")
def app(models):
    return build(models)


@pytest.fixture(scope="module")
def client(app):
    with TestClient(app, base_url=HOME, raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """A model that answers a number, and one that answers with a span."""
    home = tmp_path_factory.mktemp("others")
    folders = {"stars": save_regression_model(home / "stars"), "answers": save_answer_model(home / "answers")}
    return {name: replace(clearhead.load(str(folder)), name=name) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def asking(others):
    with TestClient(build(others), base_url=HOME) as opened:
        yield opened
