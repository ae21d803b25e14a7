"""Report of a run as one self-contained file: verdict, tables with intervals, curves, cost."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clearhead.bench.benchmark import BENCHMARKS
from clearhead.bench.evidence import LEVEL, Evidence, Row, Summary
from clearhead.bench.format import format_column, format_number, format_seconds
from clearhead.bench.run_folder import RunFolder
from clearhead.bench.sections import Cell, Chart, Grid, Section, section_html, section_markdown
from clearhead.bench.verdict import examples_text, verdict
from clearhead.model import zoo
from clearhead.views import html, markdown
from clearhead.views.line_chart import Curve

# More lines in one chart cannot be told apart.
MAX_CHART_LINES = 12
EMPTY = "–"

INTERVAL_NOTE = "Around each line: 95 % interval at each point, from resampling the examples."
WORDS_NOTE = (
    "The strongest tokens of each predicted class, summed over its examples, and which of them another class has too."
)
COST_NOTE = (
    "Seconds for one example when the method runs alone, measured on the first examples of the run; together methods "
    "share one pass through the model and cost less."
)
TESTS_NOTE = (
    "Every pair of methods, example by example; p is corrected for the number of comparisons within a value (Holm). "
    "Below 0.05 the two are taken to differ."
)


def page(run: RunFolder, summary: Summary) -> str:
    """Return the report as one HTML file: no scripts, nothing fetched."""
    bodies = [section_html(section) for section in sections(run, summary)]
    return html.page(bodies, title(run))


def document(run: RunFolder, summary: Summary) -> str:
    """Return the report as Markdown; curves become tables."""
    blocks = [f"# {markdown.escape(title(run))}"]
    for section in sections(run, summary):
        blocks.append(section_markdown(section))
    return "\n\n".join(blocks) + "\n"


def title(run: RunFolder) -> str:
    """Return the title of the paper's table, or the model and data."""
    plan = run.manifest["plan"]
    if plan["benchmark"] in BENCHMARKS:
        return BENCHMARKS[plan["benchmark"]].title
    return f"Which explanation may be trusted? {_model_name(plan)} on {_file_name(plan['task'])}"


def sections(run: RunFolder, summary: Summary) -> list[Section]:
    """Return the sections in their order, without empty tables and charts."""
    manifest = run.manifest
    data = [
        Section("Values", (_legend(summary),), (_value_grid(manifest, summary),)),
        Section("Curves", (INTERVAL_NOTE,), charts=tuple(_charts(summary))),
        Section("Words", (WORDS_NOTE,), tuple(_word_grids(summary)), folded=True),
        Section("Cost", (COST_NOTE,), tuple(_cost_grids(summary))),
        Section("Comparisons", (TESTS_NOTE,), tuple(_comparison_grids(summary)), folded=True),
    ]
    return [
        Section("Verdict", tuple(verdict(summary))),
        *(section for section in data if section.grids or section.charts),
        Section("What was run", tuple(_provenance(manifest, summary)), folded=True),
    ]


def _legend(summary: Summary) -> str:
    examples = examples_text(summary)
    return (
        f"{examples[0].upper()}{examples[1:]}. In brackets: 95 % interval from resampling the examples. ↑ higher is "
        "better, ↓ lower. Bold: best, and shown to be better than every other method after correction for many "
        "comparisons."
    )


def _value_grid(manifest: Mapping[str, Any], summary: Summary) -> Grid:
    """Return the table of values, with the methods across if the paper prints it so."""
    methods = list(summary["methods"])
    cells = _value_cells(summary)
    headings = [format_column(name, better).strip() for name, better in summary["values"].items()]
    benchmark = BENCHMARKS.get(manifest["plan"]["benchmark"] or "")
    by_value = []
    for name in summary["values"]:
        by_value.append([cells[name, method] for method in methods])
    if benchmark is not None and benchmark.methods_across:
        return _make_grid(["", *methods], headings, by_value)
    by_method = list(zip(*by_value, strict=True))
    return _make_grid(["method", *headings], methods, by_method)


def _make_grid(columns: Sequence[str], names: Sequence[str], cells: Sequence[Sequence[Cell]]) -> Grid:
    """Return a grid with the names in the first column."""
    rows = []
    for name, row in zip(names, cells, strict=True):
        rows.append((Cell(name), *row))
    return Grid(tuple(columns), tuple(rows))


def _value_cells(summary: Summary) -> Mapping[tuple[str, str], Cell]:
    """Return the cells by value name and method; empty for what was not measured."""
    standings = Evidence(summary).standings
    best = {(standing.name, standing.best) for standing in standings if standing.shown}
    cells = defaultdict(lambda: Cell(EMPTY))
    for row in summary["rows"]:
        key = (row["name"], row["method"])
        cells[key] = Cell(_format_interval(row), strong=key in best)
    return cells


