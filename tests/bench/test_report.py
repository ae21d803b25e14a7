"""The report: bold only where a test supports it, a verdict in plain words, one file, everything escaped."""

import json
import math
import re
from html.parser import HTMLParser

import pytest
from helpers.explanations import HOSTILE
from helpers.saved_models import save_text_model

import clearhead
from clearhead.bench import report
from clearhead.bench.evidence import Evidence
from clearhead.bench.format import format_number
from clearhead.bench.plan import Plan
from clearhead.bench.run import run_plan
from clearhead.bench.run_folder import FORMAT, MANIFEST, SUMMARY, RunFolder
from clearhead.bench.runners.local import local
from clearhead.bench.summary import LAYOUT
from clearhead.bench.verdict import verdict
from clearhead.cli import main
from clearhead.model import zoo


def row(method, name, value, better="higher"):
    return {"method": method, "metric": name, "part": name, "name": name, "value": value, "low": value - 0.1} | {
        "high": value + 0.1,
        "n": 200,
        "better": better,
        "options": {},
    }


def pair(name, first, second, p):
    return {"name": name, "metric": name, "part": name, "first": first, "second": second, "value": 0.1} | {
        "low": 0.0,
        "high": 0.2,
        "n": 200,
        "groups": 200,
        "p": p,
        "p_corrected": p,
    }


def describe(name, better):
    return {"columns": [name], "better": better, "summary": clearhead.metrics()[name].summary}


def summary(**changes):
    """att-cat is shown to be best on aopc; on lodds it cannot be told from cat; both beat random."""
    rows = [row("att-cat", "aopc", 0.7), row("cat", "aopc", 0.5), row("random", "aopc", 0.2)]
    rows += [row("att-cat", "lodds", -2.1, "lower"), row("cat", "lodds", -2.0, "lower")]
    rows += [row("random", "lodds", -0.5, "lower")]
    tests = [pair("aopc", "att-cat", "cat", 0.01), pair("lodds", "att-cat", "cat", 0.6)]
    tests += [pair(name, method, "random", 0.001) for name in ("aopc", "lodds") for method in ("att-cat", "cat")]
    return {
        "layout": LAYOUT,
        "methods": ["att-cat", "cat", "random"],
        "values": {"aopc": "higher", "lodds": "lower"},
        "metrics": [describe("aopc", "higher"), describe("lodds", "lower")],
        "accuracy": {"right": 171, "labelled": 200, "value": 0.855, "low": 0.7985, "high": 0.9009},
        "rows": rows,
        "comparisons": tests,
        "curves": {"aopc": [{"method": "att-cat", "x": [0.0, 0.5, 1.0], "y": [0.0, 0.4, 0.9]}]},
        "words": [],
        "costs": {"att-cat": 0.02, "cat": 0.01, "random": 0.005},
        "seconds": 12.0,
        "examples": 200,
        "measured": 200,
        "shards": 1,
        "done": 1,
        "skipped": [],
        "refused": [],
        **changes,
    }


@pytest.fixture
def folder(tmp_path):
    """A run folder written by hand."""

    def write_folder(run_summary, **plan):
        settings = {"task": "data/dev.tsv", "model": "my-bert", "methods": ["att-cat"], "metrics": ["aopc"]}
        manifest = {
            "format": FORMAT,
            "versions": {"clearhead": "0.1.0"},
            "plan": {**settings, "seed": 0, "benchmark": None, **plan},
            "hashes": {"task": "0" * 64, "model": "1" * 64},
            "fingerprint": "",
            "shards": 1,
        }
        (tmp_path / MANIFEST).write_text(json.dumps(manifest))
        (tmp_path / SUMMARY).write_text(json.dumps(run_summary))
        return RunFolder(tmp_path)

    return write_folder


def cells(page, tag):
    return re.findall(rf"<{tag}>(.*?)</{tag}>", page)


# --- bold and verdict ------------------------------------------------------------------------------------------


def test_the_best_is_bold_only_where_the_test_supports_it(folder):
    run_summary = summary(comparisons=summary()["comparisons"])
    strong = cells(report.page(folder(run_summary), run_summary), "strong")
    assert "0.700 [0.600, 0.800]" in strong
    assert not any("-2.1" in cell for cell in strong)


