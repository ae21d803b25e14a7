"""Markdown of default_method.py: the result file of a run, and the table of all runs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clearhead.bench.evidence import LEVEL, Standing
from clearhead.bench.format import format_column

if TYPE_CHECKING:
    from default_method import Comparison, Leads, Tested

DEFAULT = "balanced-cat:backward=balanced"
MISSING = "–"
# What the table of all runs shows: a method and its passes (F forward, B backward, R relevance).
MAIN_ROWS = {
    "balanced-cat:backward=balanced": "F + B",
    "balanced-cat:backward=attn-lrp": "F + B",
    "att-cat:backward=attn-lrp": "F + B",
    "att-cat:backward=balanced": "F + B",
    "attn-lrp": "F + B",
    "cp-lrp": "F + B",
    "gradient-x-input:backward=balanced": "F + B",
    "grads:backward=balanced": "F + B",
    "att-grads:backward=attn-lrp": "F + B",
    "gae": "F + B",
    "att-grads": "F + B",
    "trans-att": "F + B + R",
    "grads": "F + B",
    "cat": "F + B",
    "att-cat": "F + B",
    "gradient": "F + B",
    "partial-lrp": "F + R",
    "raw-attention": "F",
    "layer-gradcam": "F + B",
    "decoded-gradcam": "F + B + head",
    "rollout": "F",
    "attention-gradcam": "F + B",
    "lrp": "F + R",
    "gradient-x-input": "F + B",
    "integrated-gradients": "25 (F + B)",
    "smooth-gradient": "10 (F + B)",
    "gradient-shap": "5 (F + B)",
    "lime": "25 F",
    "occlusion": "F per token",
    "shapley-sampling": "25 F per token",
    "random": "F",
}
MAIN_NAMES = {DEFAULT: "**balanced-cat** (default)", "random": "random (20 seeds)"}
TASKS = {"sst2": "SST-2", "agnews": "AG News", "pets": "Pets"}


def format_document(comparison: Comparison) -> str:
    """Return the result file of a run from its verdict on."""
    paragraphs = [
        "## Verdict",
        wrap(describe_test(comparison)),
        "\n".join(list_verdicts(comparison)),
        "## Values",
        wrap(describe_values(comparison)),
        format_values(comparison),
        f"## {DEFAULT} against each method, {comparison.main_value}",
        wrap(describe_differences(comparison)),
        format_differences(comparison),
        *format_pooled(comparison),
        "## What was run",
        *describe_run(comparison),
    ]
    return "\n\n".join(paragraphs) + "\n"


def wrap(text: str, indent: str = "") -> str:
    lines = textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
    return "\n".join(lines)


def describe_test(comparison: Comparison) -> str:
    cheap = len(comparison.cheap)
    return (
        f"{cheap} of the {len(comparison.methods)} methods need no repeated passes: a forward pass and at most one "
        "backward pass (trans-att, lrp and partial-lrp also a relevance pass). Each two of these are compared by the "
        "paired test of `clearhead report`, a t corrected for skewness "
        "([why](../../docs/decisions/paired-tests.md)), and p is corrected for all "
        f"{cheap * (cheap - 1) // 2} comparisons of a value (Holm); significant: p < 0.05. The methods that need more "
        "passes are not part of this family: the default is chosen among methods that cost a backward pass."
    )


def list_verdicts(comparison: Comparison) -> Iterator[str]:
    for standing in comparison.evidence.standings:
        better = comparison.columns[standing.name]
        sentences = [f"- {standing.name} ({better} is better): {describe_lead(standing)}."]
        if standing.best != DEFAULT:
            sentences.append(describe_default(comparison, standing.name))
        yield wrap(" ".join(sentences), indent="  ")


def describe_lead(standing: Standing) -> str:
    if standing.shown:
        return f"{standing.best} is best, significantly against every other"
    rivals = [method for method in standing.leading if method != standing.best]
    return f"{standing.best} has the best value; its difference from {', '.join(rivals)} is not significant"


def describe_default(comparison: Comparison, name: str) -> str:
    """Return how many methods the default is significantly better than, and which are better than it."""
    different = [method for method in comparison.cheap if comparison.evidence.differ(name, DEFAULT, method)]
    worse = [method for method in different if is_better(comparison, name, method)]
    rivals = f" ({', '.join(worse)})" if worse else ""
    return (
        f"{DEFAULT} is significantly better than {len(different) - len(worse)} of the other "
        f"{len(comparison.cheap) - 1} and significantly worse than {len(worse)}{rivals}."
    )


def is_better(comparison: Comparison, name: str, method: str) -> bool:
    """Return whether the method's value is better than the default's."""
    values = comparison.evidence.measured(name)
    if comparison.columns[name] == "lower":
        return values[method] < values[DEFAULT]
    return values[method] > values[DEFAULT]


def describe_values(comparison: Comparison) -> str:
    return (
        f"{count_examples(comparison)}. In brackets: 95 % interval over the examples. ↑ higher is better, ↓ lower. "
        "**Bold**: best of the methods without repeated passes, and significantly better than each of them. "
        f"{DEFAULT} is the default method."
    )


def count_examples(comparison: Comparison) -> str:
    total = comparison.manifest["examples"]
    if comparison.examples == total:
        return f"{total} examples"
    return f"{comparison.examples} of {total:,} examples"


def format_values(comparison: Comparison) -> str:
    columns = [format_column(name, better) for name, better in comparison.columns.items()]
    rows = [[method, *format_intervals(comparison, method)] for method in comparison.methods]
    return format_table(["method", *columns], rows)


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a Markdown table whose first columns are texts, the others numbers."""
    rule = "|" + ":--|" * texts + "--:|" * (len(head) - texts)
    return "\n".join([format_row(head), rule, *map(format_row, rows)])


