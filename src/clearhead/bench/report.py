"""Report of a run as one self-contained file: verdict, tables with intervals, curves, cost."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.bench.benchmark import BENCHMARKS, Benchmark
from clearhead.bench.evidence import LEVEL, Evidence, Row, Summary
from clearhead.bench.format import format_column, format_number, format_seconds, join_names
from clearhead.bench.run_folder import RunFolder
from clearhead.bench.sections import Cell, Chart, Grid, Section, section_html, section_markdown
from clearhead.bench.verdict import examples_text, verdict
from clearhead.evaluation.corrected_t import MIN_GROUPS
from clearhead.model import zoo
from clearhead.views import html, markdown_parts
from clearhead.views.line_chart import Curve
from clearhead.views.numbers import format_percent

# More lines in one chart cannot be told apart.
MAX_CHART_LINES = 12
EMPTY = "–"
TOO_FEW = "too few examples to tell"

INTERVAL_NOTE = "Around each line: 95 % interval at each point, over examples."
WORDS_NOTE = (
    "The strongest tokens of each predicted class, summed over its examples, and which of them another class has too."
)
COST_NOTE = (
    "Seconds for one example when the method runs alone, measured on the first examples of the run; together methods "
    "share one pass through the model and cost less."
)
TESTS_NOTE = (
    "Every pair of methods, example by example, by Student's t corrected for skewness; p is corrected for the number "
    "of comparisons within a value (Holm). Below 0.05 the two are taken to differ."
)


def page(run: RunFolder, summary: Summary) -> str:
    """Return the report as one HTML file: no scripts, nothing fetched."""
    bodies = list(map(section_html, sections(run, summary)))
    return html.page(bodies, title(run))


def document(run: RunFolder, summary: Summary) -> str:
    """Return the report as Markdown; curves become tables."""
    heading = f"# {markdown_parts.escape(title(run))}"
    blocks = map(section_markdown, sections(run, summary))
    return "\n\n".join([heading, *blocks]) + "\n"


def title(run: RunFolder) -> str:
    """Return the title of the paper's table, or the model and data."""
    plan = run.manifest["plan"]
    benchmark = _find_benchmark(plan)
    if benchmark is not None:
        return benchmark.title
    return f"Which explanation may be trusted? {_model_name(plan)} on {_file_name(plan['task'])}"


def _find_benchmark(plan: Mapping[str, Any]) -> Benchmark | None:
    """Return the paper's table that was run; None for a free choice, or a table that this version does not have."""
    return BENCHMARKS.get(plan["benchmark"] or "")


def sections(run: RunFolder, summary: Summary) -> list[Section]:
    """Return the sections in their order, without empty tables and charts."""
    manifest = run.manifest
    data = filter(_has_content, _data_sections(manifest, summary))
    return [
        Section("Verdict", tuple(verdict(summary)), listed=True),
        *_accuracy_sections(summary),
        *data,
        Section("What was run", tuple(_provenance(manifest, summary)), folded=True),
    ]


def _accuracy_sections(summary: Summary) -> Iterator[Section]:
    # Without right labels nothing is known about the model's accuracy.
    if summary["accuracy"] is not None:
        yield Section("Accuracy of the model", (_format_accuracy(summary["accuracy"]),))


def _format_accuracy(accuracy: Row) -> str:
    value, low, high = [format_percent(accuracy[name]) for name in ("value", "low", "high")]
    return (
        f"{value} [{low}, {high}]: {accuracy['right']} of the {accuracy['labelled']} labelled examples of this run are "
        "predicted rightly. In brackets: 95 % interval."
    )


def _data_sections(manifest: Mapping[str, Any], summary: Summary) -> Iterator[Section]:
    yield Section("Values", (_legend(summary),), (_value_grid(manifest, summary),))
    yield Section("What the values measure", tuple(_explain_metrics(summary)), listed=True)
    yield Section("Curves", (INTERVAL_NOTE,), charts=tuple(_charts(summary)))
    yield Section("Words", (WORDS_NOTE,), _word_grids(summary), folded=True)
    yield Section("Cost", (COST_NOTE,), _cost_grids(summary))
    yield Section("Comparisons", (TESTS_NOTE,), _comparison_grids(summary), folded=True)


def _has_content(section: Section) -> bool:
    return bool(section.grids or section.charts or section.listed)


def _legend(summary: Summary) -> str:
    examples = examples_text(summary)
    return (
        f"{examples[0].upper()}{examples[1:]}. In brackets: 95 % interval over examples. ↑ higher is "
        "better, ↓ lower. Bold: best, and shown to be better than every other method after correction for many "
        "comparisons."
    )