def test_nothing_is_bold_without_tests(folder):
    run_summary = summary(comparisons=[])
    assert cells(report.page(folder(run_summary), run_summary), "strong") == []


def test_lower_is_better_where_it_is():
    standings = {standing.name: standing for standing in Evidence(summary()).standings}
    assert standings["lodds"].best == "att-cat"
    assert standings["lodds"].leading == ("att-cat", "cat")
    assert not standings["lodds"].shown
    assert standings["aopc"].shown


def test_the_verdict_says_what_to_use_and_why():
    lines = list(verdict(summary()))
    assert lines[0].startswith("Use att-cat: it is the best, or not shown to be worse than the best, on every value")
    assert "20.0 ms" in lines[0]
    assert "aopc (higher is better): att-cat is best, and the tests show it against every other method." in lines
    assert any("lodds" in line and "no difference from cat can be shown" in line for line in lines)


def test_the_verdict_admits_that_nothing_can_be_shown():
    tests = [{**comparison, "p_corrected": 0.9} for comparison in summary()["comparisons"]]
    lines = list(verdict(summary(comparisons=tests)))
    assert lines[0] == (
        "No difference between the methods can be shown, nor that any is better than random: measure more examples."
    )
    assert "aopc: att-cat and cat are not shown to be better than random." in lines


def alike(*, beating=("att-cat", "cat"), **changes):
    """No method differs from another; those `beating` random differ from it on both values."""
    run_summary = summary(**changes)
    beating_random = [
        comparison
        for comparison in run_summary["comparisons"]
        if comparison["second"] == "random" and comparison["first"] in beating
    ]
    return {
        **run_summary,
        "comparisons": [
            comparison if comparison in beating_random else {**comparison, "p_corrected": 0.9}
            for comparison in run_summary["comparisons"]
        ],
    }


def test_the_verdict_says_what_beats_random_and_what_the_cheapest_saves():
    assert next(verdict(alike())) == (
        "att-cat and cat are shown to be better than random on every value. No difference between the methods "
        "themselves can be shown: take the cheapest, cat, at 10.0 ms per example, 50 % less than att-cat, or measure "
        "more examples."
    )
    assert "can be shown: take any of them, or measure more examples." in next(verdict(alike(costs={})))
    assert "the cheapest, cat, at 10.0 ms per example, or" in next(
        verdict(alike(costs={"cat": 0.01, "att-cat": 0.01001}))
    )


def test_the_verdict_advises_only_what_beats_random():
    assert next(verdict(alike(beating=["att-cat"]))) == (
        "Use att-cat: it is shown to be better than random on every value, cat on fewer. No difference between the "
        "methods themselves can be shown."
    )


def test_the_verdict_says_what_beats_random_where_a_method_leads():
    assert "It is shown to be better than random on every value." in next(verdict(summary()))
    tests = [
        {**comparison, "p_corrected": 0.9} if comparison["second"] == "random" else comparison
        for comparison in summary()["comparisons"]
    ]
    assert "It is not shown to be better than random on any value." in next(verdict(summary(comparisons=tests)))
    only = next(verdict(summary(methods=["att-cat", "random"])))
    assert only.endswith("nothing to choose from. It is shown to be better than random on every value.")


def test_a_value_that_the_control_lacks_is_not_shown_against_it():
    rows = [record for record in summary()["rows"] if (record["method"], record["name"]) != ("random", "lodds")]
    assert "It is shown to be better than random on 1 of 2 values." in next(verdict(summary(rows=rows)))


def test_advice_that_rests_on_cost_says_how_much_less():
    """cat and att-cat each lead on one value and tie on the other; worse is behind both."""
    rows = [row("att-cat", "aopc", 0.7), row("cat", "aopc", 0.6), row("worse", "aopc", 0.1)]
    rows += [
        row("att-cat", "lodds", -2.0, "lower"),
        row("cat", "lodds", -2.1, "lower"),
        row("worse", "lodds", 0, "lower"),
    ]
    tests = [pair(name, method, "worse", 0.001) for name in ("aopc", "lodds") for method in ("att-cat", "cat")]
    run_summary = summary(rows=rows, comparisons=tests, methods=["att-cat", "cat", "worse"])
    advice = next(verdict(run_summary))
    assert advice.startswith("Use cat: ") and "at 10.0 ms per example, 50 % less than att-cat." in advice
    assert advice.endswith("att-cat is not shown to be worse on as many values.")


