"""evaluate: from a file to a table, on classifiers, pairs, pictures and answer spans."""

import math

import numpy as np
import pytest
from helpers import linear_models, pictures, tiny_models, tiny_tokenizers

import clearhead
from clearhead.attribution import batch
from clearhead.attribution.method import parse_method
from clearhead.data.read import read_task
from clearhead.data.task import Example, Task
from clearhead.engine.trace import Trace
from clearhead.errors import BadInput, BadOption, UnsupportedModel
from clearhead.evaluation import evaluate as evaluation
from clearhead.evaluation import explained as cases
from clearhead.evaluation.metric import parse_metric

LINES = ["0\ta fine film with no plot", "1\tis it really good or bad", "2\tit is a bad film .", "0\tgood", "1\tno plot"]


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "dev.tsv"
    file.write_text("\n".join(["label\tsentence", *LINES]))
    return file


@pytest.fixture(scope="module")
def bert():
    return tiny_models.bert()


def values(table):
    return {(row["method"], row["metric"], row["part"]): row["value"] for row in table.rows}


def test_the_rows_of_a_table(bert, path):
    table = clearhead.evaluate(bert, path, ["att-cat", "cat"], ["aopc", "hiding"])
    assert isinstance(table, clearhead.Table)
    assert list(values(table)) == [(m, x, x) for m in ("att-cat", "cat") for x in ("aopc", "hiding")]
    for row in table.rows:
        assert {"method", "options", "metric", "value", "low", "high", "n"} <= set(row)
        assert row["low"] <= row["value"] <= row["high"] and row["n"] == 5
    assert table.rows[0]["options"] == {"hidden": "output", "backward": "gradient", "heads": False}


def test_values_are_those_of_explanations_made_one_by_one(bert, path):
    table = clearhead.evaluate(bert, path, ["att-cat", "trans-att"], ["aopc", "lodds:target=label"], batch_size=2)
    task = read_task(path)
    for method in ("att-cat", "trans-att"):
        for text in ("aopc", "lodds:target=label"):
            measure, records = parse_metric(text), []
            for example in task.examples:
                target = example.label if "label" in text else None
                own = clearhead.explain(bert, example.input, method, target)
                records += measure.measure(bert, [evaluation.ExplainedExample(example, {measure.targets[0]: own})])
            name = measure.metric.name
            assert values(table)[method, text, name] == pytest.approx(measure.summarise(records)[name], abs=1e-9)


def test_random_is_the_mean_of_twenty_seeds(bert, path):
    seeds = [f"random:seed={seed}" for seed in range(20)]
    table = clearhead.evaluate(bert, path, ["random", *seeds], ["aopc"])
    measured = values(table)
    assert measured["random", "aopc", "aopc"] == pytest.approx(
        np.mean([measured[method, "aopc", "aopc"] for method in seeds])
    )
    assert len({measured[method, "aopc", "aopc"] for method in seeds}) > 1
    assert len(table.records["random", "aopc"]) == 20


def test_one_forward_pass_for_all_methods_and_targets(bert, path, monkeypatch):
    seen = []
    plain = batch.capture
    monkeypatch.setattr(batch, "capture", lambda *arguments, **options: seen.append(1) or plain(*arguments, **options))
    clearhead.evaluate(bert, path, ["att-cat", "cat", "random"], ["aopc", "kendall", "aopc:target=label"])
    assert len(seen) == 1


def test_every_class_is_explained_once(bert, path, monkeypatch):
    asked = []
    plain = Trace.with_target
    monkeypatch.setattr(Trace, "with_target", lambda self, target: asked.append(target) or plain(self, target))
    table = clearhead.evaluate(bert, path, ["att-cat"], ["kendall", "aopc", "hiding:target=label"])
    assert len(asked) <= 3
    alone = clearhead.evaluate(bert, path, ["att-cat"], ["aopc", "hiding:target=label"])
    for key, value in values(alone).items():
        assert values(table)[key] == pytest.approx(value, abs=1e-9)


def test_kendall_tells_class_blind_methods(bert, path):
    table = clearhead.evaluate(bert, path, ["rollout", "att-cat"], ["kendall"])
    measured = values(table)
    assert measured["rollout", "kendall", "kendall"] == 1 > measured["att-cat", "kendall", "kendall"]
    assert table.rows[0]["n"] == 4