def format_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def format_intervals(comparison: Comparison, method: str) -> Iterator[str]:
    shown = [(standing.best, standing.name) for standing in comparison.evidence.standings if standing.shown]
    for name in comparison.columns:
        text = format_interval(name, comparison.rows.get((method, name)))
        yield emphasise(text, (method, name) in shown)


def format_interval(name: str, row: Mapping[str, Any] | None) -> str:
    if row is None:
        return MISSING
    value, low, high = (format_number(name, row[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def format_number(name: str, value: float) -> str:
    # Areas under perturbation curves are in percent.
    return f"{value:.1f}" if "perturbation" in name else f"{value:.3f}"


def emphasise(text: str, is_bold: bool) -> str:
    return f"**{text}**" if is_bold else text


def describe_differences(comparison: Comparison) -> str:
    count = len(list_costly(comparison))
    return (
        "Difference with its 95 % interval. p is corrected: for methods without repeated passes as above, for the "
        f"other {count} for {count} comparisons."
    )


def list_costly(comparison: Comparison) -> list[str]:
    """Return the methods with repeated passes, and the control."""
    return [method for method in comparison.methods if method not in comparison.cheap]


def list_rivals(comparison: Comparison) -> list[str]:
    """Return the methods without repeated passes, but the default."""
    return [method for method in comparison.cheap if method != DEFAULT]


def format_differences(comparison: Comparison) -> str:
    rows = [format_difference(comparison, *entry) for entry in test_main_value(comparison).items()]
    return format_table(["method", "difference", "p"], rows)


def test_main_value(comparison: Comparison) -> dict[str, Tested]:
    """Return the default against every method; p of the cheap ones is that among all pairs of them."""
    name = comparison.main_value
    spec = comparison.table.metrics[name]
    tested = {}
    for method, (difference, _) in comparison.test_default(spec, list_rivals(comparison))[name].items():
        tested[method] = difference, comparison.evidence.p_values[name, frozenset((method, DEFAULT))]
    return {**tested, **comparison.test_default(spec, list_costly(comparison))[name]}


def format_difference(comparison: Comparison, method: str, tested: Tested) -> list[str]:
    difference, p = tested
    text = f"{p:.3f}" if p >= 0.001 else "< 0.001"
    return [method, format_interval(comparison.main_value, vars(difference)), emphasise(text, p < LEVEL)]


def format_pooled(comparison: Comparison) -> Iterator[str]:
    """Yield the section of each metric whose values are not means (segmentation)."""
    methods = [*list_rivals(comparison), "random"]
    for spec in comparison.table.metrics.values():
        if not spec.metric.is_mean:
            yield f"## {DEFAULT} against each method without repeated passes, {spec.text}"
            yield wrap(describe_pooled(len(methods)))
            yield format_tested(comparison.test_default(spec, methods), methods)


def format_tested(tested: Mapping[str, Mapping[str, Tested]], methods: Sequence[str]) -> str:
    rows = [[method, *format_signed(tested, method)] for method in methods]
    return format_table(["method", *tested], rows)


def describe_pooled(count: int) -> str:
    return (
        "Pooled over the examples, so the spread and skewness of a difference are those of 1,000 resamples of them; p "
        f"is corrected for the {count} comparisons of a value; **bold**: p < 0.05."
    )


def format_signed(tested: Mapping[str, Mapping[str, Tested]], method: str) -> Iterator[str]:
    for by_method in tested.values():
        difference, p = by_method[method]
        yield emphasise(f"{difference.value:+.3f}", p < LEVEL)


def describe_run(comparison: Comparison) -> list[str]:
    """Return what the manifest says of data, model and versions."""
    manifest = comparison.manifest
    versions = [" ".join(entry) for entry in manifest["versions"].items()]
    return [
        f"Data: {format_source(manifest, 'task')}, {count_examples(comparison)}.",
        f"Model: {format_source(manifest, 'model')}.",
        f"Versions: {', '.join(versions)}. Seed {comparison.seed}.",
    ]


def format_source(manifest: Mapping[str, Any], key: str) -> str:
    return f"{shorten(manifest['plan'][key])} (SHA-256 {manifest['hashes'][key][:12]})"


def shorten(path: str) -> str:
    """Return the path from the folder `data` or `runs` on, where the run had another place for it."""
    for folder, prefix in (("/data/", "../shared/data/"), ("/runs/", "runs/")):
        _, separator, rest = path.partition(folder)
        if separator:
            return prefix + rest
    return path


def format_main_table(comparisons: Sequence[Comparison], leads: Mapping[str, Leads]) -> str:
    """Return the table of all runs by their main value; bold where a method leads."""
    head = ["method", "passes", *map(format_title, comparisons), "leads"]
    counts = [str(comparison.examples) for comparison in comparisons]
    rows = [["examples", "", *counts, ""]]
    for method in MAIN_ROWS:
        rows.append(format_method(comparisons, method, format_leads(leads.get(method), leads[DEFAULT])))
    return format_table(head, rows, texts=2)


def format_method(comparisons: Sequence[Comparison], method: str, leads: str) -> list[str]:
    values = [format_main_value(comparison, method) for comparison in comparisons]
    return [format_name(method), MAIN_ROWS[method], *values, leads]


def format_title(comparison: Comparison) -> str:
    task, _, size = comparison.name.partition("-")
    return f"{TASKS[task]}, {size}"


def format_name(method: str) -> str:
    name, _, backward = method.partition(":backward=")
    if method in MAIN_NAMES or not backward:
        return MAIN_NAMES.get(method, name)
    return f"{name}, `{backward}`"


def format_main_value(comparison: Comparison, method: str) -> str:
    name = comparison.main_value
    if (method, name) not in comparison.rows:
        return MISSING
    text = format_number(name, comparison.rows[method, name]["value"])
    return emphasise(text, method in find_leading(comparison, name))


def find_leading(comparison: Comparison, name: str) -> tuple[str, ...]:
    for standing in comparison.evidence.standings:
        if standing.name == name:
            return standing.leading
    return ()


def format_leads(leads: Leads | None, default: Leads) -> str:
    """Return on how many values a method leads, and of how many if the default was measured on more."""
    if leads is None:
        return MISSING
    if leads.measured == default.measured:
        return str(leads.count)
    return f"{leads.count} of {leads.measured}"