def _explain_metrics(summary: Summary) -> Iterator[str]:
    """Yield a sentence on each metric: its columns, which direction is better, and what it measures."""
    for metric in summary["metrics"]:
        # Backticks mark names in docstrings only.
        description = metric["summary"].replace("`", "")
        yield f"{join_names(metric['columns'])} ({metric['better']} is better): {description}"


def _value_grid(manifest: Mapping[str, Any], summary: Summary) -> Grid:
    """Return the table of values, with the methods across if the paper prints it so."""
    methods = list(summary["methods"])
    headings = _value_headings(summary)
    by_value = _cells_by_value(summary, methods)
    if _has_methods_across(manifest["plan"]):
        return _make_grid(["", *methods], headings, by_value)
    by_method = list(zip(*by_value, strict=True))
    return _make_grid(["method", *headings], methods, by_method)


def _has_methods_across(plan: Mapping[str, Any]) -> bool:
    benchmark = _find_benchmark(plan)
    return benchmark is not None and benchmark.methods_across


def _value_headings(summary: Summary) -> list[str]:
    # A value without a direction has no arrow, only the space before it.
    return [format_column(name, better).strip() for name, better in summary["values"].items()]


def _make_grid(columns: Sequence[str], names: Sequence[str], cells: Sequence[Sequence[Cell]]) -> Grid:
    """Return a grid with the names in the first column."""
    rows = []
    for name, row in zip(names, cells, strict=True):
        rows.append((Cell(name), *row))
    return Grid(tuple(columns), tuple(rows))


def _cells_by_value(summary: Summary, methods: Sequence[str]) -> list[list[Cell]]:
    """Return a row of cells for each value, a cell for each method."""
    cells = _value_cells(summary)
    rows = []
    for name in summary["values"]:
        rows.append([cells[name, method] for method in methods])
    return rows


def _value_cells(summary: Summary) -> Mapping[tuple[str, str], Cell]:
    """Return the cells by value name and method; empty for what was not measured."""
    best = _find_shown_best(summary)
    cells = defaultdict(lambda: Cell(EMPTY))
    for row in summary["rows"]:
        key = (row["name"], row["method"])
        cells[key] = Cell(_format_interval(row), strong=key in best)
    return cells


def _find_shown_best(summary: Summary) -> set[tuple[str, str]]:
    """Return value name and method wherever a method is shown to be better than every other."""
    standings = Evidence(summary).standings
    return {(standing.name, standing.best) for standing in standings if standing.shown}


def _format_interval(row: Row) -> str:
    if not math.isfinite(row["value"]):
        return EMPTY
    value = format_number(row["value"])
    if not _has_interval(row):
        return value
    return f"{value} [{format_number(row['low'])}, {format_number(row['high'])}]"


def _has_interval(row: Row) -> bool:
    # NaN if no resample of the examples gave a finite value.
    return row["low"] is not None and math.isfinite(row["low"])


def _charts(summary: Summary) -> Iterator[Chart]:
    """Yield the curves of each metric, spread over several charts if there are many."""
    for name, lines in summary["curves"].items():
        yield from _split_chart(_make_chart(name, lines))


def _make_chart(name: str, lines: Sequence[Row]) -> Chart:
    largest = _largest_x(lines)
    # Up to 1 the axis is a share of the tokens, beyond that a number of tokens k.
    if largest <= 1:
        return Chart(name, _curves(lines, 1.0), "share of tokens", name)
    return Chart(name, _curves(lines, largest), "k", name, largest)


def _largest_x(lines: Sequence[Row]) -> float:
    return max((max(line["x"]) for line in lines if line["x"]), default=1.0)


def _split_chart(chart: Chart) -> Iterator[Chart]:
    for start in range(0, len(chart.lines), MAX_CHART_LINES):
        lines = chart.lines[start : start + MAX_CHART_LINES]
        yield replace(chart, lines=lines)


def _curves(lines: Sequence[Row], scale: float) -> tuple[Curve, ...]:
    """Return the lines with finite values, over shares of `scale`."""
    return tuple(_make_curve(line, scale) for line in lines if _is_drawable(line))


def _is_drawable(line: Row) -> bool:
    return bool(line["x"]) and _are_finite(line["y"])


def _make_curve(line: Row, scale: float) -> Curve:
    shares = tuple(x / scale for x in line["x"])
    return Curve(line["method"], shares, tuple(line["y"]), *_band(line))