def test_the_embedded_model_is_named(folder):
    names = zoo.names()
    if not names:
        pytest.skip("this build has no embedded models")
    run_summary = summary()
    page = report.page(folder(run_summary, model=None), run_summary)
    assert f"<h1>Which explanation may be trusted? {names[0]} on dev.tsv</h1>" in page
    assert f"Model: {names[0]} (SHA-256 " in page


def test_the_verdict_warns_when_noise_wins():
    rows = [row("att-cat", "aopc", 0.1), row("cat", "aopc", 0.2), row("random", "aopc", 0.9)]
    tests = [pair("aopc", "att-cat", "random", 0.001), pair("aopc", "cat", "random", 0.001)]
    tests += [pair("aopc", "att-cat", "cat", 0.001)]
    lines = list(verdict(summary(rows=rows, comparisons=tests, values={"aopc": "higher"})))
    assert "Trust none of them here" in lines[0]
    assert "aopc: att-cat and cat are not shown to be better than random." in lines


def test_without_a_control_the_verdict_asks_for_one():
    rows = [record for record in summary()["rows"] if record["method"] != "random"]
    assert any("No control was run" in line for line in verdict(summary(rows=rows, methods=["att-cat", "cat"])))


def test_few_examples_are_told():
    assert any("Only 20 examples" in line for line in verdict(summary(examples=20, measured=20)))
    lines = list(verdict(summary(examples=9, measured=9)))
    assert lines[-1] == "Only 9 examples were measured: too few to tell methods apart, which takes 14."


def test_an_unfinished_run_is_told():
    lines = list(verdict(summary(shards=8, done=3, examples=240, measured=90)))
    assert lines[0] == "This run is not finished: 3 of 8 shards are done, with 90 of 240 examples."
    assert lines[1].startswith("Use att-cat")
    assert lines[-1] == "Only 90 examples were measured: more would narrow the intervals."


@pytest.mark.parametrize(
    ("measured", "text"), [(200, "200 examples."), (176, "176 of 200 examples."), (None, "hose made of 200 examples.")]
)
def test_the_report_says_how_many_were_measured(folder, measured, text):
    run_summary = summary(measured=measured)
    document = report.document(folder(run_summary), run_summary)
    assert document.count(text) == 2
    assert ("176 of" in document) == (measured == 176)


# --- the file --------------------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Collects what a browser would fetch or run, and checks that tags close."""

    def __init__(self):
        super().__init__()
        self.open, self.outside, self.scripts = [], [], 0

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "link", "input", "br", "path", "polyline", "polygon"):
            self.open.append(tag)
        self.scripts += tag == "script" or any(name.startswith("on") for name, _ in attributes)
        self.outside += [
            value for name, value in attributes if name in ("src", "href") and not (value or "").startswith("data:")
        ]

    def handle_endtag(self, tag):
        if tag not in ("path", "polyline", "polygon"):
            assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(folder):
    run_summary = summary()
    reader = Reader()
    page = report.page(folder(run_summary), run_summary)
    reader.feed(page)
    assert reader.open == [] and reader.outside == [] and reader.scripts == 0
    assert page.count("<svg") == 1
    for heading in ("Verdict", "Values", "Curves", "Cost", "Comparisons", "What was run"):
        assert heading in page


def test_everything_is_escaped(folder):
    rows = [
        {**record, "method": HOSTILE if record["method"] == "cat" else record["method"]} for record in summary()["rows"]
    ]
    curves = {HOSTILE: [{"method": HOSTILE, "x": [0.0, 1.0], "y": [0.0, 1.0]}]}
    run_summary = summary(rows=rows, methods=["att-cat", HOSTILE, "random"], curves=curves, refused=[HOSTILE])
    results = folder(run_summary, model=HOSTILE, task=HOSTILE)
    page = report.page(results, run_summary)
    assert "<script" not in page and "<i>" not in page.replace("<i class", "")
    reader = Reader()
    reader.feed(page)
    assert reader.scripts == 0 and reader.open == []
    assert re.findall(r"(?<!\\)<", report.document(results, run_summary)) == []


