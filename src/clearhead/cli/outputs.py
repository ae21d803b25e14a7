"""Where results go: the terminal, lines of JSON, or a file whose ending says what it holds."""

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import BadOption

if TYPE_CHECKING:
    from clearhead.explanation import Explanation

    Named = Sequence[tuple[str, Explanation]]

ENDINGS = (".html", ".png", ".svg", ".json", ".jsonl", ".parquet", ".md")
PRINTED = 10


def check(out: Path | None, *, parts: Mapping[str, bool] | None = None, endings: Sequence[str] = ENDINGS) -> None:
    """Refuses an ending or a folder before any work is done; `parts` are options that only a page can hold."""
    for name, wanted in (parts or {}).items():
        if wanted and (out is None or out.suffix.casefold() != ".html"):
            raise BadOption(f"{name} is shown on a page: add --out FILE.html.")
    if out is None:
        return
    if out.suffix.casefold() not in endings:
        raise BadOption(f"'{out.name}' has no ending that says what to write. Use one of {', '.join(endings)}.")
    if out.is_dir():
        raise BadOption(f"'{out}' is a folder: name a file in it to write to.")
    if not out.parent.is_dir():
        raise BadOption(f"There is no folder '{out.parent}' to write '{out.name}' into. Make it first.")


def check_count(out: Path | None, inputs: int, methods: int = 1) -> None:
    """Refuses to put several explanations into a file that holds one; methods of one input fit a picture."""
    ending = "" if out is None else out.suffix.casefold()
    count = inputs * methods
    if (ending == ".json" and count > 1) or (ending in (".png", ".svg") and inputs > 1):
        other = ".jsonl" if ending == ".json" else ".html"
        raise BadOption(f"A {ending} file holds one explanation, but there are {count}: use {other}.")


def is_plain() -> bool:
    """Whether standard output takes no colours: no terminal, or NO_COLOR."""
    return bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"


def write(out: Path, found: "Named") -> None:
    """Writes the file, whole or not at all, and says so on stderr."""
    from clearhead.files import write_atomically

    ending = out.suffix.casefold()
    if ending == ".json":
        found[0][1].save(out)
    else:
        write_atomically(out, WRITERS[ending]([one for _, one in found], [name for name, _ in found]))
    print(f"Wrote {out}", file=sys.stderr)


def write_page(out: Path, bodies: Sequence[str], explanations: "Sequence[Explanation]") -> None:
    """Writes an HTML page of these parts."""
    from clearhead.files import write_atomically
    from clearhead.views import html

    write_atomically(out, html.page(bodies, html.title_of(explanations)).encode())
    print(f"Wrote {out}", file=sys.stderr)


def show(rows: "Sequence[Mapping[str, Explanation]]", *, compared: bool, all_rows: bool) -> None:
    """Prints for people, a row per input: its explanation, or those by several methods."""
    from clearhead.views import terminal

    console = terminal.console(plain=is_plain())
    shown = rows if all_rows else rows[:PRINTED]
    for place, row in enumerate(shown):
        if place:
            console.rule(characters="─" if not is_plain() else "-")
        console.print(terminal.methods(row) if compared else terminal.view(*row.values()))
    if len(shown) < len(rows):
        print(f"… and {len(rows) - len(shown)} more in the file.")


def print_lines(found: "Named") -> None:
    """One record per line."""
    from clearhead.views.json_record import line

    for name, explanation in found:
        _print_utf8(line(explanation, name))


def print_json(record: Any) -> None:
    """A record on a line."""
    from json import dumps

    _print_utf8(dumps(record, ensure_ascii=False))


def _print_utf8(line: str) -> None:
    """JSON is UTF-8 wherever it goes."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.casefold() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8")
    print(line)


# --- by ending -------------------------------------------------------------------------------------------------


def _lines(explanations: "Sequence[Explanation]", names: Sequence[str]) -> bytes:
    from clearhead.views.json_record import line

    return "".join(line(one, name) + "\n" for one, name in zip(explanations, names, strict=True)).encode()


def _parquet(explanations: "Sequence[Explanation]", names: Sequence[str]) -> bytes:
    from clearhead.data.parquet import to_parquet
    from clearhead.views.json_record import row

    return to_parquet([row(one, name) for one, name in zip(explanations, names, strict=True)])


def _markdown(explanations: "Sequence[Explanation]", names: Sequence[str]) -> bytes:
    from clearhead.views import markdown

    return markdown.document(explanations).encode()


def _png(explanations: "Sequence[Explanation]", names: Sequence[str]) -> bytes:
    from clearhead.views import static_image as picture

    return picture.png(picture.drawn(explanations))


def _svg(explanations: "Sequence[Explanation]", names: Sequence[str]) -> bytes:
    from clearhead.views import static_image as picture

    return picture.svg(explanations).encode()


WRITERS: Mapping[str, Callable[["Sequence[Explanation]", Sequence[str]], bytes]] = {
    ".png": _png,
    ".svg": _svg,
    ".jsonl": _lines,
    ".parquet": _parquet,
    ".md": _markdown,
}