def _band(line: Row) -> tuple[tuple[float, ...], tuple[float, ...]] | tuple[()]:
    """Return the interval along a line; nothing unless it is finite at every point."""
    low = tuple(line.get("low") or ())
    high = tuple(line.get("high") or ())
    if len(low) == len(line["x"]) and _are_finite((*low, *high)):
        return low, high
    return ()


def _are_finite(numbers: Sequence[float]) -> bool:
    return all(map(math.isfinite, numbers))


def _cost_grids(summary: Summary) -> tuple[Grid, ...]:
    costs = _measured_costs(summary)
    least = min(costs.values(), default=0.0)
    rows = [_cost_cells(name, seconds, least) for name, seconds in costs.items()]
    return _list_grids(("method", "time per example", "relative to the cheapest"), rows)


def _list_grids(columns: tuple[str, ...], rows: Iterable[tuple[Cell, ...]]) -> tuple[Grid, ...]:
    """Return the table as the grids of a section; none if it has no rows."""
    # A section without grids and charts is left out of the report.
    grid = Grid(columns, tuple(rows))
    if not grid.rows:
        return ()
    return (grid,)


def _measured_costs(summary: Summary) -> dict[str, float]:
    # 0 stands for a time that was not measured.
    return {name: seconds for name, seconds in summary["costs"].items() if seconds}


def _cost_cells(name: str, seconds: float, least: float) -> tuple[Cell, ...]:
    return Cell(name), Cell(format_seconds(seconds)), Cell(f"{seconds / least:.1f} ×")


def _word_grids(summary: Summary) -> tuple[Grid, ...]:
    return _list_grids(("method", "class", "strongest tokens", "shared"), map(_word_cells, summary["words"]))


def _word_cells(words: Row) -> tuple[Cell, ...]:
    tokens = " ".join(words["tokens"])
    shared = " ".join(words["shared"])
    return Cell(words["method"]), Cell(words["class"]), Cell(tokens), Cell(shared)


def _comparison_grids(summary: Summary) -> tuple[Grid, ...]:
    rows = map(_comparison_cells, summary["comparisons"])
    return _list_grids(("value", "first", "second", "difference", "p"), rows)


def _comparison_cells(comparison: Row) -> tuple[Cell, ...]:
    return (
        Cell(comparison["name"]),
        Cell(comparison["first"]),
        Cell(comparison["second"]),
        Cell(_format_interval(comparison)),
        Cell(_format_test(comparison), strong=comparison["p_corrected"] < LEVEL),
    )


def _format_test(comparison: Row) -> str:
    # Below this number p is 1 whatever the difference, which is no evidence that there is none.
    if comparison["groups"] < MIN_GROUPS:
        return TOO_FEW
    return _format_p(comparison["p_corrected"])


def _format_p(p: float) -> str:
    if not math.isfinite(p):
        return EMPTY
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}"


def _provenance(manifest: Mapping[str, Any], summary: Summary) -> Iterator[str]:
    plan = manifest["plan"]
    yield f"Data: {plan['task']} ({_short_hash(manifest, 'task')}), {examples_text(summary)}."
    yield from _list_left_out(summary)
    yield f"Model: {_model_name(plan)} ({_short_hash(manifest, 'model')})."
    yield f"Methods: {', '.join(plan['methods'])}. Metrics: {', '.join(plan['metrics'])}. Seed {plan['seed']}."
    yield f"Versions: {_format_versions(manifest)}."
    yield _format_total_seconds(summary)


def _short_hash(manifest: Mapping[str, Any], name: str) -> str:
    # Twelve digits tell files apart; the manifest holds the whole hash.
    return f"SHA-256 {manifest['hashes'][name][:12]}"


def _list_left_out(summary: Summary) -> Iterator[str]:
    for reason in summary["skipped"]:
        yield f"Skipped: {reason}"
    for reason in summary["refused"]:
        yield f"Refused: {reason}"


def _format_versions(manifest: Mapping[str, Any]) -> str:
    return ", ".join(map(" ".join, manifest["versions"].items()))


def _format_total_seconds(summary: Summary) -> str:
    # Times are kept apart from the shards, and may be missing.
    if not summary["seconds"]:
        return "No times were kept."
    return f"Computing took {summary['seconds']:.0f} s."


def _model_name(plan: Mapping[str, Any]) -> str:
    """Return the model's name; that of the default embedded model if the plan names none."""
    return str(plan["model"] or next(iter(zoo.names()), "the embedded model"))


def _file_name(task: str) -> str:
    # Not pathlib: a run made on Windows may be reported elsewhere.
    return task.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
