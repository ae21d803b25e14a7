"""Results on the terminal, as lines of JSON, or in a file whose ending gives its format."""

import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeGuard, TypeVar

from clearhead.errors import BadOption
from clearhead.files import refuse_overwriting

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from clearhead.explanation import Explanation
    from clearhead.views.model_grid import ModelRow

    NamedExplanations = Sequence[tuple[str, Explanation]]

Shown = TypeVar("Shown")
FILE_ENDINGS = (".html", ".png", ".svg", ".pdf", ".json", ".jsonl", ".parquet", ".md")
IMAGE_ENDINGS = (".png", ".svg")
"""Files that show one input; a .pdf file has a page for each."""
# Explanations printed when all of them are written to a file.
MAX_PRINTED = 10


def is_page(out: Path | None) -> TypeGuard[Path]:
    """Return whether the output file is an HTML page."""
    return _ending(out) == ".html"


def is_image(out: Path | None) -> bool:
    """Return whether the output file shows a single input."""
    return _ending(out) in IMAGE_ENDINGS


def _ending(out: Path | None) -> str:
    if out is None:
        return ""
    return out.suffix.casefold()


def check_path(
    out: Path | None,
    *,
    page_options: Mapping[str, bool] | None = None,
    endings: Sequence[str] = FILE_ENDINGS,
    inputs: Iterable[str | Path] = (),
    flag: str = "--out",
) -> None:
    """Raise BadOption for an ending or a folder that cannot be written, or for an input, before any work is done.

    `page_options` are flags, and whether they are given, that only an HTML page can show.
    """
    if not is_page(out):
        _refuse_page_options(page_options or {})
    if out is not None:
        _check_file(out, endings, flag)
        refuse_overwriting(out, inputs)


def _refuse_page_options(page_options: Mapping[str, bool]) -> None:
    for flag, is_given in page_options.items():
        if is_given:
            raise BadOption(f"{flag} is shown on a page: add --out FILE.html.")


def _check_file(out: Path, endings: Sequence[str], flag: str) -> None:
    if _ending(out) not in endings:
        raise BadOption(f"Invalid {flag} '{out.name}': the ending must be one of {', '.join(endings)}.")
    _refuse_folder(out)
    check_folder(out)
    if _ending(out) == ".pdf":
        _require_matplotlib()


def _require_matplotlib() -> None:
    from clearhead.views.figure import import_matplotlib

    # Before the work is done, not when it is written.
    import_matplotlib()


def _refuse_folder(out: Path) -> None:
    # A folder may be called results.html.
    if out.is_dir():
        raise BadOption(f"'{out}' is a folder: name a file in it to write to.")


def check_folder(out: Path) -> None:
    """Raise BadOption unless the folder of an output file exists."""
    if not out.parent.is_dir():
        raise BadOption(f"There is no folder '{out.parent}' to write '{out.name}' into. Make it first.")


def check_count(out: Path | None, inputs: int, methods: int = 1) -> None:
    """Raise BadOption if the file holds fewer explanations; an image holds all methods, and models, of one input."""
    ending = _ending(out)
    count = inputs * methods
    if ending == ".json" and count > 1:
        raise BadOption(f"A .json file holds one explanation, but there are {count}: use .jsonl.")
    if is_image(out) and inputs > 1:
        raise BadOption(
            f"A {ending} file shows one input, but there are {inputs}: use .html, or .pdf (a page for each)."
        )


def is_plain() -> bool:
    """Return whether standard output takes no colours: not a terminal, a dumb one, or NO_COLOR."""
    return _is_color_refused() or not sys.stdout.isatty()


def _is_color_refused() -> bool:
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def deliver(
    named: "NamedExplanations",
    *,
    out: Path | None,
    json: bool,
    render_page: Callable[[], Sequence[str]],
    show: Callable[[], None],
) -> None:
    """Write the results to a file if one is named, then print them as JSON or with `show`."""
    # The file comes first: printing may end early, in a closed pipe.
    if is_page(out):
        write_page(out, render_page(), _explanations(named))
    elif out is not None:
        write(out, named)
    _warn_of_unread(_explanations(named))
    if json:
        print_records(named)
    else:
        show()