def test_refusals_are_reported_not_fatal(bert, path):
    table = clearhead.evaluate(bert, path, ["att-cat", "decoded-gradcam"], ["aopc", "precision-at-k"])
    assert {row["method"] for row in table.rows} == {"att-cat"}
    reasons = {refusal["name"]: refusal["reason"] for refusal in table.refused}
    assert "masked-LM head" in reasons["decoded-gradcam"]
    assert "span" in reasons["precision-at-k"]
    assert "decoded-gradcam" in repr(table) and "masked-LM" in table._repr_html_()


def test_nothing_left_is_an_error(bert, path):
    with pytest.raises(UnsupportedModel, match="Nothing could be measured"):
        clearhead.evaluate(bert, path, ["decoded-gradcam"], ["aopc"])
    with pytest.raises(BadOption, match="No metric"):
        clearhead.evaluate(bert, path, ["att-cat"], [])
    with pytest.raises(BadOption, match="No method"):
        clearhead.evaluate(bert, path, [], ["aopc"])


@pytest.mark.parametrize(
    ("metric", "options", "says"),
    [
        ("aopc", {"batch_size": -1}, "batch_size=-1 must be a whole number, at least 1"),
        ("aopc", {"batch_size": 1.5}, "batch_size=1.5"),
        ("aopc", {"samples": 0}, "samples=0"),
        ("aopc", {"seed": -1}, "seed=-1 must be a whole number, at least 0"),
        ("aopc", {"seed": None}, "seed must be"),
        ("aopc", {"limit": 1.5}, "limit=1.5"),
        ("aopc:first=11", {}, "first=11 must be a whole number, 0 to 10"),
        ("lodds:first=-1", {}, "first=-1"),
        ("hiding:steps=1001", {}, "steps=1001 must be a whole number, 1 to 1000"),
        ("token-overlap:documents=0", {}, "documents=0"),
        ("token-overlap:k=0", {}, "k=0"),
        ("mosaic:seed=-1", {}, "seed=-1"),
        (f"randomisation:seed={2**63}", {}, "must be a whole number, 0 to"),
    ],
)
def test_numbers_that_make_no_sense_are_named(bert, path, metric, options, says):
    with pytest.raises(BadOption, match=says):
        clearhead.evaluate(bert, path, ["att-cat"], [metric], **options)


def test_unknown_labels_are_found_before_anything_runs(bert, tmp_path, monkeypatch):
    path = tmp_path / "x.tsv"
    path.write_text("label\ttext\nlovely\ta film\n")
    monkeypatch.setattr(evaluation, "explain_examples", lambda *_, **__: pytest.fail("explained"))
    for metric in ("aopc:target=label", "hiding"):
        with pytest.raises(BadInput, match="labelled 'lovely'"):
            clearhead.evaluate(bert, path, ["att-cat"], [metric])