def _format_interval(row: Row) -> str:
    if not math.isfinite(row["value"]):
        return EMPTY
    value = format_number(row["value"])
    if row["low"] is None or not math.isfinite(row["low"]):
        return value
    return f"{value} [{format_number(row['low'])}, {format_number(row['high'])}]"


def _charts(summary: Summary) -> Iterator[Chart]:
    """Yield the curves of each metric, spread over several charts if there are many."""
    for name, lines in summary["curves"].items():
        ends = [max(line["x"]) for line in lines if line["x"]]
        largest = max(ends, default=1.0)
        # Up to 1 the axis is a share of the tokens, beyond that a number of tokens k.
        if largest <= 1:
            yield from _split_chart(Chart(name, _curves(lines, 1.0), "share of tokens", name))
        else:
            yield from _split_chart(Chart(name, _curves(lines, largest), "k", name, largest))


def _split_chart(chart: Chart) -> Iterator[Chart]:
    for start in range(0, len(chart.lines), MAX_CHART_LINES):
        lines = chart.lines[start : start + MAX_CHART_LINES]
        yield Chart(chart.title, lines, chart.across, chart.up, chart.scale)


def _curves(lines: list[dict[str, Any]], scale: float) -> tuple[Curve, ...]:
    """Return the lines with finite values, over shares of `scale`."""
    curves = []
    for line in lines:
        if line["x"] and all(map(math.isfinite, line["y"])):
            shares = tuple(x / scale for x in line["x"])
            curves.append(Curve(line["method"], shares, tuple(line["y"]), *_band(line)))
    return tuple(curves)


def _band(line: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]] | tuple[()]:
    """Return the interval along a line; nothing unless it is finite at every point."""
    low = tuple(line.get("low") or ())
    high = tuple(line.get("high") or ())
    if len(low) != len(line["x"]) or not all(map(math.isfinite, (*low, *high))):
        return ()
    return low, high


def _cost_grids(summary: Summary) -> Iterator[Grid]:
    costs = {name: seconds for name, seconds in summary["costs"].items() if seconds}
    if not costs:
        return
    least = min(costs.values())
    rows = []
    for name, seconds in costs.items():
        rows.append((Cell(name), Cell(format_seconds(seconds)), Cell(f"{seconds / least:.1f} ×")))
    yield Grid(("method", "time per example", "relative to the cheapest"), tuple(rows))


def _word_grids(summary: Summary) -> Iterator[Grid]:
    rows = []
    for words in summary["words"]:
        tokens = Cell(" ".join(words["tokens"]))
        shared = Cell(" ".join(words["shared"]))
        rows.append((Cell(words["method"]), Cell(words["class"]), tokens, shared))
    if rows:
        yield Grid(("method", "class", "strongest tokens", "shared"), tuple(rows))


def _comparison_grids(summary: Summary) -> Iterator[Grid]:
    rows = [_comparison_cells(comparison) for comparison in summary["comparisons"]]
    if rows:
        yield Grid(("value", "first", "second", "difference", "p"), tuple(rows))


def _comparison_cells(comparison: Row) -> tuple[Cell, ...]:
    p = comparison["p_corrected"]
    return (
        Cell(comparison["name"]),
        Cell(comparison["first"]),
        Cell(comparison["second"]),
        Cell(_format_interval(comparison)),
        Cell(_format_p(p), strong=p < LEVEL),
    )


def _format_p(p: float) -> str:
    if not math.isfinite(p):
        return EMPTY
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}"


def _provenance(manifest: Mapping[str, Any], summary: Summary) -> Iterator[str]:
    plan = manifest["plan"]
    hashes = manifest["hashes"]
    yield f"Data: {plan['task']} (SHA-256 {hashes['task'][:12]}), {examples_text(summary)}."
    for reason in summary["skipped"]:
        yield f"Skipped: {reason}"
    for reason in summary["refused"]:
        yield f"Refused: {reason}"
    yield f"Model: {_model_name(plan)} (SHA-256 {hashes['model'][:12]})."
    yield f"Methods: {', '.join(plan['methods'])}. Metrics: {', '.join(plan['metrics'])}. Seed {plan['seed']}."
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()) + "."
    if summary["seconds"]:
        yield f"Computing took {summary['seconds']:.0f} s."
    else:
        yield "No times were kept."


def _model_name(plan: Mapping[str, Any]) -> str:
    """Return the model's name; that of the default embedded model if the plan names none."""
    return str(plan["model"] or next(iter(zoo.names()), "the embedded model"))


def _file_name(task: str) -> str:
    # Not pathlib: a run made on Windows may be reported elsewhere.
    return task.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