def test_methods_stand_across_where_the_paper_has_them_so(folder):
    run_summary = summary()
    document = report.document(folder(run_summary, benchmark="transatt-table1"), run_summary)
    assert "| | att\\-cat | cat | random |".replace("\\", "") in document.replace("\\", "").replace("|  |", "| |")
    assert document.startswith("# TransAtt, Table 1")


def test_markdown_holds_the_table_and_the_curve(folder):
    run_summary = summary()
    document = report.document(folder(run_summary), run_summary).replace("\\", "")
    assert "| att-cat | **0.700 [0.600, 0.800]** | -2.100 [-2.200, -2.000] |" in document
    assert "| share of tokens | 0 % | 50 % | 100 % |" in document
    assert "| att-cat | 0 | 0.400 | 0.900 |" in document


def test_a_comparison_of_too_few_examples_has_no_p(folder):
    comparisons = [{**entry, "groups": 13, "p_corrected": 1.0} for entry in summary()["comparisons"]]
    run_summary = summary(comparisons=comparisons)
    document = report.document(folder(run_summary), run_summary).replace("\\", "")
    assert document.count("| too few examples to tell |") == len(comparisons)
    assert "too few" not in report.document(folder(summary()), summary())


def test_every_metric_is_explained_in_the_words_of_its_docstring(folder):
    run_summary = summary()
    document = report.document(folder(run_summary), run_summary).replace("\\", "")
    explained = document.partition("## What the values measure")[2].partition("##")[0]
    for name, better in summary()["values"].items():
        assert f"- {name} ({better} is better): {clearhead.metrics()[name].summary}\n" in explained


def test_values_of_one_metric_are_explained_together(folder):
    overlap = {"columns": ["token-overlap", "count"], "better": "lower", "summary": "Share; `count` is not divided."}
    run_summary = summary(metrics=[overlap])
    page = report.page(folder(run_summary), run_summary)
    assert "<p>token-overlap and count (lower is better): Share; count is not divided.</p>" in page


def test_the_accuracy_of_the_model_is_told_where_it_is_known(folder):
    run_summary = summary()
    sentence = "85.5 % [79.8 %, 90.1 %]: 171 of the 200 labelled examples of this run are predicted rightly."
    assert sentence in report.page(folder(run_summary), run_summary)
    assert "Accuracy of the model" not in report.page(folder(run_summary), summary(accuracy=None))


def test_a_sweep_over_k_is_labelled_with_its_numbers(folder):
    curves = {"token-f1": [{"method": "cat", "x": [10, 20, 40], "y": [0.1, 0.2, 0.3]}]}
    run_summary = summary(curves=curves)
    assert "| k | 10 | 20 | 40 |" in report.document(folder(run_summary), run_summary)
    assert ">40</text>" in report.page(folder(run_summary), run_summary)


def test_words_of_classes_are_listed_with_what_they_share(folder):
    words = [{"method": "cat", "class": "negative", "tokens": ["bad", "film", HOSTILE], "shared": ["film"]}]
    run_summary = summary(words=words)
    assert "bad film" in report.page(folder(run_summary), run_summary)
    assert "<script" not in report.page(folder(run_summary), run_summary)


def test_many_curves_are_spread_over_charts(folder):
    lines = [{"method": f"m{index}", "x": [0.0, 1.0], "y": [0.0, 1.0]} for index in range(report.MAX_CHART_LINES + 1)]
    run_summary = summary(curves={"hiding": lines})
    assert report.page(folder(run_summary), run_summary).count("<svg") == 2


