"""A plugin of pytest: the fixture `explanations` compares a model with a baseline.

Imports nothing but pytest: it is loaded by every run of pytest where Clearhead is installed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from clearhead.drift.baseline_assertions import BaselineTest

MODEL_HELP = "model that the fixture `explanations` compares with baselines; default: the one that a baseline names"
TASK_HELP = "data of the fixture `explanations`; default: the texts in a baseline"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and the settings of the same names for pytest.ini or pyproject.toml."""
    group = parser.getgroup("clearhead", "Clearhead: reasons of models")
    for name, description in (("model", MODEL_HELP), ("task", TASK_HELP)):
        group.addoption(f"--clearhead-{name}", metavar=name.upper(), default=None, help=description)
        parser.addini(f"clearhead_{name}", description, default=None)


@pytest.fixture
def explanations(request: pytest.FixtureRequest) -> "Callable[..., BaselineTest]":
    """Compare a model with a baseline: explanations("baseline.json").assert_same_reasons().

    `model` and `task` are those of the call, of --clearhead-model and --clearhead-task, of the settings clearhead_model
    and clearhead_task, or the baseline's own.
    """

    def compare(baseline: Any, model: Any = None, *, task: Any = None) -> "BaselineTest":
        # Imported here because it imports torch.
        from clearhead.drift.baseline_assertions import BaselineTest

        if isinstance(baseline, str | Path):
            baseline = _find_file(request.path.parent, Path(baseline))
        return BaselineTest(
            baseline, model or _read_setting(request.config, "model"), task or _read_setting(request.config, "task")
        )

    return compare


def _find_file(folder: Path, path: Path) -> Path:
    """Return a file beside the test if there is one, else the path as it is."""
    beside = folder / path
    return beside if beside.is_file() else path


def _read_setting(config: pytest.Config, name: str) -> Any:
    return config.getoption(f"clearhead_{name}") or config.getini(f"clearhead_{name}") or None
