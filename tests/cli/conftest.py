"""Fixtures of the tests in this folder."""

import pytest
from helpers.saved_models import save_image_model, save_text_model

from clearhead.cli import main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_text_model(tmp_path_factory.mktemp("text-model")))


@pytest.fixture(scope="module")
def image_model(tmp_path_factory):
    return str(save_image_model(tmp_path_factory.mktemp("image-model")))


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs a command and gives exit code, output and errors."""

    def command(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        if stdin is not None:
            import io

            monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return command
