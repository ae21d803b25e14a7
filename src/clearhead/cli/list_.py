"""clearhead list."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import outputs

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

CATALOGUES = ("methods", "metrics", "tasks", "models", "benchmarks")
Row = dict[str, Any]


def complete_catalogues(incomplete: str) -> list[str]:
    """Return catalogue names for shell completion."""
    return [name for name in CATALOGUES if name.startswith(incomplete)]


Catalogue = Annotated[
    str,
    typer.Argument(
        metavar="methods|metrics|tasks|models|benchmarks",
        autocompletion=complete_catalogues,
        show_default=False,
        help="What to list.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON per entry.")]


def list_catalogue(catalogue: Catalogue, json: Json = False) -> None:
    """List the available methods, metrics, tasks, models or benchmarks."""
    from clearhead.registry import unknown_name

    if catalogue not in CATALOGUES:
        raise unknown_name("list", catalogue, list(CATALOGUES))
    rows = list(_rows(catalogue))
    if not rows:
        print(f"No {catalogue} are installed.")
    elif json:
        for row in rows:
            outputs.print_json(row)
    else:
        _print_table(rows)


def _rows(catalogue: str) -> Iterator[Row]:
    """Yield the entries of a catalogue; none if this build does not have it."""
    import clearhead

    try:
        entries = getattr(clearhead, catalogue)()
    except (AttributeError, ImportError):
        # A build without this catalogue, or without a library that it needs.
        return
    for name, entry in entries.items():
        facts = _method_facts(entry) if catalogue == "methods" else _plain_facts(entry)
        yield {"name": name, **facts}


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
    fields = entry if isinstance(entry, dict) else getattr(entry, "__dict__", {"is": str(entry)})
    facts = {key: value for key, value in fields.items() if isinstance(value, str | int | float | bool)}
    facts.pop("name", None)
    if hasattr(entry, "summary"):
        facts["summary"] = entry.summary
    return facts


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
        if key not in ("name", "summary") and value and str(value) not in summary:
            yield _format_fact(key, value)


def _format_fact(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return key.replace("_", "-")
    if isinstance(value, dict):
        return "-o " + " -o ".join(f"{name}={default}" for name, default in value.items())
    if key == "paper":
        return str(value)
    return f"{key.replace('_', ' ')} {value}"
