"""Fixtures: the application in memory, and its page in a browser."""

from dataclasses import replace

import pytest
from helpers import tiny_models
from helpers.saved_models import save_answer_model, save_image_model, save_regression_model, save_text_model

import clearhead

# Helpers that need FastAPI, httpx or Playwright are imported by the fixtures: a missing one then skips only the test
# modules that need it, while an import here would stop the whole collection.


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    from helpers.page_server import save_photo_run, save_run, start_server

    home = tmp_path_factory.mktemp("page")
    folders = [save_text_model(home / "text-one"), save_text_model(home / "text-two"), save_image_model(home / "photo")]
    run = save_run(home, folders[0])
    photos, data = save_photo_run(home, folders[2])
    folders += [save_regression_model(home / "stars"), save_answer_model(home / "answers")]
    arguments = ["--run", str(run), "--run", str(photos), "--data", str(data), "--task", str(home / "task.tsv")]
    for folder in folders:
        arguments += ["--model", str(folder)]
    with start_server(*arguments) as (_, served_address):
        yield served_address


@pytest.fixture(scope="module")
def browser():
    from helpers.browser import launch_browser

    with launch_browser() as chromium:
        yield chromium


@pytest.fixture
def visit(browser, address):
    """Open the page; whatever it logs, or requests from another host, fails the test unless it is cleared."""
    from helpers.page import TIMEOUT_MS

    contexts = []
    messages = []

    def record_foreign_request(request):
        if not request.url.startswith((address, "data:", "blob:")):
            messages.append(request.url)

    def record_dialog(dialog):
        messages.append("dialog")
        dialog.dismiss()

    def open_page(fragment="", **settings):
        context = browser.new_context(**settings)
        contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", record_dialog)
        page.on("request", record_foreign_request)
        page.goto(address + fragment)
        page.wait_for_selector("body[data-ready]")
        return page

    open_page.messages = messages
    yield open_page
    for context in contexts:
        context.close()
    assert messages == []


@pytest.fixture(scope="module")
def models():
    return {
        "text": replace(tiny_models.text_model(), name="text"),
        "image": replace(tiny_models.image_model(), name="image"),
    }


@pytest.fixture(scope="module")
def app(models):
    from clearhead.web.app import build_app

    return build_app(models)


@pytest.fixture(scope="module")
def client(app):
    from helpers.api import HOME, TestClient

    with TestClient(app, base_url=HOME, raise_server_exceptions=False) as test_client:
        yield test_client


@pytest.fixture(scope="module")
def other_models(tmp_path_factory):
    """A model that answers a number, and one that answers with a span."""
    home = tmp_path_factory.mktemp("other-models")
    folders = {"stars": save_regression_model(home / "stars"), "answers": save_answer_model(home / "answers")}
    return {name: replace(clearhead.load(str(folder)), name=name) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def other_client(other_models):
    from helpers.api import HOME, TestClient

    from clearhead.web.app import build_app

    with TestClient(build_app(other_models), base_url=HOME) as test_client:
        yield test_client
