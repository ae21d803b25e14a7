"""clearhead list."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import outputs as sink

if TYPE_CHECKING:
    from rich.table import Table

KINDS = ("methods", "metrics", "tasks", "models", "benchmarks")


def kinds(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def listing(
    kind: Annotated[
        str, typer.Argument(metavar="methods|metrics|tasks|models|benchmarks", autocompletion=kinds, show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON each.")] = False,
) -> None:
    """List the methods, metrics, tasks, models or benchmarks there are."""
    from clearhead.registry import unknown_name

    if kind not in KINDS:
        raise unknown_name("list", kind, list(KINDS))
    rows = list(_rows(kind))
    if not rows:
        print(f"No {kind} are installed.")
    elif json:
        for row in rows:
            sink.print_json(row)
    else:
        _print(rows)


def _rows(kind: str) -> Iterator[dict[str, Any]]:
    """Whatever the catalogue of that kind holds; a kind this version does not have is empty."""
    import clearhead

    try:
        catalogue = getattr(clearhead, kind)()
    except (AttributeError, ImportError):
        return
    for name, thing in catalogue.items():
        yield {"name": name, **(_method(thing) if kind == "methods" else _described(thing))}


def _method(method: Any) -> dict[str, Any]:
    return {
        "signed": method.signed,
        "class_specific": method.class_specific,
        "paper": method.paper,
        "options": dict(method.options),
        "summary": method.summary,
    }


def _described(thing: Any) -> dict[str, Any]:
    """Plain facts of a model's card, a metric or a task."""
    facts = thing if isinstance(thing, dict) else getattr(thing, "__dict__", {"is": str(thing)})
    plain = {key: value for key, value in facts.items() if isinstance(value, str | int | float | bool)}
    plain.pop("name", None)
    return plain | ({"summary": thing.summary} if hasattr(thing, "summary") else {})


def _print(rows: list[dict[str, Any]]) -> None:
    from clearhead.views import terminal

    terminal.console(plain=sink.is_plain()).print(_table(rows))


def _table(rows: list[dict[str, Any]]) -> "Table":
    """Name beside summary, with the facts that it does not tell in a fainter line below."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for row in rows:
        summary = str(row.get("summary", ""))
        others = {key: value for key, value in row.items() if key not in ("name", "summary") and value}
        facts = " · ".join(_fact(key, value) for key, value in others.items() if str(value) not in summary)
        body = Text(summary).append("\n" if summary and facts else "").append(facts, style="dim")
        table.add_row(Text(row["name"], style="bold"), body)
    return table


def _fact(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return key.replace("_", "-")
    if isinstance(value, dict):
        return "-o " + " -o ".join(f"{name}={default}" for name, default in value.items())
    return str(value) if key == "paper" else f"{key.replace('_', ' ')} {value}"
