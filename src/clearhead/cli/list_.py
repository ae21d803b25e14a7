"""clearhead list."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import outputs
from clearhead.cli.options import match_prefix

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

CATALOGUES = ("methods", "metrics", "tasks", "models", "benchmarks", "choices")
Row = dict[str, Any]


def complete_catalogues(incomplete: str) -> list[str]:
    """Return catalogue names for shell completion."""
    return match_prefix(CATALOGUES, incomplete)


Catalogue = Annotated[
    str,
    typer.Argument(
        metavar="methods|metrics|tasks|models|benchmarks|choices",
        autocompletion=complete_catalogues,
        show_default=False,
        help="What to list.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON per entry.")]


def list_catalogue(catalogue: Catalogue, json: Json = False) -> None:
    """List the available methods, metrics, tasks, models or benchmarks, or the methods chosen for models."""
    _require_catalogue(catalogue)
    rows = _make_rows(catalogue)
    if rows:
        _print_rows(rows, json=json)
    elif catalogue == "choices":
        print("No method has been chosen for any model: see clearhead choose --help.")
    else:
        print(f"No {catalogue} are installed.")


def _require_catalogue(catalogue: Catalogue) -> None:
    from clearhead.registry import unknown_name

    if catalogue not in CATALOGUES:
        raise unknown_name("list", catalogue, list(CATALOGUES))


def _make_rows(catalogue: str) -> list[Row]:
    # Methods have options and flags that the fields of other entries do not have.
    describe = _method_facts if catalogue == "methods" else _plain_facts
    return [{"name": name, **describe(entry)} for name, entry in _read_catalogue(catalogue).items()]


def _print_rows(rows: Sequence[Row], *, json: bool) -> None:
    if json:
        for row in rows:
            outputs.print_json(row)
    else:
        _print_table(rows)


def _read_catalogue(catalogue: str) -> Mapping[str, Any]:
    """Return the entries of a catalogue by name; none if this build does not have it."""
    import clearhead

    try:
        entries: Mapping[str, Any] = getattr(clearhead, catalogue)()
    except (AttributeError, ImportError):
        # A build without this catalogue, or without a library that it needs.
        return {}
    return entries


def _method_facts(method: Any) -> Row:
    return {
        "signed": method.signed,
        "class_specific": method.class_specific,
        "paper": method.paper,
        "options": dict(method.options),
        "summary": method.summary,
    }


def _plain_facts(entry: Any) -> Row:
    """Return the texts and numbers of a model's card, a metric, a task or a benchmark."""
    facts = {key: value for key, value in _fields(entry).items() if _is_plain(value)}
    # Every row begins with the name already.
    facts.pop("name", None)
    if hasattr(entry, "summary"):
        facts["summary"] = entry.summary
    return facts


def _is_plain(value: Any) -> bool:
    # Functions and nested objects say nothing to a reader of the list, and are no JSON.
    return isinstance(value, str | int | float | bool)


def _fields(entry: Any) -> Mapping[str, Any]:
    if isinstance(entry, dict):
        return entry
    return getattr(entry, "__dict__", {"is": str(entry)})


def _print_table(rows: Sequence[Row]) -> None:
    from clearhead.views import terminal

    terminal.console(plain=outputs.is_plain()).print(_make_table(rows))


def _make_table(rows: Sequence[Row]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for row in rows:
        table.add_row(Text(row["name"], style="bold"), _describe(row))
    return table


def _describe(row: Row) -> "Text":
    """Return the summary, and in a fainter line the facts that it does not mention."""
    from rich.text import Text

    summary = str(row.get("summary", ""))
    facts = " · ".join(_list_facts(row, summary))
    text = Text(summary)
    if summary and facts:
        text.append("\n")
    return text.append(facts, style="dim")


def _list_facts(row: Mapping[str, Any], summary: str) -> Iterator[str]:
    for key, value in row.items():
        # What is false or empty is not worth a word.
        if value and not _is_shown(key, value, summary):
            yield _format_fact(key, value)


def _is_shown(key: str, value: Any, summary: str) -> bool:
    # The summary may say it already; how a paper lays out its table is for the report alone.
    return key in ("name", "summary", "methods_across") or str(value) in summary


def _format_fact(key: str, value: Any) -> str:
    # Only true ones come here, so that the name says it all.
    if isinstance(value, bool):
        return key.replace("_", "-")
    if isinstance(value, dict):
        return _format_options(value)
    if key == "paper":
        return str(value)
    return f"{key.replace('_', ' ')} {value}"


def _format_options(options: Mapping[str, Any]) -> str:
    # As they are typed, so that they can be copied.
    return " ".join(f"-o {name}={default}" for name, default in options.items())
