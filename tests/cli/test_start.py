"""--help, --version and shell completion answer at once."""

import os

import pytest
from helpers.commands import child

import clearhead
from clearhead.cli.options import complete_methods
from clearhead.version import __version__


def test_help_imports_nothing_heavy():
    code = (
        "import sys, runpy\nsys.argv = ['clearhead', '--help']\n"
        "try: runpy.run_module('clearhead', run_name='__main__')\n"
        "except SystemExit as left: assert not left.code\n"
        "heavy = {'torch', 'transformers', 'numpy', 'PIL', 'pyarrow', 'wordcloud', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = child("-c", code)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("explain", "compare", "list", "--version", "--install-completion"))


def test_help_takes_less_than_a_third_of_a_second():
    """Processor time of the fastest of five, so that a busy machine does not decide."""
    times = []
    for _ in range(5):
        before = os.times()
        child("-m", "clearhead", "--help")
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 0.3


def test_version(run):
    assert run("--version") == (0, f"clearhead {__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["explain", "--help"],
        ["ask", "--help"],
        ["compare", "-h"],
        ["words", "-h"],
        ["plan", "-h"],
        ["list", "--help"],
    ],
)
def test_help_of_every_command(run, arguments):
    code, output, _ = run(*arguments)
    assert code == 0
    assert "Usage" in output


def test_shell_completion_knows_the_methods():
    completing = {
        "_CLEARHEAD_COMPLETE": "complete_bash",
        "COMP_WORDS": "clearhead explain x --method att",
        "COMP_CWORD": "4",
    }
    done = child("-c", "import sys; sys.argv = ['clearhead']; from clearhead.cli import main; main()", **completing)
    assert set(done.stdout.split()) == {name for name in clearhead.methods() if name.startswith("att")}
    assert sorted(complete_methods("")) == sorted(clearhead.methods())