def test_intervals_are_drawn_around_the_lines(folder):
    line = {"x": [0.0, 0.5, 1.0], "y": [0.1, 0.2, 0.3], "low": [0.0, 0.1, 0.2], "high": [0.2, 0.3, 0.4]}
    lines = [{"method": "cat", **line}, {"method": "lrp", **line, "low": [math.nan] * 3}]
    page = report.page(folder(summary()), summary(curves={"aopc": lines}))
    assert page.count("<polyline") == 2 and page.count("<polygon") == 1
    assert page.index("<polygon") < page.index("<polyline")
    assert "0.2 [0.1, 0.3]" in page


@pytest.mark.parametrize(("value", "text"), [(0.12345, "0.123"), (53.104, "53.10"), (0.0, "0"), (-0.00002, "-2e-05")])
def test_numbers(value, text):
    assert format_number(value) == text


# --- the command -----------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys):
    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["report", *arguments])
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return command


def test_a_real_run_is_reported(run, tmp_path):
    model = str(save_text_model(tmp_path / "model"))
    task = tmp_path / "dev.tsv"
    task.write_text(
        "label\tsentence\n" + "".join(f"{n % 2}\ta {'good' if n % 2 else 'bad'} film {n}\n" for n in range(6))
    )
    plan = Plan(
        str(task),
        ("att-cat", "rollout", "random"),
        ("aopc", "hiding", "kendall", "token-overlap"),
        model=model,
        shard=3,
    )
    run_summary = run_plan(plan, tmp_path / "run", local)
    assert run_summary["methods"] == ["att-cat", "rollout", "random"]
    assert {comparison["name"] for comparison in run_summary["comparisons"]} == {
        "aopc",
        "hiding",
        "kendall",
        "token-overlap",
        "count",
    }
    assert set(run_summary["curves"]) == {"aopc", "hiding", "token-overlap"}
    assert {entry["method"] for entry in run_summary["words"]} == {"att-cat", "rollout", "random"}
    assert all(run_summary["costs"][name] > 0 for name in run_summary["methods"])
    code, output, errors = run(str(tmp_path / "run"))
    assert code == 0, errors
    assert output == next(verdict(run_summary)) + "\n"
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "random" in page and page.count("<svg") >= 2


def test_a_run_under_way_is_reported_and_left_as_it_is(run, tmp_path):
    model = str(save_text_model(tmp_path / "model"))
    task = tmp_path / "dev.tsv"
    task.write_text("label\tsentence\n0\ta bad film\n1\ta good film\n")
    plan = Plan(str(task), ("att-cat", "rollout"), ("aopc",), model=model, shard=1)

    def stopping(plan, groups, jobs):
        yield next(iter(local(plan, groups, jobs)))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, tmp_path / "run", stopping)
    code, output, _ = run(str(tmp_path / "run"))
    assert code == 0
    assert output == "This run is not finished: 1 of 2 shards are done, with 1 of 2 examples.\n"
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert page.count("1 of 2 examples.") == 3
    assert " 2 examples." not in page.replace("1 of 2 examples.", "")
    assert not (tmp_path / "run" / SUMMARY).exists()
    assert run_plan(plan, tmp_path / "run", local)["done"] == 2


def test_the_ending_says_what_to_write(run, folder, tmp_path):
    folder(summary())
    for name, start in (("r.html", "<!doctype html>"), ("r.md", "# Which explanation")):
        assert run(str(tmp_path), "--out", str(tmp_path / name))[0] == 0
        assert (tmp_path / name).read_text("utf-8").startswith(start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{folder}/nowhere"], "is not a run folder"),
        (["{folder}", "--out", "{folder}/r.pdf"], "r.pdf"),
        (["{folder}", "--out", "{folder}/no/r.html"], "There is no folder"),
    ],
)
def test_mistakes(run, folder, tmp_path, arguments, message):
    folder(summary())
    code, _, errors = run(*(argument.format(folder=tmp_path) for argument in arguments))
    assert code == 2
    assert message in errors


@pytest.mark.parametrize("manifest", ["{", "[]", json.dumps({"format": FORMAT, "plan": {"task": "dev.tsv"}})])
def test_a_damaged_manifest_is_a_mistake(run, folder, tmp_path, manifest):
    folder(summary())
    (tmp_path / MANIFEST).write_text(manifest)
    code, _, errors = run(str(tmp_path))
    assert code == 2 and MANIFEST in errors
