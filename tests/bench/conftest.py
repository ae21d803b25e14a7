"""Fixtures of the tests in this folder."""

import pytest
from helpers.runs import SENTENCES
from helpers.saved_models import save_text_model

from clearhead.bench.plan import Plan
from clearhead.bench.run import run_plan
from clearhead.bench.runners.local import local
from clearhead.cli import main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_text_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("task") / "dev.tsv"
    path.write_text("label\tsentence\n" + "".join(f"{label}\t{text}\n" for label, text in SENTENCES))
    return str(path)


@pytest.fixture(scope="module")
def plan(model, task):
    return Plan(task, ("att-cat", "rollout", "random:seed=1"), ("aopc", "hiding"), model=model, shard=2)


@pytest.fixture(scope="module")
def finished_run(plan, tmp_path_factory):
    """An undisturbed run."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    run_plan(plan, folder, local)
    return folder


@pytest.fixture
def run(capsys):
    """Runs a command and gives exit code, output and errors."""

    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["bench", *arguments])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return command
