"""The report: bold only where a test supports it, a verdict in plain words, one file, everything escaped."""

import json
import math
import re
from html.parser import HTMLParser

import pytest
from helpers.explanations import HOSTILE
from helpers.saved_models import save_text_model

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
        "p": p,
        "p_corrected": p,
    }


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

    def made(found, **plan):
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
        (tmp_path / SUMMARY).write_text(json.dumps(found))
        return RunFolder(tmp_path)

    return made


def cells(page, tag):
    return re.findall(rf"<{tag}>(.*?)</{tag}>", page)


# --- bold and verdict ------------------------------------------------------------------------------------------


def test_the_best_is_bold_only_where_the_test_supports_it(folder):
    found = summary(comparisons=summary()["comparisons"])
    strong = cells(report.page(folder(found), found), "strong")
    assert "0.700 [0.600, 0.800]" in strong
    assert not any("-2.1" in one for one in strong)


def test_nothing_is_bold_without_tests(folder):
    found = summary(comparisons=[])
    assert cells(report.page(folder(found), found), "strong") == []


def test_lower_is_better_where_it_is():
    found = {one.name: one for one in Evidence(summary()).standings}
    assert found["lodds"].best == "att-cat"
    assert found["lodds"].leading == ("att-cat", "cat")
    assert not found["lodds"].shown
    assert found["aopc"].shown


def test_the_verdict_says_what_to_use_and_why():
    said = list(verdict(summary()))
    assert said[0].startswith("Use att-cat: it is the best, or not shown to be worse than the best, on every value")
    assert "20.0 ms" in said[0]
    assert "aopc (higher is better): att-cat is best, and the tests show it against every other method." in said
    assert any("lodds" in line and "no difference from cat can be shown" in line for line in said)


def test_the_verdict_admits_that_nothing_can_be_shown():
    tests = [{**one, "p_corrected": 0.9} for one in summary()["comparisons"]]
    said = list(verdict(summary(comparisons=tests)))
    assert said[0] == (
        "No difference between the methods can be shown, nor that any is better than random: measure more examples."
    )
    assert "aopc: att-cat and cat are not shown to be better than random." in said


