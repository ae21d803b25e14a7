"""The plugin of pytest, in a run of its own."""

import tomllib
from pathlib import Path

import pytest
from helpers.commands import child
from helpers.saved_models import save_text_model

import clearhead
from clearhead.drift.snapshot_file import write_snapshot

PLUGIN = "clearhead.drift.pytest_plugin"
TESTS = """
def test_same(explanations):
    explanations("baseline.json").assert_same_reasons()

def test_moved(explanations):
    explanations("baseline.json", model=OTHER).assert_same_reasons(max_shift=0.001)
"""


def test_the_fixture_compares_with_a_baseline_beside_the_test(tmp_path):
    model = save_text_model(tmp_path / "model")
    other = save_text_model(tmp_path / "other", hidden_act="relu")
    write_snapshot(clearhead.snapshot(str(model), ["a bad film"], noise=0), tmp_path / "baseline.json")
    path = tmp_path / "test_reasons.py"
    path.write_text(TESTS.replace("OTHER", repr(str(other))))
    # By its module, whether or not the installation has registered it under its name.
    plugin = ("-p", "no:clearhead", "-p", PLUGIN)
    run = child("-m", "pytest", *plugin, "-p", "no:cacheprovider", "-c", "/dev/null", str(path))
    assert run.returncode == 1, run.stdout
    assert "1 failed, 1 passed" in run.stdout
    assert "at most 0.1% is allowed" in run.stdout


def test_the_plugin_starts_without_torch():
    run = child("-c", f"import sys, {PLUGIN}; print({{'torch', 'numpy', 'transformers'}} & set(sys.modules))")
    assert run.stdout.strip() == "set()", run.stderr


def test_the_plugin_is_an_entry_point():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"clearhead": PLUGIN}


@pytest.mark.parametrize(("option", "setting", "expected"), [("a", "b", "a"), (None, "b", "b"), (None, "", None)])
def test_options_come_before_settings(option, setting, expected):
    from clearhead.drift.pytest_plugin import _read_setting

    class Config:
        def getoption(self, name):
            assert name == "clearhead_model"
            return option

        def getini(self, name):
            return setting

    assert _read_setting(Config(), "model") == expected
