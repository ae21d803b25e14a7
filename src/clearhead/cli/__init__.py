"""Command line: one file per command, each added to `app` below.

Commands import the engine when they run, so that `--help` and shell completion answer at once.
"""

import errno
import io
import os
import sys
from typing import Annotated

import typer

from clearhead.cli.ask import ask
from clearhead.cli.audit import audit
from clearhead.cli.bench import bench
from clearhead.cli.check import check
from clearhead.cli.choose import choose
from clearhead.cli.compare import compare
from clearhead.cli.diff import diff
from clearhead.cli.explain import explain
from clearhead.cli.file_format import choose_file_format, move_global_flags, refuse_second_model
from clearhead.cli.list_ import list_catalogue
from clearhead.cli.plan import plan
from clearhead.cli.report import report
from clearhead.cli.sanity import sanity
from clearhead.cli.serve import serve
from clearhead.cli.snapshot import snapshot
from clearhead.cli.words import words
from clearhead.environment import set_defaults
from clearhead.version import __version__

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
# Typer and Rich exit with this code by themselves when the reader of a pipe has gone.
EXIT_CLOSED_PIPE = 1
# Errors of standard output that are the user's to mend: disk full, quota, file size limit, input/output error.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
STREAM_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}
# Keeps the libraries' progress bars and warnings off stderr, which is for the commands' own messages.
ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_VERBOSITY": "error",
}

app = typer.Typer(
    name="clearhead",
    help="Explain decisions of Transformer models, and measure how far the explanations can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("explain")(explain)
app.command("ask")(ask)
app.command("compare")(compare)
app.command("plan")(plan)
app.command("words")(words)
app.command("choose")(choose)
app.command("sanity")(sanity)
app.command("bench")(bench)
app.command("diff")(diff)
app.command("snapshot")(snapshot)
app.command("check")(check)
app.command("audit")(audit)
app.command("report")(report)
app.command("list")(list_catalogue)
app.command("serve")(serve)


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"clearhead {__version__}")
        raise typer.Exit


@app.callback()
def _add_global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="C", help="What separates the columns of .csv files, such as ';' or tab. For all commands."
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Encoding of text files, such as latin-1; default: UTF-8. For all commands."),
    ] = None,
) -> None:
    """Explain decisions of Transformer models, and measure how far the explanations can be trusted."""
    choose_file_format(delimiter, encoding)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 2."""
    # The libraries read these when they are imported, which happens inside the commands.
    set_defaults(ENVIRONMENT)
    _prepare_streams()
    sys.exit(_as_exit_code(_run(arguments)))


def _as_exit_code(code: object) -> int:
    # Click returns what a command returned, which is no exit code.
    return code if isinstance(code, int) else 0


def _run(arguments: list[str] | None) -> object:
    """Run a command and return its exit code."""
    try:
        ordered = move_global_flags(arguments)
        refuse_second_model(ordered)
        code: object = app(ordered, standalone_mode=False)
        # Here, where a closed pipe is handled, instead of at exit.
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _discard_output()
    except SystemExit as exit_:
        return _discard_output() if exit_.code == EXIT_CLOSED_PIPE else exit_.code
    except Exception as error:
        message = _user_message(error)
        if message is None:
            raise
        return _print_error(message)


def _discard_output() -> int:
    """Give up standard output, and return the exit code of a closed pipe, which is no mistake."""
    # Without a stream Python does not try to flush the rest at exit, which would raise again.
    sys.stdout = None
    return 0


def _prepare_streams() -> None:
    """Replace closed streams by the null device, and escape characters that the encoding of stdout lacks."""
    for name, mode in STREAM_MODES.items():
        _open_if_closed(name, mode)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _open_if_closed(name: str, mode: str) -> None:
    # Python sets a stream to None if its descriptor is closed, as by >&-, and printing would then raise.
    if getattr(sys, name) is None:
        setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  until the process ends


def _user_message(error: Exception) -> str | None:
    """Return the message for a user's mistake; None for a bug, which keeps its traceback."""
    from clearhead.errors import ClearheadError

    if isinstance(error, ClearheadError):
        return error.with_flags
    # Errors of Click, without importing it: Typer may bring its own copy.
    if hasattr(error, "format_message"):
        return str(error.format_message()) or "No command given. See clearhead --help."
    if isinstance(error, typer.Abort):
        return "Aborted."
    if isinstance(error, OSError) and _is_unwritable(error):
        _discard_output()
        return f"The output cannot be written: {error.strerror}."
    return None


def _is_unwritable(error: OSError) -> bool:
    # An error of a file has its name, one of standard output has none.
    return error.errno in UNWRITABLE and error.filename is None


def _print_error(message: str) -> int:
    # One line, also for messages of libraries that have several.
    print(f"clearhead: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_USER_ERROR