def alike(*, beating=("att-cat", "cat"), **changes):
    """No method differs from another; those `beating` random differ from it on both values."""
    found = summary(**changes)
    known = [one for one in found["comparisons"] if one["second"] == "random" and one["first"] in beating]
    return {
        **found,
        "comparisons": [one if one in known else {**one, "p_corrected": 0.9} for one in found["comparisons"]],
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
    tests = [{**one, "p_corrected": 0.9} if one["second"] == "random" else one for one in summary()["comparisons"]]
    assert "It is not shown to be better than random on any value." in next(verdict(summary(comparisons=tests)))
    only = next(verdict(summary(methods=["att-cat", "random"])))
    assert only.endswith("nothing to choose from. It is shown to be better than random on every value.")


def test_a_value_that_the_control_lacks_is_not_shown_against_it():
    rows = [one for one in summary()["rows"] if (one["method"], one["name"]) != ("random", "lodds")]
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
    found = summary(rows=rows, comparisons=tests, methods=["att-cat", "cat", "worse"])
    said = next(verdict(found))
    assert said.startswith("Use cat: ") and "at 10.0 ms per example, 50 % less than att-cat." in said
    assert said.endswith("att-cat is not shown to be worse on as many values.")


def test_the_embedded_model_is_named(folder):
    names = zoo.names()
    if not names:
        pytest.skip("this build has no embedded models")
    found = summary()
    page = report.page(folder(found, model=None), found)
    assert f"<h1>Which explanation may be trusted? {names[0]} on dev.tsv</h1>" in page
    assert f"Model: {names[0]} (SHA-256 " in page


def test_the_verdict_warns_when_noise_wins():
    rows = [row("att-cat", "aopc", 0.1), row("cat", "aopc", 0.2), row("random", "aopc", 0.9)]
    tests = [pair("aopc", "att-cat", "random", 0.001), pair("aopc", "cat", "random", 0.001)]
    tests += [pair("aopc", "att-cat", "cat", 0.001)]
    said = list(verdict(summary(rows=rows, comparisons=tests, values={"aopc": "higher"})))
    assert "Trust none of them here" in said[0]
    assert "aopc: att-cat and cat are not shown to be better than random." in said


def test_without_a_control_the_verdict_asks_for_one():
    rows = [one for one in summary()["rows"] if one["method"] != "random"]
    assert any("No control was run" in line for line in verdict(summary(rows=rows, methods=["att-cat", "cat"])))


def test_few_examples_are_told():
    assert any("Only 20 examples" in line for line in verdict(summary(examples=20, measured=20)))


def test_an_unfinished_run_is_told():
    said = list(verdict(summary(shards=8, done=3, examples=240, measured=90)))
    assert said[0] == "This run is not finished: 3 of 8 shards are done, with 90 of 240 examples."
    assert said[1].startswith("Use att-cat")
    assert said[-1] == "Only 90 examples were measured: more would narrow the intervals."


@pytest.mark.parametrize(
    ("measured", "text"), [(200, "200 examples."), (176, "176 of 200 examples."), (None, "hose made of 200 examples.")]
)
def test_the_report_says_how_many_were_measured(folder, measured, text):
    found = summary(measured=measured)
    document = report.document(folder(found), found)
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
    found = summary()
    reader = Reader()
    page = report.page(folder(found), found)
    reader.feed(page)
    assert reader.open == [] and reader.outside == [] and reader.scripts == 0
    assert page.count("<svg") == 1
    for heading in ("Verdict", "Values", "Curves", "Cost", "Comparisons", "What was run"):
        assert heading in page


def test_everything_is_escaped(folder):
    rows = [{**one, "method": HOSTILE if one["method"] == "cat" else one["method"]} for one in summary()["rows"]]
    curves = {HOSTILE: [{"method": HOSTILE, "x": [0.0, 1.0], "y": [0.0, 1.0]}]}
    found = summary(rows=rows, methods=["att-cat", HOSTILE, "random"], curves=curves, refused=[HOSTILE])
    results = folder(found, model=HOSTILE, task=HOSTILE)
    page = report.page(results, found)
    assert "<script" not in page and "<i>" not in page.replace("<i class", "")
    reader = Reader()
    reader.feed(page)
    assert reader.scripts == 0 and reader.open == []
    assert re.findall(r"(?<!\\)<", report.document(results, found)) == []


def test_methods_stand_across_where_the_paper_has_them_so(folder):
    found = summary()
    document = report.document(folder(found, benchmark="transatt-table1"), found)
    assert "| | att\\-cat | cat | random |".replace("\\", "") in document.replace("\\", "").replace("|  |", "| |")
    assert document.startswith("# TransAtt, Table 1")


def test_markdown_holds_the_table_and_the_curve(folder):
    found = summary()
    document = report.document(folder(found), found).replace("\\", "")
    assert "| att-cat | **0.700 [0.600, 0.800]** | -2.100 [-2.200, -2.000] |" in document
    assert "| share of tokens | 0 % | 50 % | 100 % |" in document
    assert "| att-cat | 0 | 0.400 | 0.900 |" in document


def test_a_sweep_over_k_is_labelled_with_its_numbers(folder):
    curves = {"token-f1": [{"method": "cat", "x": [10, 20, 40], "y": [0.1, 0.2, 0.3]}]}
    found = summary(curves=curves)
    assert "| k | 10 | 20 | 40 |" in report.document(folder(found), found)
    assert ">40</text>" in report.page(folder(found), found)


def test_words_of_classes_are_listed_with_what_they_share(folder):
    words = [{"method": "cat", "class": "negative", "tokens": ["bad", "film", HOSTILE], "shared": ["film"]}]
    found = summary(words=words)
    assert "bad film" in report.page(folder(found), found)
    assert "<script" not in report.page(folder(found), found)


def test_many_curves_are_spread_over_charts(folder):
    lines = [{"method": f"m{place}", "x": [0.0, 1.0], "y": [0.0, 1.0]} for place in range(report.MAX_CHART_LINES + 1)]
    found = summary(curves={"hiding": lines})
    assert report.page(folder(found), found).count("<svg") == 2


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
    found = run_plan(plan, tmp_path / "run", local)
    assert found["methods"] == ["att-cat", "rollout", "random"]
    assert {one["name"] for one in found["comparisons"]} == {"aopc", "hiding", "kendall", "token-overlap", "count"}
    assert set(found["curves"]) == {"aopc", "hiding", "token-overlap"}
    assert {one["method"] for one in found["words"]} == {"att-cat", "rollout", "random"}
    assert all(found["costs"][name] > 0 for name in found["methods"])
    code, output, errors = run(str(tmp_path / "run"))
    assert code == 0, errors
    assert output == next(verdict(found)) + "\n"
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
    ("arguments", "wanted"),
    [
        (["{folder}/nowhere"], "is not a run folder"),
        (["{folder}", "--out", "{folder}/r.pdf"], "r.pdf"),
        (["{folder}", "--out", "{folder}/no/r.html"], "There is no folder"),
    ],
)
def test_mistakes(run, folder, tmp_path, arguments, wanted):
    folder(summary())
    code, _, errors = run(*(one.format(folder=tmp_path) for one in arguments))
    assert code == 2
    assert wanted in errors


def test_a_damaged_manifest_is_a_mistake(run, folder, tmp_path):
    folder(summary())
    (tmp_path / MANIFEST).write_text("{")
    assert run(str(tmp_path))[0] == 2
