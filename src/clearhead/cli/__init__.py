"""The command line: one file per command, each added to `app` below.

Commands import the engine when they run, so that `--help` and shell completion answer at once.
"""

import errno
import io
import os
import sys
from typing import Annotated

import typer

from clearhead.cli.bench import bench
from clearhead.cli.compare import compare
from clearhead.cli.explain import explain
from clearhead.cli.list_ import listing
from clearhead.cli.plan import plan
from clearhead.cli.report import report
from clearhead.cli.serve import serve
from clearhead.cli.words import words
from clearhead.version import __version__

MISTAKE = 2
GONE = 1
"""How Typer and Rich leave by themselves when the reader of a pipe has gone."""
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="clearhead",
    help="Why a Transformer decided what it decided, and how far the explanation can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("explain")(explain)
app.command("compare")(compare)
app.command("plan")(plan)
app.command("words")(words)
app.command("bench")(bench)
app.command("report")(report)
app.command("list")(listing)
app.command("serve")(serve)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clearhead {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Why a Transformer decided what it decided, and how far the explanation can be trusted."""


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; a user's mistake is one line on stderr and exit code 2."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _open_streams()
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = _left_alone()
    except SystemExit as left:
        code = _left_alone() if left.code == GONE else left.code
    except Exception as error:
        message = _mistake(error)
        if message is None:
            raise
        code = _complain(message)
    sys.exit(code if isinstance(code, int) else 0)


def _left_alone() -> int:
    """Nobody reads any more, which is no mistake."""
    sys.stdout = None
    return 0


def _open_streams() -> None:
    """Streams that were closed take and give nothing; what an encoding cannot hold is written as an escape."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _mistake(error: Exception) -> str | None:
    """The line for a user's mistake; None for a fault of ours, which keeps its traceback."""
    from clearhead.errors import ClearheadError

    if isinstance(error, ClearheadError):
        return error.with_flags
    if hasattr(error, "format_message"):
        return str(error.format_message()) or "Nothing was asked. See clearhead --help."
    if isinstance(error, typer.Abort):
        return "Stopped."
    if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
        sys.stdout = None
        return f"The output cannot be written: {error.strerror}."
    return None


def _complain(message: str) -> int:
    print(f"clearhead: {' '.join(message.split())}", file=sys.stderr)
    return MISTAKE
