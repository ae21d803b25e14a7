"""Results → one self-contained file: a verdict in plain words, tables with intervals, curves, cost."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clearhead.bench.benchmark import BENCHMARKS
from clearhead.bench.run_folder import ARROWS, RunFolder, format_number
from clearhead.bench.verdict import LEVEL, Row, better, examples_text, standings, time_text, verdict
from clearhead.model import zoo
from clearhead.views import html, markdown
from clearhead.views import html_parts as markup
from clearhead.views import line_chart as curves
from clearhead.views.line_chart import Curve

LINES = 12
NUMERIC = re.compile(r"[-+\de.,\[\] ×–sm%]*")


@dataclass(frozen=True)
class Cell:
    """A number or a name in a table; a strong one is best, and shown to be."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Grid:
    """A table whose first column names the rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Chart:
    """Lines over a share (0 … 1) or, with `scale`, over a number up to it."""

    title: str
    lines: tuple[Curve, ...]
    across: str
    up: str
    scale: float | None = None


@dataclass(frozen=True)
class Section:
    """A part of the report, to be written as HTML or Markdown."""

    title: str
    said: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    charts: tuple[Chart, ...] = ()
    folded: bool = False


def page(results: RunFolder, summary: Mapping[str, Any]) -> str:
    """The report as one HTML file: no scripts, nothing fetched."""
    return html.page([_html(one) for one in sections(results, summary)], title(results))


def document(results: RunFolder, summary: Mapping[str, Any]) -> str:
    """The report as Markdown; curves become tables."""
    parts = [f"# {markdown.escape(title(results))}", *(_markdown(one) for one in sections(results, summary))]
    return "\n\n".join(parts) + "\n"


def title(results: RunFolder) -> str:
    plan = results.manifest["plan"]
    if plan["benchmark"] in BENCHMARKS:
        return BENCHMARKS[plan["benchmark"]].title
    return f"Which explanation may be trusted? {_model(plan)} on {_file(plan['task'])}"


def sections(results: RunFolder, summary: Mapping[str, Any]) -> list[Section]:
    """The parts of the report in their order."""
    manifest = results.manifest
    found = [
        Section("Verdict", tuple(verdict(summary))),
        Section("Values", (_legend(summary),), (_table(manifest, summary),)),
        Section("Curves", (BANDS,), (), tuple(_charts(summary))),
        Section("Words", (WORDS,), tuple(_words(summary)), folded=True),
        Section("Cost", (COST,), tuple(_costs(summary))),
        Section("Comparisons", (TESTS,), tuple(_comparisons(summary)), folded=True),
        Section("What was run", tuple(_provenance(manifest, summary)), folded=True),
    ]
    return [one for one in found if one.grids or one.charts or one.title in ("Verdict", "What was run")]


# --- tables and curves -----------------------------------------------------------------------------------------

COST = (
    "Seconds for one example when the method runs alone, measured on the first examples of the run; together methods "
    "share one pass through the model and cost less."
)
BANDS = "Around each line: 95 % interval at each place, from resampling the examples."
WORDS = (
    "The strongest tokens of each predicted class, summed over its examples, and which of them another class has too."
)
TESTS = (
    "Every pair of methods, example by example; p is corrected for the number of comparisons within a value (Holm). "
    "Below 0.05 the two are taken to differ."
)


def _legend(summary: Mapping[str, Any]) -> str:
    said = examples_text(summary)
    return (
        f"{said[0].upper()}{said[1:]}. In brackets: 95 % interval from resampling the examples. ↑ higher is better, "
        "↓ lower. Bold: best, and shown to be better than every other method after correction for many comparisons."
    )


def _table(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> Grid:
    strong = {(one.name, one.best) for one in standings(summary) if one.shown}
    cells = {
        (row["name"], row["method"]): Cell(_value(row), (row["name"], row["method"]) in strong)
        for row in summary["rows"]
    }
    heads = [f"{name} {ARROWS.get(better(summary, name), '')}".strip() for name in summary["values"]]
    empty = Cell("–")
    benchmark = BENCHMARKS.get(manifest["plan"]["benchmark"] or "")
    if benchmark is not None and benchmark.methods_across:
        rows = [
            (Cell(head), *(cells.get((name, method), empty) for method in summary["methods"]))
            for head, name in zip(heads, summary["values"], strict=True)
        ]
        return Grid(("", *summary["methods"]), tuple(rows))
    rows = [
        (Cell(method), *(cells.get((name, method), empty) for name in summary["values"]))
        for method in summary["methods"]
    ]
    return Grid(("method", *heads), tuple(rows))


def _value(row: Row) -> str:
    if not math.isfinite(row["value"]):
        return "–"
    if row["low"] is None or not math.isfinite(row["low"]):
        return format_number(row["value"])
    return f"{format_number(row['value'])} [{format_number(row['low'])}, {format_number(row['high'])}]"


def _charts(summary: Mapping[str, Any]) -> Iterator[Chart]:
    for name, lines in summary["curves"].items():
        ends = [max(line["x"]) for line in lines if line["x"]]
        scale = max(ends, default=1.0)
        shares = scale <= 1
        drawn = [
            Curve(line["method"], tuple(x if shares else x / scale for x in line["x"]), tuple(line["y"]), *_band(line))
            for line in lines
            if line["x"] and all(map(math.isfinite, line["y"]))
        ]
        for start in range(0, len(drawn), LINES):
            part = tuple(drawn[start : start + LINES])
            yield Chart(name, part, "share of tokens" if shares else "k", name, None if shares else scale)


def _band(line: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]] | tuple[()]:
    """The interval along a line, where there is one everywhere."""
    low, high = line.get("low") or (), line.get("high") or ()
    whole = len(low) == len(line["x"]) and all(map(math.isfinite, (*low, *high)))
    return (tuple(low), tuple(high)) if whole else ()


def _costs(summary: Mapping[str, Any]) -> Iterator[Grid]:
    costs = {name: seconds for name, seconds in summary["costs"].items() if seconds}
    if costs:
        least = min(costs.values())
        rows = [(Cell(name), Cell(time_text(costs[name])), Cell(f"{costs[name] / least:.1f} ×")) for name in costs]
        yield Grid(("method", "time per example", "beside the cheapest"), tuple(rows))


def _words(summary: Mapping[str, Any]) -> Iterator[Grid]:
    rows = [
        (Cell(one["method"]), Cell(one["class"]), Cell(" ".join(one["tokens"])), Cell(" ".join(one["shared"])))
        for one in summary["words"]
    ]
    if rows:
        yield Grid(("method", "class", "strongest tokens", "shared"), tuple(rows))


def _comparisons(summary: Mapping[str, Any]) -> Iterator[Grid]:
    rows = [
        (
            Cell(one["name"]),
            Cell(one["first"]),
            Cell(one["second"]),
            Cell(_value(one)),
            Cell(_p(one["p_corrected"]), one["p_corrected"] < LEVEL),
        )
        for one in summary["comparisons"]
    ]
    if rows:
        yield Grid(("value", "first", "second", "difference", "p"), tuple(rows))


def _p(value: float) -> str:
    return "–" if not math.isfinite(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _provenance(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterator[str]:
    plan = manifest["plan"]
    yield f"Data: {plan['task']} (SHA-256 {manifest['hashes']['task'][:12]}), {examples_text(summary)}."
    yield from (f"Skipped: {one}" for one in summary["skipped"])
    yield from (f"Refused: {one}" for one in summary["refused"])
    yield f"Model: {_model(plan)} (SHA-256 {manifest['hashes']['model'][:12]})."
    yield f"Methods: {', '.join(plan['methods'])}. Metrics: {', '.join(plan['metrics'])}. Seed {plan['seed']}."
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()) + "."
    seconds = summary["seconds"]
    yield f"Computing took {seconds:.0f} s." if seconds else "No times were kept."


def _model(plan: Mapping[str, Any]) -> str:
    """The model that was named, or the embedded one that is taken without a name."""
    return str(plan["model"] or next(iter(zoo.names()), "the embedded model"))


def _file(task: str) -> str:
    return task.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


# --- two ways to write it --------------------------------------------------------------------------------------


def _html(section: Section) -> str:
    paragraphs = "".join(f"<p>{markup.escape(line)}</p>" for line in section.said)
    grids = "".join(f'<div style="overflow-x:auto">{_html_grid(grid)}</div>' for grid in section.grids)
    charts = "".join(
        curves.chart(one.lines, title=one.title, across=one.across, up=one.up, scale=one.scale)
        for one in section.charts
    )
    body = paragraphs + grids + charts
    if section.folded:
        return markup.card(markup.folded(section.title, body))
    return markup.card(f"<h2>{markup.escape(section.title)}</h2>", body)


def _html_grid(grid: Grid) -> str:
    rows = [[_html_cell(cell) for cell in row] for row in grid.rows]
    return markup.table([markup.escape(column) for column in grid.columns], rows)


def _html_cell(cell: Cell) -> str:
    text = markup.escape(cell.text)
    return f"<strong>{text}</strong>" if cell.strong else text


def _markdown(section: Section) -> str:
    said = [markdown.escape(line) for line in section.said]
    if section.title == "Verdict":
        said = [f"- {line}" for line in said]
        said = ["\n".join(said)]
    grids = [_markdown_grid(grid) for grid in section.grids]
    charts = [f"### {markdown.escape(one.title)}\n\n{_markdown_grid(_numbers(one))}" for one in section.charts]
    return "\n\n".join([f"## {section.title}", *said, *grids, *charts])


def _markdown_grid(grid: Grid) -> str:
    head = "| " + " | ".join(markdown.escape(column) for column in grid.columns) + " |"
    line = "|:--|" + "--:|" * (len(grid.columns) - 1)
    rows = ["| " + " | ".join(_markdown_cell(cell) for cell in row) + " |" for row in grid.rows]
    return "\n".join([head, line, *rows])


def _markdown_cell(cell: Cell) -> str:
    text = cell.text if NUMERIC.fullmatch(cell.text) else markdown.escape(cell.text)
    return f"**{text}**" if cell.strong else text


def _numbers(chart: Chart) -> Grid:
    """A chart as a table: a row per line."""
    shares = sorted({share for line in chart.lines for share in line.shares})
    heads = [curves.format_share(share, chart.scale) for share in shares]
    rows = []
    for line in chart.lines:
        at = dict(zip(line.shares, line.values, strict=True))
        rows.append((Cell(line.name), *(Cell(format_number(at[share]) if share in at else "") for share in shares)))
    return Grid((chart.across, *heads), tuple(rows))
