"""Commands in child processes, and what their output must look like."""

import json
import os
import subprocess
import sys
from pathlib import Path

import clearhead

TEXT = "A bad ,  tedious film never"


def records(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines()]


def child(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with the Clearhead that is being tested."""
    source = str(Path(clearhead.__file__).parents[1])
    variables = {**os.environ, "PYTHONPATH": source, **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=variables, check=False)


def assert_one_line(code: int, output: str, errors: str, expected: str) -> None:
    """Assert that a command failed with one line on stderr that contains the expected text."""
    assert code == 2
    assert output == ""
    assert errors.count("\n") == 1
    assert errors.startswith("clearhead: ")
    assert expected in errors