def write(out: Path, named: "NamedExplanations") -> None:
    """Write the file atomically, and print its name to stderr."""
    from clearhead.files import write_atomically

    ending = _ending(out)
    # Of these formats the only one that `clearhead.read` reads back.
    if ending == ".json":
        _, explanation = named[0]
        explanation.save(out)
    else:
        write_atomically(out, WRITERS[ending](named))
    announce_file(out)


def _warn_of_unread(explanations: "Sequence[Explanation]") -> None:
    """Print to stderr how many texts were cut, which files of many explanations tell one by one only."""
    from clearhead.model.coverage import READ_SHARE

    cut = [explanation for explanation in explanations if READ_SHARE in explanation.diagnostics]
    if cut:
        advice = "read_share in diagnostics is the share that was read."
        if all(map(_has_windows, cut)):
            advice = f"--overflow windows reads all of it; {advice}"
        print(f"{len(cut)} of {len(explanations)} texts were cut off: {advice}", file=sys.stderr)


def _has_windows(explanation: "Explanation") -> bool:
    """Return whether windows are defined for it: for single texts, but not for what stands at one position."""
    at_position = "focus" in explanation.diagnostics or explanation.target.span is not None
    return isinstance(explanation.text, str) and not at_position


def announce_file(out: Path) -> None:
    """Print the name of a file that was written to stderr, so that it does not mix with results on stdout."""
    print(f"Wrote {out}", file=sys.stderr)


def write_page(out: Path, bodies: Sequence[str], explanations: "Sequence[Explanation]") -> None:
    """Write an HTML page of these fragments."""
    from clearhead.files import write_atomically
    from clearhead.views import html

    write_atomically(out, html.page(bodies, html.make_title(explanations)).encode())
    announce_file(out)


def show_explanations(explanations: "Sequence[Explanation]", *, everything: bool) -> None:
    """Print explanations on the terminal, and how many of several hold."""
    from clearhead.views import terminal
    from clearhead.views.trust import summarise_checks

    _show(explanations, terminal.view, everything)
    _print_summary(summarise_checks(explanations))


def show_comparisons(rows: "Sequence[Mapping[str, Explanation]]", *, everything: bool) -> None:
    """Print the explanations of each input by several methods on the terminal, and how often each method holds."""
    from clearhead.views import terminal
    from clearhead.views.trust import summarise_methods

    _show(rows, terminal.methods, everything)
    _print_summary(summarise_methods(rows))


def show_models(grid: "Sequence[ModelRow]", *, everything: bool) -> None:
    """Print each input as several models explain it, and how often each model's explanation holds."""
    from clearhead.views import model_grid, terminal
    from clearhead.views.trust import summarise_methods

    _show(grid, terminal.models, everything)
    _print_summary(summarise_methods(list(map(model_grid.flatten_row, grid))))


def _print_summary(summary: str) -> None:
    # Single explanations, and those without a check, have nothing to sum up.
    if summary:
        print_wrapped("", *summary.splitlines())


def print_wrapped(*lines: str, stream: TextIO | None = None) -> None:
    """Print lines broken between words at the width of the terminal; a file or a program gets them whole."""
    stream = stream or sys.stdout
    if not stream.isatty():
        print(*lines, sep="\n", file=stream)
        return
    from rich.console import Console
    from rich.text import Text

    # Text instead of str: what users and models are called is no markup.
    console = Console(file=stream, highlight=False, no_color=True)
    for line in lines:
        console.print(Text(line))


def print_refused(refused: Iterable[Mapping[str, str]]) -> None:
    """Print to stderr which methods a model was not explained by, and why."""
    for entry in refused:
        print_wrapped(f"{entry['name']}: {entry['reason']}", stream=sys.stderr)