def test_bad_rows_and_bad_inputs_are_told(bert, tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("label\ttext\n0\ta film\n1\n1\tgood\n")
    table = clearhead.evaluate(bert, path, ["att-cat"], ["aopc"])
    assert table.rows[0]["n"] == 2
    assert "line 3" in table.skipped[0] and "line 3" in repr(table)
    task = Task("t", [Example("1", "a film", 0), Example("2", " ", 0)])
    assert "'2'" in clearhead.evaluate(bert, task, ["att-cat"], ["aopc"]).skipped[0]
    with pytest.raises(BadInput, match="No example can be read"):
        clearhead.evaluate(bert, Task("t", [Example("2", " ", 0)]), ["att-cat"], ["aopc"])


def test_every_example_that_was_skipped_is_told(bert, monkeypatch):
    task = Task("t", [Example("1", "a film", 0), *(Example("2", " ", 0),) * 2, Example("3", "good", 1)])
    assert len(clearhead.evaluate(bert, task, ["att-cat"], ["aopc", "lodds"]).skipped) == 2
    monkeypatch.setitem(evaluation.CASES, "text", 2)
    assert len(clearhead.evaluate(bert, task, ["att-cat"], ["aopc"]).skipped) == 2


def test_a_task_that_is_read_takes_no_reader(bert):
    task = Task("t", [Example("1", "a film", 0)])
    with pytest.raises(BadOption, match="already read, so reader"):
        clearhead.evaluate(bert, task, ["att-cat"], ["aopc"], reader="tsv")


@pytest.mark.parametrize("examples", [["a", "b"], [None], 5, None, iter(())])
def test_a_task_holds_examples(examples):
    with pytest.raises(BadInput, match="list of Examples"):
        Task("t", examples)


def test_a_task_without_examples_is_refused():
    with pytest.raises(BadInput, match="no examples"):
        Task("t", [])


def test_a_name_by_itself_is_a_list_of_one(bert, path):
    for method in ("att-cat", ("random", {"seed": 3})):
        table = clearhead.evaluate(bert, path, [method], ["aopc"])
        assert clearhead.evaluate(bert, path, method, "aopc").rows == table.rows
        assert list(clearhead.compare(bert, "a film", method)) == list(clearhead.compare(bert, "a film", [method]))
    for methods, metrics in ((5, ["aopc"]), (["att-cat"], 5)):
        with pytest.raises(BadOption, match="5 names neither"):
            clearhead.evaluate(bert, path, methods, metrics)


def test_methods_are_compared_in_pairs(bert, path):
    table = clearhead.evaluate(bert, path, ["att-cat", "cat", "random"], ["aopc"])
    rows = table.differences()
    assert [(row["first"], row["second"]) for row in rows] == [
        ("att-cat", "cat"),
        ("att-cat", "random"),
        ("cat", "random"),
    ]
    measured = values(table)
    for row in rows:
        gap = measured[row["first"], "aopc", "aopc"] - measured[row["second"], "aopc", "aopc"]
        assert row["value"] == pytest.approx(gap)
        assert row["p"] <= row["p_corrected"] <= 1
    assert rows == table.differences()


def test_long_texts_are_cut_by_default(bert):
    task = Task("t", [Example("1", "good film " * 100, 0), Example("2", "bad", 1)])
    assert clearhead.evaluate(bert, task, ["att-cat"], ["aopc", "hiding"]).rows[0]["n"] == 2
    assert clearhead.evaluate(bert, task, ["att-cat"], ["aopc"], long="error").rows[0]["n"] == 1
    with pytest.raises(BadOption, match="windows"):
        clearhead.evaluate(bert, task, ["att-cat"], ["aopc"], long="windows")


def test_chunks_change_nothing(monkeypatch):
    model = linear_models.linear_text()
    task = Task("t", [Example(str(index), line.partition("\t")[2]) for index, line in enumerate(LINES)])
    metrics = ["aopc", "token-overlap:k=3"]
    at_once = clearhead.evaluate(model, task, ["gradient-x-input", "random"], metrics)
    monkeypatch.setitem(evaluation.CASES, "text", 42)
    in_chunks = clearhead.evaluate(model, task, ["gradient-x-input", "random"], metrics)
    assert len(at_once.rows) == 6
    for first, second in zip(at_once.rows, in_chunks.rows, strict=True):
        for key in ("value", "low", "high", "n"):
            assert first[key] == pytest.approx(second[key], abs=1e-9)


@pytest.mark.parametrize("metric", ["hiding", "revealing", "positive-perturbation:start=0.1", "negative-perturbation"])
def test_the_prediction_is_the_models_whatever_is_explained(bert, path, metric):
    spelling = f"{metric}{',' if ':' in metric else ':'}against=prediction,target=label"
    alone = clearhead.evaluate(bert, path, ["att-cat"], [spelling])
    beside = clearhead.evaluate(bert, path, ["att-cat"], [spelling, "aopc"])
    assert alone.rows[0] == beside.rows[0]
    for record in alone.records["att-cat", spelling][0]:
        ends = {"hiding": 0, "revealing": -1, "negative-perturbation": 0}
        assert metric not in ends or record["correct"][ends[metric]] == 1


def test_mosaics_are_explained_on_their_own(bert, path):
    table = clearhead.evaluate(bert, path, ["att-cat", "random"], ["mosaic", "aopc"])
    rows = {(row["method"], row["metric"]): row for row in table.rows}
    assert rows["att-cat", "mosaic"]["n"] == 4 and rows["att-cat", "aopc"]["n"] == 5
    assert 0 < rows["random", "mosaic"]["value"] < 1


# --- other heads and inputs -----------------------------------------------------------------------------------------


def test_pairs_end_to_end(bert, tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("0\ta fine film\tit is good\n1\tno plot\tis it bad\n2\ta film\tit is a film\n")
    table = clearhead.evaluate(
        bert, path, ["att-cat", "trans-att", "occlusion"], ["aopc", "lodds", "hiding", "kendall", "randomisation"]
    )
    assert len(table.rows) == 15 and all(math.isfinite(row["value"]) for row in table.rows)
    texts = cases.explain_examples(bert, read_task(path).examples, [parse_method("att-cat")], ["prediction"])
    explanation = texts.cases["att-cat"][0].explanations["prediction"]
    assert explanation.text == ("a fine film", "it is good")
    assert {offset[0] for offset in explanation.offsets} == {0, 1}


SQUAD = (
    '{"data": [{"paragraphs": [{"context": "a fine film with no plot is it", "qas": ['
    '{"id": "q1", "question": "is it good", "answers": [{"text": "fine film", "answer_start": 2}]},'
    '{"id": "q2", "question": "is it bad", "answers": [], "is_impossible": true},'
    '{"id": "q3", "question": "no plot", "answers": [{"text": "plot", "answer_start": 20}]}]}]}]}'
)


def test_questions_and_answers_end_to_end(tmp_path):
    path = tmp_path / "dev.json"
    path.write_text(SQUAD)
    model = tiny_models.answering_bert()
    methods = ["att-cat", "trans-att", "integrated-gradients", "random"]
    table = clearhead.evaluate(model, path, methods, ["precision-at-k:k=4", "aopc", "lodds", "hiding", "kendall"])
    rows = {(row["method"], row["metric"], row["part"]): row for row in table.rows}
    assert {refusal["name"] for refusal in table.refused} == {"hiding", "kendall"}
    for method in methods:
        assert rows[method, "precision-at-k:k=4", "count"]["n"] == 2
        assert 0 <= rows[method, "precision-at-k:k=4", "share"]["value"] <= 1
        assert math.isfinite(rows[method, "aopc", "aopc"]["value"])


def test_explanations_a_model_cannot_have(bert):
    example, spelling = Example("1", "a film"), [parse_method("att-cat")]
    with pytest.raises(UnsupportedModel, match="span"):
        cases.explain_examples(bert, [example], spelling, ["start"])
    with pytest.raises(UnsupportedModel, match="no classes"):
        cases.explain_examples(tiny_models.answering_bert(), [example], spelling, ["every-class"])


def test_start_and_end_are_explained_apart(tmp_path):
    path = tmp_path / "dev.json"
    path.write_text(SQUAD)
    model = tiny_models.answering_bert()
    example = read_task(path).examples[0]
    case = cases.explain_examples(model, [example], [parse_method("att-cat")], ["start", "end"]).cases["att-cat"][0]
    both = clearhead.explain(model, example.input, "att-cat")
    sides = case.explanations["start"], case.explanations["end"]
    assert (sides[0].target.span[0], sides[1].target.span[1]) == both.target.span
    assert sides[0].target.span[1] is None and sides[1].target.span[0] is None
    np.testing.assert_allclose(sides[0].relevance + sides[1].relevance, both.relevance, atol=1e-12)


def test_pictures_end_to_end(tmp_path):
    model = tiny_models.vit()
    for folder in ("images/0", "images/1", "masks/0", "masks/1"):
        (tmp_path / folder).mkdir(parents=True)
    for seed in range(4):
        pictures.picture(seed).save(tmp_path / f"images/{seed % 2}/{seed}.png")
        pictures.picture(seed + 9).convert("L").point(lambda value: 255 * (value > 128)).save(
            tmp_path / f"masks/{seed % 2}/{seed}.png"
        )
    names = ["positive-perturbation", "negative-perturbation:target=label", "segmentation", "kendall", "randomisation"]
    table = clearhead.evaluate(model, tmp_path, ["trans-att", "rollout"], names)
    assert not table.refused
    value_names = {row["part"] for row in table.rows if row["metric"] == "segmentation"}
    assert value_names == {"pixel-accuracy", "map", "miou"}
    assert all(row["n"] == 4 and math.isfinite(row["value"]) for row in table.rows)


def test_decoders_too():
    model = clearhead.load(tiny_models.network("llama", vocab_size=60), tiny_tokenizers.word_piece_tokenizer())
    task = Task("t", [Example("1", "a film is not good", 0), Example("2", "a dull film", 1)])
    table = clearhead.evaluate(model, task, ["att-cat"], ["aopc", "hiding", "revealing"])
    assert [row["n"] for row in table.rows] == [2, 2, 2]


def test_a_table_shows_itself(bert, path):
    table = clearhead.evaluate(bert, path, ["att-cat"], ["aopc"])
    assert repr(table).splitlines()[1].split()[:2] == ["att-cat", "aopc"]
    assert "<table>" in table._repr_html_() and "att-cat" in table._repr_html_()


def test_defaults(bert, path):
    table = clearhead.evaluate(bert, path)
    assert {row["method"] for row in table.rows} == {"balanced-cat", "random"}
    assert {row["metric"] for row in table.rows} == {"aopc", "lodds"}