def _show(rows: Sequence[Shown], render: "Callable[[Shown], RenderableType]", everything: bool) -> None:
    count = len(rows) if everything else MAX_PRINTED
    _print_rows(map(render, rows[:count]))
    if len(rows) > count:
        print(f"… and {len(rows) - count} more in the file.")


def _print_rows(rows: "Iterable[RenderableType]") -> None:
    from clearhead.views import terminal

    plain = is_plain()
    console = terminal.console(plain=plain)
    for index, row in enumerate(rows):
        if index:
            _print_rule(console, plain=plain)
        console.print(row)


def _print_rule(console: "Console", *, plain: bool) -> None:
    # Files and dumb terminals may not have box-drawing characters.
    console.rule(characters="-" if plain else "─")


def print_records(named: "NamedExplanations") -> None:
    """Print one JSON record per line."""
    from clearhead.views.json_record import line

    for name, explanation in named:
        _print_utf8(line(explanation, name))


def print_json(record: Any) -> None:
    """Print one JSON record."""
    from json import dumps

    _print_utf8(dumps(record, ensure_ascii=False))


def encode_json(record: Any) -> bytes:
    """Return the content of a JSON file that people can read, too."""
    from json import dumps

    return dumps(record, ensure_ascii=False, indent=1).encode()


def _print_utf8(line: str) -> None:
    # JSON is UTF-8 by its specification, whatever encoding the terminal has.
    if isinstance(sys.stdout, io.TextIOWrapper):
        _encode_as_utf8(sys.stdout)
    print(line)


def _encode_as_utf8(stream: io.TextIOWrapper) -> None:
    # Not again for every line: changing the encoding flushes the stream.
    if stream.encoding.casefold() != "utf-8":
        stream.reconfigure(encoding="utf-8")


def _to_json_lines(named: "NamedExplanations") -> bytes:
    from clearhead.views.json_record import line

    return "".join(f"{line(explanation, name)}\n" for name, explanation in named).encode()


def _to_parquet(named: "NamedExplanations") -> bytes:
    from clearhead.data.parquet import to_parquet
    from clearhead.views.json_record import row

    return to_parquet([row(explanation, name) for name, explanation in named])


def _to_markdown(named: "NamedExplanations") -> bytes:
    from clearhead.views import markdown

    return markdown.document(_explanations(named)).encode()


def _to_png(named: "NamedExplanations") -> bytes:
    from clearhead.views import static_image

    return static_image.png(static_image.draw(_explanations(named)))


def _to_svg(named: "NamedExplanations") -> bytes:
    from clearhead.views import static_image

    return static_image.svg(_explanations(named)).encode()


def _to_pdf(named: "NamedExplanations") -> bytes:
    from clearhead.views import figure

    return figure.encode_pdf(*map(figure.make_figure, _split_pages(named)))


def _split_pages(named: "NamedExplanations") -> "list[list[Explanation]]":
    """Return the explanations of each input, which are by different methods or models; joint ones are alone."""
    from clearhead.joint_explanation import JointExplanation

    pages: list[list[Explanation]] = []
    keys: set[tuple[str, str]] = set()
    for name, explanation in named:
        key = (name, explanation.model)
        if not keys or key in keys or isinstance(explanation, JointExplanation):
            pages.append([])
            keys = set()
        pages[-1].append(explanation)
        keys.add(key)
    return pages


def _explanations(named: "NamedExplanations") -> "list[Explanation]":
    return [explanation for _, explanation in named]


WRITERS: Mapping[str, Callable[["NamedExplanations"], bytes]] = {
    ".png": _to_png,
    ".svg": _to_svg,
    ".pdf": _to_pdf,
    ".jsonl": _to_json_lines,
    ".parquet": _to_parquet,
    ".md": _to_markdown,
}
